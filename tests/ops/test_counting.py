import threading

import numpy as np
import pytest
import torch

from shortlist.ops import log_esp_ratio
from shortlist.ops._counting import CountTree, count_tree
from shortlist.ops._cpu.workspaces import _KEPT, _of_thread


def fill(tree: CountTree, chance: torch.Tensor) -> None:
    tree.factors[1].copy_(chance)
    tree.factors[0].copy_(1 - chance)


def exactly(chance: np.ndarray, size: int) -> np.ndarray:
    """Chances of 0, 1, ... of the events, one factor after another."""
    total = np.ones(1)
    for p in chance:
        total = np.convolve(total, [1 - p, p])
    return np.pad(total, (0, size))[:size]


@pytest.mark.parametrize(("m", "size"), [(1, 2), (2, 2), (7, 3), (8, 9), (13, 6)])
def test_products_and_derivatives_are_numpys(m, size):
    chance = torch.rand(m, 4, dtype=torch.float64)
    tree = CountTree(chance, m, size, 4)
    for _ in range(2):  # the second time by the steps of the first
        fill(tree, chance)
        found = tree.multiply()
        for point in range(4):
            np.testing.assert_allclose(found[:, point], exactly(chance[:, point].numpy(), size))
        seed = torch.randn(size, 4, dtype=torch.float64)
        derivative = tree.gradient(seed, part=1)
        for point in range(4):
            for j in range(m):
                others = exactly(np.delete(chance[:, point].numpy(), j), size)
                shifted = np.concatenate([[0.0], others[:-1]])  # the factor's p z moves the others up by one
                assert float(derivative[j, point]) == pytest.approx(shifted @ seed[:, point].numpy())
        chance = torch.rand(m, 4, dtype=torch.float64)


def test_a_workspace_is_used_again_for_the_same_shape_only():
    like = torch.zeros(1)
    first = count_tree(like, 10, 3, 4)
    assert count_tree(like, 10, 3, 4) is first
    assert count_tree(like.double(), 10, 3, 4) is not first
    assert count_tree(like, 10, 3, 5) is not first
    for points in range(20, 20 + _KEPT):
        count_tree(like, 10, 3, points)
    assert len(_of_thread.spaces) == _KEPT
    assert count_tree(like, 10, 3, 4) is not first
    large = count_tree(like, 1000, 6, 400)
    assert count_tree(like, 1000, 6, 400) is not large  # too large to be kept


def test_threads_do_not_share_workspaces():
    found = []
    trees = [count_tree(torch.zeros(1), 10, 3, 4)]
    thread = threading.Thread(target=lambda: found.append(count_tree(torch.zeros(1), 10, 3, 4)))
    thread.start()
    thread.join()
    assert found[0] is not trees[0]


def test_inference_mode_leaves_nothing_that_training_cannot_use():
    scores = torch.randn(3, 11)
    with torch.inference_mode():
        inferred = log_esp_ratio(scores.clone(), k=4)
    leaf = scores.clone().requires_grad_()
    trained = log_esp_ratio(leaf, k=4)
    trained.sum().backward()
    assert torch.equal(trained, inferred)
    assert leaf.grad is not None and torch.isfinite(leaf.grad).all()
