"""The few numbers that an evaluation keeps of each row, computed in blocks of rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import can_read_values, check_scores, promote, tensor_words
from shortlist._progress import tell
from shortlist.metrics.calibration import Activation, brier_of_rows, top_confidence
from shortlist.metrics.nodes import NodeSums, node_sums
from shortlist.metrics.ranks import Ranks, Ties, topk_hits, true_ranks
from shortlist.taxonomy import Taxonomy

Predictor = Callable[[Tensor], Tensor]
Shown = Callable[[Tensor], Tensor | None]
RowMetric = Callable[[Tensor, Tensor], Tensor]
"""From scores (rows, c) and classes (rows,) to a number for each row (rows,)."""
ScoreRows = Tensor | Iterable[Tensor]
"""Scores (n, c): whole, or some rows (rows, c) after others, such as those of a file."""

_BLOCK = 2**20  # scores looked at in one go: few enough for the processor's caches


def block_rows(num_classes: int) -> int:
    """Rows that are looked at in one go."""
    return max(1, _BLOCK // max(1, num_classes))


@dataclass(frozen=True)
class RowNumbers:
    """The numbers (n,) of the rows that are not ignored, on the CPU.

    Args:
        target: Class index.
        guess: Class of the largest score, the first of several.
        ranks: Rank of the true class.
        has_nan: Whether a score is NaN.
        confidence: Largest probability, NaN if not known.
        right: Whether the class of the largest probability is the true one, by the rule for ties.
        nll: Minus the log-probability of the true class, NaN if not known.
        brier: Brier score, NaN if not known.
        score_nll: ``nll`` by the activation of the scores themselves, whatever is shown.
        hits: By predictor, whether the set contains the true class.
        sizes: By predictor, the size of the set.
        nodes: By predictor of nodes of a taxonomy, their sums over the rows.
        ignored: Number of rows that were left out.
        own: By name, the numbers of functions that a user gave.
    """

    target: Tensor
    guess: Tensor
    ranks: Ranks
    has_nan: Tensor
    confidence: Tensor
    right: Tensor
    nll: Tensor
    brier: Tensor
    score_nll: Tensor
    hits: Mapping[str, Tensor]
    sizes: Mapping[str, Tensor]
    nodes: Mapping[str, NodeSums]
    ignored: int
    own: Mapping[str, Tensor] = field(default_factory=dict)


class RowMeasurer:
    """An accumulator of the numbers of rows, whose scores are added some rows at a time.

    Args:
        predictors: By name, functions from scores (rows, c) to bool sets (rows, c).
        rows: Number of rows that may be added at most.
        activation: How scores become probabilities.
        ties: See :func:`~shortlist.metrics.topk_accuracy`.
        ignore_index: Rows with this target are ignored.
        metrics: By name, functions from scores (rows, c) and classes (rows,) to a number for each row.
    """

    def __init__(
        self,
        predictors: Mapping[str, Predictor],
        rows: int,
        *,
        activation: Activation = "softmax",
        ties: Ties = "against",
        ignore_index: int = -100,
        metrics: Mapping[str, RowMetric] | None = None,
    ) -> None:
        _keep_freed_memory()
        self._predictors, self._room, self._ignore_index = predictors, rows, ignore_index
        self._metrics = dict(metrics or {})
        self._activation: Activation = activation
        self._ties: Ties = ties
        self._columns: dict[str, Tensor] = {}
        self._nodes: dict[str, NodeSums] = {}
        self._seen = self._done = 0
        tell("measuring", 0, rows)

    def add(self, scores: Tensor, target: Tensor, shown: Tensor | None) -> None:
        """Add a block of scores (m, c) with class indices (m,), and the scores of shown probabilities (m, c).

        These may be the scores themselves, or ``None`` where there are no probabilities.
        """
        self._seen += len(target)
        counted = target != self._ignore_index
        if not counted.all():
            same, target = shown is scores, target[counted]
            scores, shown = scores[counted], None if shown is None else shown[counted]
            shown = scores if same else shown
        how = (self._activation, self._ties, shown, self._nodes)
        numbers = _measure_block(scores, target, self._predictors, *how)
        numbers |= {f"own {name}": _own(name, f, scores, target) for name, f in self._metrics.items()}
        for name, part in numbers.items():
            # small tensors kept from each block would hold on to the large ones' memory between them
            if name not in self._columns:
                self._columns[name] = torch.empty(self._room, dtype=part.dtype)
            self._columns[name][self._done : self._done + len(target)] = part
        self._done += len(target)
        tell("measuring", self._seen, self._room)

    def finish(self) -> RowNumbers:
        """Return the numbers of all rows that are not ignored."""
        columns = {name: numbers[: self._done] for name, numbers in self._columns.items()}
        measured = row_numbers(columns, self._predictors, self._nodes, ignored=self._seen - self._done)
        return replace(measured, own={name: columns[f"own {name}"] for name in self._metrics})


def measure_rows(
    scores: ScoreRows,
    target: Tensor,
    predictors: Mapping[str, Predictor],
    *,
    num_classes: int,
    activation: Activation = "softmax",
    ties: Ties = "against",
    ignore_index: int = -100,
    shown: Shown | None = None,
    metrics: Mapping[str, RowMetric] | None = None,
) -> RowNumbers:
    """Measure all rows that are not ignored, with no more than one block of scores copied at a time.

    ``shown`` converts scores to those of the probabilities that people see; ``None`` if there are none.
    ``metrics`` are functions that a user gave, by name.
    """
    how: Any = {"activation": activation, "ties": ties, "ignore_index": ignore_index, "metrics": metrics}
    measurer, seen = RowMeasurer(predictors, len(target), **how), 0
    for rows in _blocks(scores, num_classes):
        true, seen = target[seen : seen + len(rows)], seen + len(rows)
        _check_number_of_rows(seen, target, more=True)
        measurer.add(rows, true, rows if shown is None else shown(rows))
    _check_number_of_rows(seen, target)
    return measurer.finish()


def row_numbers(
    columns: Mapping[str, Tensor],
    predictors: Iterable[str],
    nodes: Mapping[str, NodeSums] | None = None,
    *,
    ignored: int,
) -> RowNumbers:
    """Make the numbers of rows from columns (n,).

    They have the names of the numbers; the ranks are ``first`` and ``last``, and of a predictor there are
    ``hit NAME`` and ``size NAME``.
    """
    plain = ("target", "guess", "has_nan", "confidence", "right", "nll", "brier", "score_nll")
    numbers: dict[str, Any] = {name: columns[name] for name in plain}
    return RowNumbers(
        **numbers,
        ranks=Ranks(columns["first"], columns["last"], torch.ones_like(columns["has_nan"])),
        hits={name: columns[f"hit {name}"] for name in predictors},
        sizes={name: columns[f"size {name}"] for name in predictors},
        nodes=nodes or {},
        ignored=ignored,
    )


def _keep_freed_memory() -> None:
    """Have the C library keep what each block frees for the next one.

    By default glibc gives it back to the system; to get it again takes up to a fifth of the time. It keeps
    twice the size of the largest piece below 32 MB that was ever freed. This one is never written to.
    """
    torch.empty(4 * _BLOCK)


def _blocks(scores: ScoreRows, num_classes: int) -> Iterator[Tensor]:
    """Give the scores block by block, in the order of the rows."""
    for part in [scores] if isinstance(scores, Tensor) else scores:
        check_scores(part, name="scores")
        if part.shape[1] != num_classes:
            raise ValueError(f"scores must have {num_classes} classes, got {part.shape[1]}")
        yield from part.split(block_rows(num_classes))


def _check_number_of_rows(rows: int, target: Tensor, *, more: bool = False) -> None:
    if rows > len(target) or (rows < len(target) and not more):
        raise ValueError(
            f"scores must have a row for each target ({len(target)}), got {rows}{' or more' * more}"
        )


def _measure_block(
    scores: Tensor,
    target: Tensor,
    predictors: Mapping[str, Predictor],
    activation: Activation,
    ties: Ties,
    shown: Tensor | None,
    nodes: dict[str, NodeSums],
) -> dict[str, Tensor]:
    """Return the numbers of some rows, and add to the sums over rows."""
    ranks, index = true_ranks(scores, target, ties=ties), target[:, None]
    true = scores.gather(1, index)[:, 0]
    numbers = {
        "target": target,
        "guess": _first_guess(scores),
        "first": ranks.first,
        "last": ranks.last,
        "has_nan": scores.amax(1).isnan(),
        **_probabilities(scores, target, ranks, activation, ties, shown),
    }
    for name, predictor in predictors.items():
        sets = predictor(scores)
        if not isinstance(sets, Tensor) or sets.dtype != torch.bool or sets.shape != scores.shape:
            got = tensor_words(sets)
            raise ValueError(f"predictors[{name!r}] must return bool sets {tuple(scores.shape)}, got {got}")
        numbers[f"hit {name}"] = sets.gather(1, index)[:, 0] & ~true.isnan()  # a NaN is a miss
        numbers[f"size {name}"] = sets.sum(1, dtype=torch.int32).long()
        taxonomy = getattr(predictor, "taxonomy", None)
        if isinstance(taxonomy, Taxonomy):
            sums = node_sums(sets, target, taxonomy)
            before = nodes.get(name, [torch.zeros_like(part) for part in sums])
            nodes[name] = NodeSums(*(old + new for old, new in zip(before, sums, strict=True)))
    return numbers


def _own(name: str, function: RowMetric, scores: Tensor, target: Tensor) -> Tensor:
    """Return the numbers (n,) of a function that a user gave, float64."""
    try:
        values = function(scores, target)
    except Exception as error:  # somebody's own code fails in its own way
        raise ValueError(f"{name} cannot be computed ({type(error).__name__}: {error})") from error
    if not isinstance(values, Tensor) or values.shape != target.shape:
        raise ValueError(
            f"{name} must return a number for each row ({len(target)},), got {tensor_words(values)}"
        )
    values = values.detach().double()
    if not bool(values.isfinite().all()):
        raise ValueError(f"{name} must return finite numbers, got {values[~values.isfinite()][0]}")
    return values


def _first_guess(scores: Tensor) -> Tensor:
    """Class of the largest score (n,), the first of several, by NumPy in a tenth of the time."""
    if not len(scores) or not can_read_values(scores) or scores.dtype == torch.bfloat16:
        return scores.argmax(1)
    return torch.from_numpy(scores.detach().numpy().argmax(1))


def _probabilities(
    scores: Tensor, target: Tensor, ranks: Ranks, activation: Activation, ties: Ties, shown: Tensor | None
) -> dict[str, Tensor]:
    """Return the numbers for calibration and likelihood; NaN where there are no probabilities."""
    numbers = probability_numbers(scores, target, activation)
    score_nll = {"score_nll": numbers["nll"]}
    if shown is None:
        unknown = torch.full((len(target),), torch.nan, dtype=torch.float64)
        return score_nll | dict.fromkeys(numbers, unknown) | {"right": torch.zeros_like(unknown)}
    if shown is not scores:
        ranks = true_ranks(shown, target, ties=ties)
        numbers = probability_numbers(shown, target, activation)
    return score_nll | numbers | {"right": topk_hits(ranks, [1], ties=ties)[:, 0].double()}


def probability_numbers(
    scores: Tensor, target: Tensor, activation: Activation = "softmax"
) -> dict[str, Tensor]:
    """Return ``confidence``, ``nll`` and ``brier`` of :class:`RowNumbers`, float64 (n,); NaN if unknown."""
    true = scores.gather(1, target[:, None])[:, 0]
    numbers = {"brier": brier_of_rows(scores, target, activation=activation)}
    if activation == "softmax":
        scores = promote(scores)
        total = scores.logsumexp(1)  # once for both
        confidence, nll = (scores.amax(1) - total).double().exp(), (total - true).double()
    else:
        confidence = top_confidence(scores, activation=activation)
        nll = -true.double().log() if activation == "none" else torch.full_like(confidence, torch.nan)
    return numbers | {"confidence": confidence, "nll": nll}
