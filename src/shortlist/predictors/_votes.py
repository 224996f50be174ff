"""Conformity scores of the classes that a row's votes are for."""

import torch
from torch import Tensor

from shortlist.predictors.conformity import ConformityScore, ValueScore, class_scores, true_class_scores

__all__ = ["scored_votes"]


def scored_votes(
    score: ConformityScore, probs: Tensor, votes: Tensor, *, uniform: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores (m,) of all classes with votes, these classes (m,), and their shares (m,) of a row.

    A row whose votes agree has the score that its class has as a label, to the bit.

    Args:
        score: Conformity score to compute.
        probs: Probabilities (n, c), divided by the class priors for a weighted score.
        votes: Votes (n, c) >= 0, counts or shares, some above 0 in each row.
        uniform: Draws (n,) of a randomized score, one for all classes of a row.
    """
    rows, classes = votes.nonzero(as_tuple=True)
    weights = votes[rows, classes].double()
    total = weights.new_zeros(len(votes)).index_add_(0, rows, weights)
    if isinstance(score, ValueScore):
        return score(probs[rows, classes]), classes, weights / total[rows]
    agreed = rows.bincount(minlength=len(votes)) == 1
    scores = probs.new_empty(len(rows))
    for some in (agreed, ~agreed):
        draws, voted = None if uniform is None else uniform[some], some[rows]
        if some is agreed:
            scores[voted] = true_class_scores(score, probs[some], classes[voted], uniform=draws)
        else:
            number = torch.cumsum(some, 0) - 1  # of the row among these
            of_all = class_scores(score, probs[some], uniform=None if draws is None else draws[:, None])
            scores[voted] = of_all[number[rows[voted]], classes[voted]]
    return scores, classes, weights / total[rows]
