"""Error responses: a status, a code and a sentence each."""

from typing import Any


class Refusal(Exception):
    """A request that gets no list.

    Args:
        status: Status of HTTP.
        code: Word for programs, such as ``too_large``.
        message: Sentence for people. It never repeats what was sent, but for short values of parameters.
        retry_after: Seconds after which to try again, for 429 and 503.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with it."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"error": {"code": self.code, "message": self.message}}


class BadImage(Refusal):
    """An image that cannot be used; ``image`` is its number among those of the request, from 0."""

    image: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"status": "bad_image", **super().to_dict(), "image": self.image}
