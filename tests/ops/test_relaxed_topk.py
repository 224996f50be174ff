import subprocess
import sys
import warnings
from typing import get_args

import pytest
import torch
from torch.autograd import gradcheck

from shortlist.ops import _network_ranks, relaxed_topk
from shortlist.ops.networks import (
    NETWORKS,
    comparator_layers,
    needed_layers,
    network_depth,
    pair_layers,
)
from shortlist.ops.relaxed_topk import Comparator, Relaxation
from tests import references
from tests.conftest import tensor

METHODS = get_args(Relaxation)
DEPTHS = {
    16: [4, 6, 7, 8, 10, 11, 12, 13],
    1024: [10, 14, 16, 18, 22, 25, 27, 29],
    10450: [14, 18, 20, 23, 27, 30, 32, 34],
    65536: [16, 20, 22, 25, 29, 32, 34, 36],
}


@pytest.mark.parametrize("n", DEPTHS)
def test_splitter_depths(n):
    assert [len(comparator_layers("splitter", n, k)) for k in range(1, 9)] == DEPTHS[n]


def test_bitonic_depths():
    assert [len(comparator_layers("bitonic", n, 1)) for n in DEPTHS] == [10, 55, 105, 136]


# Petersen et al. 2022, table 7: odd-even, pairwise and bitonic selection networks
MERGE_DEPTHS = {
    16: [4, 7, 9, 9, 10, 10, 10, 10],
    1024: [10, 19, 27, 27, 34, 34, 34, 34],
    10450: [14, 27, 39, 39, 50, 50, 50, 50],
    65536: [16, 31, 45, 45, 58, 58, 58, 58],
}


@pytest.mark.parametrize("n", MERGE_DEPTHS)
def test_merge_selection_depths(n):
    assert [network_depth("merge_selection", n, k) for k in range(1, 9)] == MERGE_DEPTHS[n]
    if n < 60_000:
        assert [len(comparator_layers("merge_selection", n, k)) for k in (1, 5)] == MERGE_DEPTHS[n][:5:4]


def reached_from_the_top(layers: list[list[tuple[int, int]]], n: int, k: int) -> int:
    """How many comparators a walk back from the k last wires meets."""
    wires, met = set(range(n - k, n)), 0
    for layer in reversed(layers):
        for low, high in layer:
            if low in wires or high in wires:
                wires |= {low, high}
                met += 1
    return met


@pytest.mark.parametrize(("n", "whole", "spared"), [(1000, 5085, 2039), (10450, 68085, 36640)])
def test_comparators_that_reach_no_output_are_left_out(n, whole, spared):
    layers, needed = (of("splitter", n, 5) for of in (comparator_layers, needed_layers))
    assert sum(layer.shape[1] for layer in layers) == whole
    assert sum(layer.shape[1] for layer in needed) == whole - spared
    assert reached_from_the_top([list(zip(*layer.tolist(), strict=True)) for layer in layers], n, 5) == (
        whole - spared
    )


def test_golden_splitter_networks(golden):
    checked = 0
    for case in golden("splitter_selection").cases:
        if case["kind"] == "splitter_comparators":
            layers = comparator_layers("splitter", **case["params"])
            ours = [sorted(map(tuple, layer.T.tolist())) for layer in layers]
            assert ours == [sorted(map(tuple, layer)) for layer in case["layers"]]
            checked += 1
        elif case["kind"] == "splitter_depths":
            for row in case["table"]:
                layers = comparator_layers("splitter", row["n"], row["k"])
                assert len(layers) == row["depth"]
                assert sum(layer.shape[1] for layer in layers) == row["n_comparators"]
                checked += 1
    assert checked >= 27


def test_network_construction_is_cached():
    assert comparator_layers("splitter", 100, 5) is comparator_layers("splitter", 100, 5)
    device = torch.device("cpu")
    assert pair_layers("odd_even", 100, 5, device) is pair_layers("odd_even", 100, 5, device)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 50])
def test_networks_sort_the_top(network, n):
    for k in range(1, min(n, 6) + 1):
        values = torch.randint(0, 2, (500, n)).float() + 0.1 * torch.rand(
            500, n
        )  # 0-1 principle, ties broken
        inputs, layers = pair_layers(network, n, k, torch.device("cpu"))
        places = torch.nn.functional.pad(values[:, inputs], (1, 0))
        for pairs, on, _ in layers:
            first, second = places[:, 1 : pairs + 1], places[:, pairs + 1 : 2 * pairs + 1]
            compared = [torch.minimum(first, second), torch.maximum(first, second)]
            places = torch.cat([places[:, :1], *compared, places[:, 2 * pairs + 1 :]], 1)[:, on]
        assert torch.equal(places[:, 1:].flip(1), values.topk(k).values)


