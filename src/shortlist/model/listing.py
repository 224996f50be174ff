"""The one way from scores to lists with their promise, for images, finished scores and servers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist.class_table import ClassTable
from shortlist.model.choice import Choice
from shortlist.model.summary import CalibrationSummary
from shortlist.predictors import (
    Candidate,
    Ladder,
    Node,
    NoveltyDetector,
    Promise,
    SetPredictor,
    TaxonomyNodes,
    TopK,
    default_predictor,
    to_lists,
    to_nodes,
)
from shortlist.scores import PriorRecord

_CHOICES = 1000  # choices whose check and promise are remembered


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
        summary: What is kept of the calibration rows, if anything is.
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
        summary: CalibrationSummary | None,
        novelty: NoveltyDetector | None,
    ) -> None:
        self._classes, self._predictors, self._promises = classes, predictors, promises
        self._probabilities, self._summary, self._novelty = probabilities, summary, novelty
        self._priors: tuple[Tensor, Tensor] | None = None  # of the training rows, and of the scores
        if priors is not None and classes.counts and min(classes.counts) > 0:
            self._priors = PriorRecord.training(classes.class_counts).priors, priors.priors
        self._trees = {
            name: predictor.taxonomy
            for name, predictor in predictors.items()
            if isinstance(predictor, TaxonomyNodes)
        }
        self._resolved: dict[Choice, tuple[Choice, Promise]] = {}

    def resolve(self, choice: Choice) -> tuple[Choice, Promise]:
        """Return the choice with nothing left open, and what is promised about its lists.

        Raises:
            ValueError: If this model cannot make such sets; the message names the argument.
        """
        resolved = self._resolved.get(choice)
        if resolved is None:
            checked = self._check(choice)
            if len(self._resolved) >= _CHOICES:  # of values that clients choose
                self._resolved.clear()
            resolved = self._resolved[choice] = checked, self._promise(checked)
        return resolved

    def _check(self, choice: Choice) -> Choice:
        if len(choice.makers) > 1:
            raise ValueError(
                f"at most one of predictor, top, average and coverage must be given, got {choice.makers}"
            )
        if not choice.makers and not choice.macro and self._predictors:
            choice = replace(choice, predictor=default_predictor(self._promises))
        elif not choice.makers:
            choice = replace(choice, top=min(5, len(self._classes)))
        self._check_objects(choice)
        if choice.predictor is not None:
            self._check_named(choice)
        elif choice.top is not None:
            self._check_macro(choice)
            if not 1 <= choice.top <= len(self._classes):
                raise ValueError(f"top must be from 1 to {len(self._classes)}, got {choice.top}")
        else:
            self._check_macro(choice)
            self._check_ladder(choice)
        return choice

    def _check_objects(self, choice: Choice) -> None:
        check_count("photos", choice.photos)
        if choice.photos > 1 and self._probabilities is None:
            raise ValueError(f"photos must be 1 for scores of unknown meaning, got {choice.photos}")
        allowed = choice.classes
        if allowed is not None and (not allowed or min(allowed) < 0 or max(allowed) >= len(self._classes)):
            shown = "none" if not allowed else f"{min(allowed)} to {max(allowed)}"
            raise ValueError(f"classes must be indices from 0 to {len(self._classes) - 1}, got {shown}")

    def _check_named(self, choice: Choice) -> None:
        name = choice.predictor or ""
        if name not in self._predictors:
            names = f"one of {', '.join(self._predictors)}"
            names = names if self._predictors else "given to the model: it has none"
            raise ValueError(f"predictor must be {names}, got {name!r}")
        if choice.macro:
            raise ValueError(
                "macro goes with top, average or coverage: a predictor has its own priors or none"
            )
        if choice.photos > 1 and self._predictors[name].activation != "softmax":
            raise ValueError(
                f"predictor must be one for probabilities that sum to 1 if there are several photos, "
                f"got {name!r}"
            )

    def _check_macro(self, choice: Choice) -> None:
        if choice.macro and self._priors is None:
            raise ValueError("macro must be false: the model does not know how often each class occurs")
        if choice.macro and choice.coverage is not None:
            has_it = [name for name, promise in self._promises.items() if promise.about == "average class"]
            raise ValueError(
                "macro must be false with coverage: a coverage of the average class needs the classes of the "
                "calibration rows, which a model does not keep. Choose average or top with macro, or a "
                f"predictor of the model that has it ({', '.join(has_it) or 'it has none'})"
            )

    def _check_ladder(self, choice: Choice) -> None:
        """Check a coverage or an average size."""
        ladder, (wanted,) = self._ladder(choice), choice.makers
        if ladder is None:
            raise ValueError(
                f"{wanted} must not be given: the model kept nothing of its calibration rows. Choose one of "
                f"its predictors ({', '.join(self._predictors) or 'none'}) or top"
            )
        if choice.coverage is not None:
            ladder.coverage_rank(choice.coverage)
        elif choice.average is not None:
            if ladder.max_size < 1:
                raise ValueError("average must not be given: the model has one class")
            if not 1 <= choice.average <= ladder.max_size:
                raise ValueError(f"average must be from 1 to {ladder.max_size:g}, got {choice.average:g}")

    def _promise(self, choice: Choice) -> Promise:
        if choice.predictor is not None:
            promise = self._promises[choice.predictor]
        elif choice.coverage is not None:
            reports = [predictor.report for predictor in self._predictors.values()]
            also = next((report.rows_also for report in reports if report is not None), "")  # the same rows
            level = choice.coverage
            promise = Promise(
                "rows", level=level, asked=level, rows=self._rows(choice), has_law=True, rows_also=also
            )
        elif choice.average is not None:
            promise = Promise("size", size=choice.average, rows=self._rows(choice))
        else:
            promise = Promise("nothing", size=choice.top)
        if choice.classes is not None:
            return replace(promise, void="classes")
        return replace(promise, void="photos") if choice.photos > 1 else promise

    def _rows(self, choice: Choice) -> int | None:
        ladder = self._ladder(choice)
        return None if ladder is None else ladder.rows

    def _ladder(self, choice: Choice) -> Ladder | None:
        if self._summary is None:
            return None
        macro = choice.macro
        if choice.predictor is not None:
            macro = self._predictors[choice.predictor].weights is not None
        return self._summary.macro if macro else self._summary.plain

    def lists(
        self, scores: Tensor, choice: Choice, features: Tensor | None, *, at_least: int, limit: int | None
    ) -> list[ShortList | None]:
        """Make the list of each object; see :meth:`Model.lists`."""
        choice, _ = self.resolve(choice)
        if len(scores) % choice.photos:
            raise ValueError(
                f"scores must have {choice.photos} rows for each object, got {len(scores)} rows in all"
            )
        numbers = (scores < torch.inf).all(1) & (scores > -torch.inf).any(1)
        usable = numbers.unflatten(0, (-1, choice.photos)).all(1)
        if bool(usable.all()):
            return [*self._lists(scores, choice, features, at_least, limit)]
        kept = usable.repeat_interleave(choice.photos)
        some = None if features is None else features[kept]
        made = iter(self._lists(scores[kept], choice, some, at_least, limit))
        return [next(made) if ok else None for ok in usable.tolist()]

    def _lists(
        self, scores: Tensor, choice: Choice, features: Tensor | None, at_least: int, limit: int | None
    ) -> list[ShortList]:
        if not len(scores):
            return []
        novelty = self._judge(scores, features, choice.photos)
        if choice.photos > 1:
            scores = scores.log_softmax(1).unflatten(0, (-1, choice.photos)).mean(1)
        scores = _restricted(scores, choice.classes)
        probabilities = None if self._probabilities is None else self._probabilities(scores)
        ladder = None if self._probabilities is None else self._ladder(choice)
        values = None if ladder is None else ladder.values(scores)
        sets = self._sets(scores, choice, ladder, values) & (scores > -torch.inf)
        order = scores
        if choice.macro and self._priors is not None:
            order = scores - self._priors[1].log().to(scores)
        tree = self._trees.get(choice.predictor or "")
        listed = to_lists(
            sets,
            probabilities,
            self._classes,
            order=order,
            at_least=at_least,
            limit=limit,
            taxonomy=tree,
            ladder=ladder,
            values=values,
        )
        masses = [None] * len(sets) if probabilities is None else (probabilities * sets).sum(1).tolist()
        nodes = self._nodes(scores, sets, probabilities, choice)
        members, (_, promise) = _members(sets), self.resolve(choice)
        return [
            ShortList(tuple(candidates), inside, mass, choice, promise, judged, answer)
            for candidates, inside, mass, judged, answer in zip(
                listed, members, masses, novelty, nodes, strict=True
            )
        ]

    def _sets(self, scores: Tensor, choice: Choice, ladder: Ladder | None, values: Any) -> Tensor:
        if choice.predictor is not None:
            return self._predictors[choice.predictor](scores)
        if choice.top is not None:
            if not choice.macro or self._priors is None:
                return TopK(choice.top)(scores)
            training, contained = (priors.float() for priors in self._priors)
            return TopK(choice.top, priors=training, scores_priors=contained).to(scores.device)(scores)
        assert ladder is not None  # by the check
        if choice.coverage is not None:
            sets = ladder.sets_of_coverage(values, choice.coverage)
        else:
            assert choice.average is not None
            sets = ladder.sets_of_size(values, choice.average)
        return torch.from_numpy(sets).to(scores.device)

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
        _, promise = self.resolve(Choice(predictor=name, classes=choice.classes, photos=choice.photos))
        shown = None if probabilities is None else probabilities.cpu()
        answers = to_nodes(sets.cpu(), shown, self._trees[name])
        return [NodesAnswer(name, tuple(nodes), promise) for nodes in answers]


def _restricted(scores: Tensor, classes: Sequence[int] | None) -> Tensor:
    """Rule out all other classes; the softmax then sums to 1 over these."""
    if classes is None:
        return scores
    kept = torch.full_like(scores, -torch.inf)
    kept[:, list(classes)] = scores[:, list(classes)]
    return kept


def _members(sets: Tensor) -> list[tuple[int, ...]]:
    """Return the indices of the classes of each set."""
    rows, columns = sets.nonzero(as_tuple=True)
    ends, indices = rows.bincount(minlength=len(sets)).cumsum(0).tolist(), columns.tolist()
    return [tuple(indices[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
