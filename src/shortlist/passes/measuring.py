"""Keep the largest scores of each row, and the numbers that need all scores."""

from collections.abc import Mapping

import torch
from torch import Tensor

from shortlist.metrics import probability_numbers, true_ranks
from shortlist.model import Model
from shortlist.ops import largest
from shortlist.passes.at_place import PlaceLists
from shortlist.predictors import KeptRows, SetPredictor

Columns = dict[str, Tensor]
"""Numbers of rows by name, (n, ...) each."""

_VALUES = 2**22  # scores of a step: smaller steps took longer


def keep_rows(
    model: Model, scores: Tensor, target: Tensor, keep: int, at: PlaceLists | None = None
) -> tuple[Columns, Tensor]:
    """Return the columns of rows with finite scores, and which rows these are (n,). ``scores`` do not change.

    A row whose largest score is NaN or infinite has no probabilities, and is left out.

    Columns: ``classes``, ``log_probabilities`` and ``probabilities`` (n, m) of the m best classes, best
    first; ``logsumexp``; of the true class ``true_log_probability``, ``true_probability``, ``rank`` (after
    classes with the same score) and ``first_rank`` (before them); ``brier``, the Brier score;
    ``shown_confidence``, ``shown_nll``, ``shown_brier`` and ``shown_right`` if people see other
    probabilities than those of the scores. For each predictor: ``NAME.size``, ``NAME.hit``, ``NAME.set``
    (n, m), whether each of the m best classes is in the set, and ``NAME.whole``, whether no other class is.
    With a place, the columns of :meth:`PlaceLists.columns` too. If the true class of a row is unknown, its
    numbers about the true class have no meaning.
    """
    step = max(1, _VALUES // scores.shape[1])
    parts, finite = [], []
    for rows, true in zip(scores.split(step), target.split(step), strict=True):
        best, classes = largest(rows, min(keep, rows.shape[1]))
        good = best[:, 0].isfinite()  # NaN counts as largest, so no other score needs to be looked at
        finite.append(good)
        if not bool(good.all()):
            rows, true, best, classes = (part[good] for part in (rows, true, best, classes))
        kept = _keep(model, rows, true, best, classes)
        parts.append(kept if at is None else kept | at.columns(model, rows, true, keep))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, torch.cat(finite)


def _keep(model: Model, scores: Tensor, target: Tensor, best: Tensor, classes: Tensor) -> Columns:
    probabilities = scores.softmax(1)
    kept = probabilities.gather(1, classes)
    # logsumexp from the largest score s and its probability p: log(sum) = s - log p
    total = best[:, 0] - kept[:, 0].log()
    index = target.clamp_min(0)[:, None]
    true, true_probability = scores.gather(1, index)[:, 0], probabilities.gather(1, index)[:, 0]
    rank, first = _ranks(scores, best, true, target)
    columns = {
        "classes": classes.to(torch.int32),
        "log_probabilities": best - total[:, None],
        "probabilities": kept,
        "logsumexp": total,
        "true_log_probability": true - total,
        "true_probability": true_probability,
        "rank": rank,
        "first_rank": first,
        "brier": probabilities.square().sum(1) - 2 * true_probability + 1,
        **_shown(model, scores, target, index),
    }
    rows = KeptRows(kept, scores.shape[1], target, true_probability)
    for name, predictor in model.predictors.items():
        sets = _sets(predictor, rows, scores, classes, index, rank)
        columns |= {f"{name}.{key}": values for key, values in sets.items()}
    return columns


def _ranks(scores: Tensor, best: Tensor, true: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last and the first rank of the true class."""
    last = (best >= true[:, None]).sum(1)
    first = (best > true[:, None]).sum(1) + 1
    # a true class that ties with the last kept class, or is below it, needs all scores
    far = ((true <= best[:, -1]) & (target >= 0)).nonzero().squeeze(1)
    if len(far) and best.shape[1] < scores.shape[1]:
        ranks = true_ranks(scores[far], target[far], ties="expected")
        last[far], first[far] = ranks.last, ranks.first
    return last, first


def _shown(model: Model, scores: Tensor, target: Tensor, index: Tensor) -> Columns:
    """Return numbers of the probabilities that people see, if these differ from those of the scores."""
    shown = model.shown(scores)
    if shown is None:
        unknown = torch.full((len(scores),), torch.nan)
        names = ("shown_confidence", "shown_nll", "shown_brier")
        return dict.fromkeys(names, unknown) | {"shown_right": torch.zeros_like(target)}
    if shown is scores or _shows_scores(model, scores.shape[1]):
        return {}
    shown = shown.to(scores.device)
    numbers = probability_numbers(shown, index[:, 0])
    right = (shown >= shown.gather(1, index)).sum(1) == 1
    return {f"shown_{name}": values.float() for name, values in numbers.items()} | {
        "shown_right": right.long()
    }


def _shows_scores(model: Model, num_classes: int) -> bool:
    """Return whether people see the probabilities of the scores themselves."""
    # tried with a row made here, since a block may have no rows
    scores = torch.ones(1, num_classes)
    shown = model.shown(scores)
    return shown is not None and torch.equal(shown.cpu(), scores)


def _sets(
    predictor: SetPredictor, rows: KeptRows, scores: Tensor, classes: Tensor, index: Tensor, rank: Tensor
) -> Mapping[str, Tensor]:
    """Return the set of each row, from the kept classes if these are enough, else from all scores."""
    rule = predictor.kept_rule()
    if rule is not None:
        sets, whole = rule.sets(rows)
        size, hit = sets.sum(1), rule.hits(rows, rank)
        not_whole = (~whole).nonzero().squeeze(1)
        if len(not_whole):
            size[not_whole] = predictor(scores[not_whole]).sum(1)
    else:
        dense = predictor(scores)
        sets, size, hit = dense.gather(1, classes), dense.sum(1), dense.gather(1, index)[:, 0]
        whole = sets.sum(1) == size
    return {"size": size.to(torch.int32), "hit": hit, "set": sets, "whole": whole}
