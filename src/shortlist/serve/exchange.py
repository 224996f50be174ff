"""Queries and answers of the server: plain data, no HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from shortlist.model import Choice, NextPhoto, ShortList

Status = Literal["ok", "not_confident", "novel", "bad_image"]


@dataclass(frozen=True, eq=False)
class Query:
    """A query about one object.

    Args:
        images: Prepared inputs (n, ...) of 1 or more photos of the object, or their pixels, uint8, which are
            not normalized yet.
        choice: What makes the set; it names the number of photos.
        limit: Largest number of candidates that are listed, in the set or not.
        related_images: Number of known images beside each candidate.
    """

    images: Tensor
    choice: Choice = field(default_factory=Choice)
    limit: int = 20
    related_images: int = 0

    def __post_init__(self) -> None:
        if self.size != self.choice.photos:
            raise ValueError(
                f"images must be as many as choice.photos ({self.choice.photos}), got {self.size}"
            )

    @property
    def size(self) -> int:
        """Number of photos."""
        return self.images.shape[0]  # without the checks of len, which take longer


class CommonAncestor(NamedTuple):
    """A parent that all classes of the set share, and how many classes it has in all."""

    level: str
    name: str
    classes: int


@dataclass(frozen=True)
class Answer:
    """An answer to a :class:`Query`.

    Args:
        status: ``novel`` if the photo is like nothing that the model knows; ``not_confident`` if the set is
            empty, has more than 20 classes and more than were asked for, or has a probability below 0.5 by
            the model; else ``ok``.
        listed: The short list with its promise.
        related_images: Images of the index beside each candidate.
        common_ancestor: Most specific parent that two or more classes of the set share.
        next_photo: Photo that would tell the two best candidates of the set apart.
    """

    status: Status
    listed: ShortList
    related_images: Sequence[Sequence[Any]]
    common_ancestor: CommonAncestor | None = None
    next_photo: NextPhoto | None = None
