"""A choice of lists: what makes the sets, of which classes, from how many photos."""

from dataclasses import dataclass


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
        macro: Whether ``top`` and ``average`` divide by class priors, which is good for rare classes.
        classes: Indices of the classes that are possible, in order; all of them if ``None``.
        photos: Number of photos of each object, whose rows of scores follow each other.
    """

    predictor: str | None = None
    top: int | None = None
    average: float | None = None
    coverage: float | None = None
    macro: bool = False
    classes: tuple[int, ...] | None = None
    photos: int = 1

    @property
    def makers(self) -> list[str]:
        """What is given of ``predictor``, ``top``, ``average`` and ``coverage``."""
        names = ("predictor", "top", "average", "coverage")
        return [name for name in names if getattr(self, name) is not None]
