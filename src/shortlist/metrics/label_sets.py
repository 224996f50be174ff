"""Metrics of predicted label sets, for rows with several labels."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._checks import check_label_sets, check_scores

LABEL_SET_METRICS = ("precision", "recall", "f1", "exact", "macro_f1")
"""The names of what :func:`label_set_metrics` computes."""


def top_sets(scores: Float[Tensor, "n c"], sizes: Int[Tensor, " n"]) -> Bool[Tensor, "n c"]:
    """Return the sets (n, c) of each row's highest scores, as many as its size; equal scores by class index.

    Example:
        >>> top_sets(torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 0.0]]), torch.tensor([2, 1]))
        tensor([[ True, False,  True],
                [False,  True, False]])
    """
    check_scores(scores, name="scores")
    if sizes.shape != scores.shape[:1]:
        raise ValueError(f"sizes must be one for each row, ({len(scores)},), got {tuple(sizes.shape)}")
    order = scores.argsort(dim=1, descending=True, stable=True)
    ranks = torch.empty_like(order).scatter_(
        1, order, torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    )
    return ranks < sizes[:, None]


def label_set_metrics(sets: Bool[Tensor, "n c"], labels: Tensor) -> dict[str, float]:
    r"""Compute how well predicted sets agree with the labels.

    With S the predicted set of a row and Y its labels: ``precision`` is the mean over rows of
    :math:`|S \cap Y| / |S|` (0 for an empty set), ``recall`` that of :math:`|S \cap Y| / |Y|`, ``f1`` that of
    :math:`2 |S \cap Y| / (|S| + |Y|)`, ``exact`` the share of rows with S = Y, and ``macro_f1`` the mean over
    the classes with rows of the F1 of the class over all rows. If each set has the size of Y, precision,
    recall and F1 are the same.

    Args:
        sets: Predicted sets (n, c).
        labels: Labels (n, c), each 0 or 1, with at least one 1 in each row.

    Example:
        >>> sets, labels = torch.tensor([[True, True, False]]), torch.tensor([[1, 0, 0]])
        >>> found = label_set_metrics(sets, labels)
        >>> found["precision"], found["recall"], round(found["f1"], 4)
        (0.5, 1.0, 0.6667)
    """
    if sets.dtype != torch.bool or not len(sets):
        raise ValueError(
            f"sets must be bool (n, c) with at least one row, got {sets.dtype} {tuple(sets.shape)}"
        )
    check_label_sets(labels, sets)
    labels = labels.bool()
    both = sets & labels
    hits, size, wanted = (of.sum(1).double() for of in (both, sets, labels))
    of_class = [of.sum(0).double() for of in (both, sets, labels)]
    present = of_class[2] > 0
    class_f1 = 2 * of_class[0] / (of_class[1] + of_class[2]).clamp_min(1)
    return {
        "precision": float((hits / size.clamp_min(1)).mean()),
        "recall": float((hits / wanted).mean()),
        "f1": float((2 * hits / (size + wanted)).mean()),
        "exact": float((sets == labels).all(1).double().mean()),
        "macro_f1": float(class_f1[present].mean()),
    }


def measure_label_sets(
    scores: Float[Tensor, "n c"],
    labels: Tensor,
    *,
    sizes: Int[Tensor, " n"] | None = None,
    threshold: float | None = None,
) -> dict[str, float]:
    """Compute the metrics of the sets that scores make, by how their size is known.

    Args:
        scores: Scores (n, c).
        labels: Labels (n, c), each 0 or 1, with at least one 1 in each row.
        sizes: Predicted number of labels of each row (n,), if there is a size head.
        threshold: Score above which a class is in the set, if the scores have one: 0 for binary
            cross-entropy.

    Returns:
        ``at_true.f1`` and its like for the highest scores of each row, as many as it has labels;
        ``at_predicted.f1`` and its like for as many as were predicted, with ``size.exact`` (the share of rows
        whose number is right) and ``size.error`` (the mean distance); ``above_threshold.f1`` and its like.
    """
    check_label_sets(labels, scores)
    true_sizes = labels.bool().sum(1)
    made = {"at_true": top_sets(scores, true_sizes)}
    values = {}
    if sizes is not None:
        made["at_predicted"] = top_sets(scores, sizes)
        values["size.exact"] = float((sizes == true_sizes).double().mean())
        values["size.error"] = float((sizes - true_sizes).abs().double().mean())
    if threshold is not None:
        made["above_threshold"] = scores > threshold
    for how, sets in made.items():
        values |= {f"{how}.{name}": value for name, value in label_set_metrics(sets, labels).items()}
    return values
