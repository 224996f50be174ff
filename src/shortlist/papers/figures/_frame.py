"""What a figure is: a function that measures numbers, one that draws them, and how both are written."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shortlist._progress import Progress
from shortlist._store.files import replacing, write_text
from shortlist._store.json import strict_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any  # matplotlib is an extra: whoever only measures need not have it


T = TypeVar("T")

Numbers = dict[str, Any]
"""Plain values: what JSON can hold."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the papers.

    Args:
        measure: Returns the numbers; its keyword arguments are the figure's options, each with a default.
            ``progress`` is always among them; ``runs`` (run folders) makes it a figure of runs.
        draw: Draws the numbers, and nothing else.
    """

    measure: Callable[..., Numbers]
    draw: Callable[[Numbers], Figure]

    @property
    def takes_runs(self) -> bool:
        """Tell whether it is made from run folders."""
        return "runs" in inspect.signature(self.measure).parameters

    def options(self) -> dict[str, Any]:
        """List the options with their defaults."""
        parameters = inspect.signature(self.measure).parameters.values()
        return {p.name: p.default for p in parameters if p.name not in ("runs", "progress")}

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the figure does not have, with the nearest that it has."""
        allowed = self.options()
        for name in options:
            if name not in allowed:
                near = get_close_matches(name, allowed, 1, 0.0)
                hint = f", perhaps {near[0]}" if near else ""
                raise ValueError(
                    f"option must be one of {', '.join(allowed) or '(none)'}, got {name!r}{hint}"
                )


def with_progress(steps: Sequence[T], what: str, progress: Progress | None) -> Iterator[T]:
    """Yield each step, and call ``progress`` when it is done.

    Example:
        >>> list(with_progress("ab", "letters", print))
        letters 1 2
        letters 2 2
        ['a', 'b']
    """
    for done, step in enumerate(steps, start=1):
        yield step
        if progress is not None:
            progress(what, done, len(steps))


def new_figure(width: float = 7.0, height: float = 4.5) -> Figure:
    """Make an empty figure (inches) that belongs to no window and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure: PaperFigure, numbers: Numbers, path: str | Path) -> Path:
    """Write the drawing (.svg, .pdf or .png), and its numbers beside it as JSON; return the JSON's path."""
    path = Path(path)
    if path.suffix not in (".svg", ".pdf", ".png"):
        raise ValueError(f"path must end in .svg, .pdf or .png, got {path}")
    import matplotlib

    # text stays text, and the same numbers give the same bytes
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shortlist"}):
        drawing = figure.draw(numbers)
        dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        with replacing(path) as temporary:
            drawing.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=dates.get(path.suffix))
    write_text(path.with_suffix(".json"), strict_json(numbers, indent=1) + "\n")
    return path.with_suffix(".json")
