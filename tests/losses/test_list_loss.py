"""Losses of lists say once that they leave the first place free, and not where it is learned."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from shortlist.losses import LOSSES, NoisedTopKLoss, create

NAMES = ["noised_topk", "topk_hinge", "calibrated_topk_hinge", "convex_topk_hinge", "smooth_topk"]
NAMES += ["imbalanced_noised_topk"]


def make(name: str, k: int = 5):
    return create(name, k=k, **({"class_counts": [9] * 30} if "class_counts" in LOSSES[name].needs else {}))


def batch(place: int, rows: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of 30 classes in which the true class has this place in each row."""
    target = torch.arange(rows) % 30
    order = torch.stack([torch.roll(torch.arange(30), int(place - y)) for y in target])  # order[i, place] = y
    scores = torch.zeros(rows, 30).scatter(1, order, -torch.arange(30.0).expand(rows, 30))
    assert (scores.argsort(1, descending=True)[:, place] == target).all()
    return scores.requires_grad_(), target


def told(loss: nn.Module, place: int, batches: int) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(batches):
            loss(*batch(place))
    return [words for one in found if "first place" in (words := str(one.message))]


@pytest.mark.parametrize("name", NAMES)
def test_a_first_place_that_is_lost_is_told_once(name):
    (words,) = told(make(name), 3, 300)
    assert "in batch 64, 100 % of the rows have the true class in the list, 0 % in first place" in words
    assert words.startswith(type(make(name)).__name__) and "add 0.2 times the cross-entropy" in words


def test_nothing_is_told_where_all_is_well_or_nothing_is_trained():
    for place, k in ((0, 5), (9, 5), (0, 1)):  # learned; not learned yet; k = 1 has no other order
        assert told(make("noised_topk", k), place, 130) == []
    assert told(make("noised_topk").eval(), 3, 130) == []
    with torch.no_grad():
        assert told(make("noised_topk"), 3, 130) == []
    loss = make("noised_topk")
    told(loss, 9, 60)
    assert len(told(copy.deepcopy(loss), 3, 10)) == 1 and told(loss, 3, 3) == []


def untuned(loss, seed: int) -> tuple[float, float, list[str]]:
    """Top-1 and top-5 of a linear head on long vectors of 30 classes, at a usual learning rate."""
    generator = torch.Generator().manual_seed(7)
    centers = torch.randn(30, 64, generator=generator)
    target = torch.arange(900) % 30
    rows = (2.0 + centers[target] + torch.randn(900, 64, generator=generator)).relu()
    torch.manual_seed(seed)
    head = nn.Linear(64, 30)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(20):
            for some in torch.randperm(900).split(128):
                optimizer.zero_grad()
                loss(head(rows[some]), target[some]).backward()
                optimizer.step()
    best = head(rows).topk(5).indices == target[:, None]
    return (
        float(best[:, 0].float().mean()),
        float(best.any(1).float().mean()),
        [str(w.message) for w in found],
    )


def test_an_untuned_start_is_told_what_helps_and_it_does():
    first, inside, words = untuned(NoisedTopKLoss(k=5), seed=0)
    assert inside > 0.95 and first < 0.1 and len(words) == 1
    of_lists = NoisedTopKLoss(k=5)
    first, inside, words = untuned(lambda s, y: of_lists(s, y) + 0.2 * cross_entropy(s, y), seed=0)
    assert inside > 0.99 and first > 0.99 and words == []
