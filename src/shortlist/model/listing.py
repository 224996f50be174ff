"""The one way from scores to lists with their promise, for images, finished scores and servers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import torch
from torch import Tensor

from shortlist._recent import Recent
from shortlist.class_table import ClassTable
from shortlist.model.choice import Choice
from shortlist.model.populations import Populations
from shortlist.model.resolving import Resolved, Resolver
from shortlist.predictors import (
    CalibrationRows,
    Candidate,
    Node,
    NoveltyDetector,
    Population,
    SetPredictor,
    TaxonomyNodes,
    TopK,
    Values,
    place_offset,
    to_lists,
    to_nodes,
)
from shortlist.promise import Promise
from shortlist.scores import PriorRecord

_OFFSETS = 64  # places whose classes are remembered


class Novelty(NamedTuple):
    """Whether an object is flagged as one of no known class, and its p-value."""

    novel: bool
    p_value: float


class NodesAnswer(NamedTuple):
    """The answer of a taxonomy predictor: a few nodes, such as a genus, one of which holds the true class.

    Args:
        predictor: Name of the predictor.
        nodes: Nodes, those of the largest mass first.
        promise: What is promised about them.
    """

    predictor: str
    nodes: tuple[Node, ...]
    promise: Promise


@dataclass(frozen=True)
class ShortList(Sequence[Candidate]):
    """The candidates of one object, the best first, with what is promised about them.

    Args:
        candidates: Listed classes.
        members: Indices of all classes of the set, listed or not.
        mass: Sum of the probabilities of the set; ``None`` if probabilities are not known.
        choice: What made the set, with nothing left open.
        promise: What is promised about lists of this choice.
        novelty: Whether the object is flagged as a stranger; ``None`` if the model cannot tell.
        nodes: Answer of the chosen taxonomy predictor, or else of the model's first; ``None`` without one.
    """

    candidates: tuple[Candidate, ...]
    members: tuple[int, ...]
    mass: float | None
    choice: Choice
    promise: Promise
    novelty: Novelty | None = None
    nodes: NodesAnswer | None = None

    def __len__(self) -> int:
        return len(self.candidates)

    @overload
    def __getitem__(self, place: int) -> Candidate: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Candidate]: ...

    def __getitem__(self, place: int | slice) -> Candidate | Sequence[Candidate]:
        return self.candidates[place]


class Lister:
    """Turns mapped scores into lists.

    Args:
        classes: Table of the c classes.
        predictors: Calibrated predictors by name.
        promises: Promise of each predictor.
        probabilities: Function from scores (n, c) to the probabilities that are shown; ``None`` if the
            meaning of the scores is not known.
        priors: Priors that the scores contain; ``None`` if they are not known.
        rows: Calibration rows that the model kept, if it did.
        novelty: Detector of strangers, if there is one.
    """

    def __init__(
        self,
        classes: ClassTable,
        predictors: Mapping[str, SetPredictor],
        promises: Mapping[str, Promise],
        *,
        probabilities: Callable[[Tensor], Tensor] | None,
        priors: PriorRecord | None,
        rows: CalibrationRows | None,
        novelty: NoveltyDetector | None,
    ) -> None:
        self._classes, self._predictors = classes, predictors
        self._probabilities, self._novelty = probabilities, novelty
        self._priors = None if priors is None else priors.priors
        self.populations = Populations(rows, classes)
        self.resolve = Resolver(
            classes, predictors, promises, self.populations, knows_priors=priors is not None
        )
        self._offsets: Recent[list[Tensor]] = Recent(_OFFSETS)
        self._trees = {
            name: predictor.taxonomy
            for name, predictor in predictors.items()
            if isinstance(predictor, TaxonomyNodes)
        }

    def lists(
        self, scores: Tensor, choice: Choice, features: Tensor | None, *, at_least: int, limit: int | None
    ) -> list[ShortList | None]:
        """Make the list of each object; see :meth:`Model.lists`."""
        resolved = self.resolve(choice)
        photos = resolved.choice.photos
        if len(scores) % photos:
            raise ValueError(f"scores must have {photos} rows for each object, got {len(scores)} rows in all")
        numbers = (scores < torch.inf).all(1) & (scores > -torch.inf).any(1)
        usable = numbers.unflatten(0, (-1, photos)).all(1)
        if bool(usable.all()):
            return [*self._lists(scores, resolved, features, at_least, limit)]
        kept = usable.repeat_interleave(photos)
        some = None if features is None else features[kept]
        made = iter(self._lists(scores[kept], resolved, some, at_least, limit))
        return [next(made) if ok else None for ok in usable.tolist()]

    def _lists(
        self, scores: Tensor, resolved: Resolved, features: Tensor | None, at_least: int, limit: int | None
    ) -> list[ShortList]:
        if not len(scores):
            return []
        choice, maker, promise, chosen = resolved
        novelty = self._judge(scores, features, choice.photos)
        population = None if chosen is None else chosen.population
        values = None if population is None else population.values(scores)
        if choice.photos > 1:
            scores = scores.log_softmax(1).unflatten(0, (-1, choice.photos)).mean(1)
        here, order = self._at(scores, maker)
        probabilities = None
        if self._probabilities is not None:
            probabilities = self._probabilities(scores) if maker.place is None else here.softmax(1)
        sets = self._sets(here, order, maker, population, values) & (order > -torch.inf)
        listed = to_lists(
            sets,
            probabilities,
            self._classes,
            order=order,
            at_least=at_least,
            limit=limit,
            taxonomy=self._trees.get(choice.predictor or ""),
            population=population,
            values=values,
        )
        masses = [None] * len(sets) if probabilities is None else (probabilities * sets).sum(1).tolist()
        nodes = self._nodes(here, sets, probabilities, choice)
        return [
            ShortList(tuple(candidates), inside, mass, choice, promise, judged, answer)
            for candidates, inside, mass, judged, answer in zip(
                listed, _members(sets), masses, novelty, nodes, strict=True
            )
        ]

    def _at(self, scores: Tensor, maker: Choice) -> tuple[Tensor, Tensor]:
        """Return the scores at the place of a choice, and those by which lists are ordered."""
        if maker.place is None and not maker.macro:
            return scores, scores
        key = (maker.place, maker.macro, scores.dtype, scores.device)
        frequency, importance = self._offsets.get(
            key, lambda: [self._offset(weights, scores) for weights in self.populations.weights(maker)[::-1]]
        )
        here = scores if maker.place is None else scores + frequency
        return here, scores + importance if maker.macro else here

    def _offset(self, weights: Tensor | None, scores: Tensor) -> Tensor:
        """Return what turns scores into those where classes have these weights (c,), by addition."""
        if weights is None:
            return scores.new_zeros(scores.shape[1])
        if self._priors is None:
            return torch.zeros_like(weights).masked_fill(weights == 0, -torch.inf).to(scores)
        return place_offset(weights, self._priors).to(scores)

    def _sets(
        self, here: Tensor, order: Tensor, maker: Choice, population: Population | None, values: Values | None
    ) -> Tensor:
        if maker.predictor is not None:
            return self._predictors[maker.predictor](here)
        if maker.top is not None:
            return TopK(min(maker.top, order.shape[1]))(order)
        assert population is not None and values is not None  # by the check
        bounds = {"at_least": maker.at_least, "at_most": maker.at_most}
        if maker.coverage is not None:
            sets = population.sets_of_coverage(values, maker.coverage, **bounds)
        else:
            assert maker.average is not None
            sets = population.sets_of_size(values, maker.average, **bounds)
        return torch.from_numpy(sets).to(order.device)

    def _judge(self, scores: Tensor, features: Tensor | None, photos: int) -> Sequence[Novelty | None]:
        """Judge whether objects are of no known class: those of which each photo is flagged.

        Known objects of several photos are then flagged no more often than those of one, as was promised.
        """
        detector = self._novelty
        if detector is None or (features is None and detector.needs != "scores"):
            return [None] * (len(scores) // photos)
        flagged = detector.flag(scores=scores, features=features).unflatten(0, (-1, photos)).all(1)
        p_values = detector.p_values(scores=scores, features=features).unflatten(0, (-1, photos)).amax(1)
        return list(map(Novelty, flagged.tolist(), p_values.tolist()))

    def _nodes(
        self, scores: Tensor, sets: Tensor, probabilities: Tensor | None, choice: Choice
    ) -> Sequence[NodesAnswer | None]:
        name = choice.predictor
        if name not in self._trees:
            name = next((n for n in self._trees if self._predictors[n].activation == "softmax"), None)
            if name is None:
                return [None] * len(scores)
            sets = self._predictors[name](scores)
        promise = self.resolve(
            Choice(predictor=name, place=choice.place, group=choice.group, photos=choice.photos)
        ).promise
        shown = None if probabilities is None else probabilities.cpu()
        answers = to_nodes(sets.cpu(), shown, self._trees[name])
        return [NodesAnswer(name, tuple(nodes), promise) for nodes in answers]


def _members(sets: Tensor) -> list[tuple[int, ...]]:
    """Return the indices of the classes of each set."""
    rows, columns = sets.nonzero(as_tuple=True)
    ends, indices = rows.bincount(minlength=len(sets)).cumsum(0).tolist(), columns.tolist()
    return [tuple(indices[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