@pytest.mark.parametrize("name", ["diffsort_matrices", "splitter_selection"])
def test_golden_matrices(golden, name):
    reference = golden(name)
    cases = [case for case in reference.cases if "P" in case]
    assert len(cases) >= 9
    for case in cases:
        params, inputs, want = case["params"], reference.inputs(case), tensor(case["P"])
        if "tau" in params:
            options = {"method": case["kind"], "steepness": 1 / params["tau"]}
        else:
            options = {
                "method": params.get("network", "splitter"),
                "comparator": params["distribution"],
                "steepness": params["steepness"],
            }
        scores = inputs["x"].requires_grad_()
        ours = relaxed_topk(scores, k=want.shape[2], **options).transpose(1, 2).flip(2)
        (ours * inputs["w"]).sum().backward()
        gradient = next(value for key, value in case.items() if key.startswith("grad"))
        torch.testing.assert_close(ours.detach(), want, rtol=0, atol=1e-9)
        torch.testing.assert_close(scores.grad, tensor(gradient), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("comparator", get_args(Comparator))
@pytest.mark.parametrize("network", ["splitter", "odd_even"])
@pytest.mark.parametrize("n", [5, 11])
def test_networks_equal_dense_matrices(network, comparator, n):
    scores = torch.randn(3, n, dtype=torch.float64)
    layers = [list(zip(*layer.tolist(), strict=True)) for layer in comparator_layers(network, n, 3)]
    got = relaxed_topk(scores, k=3, method=network, comparator=comparator, steepness=2.0)
    for row, ranks in zip(scores, got, strict=True):
        want = tensor(references.network_ranks(row.tolist(), layers, 3, comparator, 2.0).tolist())
        torch.testing.assert_close(ranks, want, rtol=0, atol=1e-9)


def ranks_of_whole_network(scores, network, k, steepness):
    """The product of all layers of a network, those that reach no output too, by PyTorch's own derivative."""
    n = scores.shape[1]
    start = torch.arange(n)
    if network == "bitonic":  # the only one whose inputs do not start on the wire of their number
        order = torch.zeros(1, dtype=torch.int64)
        while len(order) < n:
            order = torch.cat([order, len(order) + order.flip(0)])
        start[order[order >= len(order) - n] - (len(order) - n)] = torch.arange(n)
    values, product = scores[:, start], torch.eye(n, dtype=scores.dtype)[start].expand(len(scores), n, n)
    for layer in comparator_layers(network, n, k):
        matrix = torch.eye(n, dtype=scores.dtype).repeat(len(scores), 1, 1)
        low, high = layer
        f = torch.atan(steepness * (values[:, high] - values[:, low])) / torch.pi + 0.5
        for rows, columns, entry in ((low, low, f), (low, high, 1 - f), (high, low, 1 - f), (high, high, f)):
            matrix[:, rows, columns] = entry
        values, product = (matrix @ values[..., None])[..., 0], matrix @ product
    return product.flip(1)[:, :k]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("n", "k"), [(2, 1), (7, 7), (13, 1), (33, 4), (60, 5)])
def test_ranks_and_gradient_are_those_of_the_whole_network(network, n, k):
    scores, upstream = torch.randn(3, n, dtype=torch.float64), torch.randn(3, k, n, dtype=torch.float64)
    found = []
    for ranks_of in (
        lambda s: relaxed_topk(s, k=k, method=network, steepness=1.5),
        lambda s: ranks_of_whole_network(s, network, k, 1.5),
    ):
        leaf = scores.clone().requires_grad_()
        ranks = ranks_of(leaf)
        (gradient,) = torch.autograd.grad((ranks * upstream).sum(), leaf)
        found.append((ranks.detach(), gradient))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-13)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("method", ["neuralsort", "softsort", "sinkhorn"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 20.0])
