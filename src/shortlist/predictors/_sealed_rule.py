"""Rules that learn from replies are kept in a file each, which is sealed."""

import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from shortlist._checks import check_number
from shortlist._store.manifest import read_sealed, write_sealed

R = TypeVar("R", bound="SealedRule")


class SealedRule:
    """A rule whose arguments have defaults and are attributes, as its state is; one JSON file keeps both."""

    _format: ClassVar[str]
    threshold: float
    rounds: int

    def to_dict(self) -> dict[str, Any]:
        """Return options and state as plain values for JSON; an infinite number is ``None``."""
        return {name.lstrip("_"): None if value == math.inf else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls: type[R], content: Mapping[str, Any]) -> R:
        """Make the rule that :meth:`to_dict` described, to go on where it was."""
        values = {name: math.inf if value is None else value for name, value in content.items()}
        try:
            rule = cls(**{name: values[name] for name in inspect.signature(cls).parameters})
            for name in vars(rule):
                setattr(rule, name, values[name.lstrip("_")])
            rule._check_state()
        except (KeyError, TypeError) as error:
            raise ValueError(f"content must be that of a {cls.__name__}, got {error!r}") from error
        return rule

    def _check_state(self) -> None:
        """Require a state that the rule can be in."""
        check_number("rounds", self.rounds, low=0)
        if self.threshold != math.inf:
            check_number("threshold", self.threshold)

    def save(self, path: str | Path) -> None:
        """Write the rule to a JSON file with a checksum, completely or not at all."""
        write_sealed(path, {"format": self._format, **self.to_dict()})

    @classmethod
    def load(cls: type[R], path: str | Path) -> R:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: If the file is damaged, or holds something else; the message names it.
        """
        content = read_sealed(path, cls._format)
        del content["format"]
        return cls.from_dict(content)
