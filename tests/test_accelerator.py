"""What would keep a GPU waiting: every loss, predictor and metric on tensors that have no values.

Tensors of the device "meta" have a shape and no numbers: reading one is an error by itself, with ``item()``,
``tolist()``, ``if tensor``, ``nonzero()`` or an index by a mask. Besides, each operation is looked at: all
tensors that it takes are on the device, and nothing is copied to it or from it. Operators of this library are
opened, so that what they do inside is seen.
"""

import sys
from functools import partial
from importlib import import_module
from operator import le
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves

from shortlist.metrics import (
    brier_score,
    calibration_error,
    rank_histogram,
    set_coverage,
    set_size,
    set_sums,
    topk_accuracy,
    topk_sums,
    true_ranks,
)
from shortlist.predictors import AverageK, Conformal, TopK
from shortlist.predictors.conformity import APS, RAPS, SAPS
from tests.loss_calls import WAYS, loss_call
from tests.metrics.test_modules import load, metrics_of
from tests.predictors.test_interface import ALL, rows
from tests.test_losses_common import CLASS_LOSSES, COUPLED, MARGIN_LOSSES, C, N

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
dispatch, cases = (import_module(name) for name in ("dispatch", "cases"))
READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "bincount", "_unique2"}


class NeverWaits(dispatch.Dispatched):
    """Refuses operations that read a value on the host, or take tensors of two devices."""

    def __init__(self, *, first):
        super().__init__()
        self.first = first

    def seen(self, func, args, kwargs, out):
        if self.first:
            return
        name = func._schema.name.removeprefix("aten::")
        tensors = [leaf for leaf in tree_leaves((args, kwargs, out)) if torch.is_tensor(leaf)]
        devices = {tensor.device.type for tensor in tensors if tensor.numel()}
        assert name not in READS, f"{name} reads values"
        assert devices <= {"meta"}, f"{name} takes tensors of {devices}"
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            places = [place for place in args[1] if place is not None]
            assert all(place.dtype not in (torch.bool, torch.uint8) for place in places), f"{name} by a mask"


def never_waits(function, *inputs):
    """Call a function twice: the first call may make tables, as of a network's layers, and keep them."""
    for first in (True, False):
        with NeverWaits(first=first):
            function(*inputs)


def never_waits_to_train(loss, *inputs):
    never_waits(lambda *each: loss(*each).sum().backward(), *inputs)


def scores_of(dtype=torch.float32):
    return torch.zeros(N, C, dtype=dtype, device="meta", requires_grad=True)


def classes():
    return torch.zeros(N, dtype=torch.int64, device="meta")


def target_of(name):
    return torch.zeros(N, C, device="meta") if name == "sparse_top" else classes()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_losses_do_not_wait(way, dtype):
    never_waits_to_train(loss_call(way, "meta"), scores_of(dtype), target_of(way))


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("role", "sparse_top")])
def test_losses_with_class_weights_do_not_wait(way):
    never_waits_to_train(loss_call(way, "meta", weight=torch.ones(C)), scores_of(), target_of(way))


@pytest.mark.parametrize("way", [way for way in WAYS if way.split()[0] not in COUPLED])
@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_losses_of_rows_do_not_wait(way, reduction):
    never_waits_to_train(loss_call(way, "meta", reduction=reduction), scores_of(), target_of(way))


# with probability targets, these evaluate their rows once for each share that is not 0
COUNT_SHARES = {"smooth_topk", "pairwise_margin"}
OF_SHARES = [way for way in WAYS if way.split()[0] in CLASS_LOSSES and "candidates" not in way]


@pytest.mark.parametrize("way", [way for way in OF_SHARES if way not in COUNT_SHARES])
@pytest.mark.parametrize("weight", [None, torch.ones(C)])
def test_losses_of_probability_targets_do_not_wait(way, weight):
    shares = torch.zeros(N, C, device="meta")
    never_waits_to_train(loss_call(way, "meta", weight=weight), scores_of(), shares)


@pytest.mark.parametrize("way", MARGIN_LOSSES)
def test_plain_class_weights_do_not_wait(way):
    plain = {"weight": torch.ones(C), "weighting": "plain"}
    never_waits_to_train(loss_call(way, "meta", **plain), scores_of(), classes())


