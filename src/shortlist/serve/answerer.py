"""The answerer: from prepared photos to lists with their promise. It knows no HTTP and keeps no state."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from shortlist.model import Model
from shortlist.predictors import Ladder, TaxonomyNodes, TopK, default_predictor, to_nodes
from shortlist.scores import PriorRecord
from shortlist.serve.exchange import Answer, Choice, Listed, NodesAnswer, Query, RelatedImage
from shortlist.serve.lineage import Lineage
from shortlist.serve.listing import Decided, Listing
from shortlist.serve.promises import SEVERAL, SOME_CLASSES, promise_of

__all__ = ["LONG", "Answerer", "SimilarImages"]

LONG = 20
"""A set of more classes than this says that the model does not know."""


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
        UnknownPriorError: If nobody knows what the scores of the model mean.
    """

    def __init__(self, model: Model, index: SimilarImages | None = None) -> None:
        model.probabilities(torch.zeros(1, len(model.classes)))  # refused where there are none
        self.model, self.index = model, index
        self.lineage = Lineage(model.classes)
        self._priors = _priors(model)
        self._trees = {
            name: predictor.taxonomy
            for name, predictor in model.predictors.items()
            if isinstance(predictor, TaxonomyNodes) and predictor.activation == "softmax"
        }
        rare = model.classes.groups() == 0 if model.classes.counts else torch.zeros(len(model.classes))
        self.rare = rare.bool().tolist()
        self._promises: dict[tuple[Choice, str | None], Mapping[str, Any]] = {}
        self._checked: dict[tuple[Choice, bool], Choice] = {}

    def check(self, choice: Choice, *, images: int = 1) -> Choice:
        """Return the choice with nothing left open.

        Raises:
            ValueError: If this model cannot make such sets; the message names the argument.
        """
        key = (choice, images > 1)
        found = self._checked.get(key)
        if found is None:
            if len(self._checked) > 1000:  # of values that clients choose
                self._checked.clear()
            found = self._checked[key] = self._check(choice, images)
        return found

    def _check(self, choice: Choice, images: int) -> Choice:
        given = [
            name for name in ("predictor", "top", "average", "coverage") if getattr(choice, name) is not None
        ]
        if len(given) > 1:
            raise ValueError(
                f"at most one of predictor, top, average and coverage must be given, got {given}"
            )
        if not given and not choice.macro and self.model.predictors:
            choice = replace(choice, predictor=default_predictor(self.model.promises))
        elif not given:
            choice = replace(choice, top=min(5, len(self.model.classes)))
        if choice.predictor is not None:
            self._check_named(choice, images)
        else:
            self._check_any(choice)
        return choice

    def _check_named(self, choice: Choice, images: int) -> None:
        name, predictors = choice.predictor, self.model.predictors
        if name not in predictors:
            known = ", ".join(predictors) or "none: the model has no predictors"
            raise ValueError(f"predictor must be one of the model's ({known}), got {name!r}")
        if choice.macro:
            raise ValueError(
                "macro goes with top, average or coverage: a predictor has its own priors or none"
            )
        if images > 1 and predictors[name].activation != "softmax":
            raise ValueError(
                f"predictor must be one for probabilities that sum to 1 if there are several images, "
                f"got {name!r}"
            )

    def _check_any(self, choice: Choice) -> None:
        if choice.macro and self._priors is None:
            raise ValueError("macro must be false: the model does not know how often each class occurs")
        if choice.top is not None:
            if not 1 <= choice.top <= len(self.model.classes):
                raise ValueError(f"top must be from 1 to {len(self.model.classes)}, got {choice.top}")
            return
        if choice.macro and choice.coverage is not None:
            raise ValueError(
                "macro must be false with coverage: a coverage of the average class needs the classes of the "
                "calibration rows, which a model does not keep. Choose average or top with macro, or a "
                f"predictor of the model that has it ({', '.join(self._macro_promises()) or 'it has none'})"
            )
        ladder = self._ladder(choice)
        if ladder is None:
            what = "coverage" if choice.coverage is not None else "average"
            raise ValueError(
                f"{what} must not be given: the model kept nothing of its calibration rows. Choose one of "
                f"its predictors ({', '.join(self.model.predictors) or 'none'}) or top"
            )
        if choice.coverage is not None:
            ladder.coverage_rank(choice.coverage)
        elif choice.average is not None:
            if ladder.max_size < 1:
                raise ValueError("average must not be given: the model has one class")
            if not 1 <= choice.average <= ladder.max_size:
                raise ValueError(f"average must be from 1 to {ladder.max_size:g}, got {choice.average:g}")

    def _macro_promises(self) -> list[str]:
        """Return the predictors whose coverage is promised for the average class."""
        promises = self.model.promises
        return [name for name in self.model.predictors if promises[name].about == "average class"]

    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer queries, with one pass of all their images through the network.

        Raises:
            ValueError: If a choice does not go with the model; see :meth:`check`.
        """
        if not queries:
            return []
        choices = [self.check(query.choice, images=query.size) for query in queries]
        scores, features = self._scores_and_features(self._batch(queries), queries)
        counts = [query.size for query in queries]
        with torch.inference_mode():
            novelty = self._novelty(scores, features, counts)
            fused = scores
            if max(counts) > 1:
                fused = torch.cat([_fused(part) for part in scores.split(counts)])
            fused = _restricted(fused, queries)
            probabilities = self.model.probabilities(fused).cpu().numpy()
            listings = self._list(fused, probabilities, queries, choices)
            nodes = self._nodes(fused, probabilities, queries, choices)
        parts = [None] * len(queries) if features is None else features.split(counts)
        return list(map(self._answer, queries, choices, listings, parts, novelty, nodes))

    def _batch(self, queries: Sequence[Query]) -> Tensor:
        """Return the inputs of all images."""
        images = torch.cat([query.images for query in queries])
        rule = self.model.preprocessing
        if images.dtype == torch.uint8 and rule is not None:
            return rule.normalized(images.to(self.model.device))
        return images

    def _scores_and_features(self, batch: Tensor, queries: Sequence[Query]) -> tuple[Tensor, Tensor | None]:
        """Return the scores of a batch, and its features if anything needs them."""
        detector = self.model.novelty
        similar = self.index is not None and any(query.related_images for query in queries)
        if similar or (detector is not None and detector.needs != "scores"):
            return self.model.scores_and_features(batch)
        return self.model.scores(batch), None

    def _novelty(
        self, scores: Tensor, features: Tensor | None, counts: Sequence[int]
    ) -> Sequence[Mapping[str, Any] | None]:
        """Judge whether objects are of no known class: those of which each photo is flagged.

        Known objects of several photos are then flagged no more often than those of one, as was promised.
        """
        detector = self.model.novelty
        if detector is None:
            return [None] * len(counts)
        flagged = detector.flag(scores=scores, features=features).split(counts)
        p_values = detector.p_values(scores=scores, features=features).split(counts)
        return [
            {
                "novel": bool(some.all()),
                "p_value": float(ps.max()),
                "level": detector.level,
                "words": detector.promise,
            }
            for some, ps in zip(flagged, p_values, strict=True)
        ]

    def _list(
        self, scores: Tensor, probabilities: np.ndarray, queries: Sequence[Query], choices: Sequence[Choice]
    ) -> list[Listing]:
        """Make the lists of all rows; those with the same choice together."""
        groups: dict[Hashable, list[int]] = {}
        for number, (query, choice) in enumerate(zip(queries, choices, strict=True)):
            groups.setdefault((choice, query.limit), []).append(number)
        found: dict[int, Listing] = {}
        for numbers in groups.values():
            rows = slice(None) if len(groups) == 1 else numbers
            decided = self._decide(scores[rows], choices[numbers[0]])
            made = decided.listings(probabilities[rows], queries[numbers[0]].limit)
            found.update(zip(numbers, made, strict=True))
        return [found[number] for number in range(len(queries))]

    def _nodes(
        self, scores: Tensor, probabilities: np.ndarray, queries: Sequence[Query], choices: Sequence[Choice]
    ) -> list[NodesAnswer | None]:
        """Make the answers of taxonomy predictors: the chosen one, or else the first of the model."""
        found: list[NodesAnswer | None] = [None] * len(queries)
        named = [choice.predictor if choice.predictor in self._trees else None for choice in choices]
        numbers: dict[str, list[int]] = {}
        for number, name in enumerate(named):
            name = name or next(iter(self._trees), None)
            if name is not None:
                numbers.setdefault(name, []).append(number)
        for name, own in numbers.items():
            sets = self.model.sets(scores[own], name).cpu()
            lists = to_nodes(sets, torch.from_numpy(probabilities[own]), self._trees[name])
            for number, nodes in zip(own, lists, strict=True):
                promise = self._promise(Choice(predictor=name), _why_not(queries[number]))
                found[number] = NodesAnswer(name, tuple(nodes), promise)
        return found

    def _decide(self, scores: Tensor, choice: Choice) -> Decided:
        ladder = self._ladder(choice)
        values = None if ladder is None else ladder.values(scores)
        if choice.predictor is not None:
            sets = self.model.sets(scores, choice.predictor).cpu().numpy()
        elif choice.top is not None:
            sets = self._top(choice)(scores).cpu().numpy()
        else:
            assert ladder is not None and values is not None  # by the check
            if choice.coverage is not None:
                sets = ladder.sets_of_coverage(values, choice.coverage)
            else:
                assert choice.average is not None
                sets = ladder.sets_of_size(values, choice.average)
        order = scores
        if choice.macro and self._priors is not None:
            order = scores - self._priors[1].log().to(scores)
        return Decided(sets, scores.isfinite().cpu().numpy(), order.cpu().numpy(), values, ladder)

    def _top(self, choice: Choice) -> TopK:
        assert choice.top is not None
        if not choice.macro or self._priors is None:
            return TopK(choice.top)
        training, own = self._priors
        return TopK(choice.top, priors=training.float(), scores_priors=own.float()).to(self.model.device)

    def _ladder(self, choice: Choice) -> Ladder | None:
        summary = self.model.summary
        if summary is None:
            return None
        macro = choice.macro
        if choice.predictor is not None:
            macro = self.model.predictors[choice.predictor].weights is not None
        return summary.macro if macro else summary.plain

    def _answer(
        self,
        query: Query,
        choice: Choice,
        listing: Listing,
        features: Tensor | None,
        novelty: Mapping[str, Any] | None,
        nodes: NodesAnswer | None,
    ) -> Answer:
        related: Sequence[Sequence[Any]] = ()
        if features is not None and query.related_images and self.index is not None:
            related = self.index.similar(features, listing.classes, query.related_images)
        members = listing.members
        sure = 0 < len(members) <= max(LONG, choice.top or 0) and listing.mass >= 0.5
        return Answer(
            status="novel" if novelty is not None and novelty["novel"] else "ok" if sure else "not_confident",
            candidates=self._candidates(listing, related),
            set_size=len(members),
            set_probability=min(listing.mass, 1.0),
            choice=choice,
            promise=self._promise(choice, _why_not(query)),
            common_ancestor=self.lineage.common_ancestor(members),
            renormalized=query.classes is not None,
            novelty=novelty,
            nodes=nodes,
        )

    def _promise(self, choice: Choice, why_not: str | None) -> Mapping[str, Any]:
        key = (choice, why_not)
        if key not in self._promises:
            if len(self._promises) > 1000:  # of values that clients choose
                self._promises.clear()
            self._promises[key] = promise_of(self.model, choice, self._ladder(choice), why_not=why_not)
        return self._promises[key]

    def _candidates(self, listing: Listing, related: Sequence[Sequence[Any]]) -> tuple[Listed, ...]:
        table, parents = self.model.classes, self.lineage.parents
        classes = listing.classes
        images = [tuple(map(_related, some)) for some in related] if related else repeat(())
        columns = zip(  # without a function call for each: there are 20 in each answer
            classes,
            [table.ids[index] for index in classes],
            [table.names[index] for index in classes],
            [parents[index] for index in classes],
            [min(probability, 1.0) for probability in listing.probabilities],
            listing.in_set,
            [self.rare[index] for index in classes],
            listing.enters_at,
            images,
            strict=False,  # there may be no images at all
        )
        return tuple(map(Listed._make, columns))


def _why_not(query: Query) -> str | None:
    """Say why a promise is not about this list."""
    return SOME_CLASSES if query.classes is not None else SEVERAL if query.size > 1 else None


def _priors(model: Model) -> tuple[Tensor, Tensor] | None:
    """Return the priors of the training rows, and those that the scores contain; ``None`` if unknown."""
    if model.score_map.now is None or not model.classes.counts or min(model.classes.counts) < 1:
        return None
    return PriorRecord.training(model.classes.class_counts).priors, model.score_map.now.priors


def _fused(scores: Tensor) -> Tensor:
    """Return one row of scores for all images of an object: the mean of their log-posteriors."""
    return scores if len(scores) == 1 else scores.log_softmax(1).mean(0, keepdim=True)


def _restricted(scores: Tensor, queries: Sequence[Query]) -> Tensor:
    """Rule out the classes that a query leaves out; the softmax then sums to 1 over the others."""
    if all(query.classes is None for query in queries):
        return scores
    scores = scores.clone()
    for row, query in zip(scores, queries, strict=True):
        if query.classes is not None:
            outside = torch.ones_like(row, dtype=torch.bool)
            outside[list(query.classes)] = False
            row[outside] = -torch.inf
    return scores


def _related(image: Any) -> RelatedImage:
    about = {name: getattr(image, name) for name in ("author", "license", "source", "date", "organ")}
    return RelatedImage(id=str(image.id), similarity=float(image.similarity), **about)
