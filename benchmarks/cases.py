"""What is measured: the losses and operators of this library, and peers beside those they compare with."""

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from measure import Loss
from torch import Tensor
from torch.nn.functional import cross_entropy

from shortlist.losses import (
    assume_negative_loss,
    average_k_loss,
    calibrated_topk_hinge_loss,
    convex_topk_hinge_loss,
    expected_positive_loss,
    focal_loss,
    ldam_loss,
    logit_adjusted_loss,
    noised_topk_loss,
    ranked_topk_loss,
    role_loss,
    smooth_topk_loss,
    sparse_top_loss,
    topk_hinge_loss,
)
from shortlist.ops import sparse_top

__all__ = ["GOAL_SHAPE", "PEERS", "Case", "load_peer", "make_cases"]

PEERS = ("pytopk", "difftopk", "entmax")
GOAL_SHAPE = (256, 1000)

_CANDIDATES = 16
_DRAWS = 5
# standard deviations of scores and of noise: all classes within the noise's reach, or few
_NOISES = {"flat": (0.01, 1.0), "spread": (3.0, 0.2)}
_EXACT_REPETITIONS = {"flat": 3, "spread": 5}  # seconds a call for many flat classes
_RANKINGS = {
    "splitter": "splitter_selection",
    "bitonic": "bitonic__non_sparse",
    "odd_even": "odd_even",
    "neuralsort": "neuralsort",
}


@dataclass(frozen=True)
class Case:
    """One line of the tables.

    Attributes:
        name: What the line is called.
        make: From n, c and k, the loss.
        family: What the line belongs to; ``--only`` looks at it too.
        scale: Standard deviation of the scores.
        max_k: The largest k it is measured for.
        min_classes: The least number of classes it is measured for.
        peer: The package that it comes from, if not this one.
        goals: For some k, the ratio to stay below at ``GOAL_SHAPE``.
        at_least: Repetitions to make even beyond the time budget.
    """

    name: str
    make: Callable[[int, int, int], Loss]
    family: str = ""
    scale: float = 1.0
    max_k: int | None = None
    min_classes: int = 2
    peer: str | None = None
    goals: Mapping[int, float] = field(default_factory=dict)
    at_least: int = 5

    def fits(self, c: int, k: int) -> bool:
        """Whether it can be measured for k of c classes."""
        return k < c and c >= self.min_classes and (self.max_k is None or k <= self.max_k)


