"""The few numbers that an evaluation keeps of each row, computed in blocks of rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist._checks import promote
from shortlist.metrics.calibration import Activation, top_confidence
from shortlist.metrics.ranks import Ranks, Ties, topk_hits, true_ranks

__all__ = ["Predictor", "RowNumbers", "Shown", "measure_rows"]

Predictor = Callable[[Tensor], Tensor]
Shown = Callable[[Tensor], Tensor | None]

_BLOCK = 2**20  # scores looked at in one go: few enough for the processor's caches


@dataclass(frozen=True)
class RowNumbers:
    """The numbers (n,) of the rows that are not ignored, on the CPU.

    Args:
        target: Class index.
        ranks: Rank of the true class.
        has_nan: Whether a score is NaN.
        confidence: Largest probability, NaN if not known.
        right: Whether the class of the largest probability is the true one, by the rule for ties.
        nll: Minus the log-probability of the true class, NaN if not known.
        hits: By predictor, whether the set contains the true class.
        sizes: By predictor, the size of the set.
    """

    target: Tensor
    ranks: Ranks
    has_nan: Tensor
    confidence: Tensor
    right: Tensor
    nll: Tensor
    hits: Mapping[str, Tensor]
    sizes: Mapping[str, Tensor]


def measure_rows(
    scores: Tensor,
    target: Tensor,
    predictors: Mapping[str, Predictor],
    *,
    activation: Activation,
    ties: Ties,
    ignore_index: int,
    shown: Shown | None = None,
) -> RowNumbers:
    """Measure all rows that are not ignored, with one block of scores copied at a time.

    ``shown`` makes of scores those whose activation are the probabilities; ``None`` where there are none.
    """
    block = max(1, _BLOCK // max(1, scores.shape[1]))
    joined: dict[str, Tensor] = {}
    done = 0
    for rows, true in zip(scores.split(block), target.split(block), strict=True):
        counted = true != ignore_index
        if not counted.all():
            rows, true = rows[counted], true[counted]
        for name, part in _measure_block(rows, true, predictors, activation, ties, shown).items():
            # small tensors kept from each block would hold on to the large ones' memory between them
            if name not in joined:
                joined[name] = torch.empty(len(target), dtype=part.dtype)
            joined[name][done : done + len(true)] = part
        done += len(true)
    joined = {name: numbers[:done] for name, numbers in joined.items()}
    return RowNumbers(
        target=joined["target"],
        ranks=Ranks(joined["first"], joined["last"], torch.ones_like(joined["has_nan"])),
        has_nan=joined["has_nan"],
        confidence=joined["confidence"],
        right=joined["right"],
        nll=joined["nll"],
        hits={name: joined[f"hit {name}"] for name in predictors},
        sizes={name: joined[f"size {name}"] for name in predictors},
    )


def _measure_block(
    scores: Tensor,
    target: Tensor,
    predictors: Mapping[str, Predictor],
    activation: Activation,
    ties: Ties,
    shown: Shown | None,
) -> dict[str, Tensor]:
    ranks, index = true_ranks(scores, target, ties=ties), target[:, None]
    true = scores.gather(1, index)[:, 0]
    numbers = {
        "target": target,
        "first": ranks.first,
        "last": ranks.last,
        "has_nan": scores.amax(1).isnan(),
        **_probabilities(scores, target, ranks, activation, ties, shown),
    }
    for name, predictor in predictors.items():
        sets = predictor(scores)
        if not isinstance(sets, Tensor) or sets.dtype != torch.bool or sets.shape != scores.shape:
            got = f"{sets.dtype} {tuple(sets.shape)}" if isinstance(sets, Tensor) else type(sets).__name__
            raise ValueError(f"predictors[{name!r}] must return bool sets {tuple(scores.shape)}, got {got}")
        numbers[f"hit {name}"] = sets.gather(1, index)[:, 0] & ~true.isnan()  # a NaN is a miss
        numbers[f"size {name}"] = sets.sum(1, dtype=torch.int32).long()
    return numbers


def _probabilities(
    scores: Tensor, target: Tensor, ranks: Ranks, activation: Activation, ties: Ties, shown: Shown | None
) -> dict[str, Tensor]:
    """Return the numbers for calibration and likelihood; NaN where there are no probabilities."""
    if shown is not None:
        converted = shown(scores)
        if converted is None:
            unknown = torch.full((len(target),), torch.nan, dtype=torch.float64)
            return {"confidence": unknown, "nll": unknown, "right": torch.zeros_like(unknown)}
        if converted is not scores:
            scores, ranks = converted, true_ranks(converted, target, ties=ties)
    return {
        "confidence": top_confidence(scores, activation=activation),
        "nll": _nll(scores, scores.gather(1, target[:, None])[:, 0], activation),
        "right": topk_hits(ranks, [1], ties=ties)[:, 0].double(),
    }


def _nll(scores: Tensor, true: Tensor, activation: Activation) -> Tensor:
    """Return minus the log-probability of the true class (n,), float64; NaN where there is none."""
    if activation == "softmax":
        return (promote(scores).logsumexp(1) - true).double()
    return -true.double().log() if activation == "none" else torch.full_like(true.double(), torch.nan)