# a union of several nodes grows until it is told to stop: the host asks which rows go on
GROW = {"few nodes"}
EQUAL = torch.full((6,), 1 / 6)
PREDICTORS = {name: make for name, make in ALL.items() if name not in GROW} | {
    "raps": lambda: Conformal(coverage=0.8, score=RAPS(penalty=0.1, k_reg=2)),
    "saps": lambda: Conformal(coverage=0.8, score=SAPS(step=0.1)),
    "clustered": lambda: Conformal(coverage=0.8, rule="clustered"),
    "interpolated": lambda: Conformal(coverage=0.8, rule="interpolated"),
    "bounded aps": lambda: Conformal(coverage=0.8, score=APS(), at_least=1, at_most=4),
    "topk at a place": lambda: TopK(2).at(torch.tensor([1.0, 2, 0, 1, 1, 1]), priors=EQUAL),
    "average_k at a place": lambda: AverageK(2).at(torch.tensor([1.0, 2, 0, 1, 1, 1]), priors=EQUAL),
    "lac at a place": lambda: Conformal(coverage=0.8).at(torch.tensor([1.0, 2, 0, 1, 1, 1]), priors=EQUAL),
}


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
@pytest.mark.parametrize("name", PREDICTORS)
def test_predictors_do_not_wait(name):
    logits, target = rows()
    predictor = PREDICTORS[name]()
    if predictor.needs_calibration:
        predictor.calibrate(logits, target)
    never_waits(predictor.to("meta"), logits.to("meta"))


# of the common losses at (256, 1000), k = 5: forward, backward
MOST_KERNELS = {
    "topk_hinge": (20, 15),
    "noised_topk 5 draws, flat": (23, 14),
    "average_k, both heads": (35, 22),
    "role": (44, 4),
    "ranked_topk neuralsort": (57, 41),
    "ranked_topk splitter": (222, 14),
    "focal": (18, 24),
}


def test_losses_start_few_kernels():
    """A GPU takes the same time for a kernel of a small batch as for one of a large batch."""
    counted = {
        case.name: dispatch.count_kernels(partial(case.make, 256, 1000, 5), 256, 1000)
        for case in cases.make_cases({})
        if case.name in MOST_KERNELS
    }
    over = {name: counts for name, counts in counted.items() if not all(map(le, counts, MOST_KERNELS[name]))}
    assert counted.keys() == MOST_KERNELS.keys() and not over


def metrics_of_sets():
    sets = torch.zeros(N, C, dtype=torch.bool, device="meta")
    return {
        "set_sums": lambda: set_sums(sets, classes()),
        "set_coverage": lambda: set_coverage(sets, classes()),
        "set_size": lambda: set_size(sets, classes()),
        "topk_sums": lambda: topk_sums(scores_of(), classes(), k=(1, 3)),
        "topk_accuracy": lambda: topk_accuracy(scores_of(), classes(), k=3),
        "true_ranks": lambda: true_ranks(scores_of(), classes()),
        "rank_histogram": lambda: rank_histogram(scores_of(), classes()),
        "calibration_error": lambda: calibration_error(scores_of(), classes()),
        "brier_score": lambda: brier_score(scores_of(), classes()),
    }


@pytest.mark.parametrize("name", metrics_of_sets())
def test_metrics_do_not_wait(name):
    never_waits(metrics_of_sets()[name])


def test_metrics_of_torchmetrics_do_not_wait():
    modules = load()
    metrics = metrics_of(modules, C, torch.zeros(C, dtype=torch.int64)) | {"brier": modules.BrierScore()}
    sets = torch.zeros(N, C, dtype=torch.bool, device="meta")
    for name, metric in metrics.items():
        rows = sets if name in ("coverage", "size") else scores_of()
        never_waits(metric.to("meta").update, rows, classes())


def test_what_waits_is_seen():
    scores, read = scores_of(), []
    waits = {
        "item": lambda: read.append(scores.sum().item()),
        "if": lambda: read.append(1 if scores.any() else 0),
        "tolist": lambda: read.append(scores.tolist()),
        "numpy": lambda: read.append(scores.detach().numpy()),
        "nonzero": lambda: scores.nonzero(),
        "mask": lambda: scores[classes() == 0],
        "copy here": lambda: scores.detach().cpu(),
        "copy there": lambda: torch.ones(3).to("meta"),
        "two devices": lambda: scores + torch.ones(N, C),
    }
    for name, function in waits.items():
        with pytest.raises((RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError)):
            never_waits(function)
            pytest.fail(f"{name} was not seen")
    assert not read