def load_peer(name: str) -> ModuleType | None:
    """The package, or ``None`` if it cannot be imported."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # one of them prints what it lacks
            return import_module(name)
    except ImportError:
        return None


def make_cases(peers: Mapping[str, ModuleType | None]) -> list[Case]:
    """All lines, in order, each peer below what it compares with; peers that are ``None`` are left out."""
    cases = [
        Case("cross_entropy, against itself", lambda n, c, k: cross_entropy),
        Case("topk_hinge", _with_k(topk_hinge_loss), goals={5: 3}),
        Case("convex_topk_hinge", _with_k(convex_topk_hinge_loss), goals={5: 3}),
        Case("calibrated_topk_hinge", _with_k(calibrated_topk_hinge_loss), goals={5: 3}),
        Case("smooth_topk", _with_k(smooth_topk_loss, temperature=1.0), goals={5: 25, 50: 60}),
    ]
    cases += _noised(peers.get("pytopk"))
    cases += _ranked(peers.get("difftopk"))
    cases += _sparse(peers.get("entmax"))
    return cases + _long_tail() + _average_k()


def _long_tail() -> list[Case]:
    """These know no k; one column is enough."""

    def counts(c: int) -> Tensor:
        return torch.arange(1, c + 1)

    return [
        Case("focal", lambda n, c, k: focal_loss, max_k=5, goals={5: 1.6}),
        Case(
            "ldam",
            lambda n, c, k: partial(ldam_loss, class_counts=counts(c)),
            scale=0.3,
            max_k=5,
            goals={5: 1.6},
        ),
        Case(
            "logit_adjusted",
            lambda n, c, k: partial(logit_adjusted_loss, class_counts=counts(c)),
            max_k=5,
            goals={5: 1.6},
        ),
    ]


def _average_k() -> list[Case]:
    def both_heads(n: int, c: int, k: int) -> Loss:
        return lambda scores, target: average_k_loss(scores, scores * 2, target, k=float(k))

    def role(n: int, c: int, k: int) -> Loss:
        estimates = torch.randn(n, c).requires_grad_()
        return lambda scores, target: role_loss(scores, estimates, target, k=float(k))

    return [
        Case("average_k, both heads", both_heads, goals={5: 8}),
        Case("role", role, goals={5: 8}),
        Case("expected_positive", lambda n, c, k: partial(expected_positive_loss, k=float(k)), goals={5: 4}),
        Case("assume_negative", lambda n, c, k: assume_negative_loss, max_k=5),
    ]


def _with_k(loss: Callable[..., Tensor], **options: Any) -> Callable[[int, int, int], Loss]:
    return lambda n, c, k: partial(loss, k=k, **options)


def _noised(pytopk: ModuleType | None) -> list[Case]:
    cases = []
    for kind, goal in (("flat", 16), ("spread", 8)):
        scale, noise_std = _NOISES[kind]
        make = _with_k(noised_topk_loss, noise_std=noise_std, num_samples=_DRAWS)
        cases.append(Case(f"noised_topk {_DRAWS} draws, {kind}", make, scale=scale, goals={5: goal}))
        if pytopk is not None:
            make = _pytopk(pytopk, noise_std)
            name = f"  pytopk BalNoisedTopK {_DRAWS} draws, {kind}"
            cases.append(Case(name, make, family="noised_topk", scale=scale, peer="pytopk"))
    for kind, goals in (("spread", {5: 20.0}), ("flat", {})):
        scale, noise_std = _NOISES[kind]
        make = _with_k(noised_topk_loss, noise_std=noise_std, num_samples=None)
        at_least = _EXACT_REPETITIONS[kind]
        cases.append(Case(f"noised_topk exact, {kind}", make, scale=scale, goals=goals, at_least=at_least))
    return cases


def _pytopk(pytopk: ModuleType, noise_std: float) -> Callable[[int, int, int], Loss]:
    return lambda n, c, k: pytopk.BalNoisedTopK(k=k, epsilon=noise_std, n_sample=_DRAWS)


def _ranked(difftopk: ModuleType | None) -> list[Case]:
    limits: Any = {"max_k": _CANDIDATES - 1, "min_classes": _CANDIDATES + 1}
    cases = []
    for method, peer_method in _RANKINGS.items():
        goals = {5: 12.0} if method == "splitter" else {}
        cases.append(Case(f"ranked_topk {method}", _ranked_topk(method), goals=goals, **limits))
        if difftopk is not None:
            make = _difftopk(difftopk, peer_method)
            name = f"  difftopk {peer_method}"
            cases.append(Case(name, make, family="ranked_topk", peer="difftopk", **limits))
    cases.append(Case("ranked_topk sinkhorn", _ranked_topk("sinkhorn"), **limits))
    return [
        *cases,
        Case("ranked_topk splitter, all classes", _ranked_topk("splitter", None), max_k=10),
        Case("ranked_topk sinkhorn, all classes", _ranked_topk("sinkhorn", None), max_k=10, at_least=3),
    ]


def _only(k: int) -> list[float]:
    """The distribution of k that is always this k."""
    return [0.0] * (k - 1) + [1.0]


def _ranked_topk(method: str, candidates: int | None = _CANDIDATES) -> Callable[[int, int, int], Loss]:
    def make(n: int, c: int, k: int) -> Loss:
        # "sort", so that there is something to rank for k = 1, as in the peer
        options: Any = {"method": method, "candidates": candidates, "top1": "sort"}
        return partial(ranked_topk_loss, distribution=_only(k), **options)

    return make


def _difftopk(difftopk: ModuleType, method: str) -> Callable[[int, int, int], Loss]:
    def make(n: int, c: int, k: int) -> Loss:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it prints its layers, and builds tensors in a way that warns
            return difftopk.TopKCrossEntropyLoss(
                diffsort_method=method,
                inverse_temperature=10.0,
                p_k=_only(k),
                n=c,
                m=_CANDIDATES,
                distribution="cauchy",
                top1_mode="sort",
            )

    return make


def _sparse(entmax: ModuleType | None) -> list[Case]:
    cases = [Case("sparse_top (operator)", _weighted(sparse_top), goals={5: 10})]
    if entmax is not None:
        make = _weighted(lambda scores, k: entmax.sparsemax(scores, dim=-1))
        cases.append(Case("  entmax sparsemax", make, family="sparse_top", max_k=1, peer="entmax"))
    return [*cases, Case("sparse_top_loss", _multi_label)]


def _weighted(operator: Callable[..., Tensor]) -> Callable[[int, int, int], Loss]:
    """A scalar of an operator's output, with a gradient that differs from class to class."""

    def make(n: int, c: int, k: int) -> Loss:
        weights = torch.randn(n, c)
        return lambda scores, target: (operator(scores, k=k) * weights).sum()

    return make


def _multi_label(n: int, c: int, k: int) -> Loss:
    """The sparse-top loss of rows with k labels each."""
    labels = torch.zeros(n, c).scatter(1, torch.rand(n, c).topk(k)[1], 1.0)
    return lambda scores, target: sparse_top_loss(scores, labels)
