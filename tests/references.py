"""Slow, obvious oracles: Python loops and enumeration in float64."""

import itertools
import math

import numpy as np
import torch
from scipy import integrate, stats
from torch import Tensor


def rows(function, scores: Tensor, *others) -> Tensor:
    """Apply a function of one row to each row."""
    return torch.stack([function(row, *(other[i] for other in others)) for i, row in enumerate(scores)])


def without(row: Tensor, y: int) -> Tensor:
    return torch.cat([row[:y], row[y + 1 :]])


def kth(row: Tensor, k: int) -> Tensor:
    return sorted(row, key=float, reverse=True)[k - 1]


def topk_hinge(row: Tensor, y: Tensor, k: int, margin: float = 1.0) -> Tensor:
    return (margin + kth(without(row, int(y)), k) - row[y]).clamp_min(0)


def convex_topk_hinge(row: Tensor, y: Tensor, k: int, margin: float = 1.0) -> Tensor:
    raised = torch.stack([s if j == int(y) else s + margin for j, s in enumerate(row)])
    return (torch.stack(sorted(raised, key=float, reverse=True)[:k]).mean() - row[y]).clamp_min(0)


def calibrated_topk_hinge(row: Tensor, y: Tensor, k: int, margin: float = 1.0) -> Tensor:
    return (margin + kth(row, k + 1) - row[y]).clamp_min(0)


def log_esp(row: Tensor, k: int) -> Tensor:
    """Log of the sum over all k-subsets of the product of exp(scores)."""
    terms = [row[list(subset)].sum() for subset in itertools.combinations(range(len(row)), k)]
    return torch.stack(terms).logsumexp(0)


def smooth_topk(row: Tensor, y: Tensor, k: int, temperature: float = 1.0, margin: float = 1.0) -> Tensor:
    """Enumerates all k-subsets, once all and once those with y."""
    everything, with_y = [], []
    for subset in itertools.combinations(range(len(row)), k):
        value = row[list(subset)].sum() / (k * temperature)
        everything.append(value + (0 if int(y) in subset else margin / temperature))
        if int(y) in subset:
            with_y.append(value)
    return temperature * (torch.stack(everything).logsumexp(0) - torch.stack(with_y).logsumexp(0))


def perturbed_topk(row: Tensor, k: int, noise_std: float, noise: Tensor) -> Tensor:
    """Mean over given draws (m, c) of the k-th largest noisy score."""
    return torch.stack([kth(row + noise_std * draw, k) for draw in noise]).mean()


def expected_topk(row: Tensor, k: int, noise_std: float, points: int = 1001) -> float:
    """Fine trapezoidal integral of a Poisson-binomial tail, by the textbook recursion over classes."""
    scores = row.double().numpy()
    middle = np.sort(scores)[-k]
    levels = np.linspace(middle - 14 * noise_std, middle + 14 * noise_std, points)
    exact = np.zeros((k, points))  # chance that exactly i exceed, i < k
    exact[0] = 1
    for score in scores:
        exceed = stats.norm.sf((levels - score) / noise_std)
        shifted = np.concatenate([np.zeros((1, points)), exact[:-1]])
        exact = exact * (1 - exceed) + shifted * exceed
    return float(levels[0] + integrate.trapezoid(1 - exact.sum(0), levels))


def sparse_top(row: Tensor, k: int) -> Tensor:
    """Bisection for the threshold."""
    low, high = float(row.min()) - 2, float(row.max()) + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if float((row - middle).clamp(0, 1).sum()) > k else (low, middle)
    return (row - (low + high) / 2).clamp(0, 1)


def fenchel_young(row: Tensor, labels: Tensor) -> Tensor:
    """max_q q.s - |q|^2 / 2 over the top-k simplex, minus the same at the labels."""
    q = sparse_top(row, int(labels.sum()))
    labels = labels.to(row.dtype)
    return (q * row).sum() - 0.5 * (q * q).sum() - (labels * row).sum() + 0.5 * (labels * labels).sum()


def neuralsort(row: Tensor, k: int, temperature: float) -> Tensor:
    n = len(row)
    distances = (row[:, None] - row[None, :]).abs().sum(1)
    return torch.stack(
        [(((n + 1 - 2 * r) * row - distances) / temperature).softmax(0) for r in range(1, k + 1)]
    )


def softsort(row: Tensor, k: int, temperature: float) -> Tensor:
    return torch.stack([(-(kth(row, r) - row).abs() / temperature).softmax(0) for r in range(1, k + 1)])


def sinkhornsort(row: Tensor, k: int, temperature: float, steps: int = 2000) -> Tensor:
    """Matrix scaling of the full n x n plan, in the plain domain."""
    n = len(row)
    squashed = torch.sigmoid((row - row.mean()) / (row.var(correction=0) + 1e-4).sqrt())
    squashed = (squashed - squashed.min()) / (squashed.max() - squashed.min() + 0.01)
    anchors = 1 - torch.arange(n, dtype=row.dtype) / (n - 1)
    plan = torch.exp(-((anchors[:, None] - squashed[None, :]) ** 2) / temperature)
    plan = plan / plan.sum(1, keepdim=True)
    for _ in range(steps):
        plan = plan / plan.sum(0, keepdim=True)
        plan = plan / plan.sum(1, keepdim=True)
    return plan[:k]


COMPARATORS = {
    "logistic": lambda d, beta: 1 / (1 + math.exp(-beta * d)),
    "logistic_phi": lambda d, beta: 1 / (1 + math.exp(-beta * d / (abs(d) + 1e-10) ** 0.25)),
    "gaussian": lambda d, beta: stats.norm.cdf(beta * d),
    "cauchy": lambda d, beta: math.atan(beta * d) / math.pi + 0.5,
    "reciprocal": lambda d, beta: 0.5 * (beta * d / (2 + abs(beta * d)) + 1),
    "optimal": lambda d, beta: (
        beta * d + 0.5
        if abs(beta * d) <= 0.25
        else (1 - 1 / (16 * beta * d) if d > 0 else -1 / (16 * beta * d))
    ),
}


def network_ranks(
    row: list[float], layers: list[list[tuple[int, int]]], k: int, comparator: str, beta: float
):
    """Dense matrices, layer by layer; the largest ends on the last wire. (k, n), the largest first."""
    n = len(row)
    values, product = np.array(row), np.eye(n)
    for layer in layers:
        matrix = np.eye(n)
        for low, high in layer:
            f = COMPARATORS[comparator](values[high] - values[low], beta)
            matrix[low, low], matrix[low, high] = f, 1 - f
            matrix[high, low], matrix[high, high] = 1 - f, f
        values, product = matrix @ values, matrix @ product
    return product[::-1][:k]


def ranked_topk(within: Tensor, first: Tensor, y: int, chances: list[float], top1: str) -> Tensor:
    """From relaxed ranks (k, c) and softmax (c,), the loss as METHODS states it."""

    def guarded(x):
        return torch.log(x * (1 - 2e-7) + 1e-7)

    later = sum(chances[k - 1] * within[:k, y].sum() for k in range(2, len(chances) + 1))
    if top1 == "sort":
        return -guarded(chances[0] * within[0, y] + later)
    if top1 == "softmax":
        return -guarded(chances[0] * first[y] + later)
    return -chances[0] * torch.log(first[y]) - (1 - chances[0]) * guarded(torch.as_tensor(later))
