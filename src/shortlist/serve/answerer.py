"""Answer queries: prepared photos become short lists. Nothing here knows HTTP or keeps state."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from shortlist.model import Model, NextPhoto, NextPhotos, ShortList
from shortlist.serve.exchange import Answer, Query
from shortlist.serve.lineage import Lineage

LONG = 20
"""Size of a set above which the status of an answer is ``not_confident``."""


class SimilarImages(Protocol):
    """What the answerer needs of an index of known images; see :class:`shortlist.index.ImageIndex`."""

    def similar(self, features: Tensor, classes: Sequence[int], limit: int) -> Sequence[Sequence[Any]]:
        """Return the images of each class that are most like photos with these features (n, d)."""
        ...


class Answerer:
    """A pure function from queries to answers, for a finished model and, if there is one, an index.

    Args:
        model: Model whose scores have a known meaning.
        index: Index of known images, for the images beside each candidate.

    Raises:
        UnknownPriorError: If the meaning of the model's scores is not known.
    """

    def __init__(self, model: Model, index: SimilarImages | None = None) -> None:
        model.probabilities(torch.zeros(1, len(model.classes)))  # raises if the scores have no meaning
        self.model, self.index = model, index
        self.lineage = Lineage(model.classes)
        self._next_photos = NextPhotos(model.calibration_rows)

    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer queries, with one pass of all their images through the network.

        Raises:
            ValueError: If the model cannot make a choice, or scores are not numbers.
        """
        if not queries:
            return []
        similar = self.index is not None and any(query.related_images for query in queries)
        scores, features = self.model.scored(self._batch(queries), features=similar)
        groups: dict[Hashable, list[int]] = {}
        for number, query in enumerate(queries):
            groups.setdefault((query.choice, query.limit), []).append(number)
        rows = torch.arange(len(scores)).split([query.size for query in queries])
        answers: list[Answer | None] = [None] * len(queries)
        for numbers in groups.values():
            group = slice(None) if len(groups) == 1 else torch.cat([rows[number] for number in numbers])
            query, group_features = queries[numbers[0]], None if features is None else features[group]
            options = {"features": group_features, "at_least": query.limit, "limit": query.limit}
            lists = self.model.lists(scores[group], query.choice, **options)
            for number, listed in zip(numbers, lists, strict=True):
                photos = None if features is None else features[rows[number]]
                answers[number] = self._answer(queries[number], listed, photos)
        return [answer for answer in answers if answer is not None]

    def _batch(self, queries: Sequence[Query]) -> Tensor:
        """Return the inputs of all images."""
        images = torch.cat([query.images for query in queries])
        rule = self.model.preprocessing
        if images.dtype == torch.uint8 and rule is not None:
            return rule.normalized(images.to(self.model.device))
        return images

    def _answer(self, query: Query, listed: ShortList | None, features: Tensor | None) -> Answer:
        if listed is None:
            raise ValueError("scores of the network must be finite for each photo, got NaN or infinity")
        related: Sequence[Sequence[Any]] = [()] * len(listed)
        if features is not None and query.related_images and self.index is not None:
            classes = [candidate.index for candidate in listed]
            related = self.index.similar(features, classes, query.related_images)
        sure = 0 < len(listed.members) <= max(LONG, listed.choice.top or 0) and (listed.mass or 0.0) >= 0.5
        novel = listed.novelty is not None and listed.novelty.novel
        status = "novel" if novel else "ok" if sure else "not_confident"
        ancestor = self.lineage.common_ancestor(listed.members)
        return Answer(status, listed, related, ancestor, None if novel else self._next_photo(listed))

    def _next_photo(self, listed: ShortList) -> NextPhoto | None:
        """Return the photo that was measured to tell the two best candidates of the set apart, if any."""
        best = [candidate.index for candidate in listed if candidate.in_set][:2]
        if len(best) < 2:
            return None
        column, organ = listed.choice.group or ("", "")
        return self._next_photos.find(best[0], best[1], organ if column == "organ" else None)
