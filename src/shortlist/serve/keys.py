"""API keys from a file, and short-lived signatures for addresses of images."""

import hashlib
import hmac
import secrets
from pathlib import Path

from starlette.requests import Request

from shortlist._store.files import read_text
from shortlist.serve.refusals import Refusal

_SHORTEST = 16


class Keys:
    """The keys that are allowed; none are needed if there is no file.

    Args:
        path: Text file with one key per line, of at least 16 ASCII characters; lines with ``#`` at
            their start are comments. Only hashes of the keys are kept in memory.
        secret: Signs addresses of images; drawn anew if ``None``.
    """

    def __init__(self, path: str | Path | None = None, *, secret: bytes | None = None) -> None:
        self._hashes: frozenset[bytes] | None = None
        self._secret = secret or secrets.token_bytes(32)
        if path is None:
            return
        lines = (line.strip() for line in read_text(path, max_bytes=1 << 20).splitlines())
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise ValueError(f"{path} must have at least one key, one per line, got none")
        if min(map(len, keys)) < _SHORTEST:
            raise ValueError(f"{path} must have keys of at least {_SHORTEST} characters, got a shorter one")
        if not all(key.isascii() and key.isprintable() and " " not in key for key in keys):
            raise ValueError(f"{path} must have keys of printable ASCII characters, which a header can carry")
        self._hashes = frozenset(map(_hash, keys))

    @property
    def needed(self) -> bool:
        """Whether a key is needed."""
        return self._hashes is not None

    def client(self, key: str | None) -> str | None:
        """Return a name for the owner of a key, of which the key cannot be found; ``None`` if none is needed.

        Raises:
            Refusal: With 401, if the key is missing or wrong.
        """
        if self._hashes is None:
            return None
        if not key:
            raise Refusal(401, "key_missing", "This server needs a key: send it as X-API-Key.")
        digest = _hash(key)
        if digest not in self._hashes:  # of hashes, whose comparison tells nothing about a key
            raise Refusal(401, "key_wrong", "The key is not known.")
        return "key-" + digest.hex()[:16]

    def sign(self, name: str) -> str:
        """Return the end of an address that lets a browser fetch an image without a key."""
        return f"?signature={self._signature(name)}" if self.needed else ""

    def is_signed(self, name: str, signature: str | None) -> bool:
        """Whether an address was given out by this server."""
        return signature is not None and hmac.compare_digest(
            self._signature(name).encode(), signature.encode()
        )

    def _signature(self, name: str) -> str:
        return hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()[:32]


def key_of(request: Request) -> str | None:
    """Return the key that a request carries, as ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``."""
    bearer = request.headers.get("authorization", "")
    return bearer[7:] if bearer[:7].lower() == "bearer " else request.headers.get("x-api-key")


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
