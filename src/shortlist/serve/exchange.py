"""What goes into the answerer and what comes out of it: plain data, no HTTP.

Of candidates there are many in each answer: they are named tuples, which are made in a third of the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from shortlist.predictors import Node

__all__ = [
    "Answer",
    "Choice",
    "CommonAncestor",
    "EntersAt",
    "Listed",
    "NodesAnswer",
    "Query",
    "RelatedImage",
    "Status",
]

Status = Literal["ok", "not_confident", "novel", "bad_image"]


@dataclass(frozen=True)
class Choice:
    """A choice of what makes the set: at most one of ``predictor``, ``top``, ``average`` and ``coverage``.

    Args:
        predictor: Name of one of the model's predictors; its first one with a promise if nothing is chosen.
        top: Number of classes in each set.
        average: Number of classes in a set on average.
        coverage: Promised share of sets that hold the true class.
        macro: Whether ``top``, ``average`` and ``coverage`` divide by class priors, for rare classes.
    """

    predictor: str | None = None
    top: int | None = None
    average: float | None = None
    coverage: float | None = None
    macro: bool = False


@dataclass(frozen=True, eq=False)
class Query:
    """A question about one object.

    Args:
        images: Prepared inputs (n, ...) of 1 or more photos of the object, or their bytes, uint8, which the
            model's preprocessing is still to normalize.
        choice: What makes the set.
        classes: Indices of the classes that are possible; all of them if ``None``.
        limit: Largest number of candidates that are listed, in the set or not.
        related_images: Number of known images beside each candidate.
    """

    images: Tensor
    choice: Choice = field(default_factory=Choice)
    classes: tuple[int, ...] | None = None
    limit: int = 20
    related_images: int = 0

    @property
    def size(self) -> int:
        """Number of photos."""
        return self.images.shape[0]  # without the checks of len, which take longer


class RelatedImage(NamedTuple):
    """A known image of a class, which is like the photos in question."""

    id: str
    similarity: float
    author: str = ""
    license: str = ""
    source: str = ""
    date: str = ""
    organ: str = ""


class EntersAt(NamedTuple):
    """From where on a candidate is in the set.

    Args:
        top: Its place: it is in the list of so many classes.
        coverage: It is in the set of every larger coverage; ``None`` if the model kept no calibration rows.
        average: It is in the set of this average size and larger ones; ``None`` if that is not known.
    """

    top: int
    coverage: float | None
    average: float | None


class Listed(NamedTuple):
    """One class of the list."""

    class_index: int
    id: str
    name: str
    parents: Mapping[str, str]
    probability: float
    in_set: bool
    rare: bool
    enters_at: EntersAt
    related_images: tuple[RelatedImage, ...] = ()


class CommonAncestor(NamedTuple):
    """A parent that all classes of the set share, and how many classes it has in all."""

    level: str
    name: str
    classes: int


class NodesAnswer(NamedTuple):
    """The answer of a taxonomy predictor: a few nodes, such as a genus, one of which holds the true class.

    Args:
        predictor: Name of the predictor.
        nodes: Nodes, those of the largest mass first.
        promise: The promise in numbers and in words.
    """

    predictor: str
    nodes: tuple[Node, ...]
    promise: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """An answer to a :class:`Query`.

    Args:
        status: ``ok``; ``not_confident`` if the set is empty, has more than 20 classes that were not asked
            for, or is less probable than not, by the model's own probabilities; ``novel`` if the photo is
            like nothing that the model knows.
        candidates: Listed classes, the best first.
        set_size: Number of classes in the set, listed or not.
        set_probability: Sum of the probabilities of the set, as the model sees it.
        choice: What made the set, with the name of the predictor that was used by default.
        promise: The promise in numbers and in words (``words``), and whether it holds for this list
            (``holds``, ``why_not``).
        common_ancestor: Most specific parent that two or more classes of the set share.
        renormalized: Whether probabilities are of some classes only, and sum to 1 over these.
        novelty: Novelty of the photo in numbers; ``None`` if the model does not judge it.
        nodes: Answer of the chosen taxonomy predictor, or else of the model's first one; ``None`` if it has
            none.
    """

    status: Status
    candidates: tuple[Listed, ...]
    set_size: int
    set_probability: float
    choice: Choice
    promise: Mapping[str, Any]
    common_ancestor: CommonAncestor | None = None
    renormalized: bool = False
    novelty: Mapping[str, Any] | None = None
    nodes: NodesAnswer | None = None