def test_sorts_equal_their_definitions(method, scale):
    scores = scale * torch.randn(4, 9, dtype=torch.float64)
    oracle = {
        "neuralsort": references.neuralsort,
        "softsort": references.softsort,
        "sinkhorn": references.sinkhornsort,
    }[method]
    want = references.rows(lambda row: oracle(row, 4, 0.5), scores)
    torch.testing.assert_close(
        relaxed_topk(scores, k=4, method=method, steepness=2.0), want, rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("method", METHODS)
def test_properties(method):
    scores = torch.randn(6, 12, dtype=torch.float64)
    ranks = relaxed_topk(scores, k=5, method=method, comparator="logistic", steepness=3.0)
    assert ranks.shape == (6, 5, 12) and (ranks >= 0).all()
    torch.testing.assert_close(ranks.sum(-1), torch.ones(6, 5, dtype=torch.float64))
    if method not in ("neuralsort", "softsort"):  # these are not doubly stochastic
        assert (ranks.sum(1) <= 1 + 1e-2).all()


@pytest.mark.parametrize("method", METHODS)
def test_steep_means_hard(method):
    scores = torch.stack([torch.randperm(12) for _ in range(6)]).double()
    steepness = 2000.0 if method == "sinkhorn" else 200.0
    ranks = relaxed_topk(scores, k=4, method=method, comparator="logistic", steepness=steepness)
    assert torch.equal(ranks.argmax(-1), scores.topk(4).indices)
    assert ranks.amax(-1).min() > 0.95


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("comparator", get_args(Comparator))
def test_gradcheck(method, comparator):
    if method not in NETWORKS and comparator != "cauchy":
        return  # the sorts have no comparators: checked once
    scores = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    options = {"method": method, "comparator": comparator, "steepness": 0.7}
    assert gradcheck(lambda s: relaxed_topk(s, k=3, **options), (scores,))


@pytest.mark.parametrize("method", METHODS)
def test_rank_weights_are_a_weighted_sum_of_rows(method):
    scores = torch.randn(3, 7, dtype=torch.float64)
    full = relaxed_topk(scores, k=4, method=method, steepness=2.0)
    shared, per_row = torch.rand(4, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)
    for weights in (shared, per_row):
        got = relaxed_topk(scores, k=4, method=method, steepness=2.0, rank_weights=weights)
        torch.testing.assert_close(got, (weights.expand(3, 4)[:, :, None] * full).sum(1))


def test_deep_networks_compute_again_to_the_same_result(monkeypatch):
    scores = torch.randn(2, 40, dtype=torch.float64)
    results = []
    for stretch in (1000, 7):
        monkeypatch.setattr(_network_ranks, "_STRETCH", stretch)
        leaf = scores.clone().requires_grad_()
        ranks = relaxed_topk(leaf, k=3, method="odd_even", steepness=2.0)
        (ranks * torch.arange(40)).sum().backward()
        results.append((ranks.detach(), leaf.grad))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-13)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_extreme_masked_and_nan_scores(method):
    scores = torch.randn(4, 10)
    scores[0] *= 1e4
    scores[1, 6:] = -torch.inf
    scores[2] = 1.0  # all tied
    scores[3, 2] = torch.nan
    leaf = scores.clone().requires_grad_()
    ranks = relaxed_topk(leaf, k=3, method=method)
    assert torch.isfinite(ranks[:3]).all() and ranks[3].isnan().any()
    assert (ranks[1, :, 6:] == 0).all()
    torch.testing.assert_close(ranks[:3].sum(-1), torch.ones(3, 3), rtol=0, atol=2e-2)
    (gradient,) = torch.autograd.grad(ranks[:3].square().sum(), leaf)
    assert torch.isfinite(gradient[:3]).all()


MEMORY = """
import os, resource, torch
from shortlist.ops import relaxed_topk
for method in {methods!r}:
    if os.fork():  # a process for each, of which PyTorch is a part, but is not imported again
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, method
        continue
    scores = torch.randn(8, 10450, requires_grad=True)
    ranks = relaxed_topk(scores, k=5, method=method)
    ranks.square().sum().backward()
    assert torch.isfinite(scores.grad).all()
    print(method, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    break
"""


def assert_fit_in_2_gb(*methods):
    run = subprocess.run(
        [sys.executable, "-c", MEMORY.format(methods=methods)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    taken = dict(line.split() for line in run.stdout.splitlines())
    assert tuple(taken) == methods
    assert all(float(megabytes) < 2000 for megabytes in taken.values()), taken  # PyTorch included


@pytest.mark.slow
def test_10450_classes_fit_in_2_gb():
    assert_fit_in_2_gb("neuralsort", "softsort", "sinkhorn", "bitonic", "splitter")


@pytest.mark.slow
def test_10450_classes_fit_in_2_gb_with_the_deepest_network():
    assert_fit_in_2_gb("odd_even")


@pytest.mark.errors
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be an integer >= 1, got 0"),
        ({"k": 9}, r"k must be <= the number of classes \(5\), got 9"),
        ({"method": "quick"}, "method must be one of neuralsort, .*, got 'quick'"),
        ({"comparator": "sharp"}, "comparator must be one of logistic, .*, got 'sharp'"),
        ({"steepness": 0.0}, "steepness must be > 0, got 0.0"),
        ({"steepness": float("nan")}, "steepness must be a finite number > 0, got nan"),
        ({"rank_weights": torch.ones(3)}, r"rank_weights must have shape \(2,\) or \(2, 2\), got \(3,\)"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        relaxed_topk(torch.zeros(2, 5), **{"k": 2, **arguments})


def test_neuralsort_keeps_its_digits_in_float32():
    scores = torch.randn(2, 10_000)
    got = relaxed_topk(scores, k=5, method="neuralsort", steepness=10.0)
    want = relaxed_topk(scores.double(), k=5, method="neuralsort", steepness=10.0)
    assert (got - want).abs().max() < 1e-4


@pytest.mark.parametrize("network", NETWORKS)
def test_depth_is_known_without_building(network):
    for n in (1, 2, 3, 16, 50, 100):
        for k in range(1, min(n, 6) + 1):
            assert network_depth(network, n, k) == len(comparator_layers(network, n, k))


@pytest.mark.compiled  # a trace: its sizes are tensors, which no annotation allows
def test_a_trace_selects_anew():
    first, second = torch.randn(2, 4, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing itself, and of the checks
        traced = torch.jit.trace(lambda s: relaxed_topk(s, k=3, method="softsort"), first)
    torch.testing.assert_close(traced(second), relaxed_topk(second, k=3, method="softsort"))


@pytest.mark.errors
def test_an_art_lambda_above_its_bound():
    with pytest.raises(ValueError, match=r"art_lambda must be < 1, got 5\.0"):
        relaxed_topk(torch.randn(2, 5), k=2, art_lambda=5.0)
