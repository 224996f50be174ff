"""Wires by the order of the scores or by chance: the numbers of the classes no longer matter."""

import pytest
import torch

from shortlist.losses import ranked_topk_loss
from shortlist.ops import relaxed_topk
from shortlist.ops.networks import NETWORKS


def losses(scores, target, **options):
    return ranked_topk_loss(scores, target, distribution=[0.2] * 5, top1="sort", reduction="none", **options)


@pytest.mark.parametrize("method", NETWORKS)
def test_sorted_wires_do_not_see_the_numbers_of_classes(method):
    scores, target = torch.randn(20, 30, dtype=torch.float64), torch.randint(30, (20,))
    renamed = torch.randperm(30)  # class renamed[j] becomes class j
    place = renamed.argsort()
    by_index = [
        losses(s, t, method=method) for s, t in ((scores, target), (scores[:, renamed], place[target]))
    ]
    assert (by_index[0] - by_index[1]).abs().max() > 1e-3  # what is to be removed
    leaves = [scores.clone().requires_grad_(), scores[:, renamed].clone().requires_grad_()]
    rows = [
        losses(leaf, t, method=method, wiring="sorted")
        for leaf, t in zip(leaves, (target, place[target]), strict=True)
    ]
    torch.testing.assert_close(*rows, rtol=1e-12, atol=1e-13)
    gradients = [torch.autograd.grad(row.sum(), leaf)[0] for row, leaf in zip(rows, leaves, strict=True)]
    torch.testing.assert_close(gradients[0][:, renamed], gradients[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("distribution", "low", "high"), [([0.5, 0, 0, 0, 0.5], 0.05, 0.07), ([0, 0, 0, 0, 1], 0.07, 0.09)]
)
def test_how_much_the_published_wires_see_the_numbers_of_classes(distribution, low, high):
    """The shares that docs/guides/operators.md names, of 100 classes at the default steepness."""
    scores, target, renamed = torch.randn(500, 100), torch.randint(100, (500,)), torch.randperm(100)
    options = {"distribution": distribution, "reduction": "none"}
    before = ranked_topk_loss(scores, target, **options)
    after = ranked_topk_loss(scores[:, renamed], renamed.argsort()[target], **options)
    assert low < float(((after - before).abs() / before).mean()) < high


def test_sorted_wires_are_the_network_of_sorted_scores():
    scores = torch.randn(6, 12, dtype=torch.float64)
    rising, order = scores.sort(1)
    want = torch.zeros(6, 3, 12, dtype=torch.float64)
    for row, (ranks, classes) in enumerate(
        zip(relaxed_topk(rising, k=3, method="splitter"), order, strict=True)
    ):
        for wire, label in enumerate(classes.tolist()):
            want[row, :, label] = ranks[:, wire]
    torch.testing.assert_close(relaxed_topk(scores, k=3, method="splitter", wiring="sorted"), want)
    weights = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    got = relaxed_topk(scores, k=3, method="splitter", wiring="sorted", rank_weights=weights)
    torch.testing.assert_close(got, (weights[:, None] * want).sum(1))


def test_every_random_wiring_is_a_renaming_and_ties_are_even_on_average():
    scores = torch.randn(1, 6, dtype=torch.float64)
    seen = set()
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        got = relaxed_topk(scores, k=2, wiring="random", generator=generator)
        order = torch.rand(6, generator=torch.Generator().manual_seed(seed)).argsort()
        want = torch.empty_like(got)
        want[:, :, order] = relaxed_topk(scores[:, order], k=2)
        torch.testing.assert_close(got, want)
        seen.add(tuple(order.tolist()))
    assert len(seen) > 30
    generator = torch.Generator().manual_seed(0)
    tied = torch.zeros(1, 6)
    by_wire = relaxed_topk(tied, k=2)[0, 0]
    mean = torch.stack(
        [relaxed_topk(tied, k=2, wiring="random", generator=generator)[0, 0] for _ in range(400)]
    )
    assert by_wire.max() - by_wire.min() > 0.03
    assert (mean.mean(0) - 1 / 6).abs().max() < 4 * by_wire.std() / 20


@pytest.mark.parametrize("wiring", ["sorted", "random"])
def test_probability_targets_and_masked_classes(wiring):
    scores = torch.randn(4, 9, dtype=torch.float64)
    scores[0, 3] = -torch.inf
    shares = torch.rand(4, 9, dtype=torch.float64).softmax(1)
    options = {"wiring": wiring, "distribution": [0.3, 0.3, 0.4], "reduction": "none"}

    def seeded():
        return torch.Generator().manual_seed(3)

    table = [ranked_topk_loss(scores, torch.full((4,), j), generator=seeded(), **options) for j in range(9)]
    want = (shares * torch.stack(table, 1)).sum(1)
    torch.testing.assert_close(ranked_topk_loss(scores, shares, generator=seeded(), **options), want)
    assert relaxed_topk(scores, k=3, wiring=wiring)[0, :, 3].eq(0).all()


@pytest.mark.errors
def test_an_unknown_wiring():
    with pytest.raises(ValueError, match="wiring must be one of index, sorted, random, got 'any'"):
        relaxed_topk(torch.randn(2, 5), k=2, wiring="any")
