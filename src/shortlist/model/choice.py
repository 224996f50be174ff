"""A choice of lists: what makes the sets, at which place, from how many photos."""

from dataclasses import dataclass

from shortlist.place import Place


@dataclass(frozen=True)
class Choice:
    """A choice of what makes the sets: at most one of ``predictor``, ``top``, ``average`` and ``coverage``.

    If none of them is given, it is the model's first predictor with a promise about the true class, else its
    first predictor, else the five best classes.

    Args:
        predictor: Name of one of the model's predictors.
        top: Number of classes in each set.
        average: Number of classes in a set on average.
        coverage: Promised share of sets that hold the true class.
        macro: Whether each class counts the same, which is good for rare classes; not with a predictor.
        place: Which classes occur, and how often; all of them as in the calibration rows if ``None``.
        group: Column and value of the calibration rows that are like the photos, such as
            ``("organ", "leaf")``; all of them if ``None``.
        photos: Number of photos of each object, whose rows of scores follow each other.
        at_least: Smallest number of classes in a set of an average size or a coverage.
        at_most: Largest number of classes in such a set; any if ``None``.
    """

    predictor: str | None = None
    top: int | None = None
    average: float | None = None
    coverage: float | None = None
    macro: bool = False
    place: Place | None = None
    group: tuple[str, str] | None = None
    photos: int = 1
    at_least: int = 0
    at_most: int | None = None

    @property
    def makers(self) -> list[str]:
        """What is given of ``predictor``, ``top``, ``average`` and ``coverage``."""
        names = ("predictor", "top", "average", "coverage")
        return [name for name in names if getattr(self, name) is not None]

    @property
    def is_special(self) -> bool:
        """Whether the sets are of other objects, or of other sizes, than a predictor was calibrated for."""
        special = self.place or self.group or self.at_least or self.at_most
        return (special is not None and special != 0) or self.photos > 1
