"""The pairwise margin losses in their general form, entry by entry."""

import math

import torch

from shortlist.priors import margins_from_counts

COUNTS = torch.tensor([400, 100, 30, 9, 1])


WEIGHT = torch.tensor([0.2, 0.5, 1.0, 3.0, 8.0], dtype=torch.float64)


def general(name: str, **options) -> dict:
    """Delta and alpha of METHODS' table, entry by entry."""
    c, total = len(COUNTS), float(COUNTS.sum())
    prior = [float(n) / total for n in COUNTS]
    margin = margins_from_counts(COUNTS.double(), max_margin=options.get("max_margin", 0.5)).tolist()
    delta, alpha = torch.zeros(c, c, dtype=torch.float64), torch.ones(c, dtype=torch.float64)
    for y in range(c):
        if name == "balanced":
            alpha[y] = 1 / prior[y]
        for j in range(c):
            delta[y, j] = {
                "balanced": 0,
                "ldam": margin[y],
                "equalized": math.log(prior[j] ** options.get("tau", 1)),
                "logit_adjusted": options.get("tau", 1) * math.log(prior[j] / prior[y]),
                "adaptive": math.log(prior[j] / prior[y]) + prior[y] ** -0.25,
                "two": options.get("tau_others", 1) * math.log(prior[j])
                - options.get("tau_true", 1) * math.log(prior[y]),
            }[name]
    return {"margins": delta, "factors": alpha}


def weighted_row(scores, y, margins, factors, weight, *, consistent):
    """w_y alpha_y log(1 + sum of exp(Delta_yj + s_j - s_y)), with log(w_j / w_y) in Delta if wanted."""
    total = 1.0
    for j in range(len(scores)):
        if j != y:
            margin = float(margins[y, j]) + (math.log(weight[j] / weight[y]) if consistent else 0.0)
            total += math.exp(margin + scores[j] - scores[y])
    return float(weight[y]) * float(factors[y]) * math.log(total)
