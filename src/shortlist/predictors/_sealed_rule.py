"""Rules that learn from replies are kept in a file each, which is sealed."""

from pathlib import Path
from typing import Any, ClassVar, TypeVar

from shortlist._manifest import read_sealed, write_sealed

__all__ = ["SealedRule"]

R = TypeVar("R", bound="SealedRule")


class SealedRule:
    """Something with options and a state, which one JSON file keeps."""

    _format: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return options and state as plain values for JSON."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls: type[R], content: dict[str, Any]) -> R:
        """Make the rule that :meth:`to_dict` described, to go on where it was."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write the rule to a JSON file with a checksum, completely or not at all."""
        write_sealed(path, {"format": self._format, **self.to_dict()})

    @classmethod
    def load(cls: type[R], path: str | Path) -> R:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: If the file is damaged, or holds something else; the message names it.
        """
        content = read_sealed(path)
        if content.pop("format", None) != cls._format:
            raise ValueError(f"{path} is not a threshold that {cls.__name__} saved")
        return cls.from_dict(content)
