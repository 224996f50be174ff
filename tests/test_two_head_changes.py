"""The experiment with changes of the two-head loss: without a change it is the loss of the library."""

import sys

import pytest
import torch

from shortlist.losses import average_k_loss
from shortlist.models.heads import TwoHeadScores
from tests.test_examples import load

COUNTS = torch.tensor([40, 20, 10, 5, 4, 3, 2, 1])


@pytest.fixture
def example():
    return load("two_head_changes")


def test_without_a_change_it_is_the_loss_of_the_library(example):
    target = torch.randint(8, (6,))
    heads = [torch.randn(6, 8, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    ours = example.ChangedLoss("as it is", COUNTS)(TwoHeadScores(*heads), target)
    loss = average_k_loss(*heads, target, k=5, alpha=1.0)
    torch.testing.assert_close(ours, loss)
    pairs = zip(torch.autograd.grad(ours, heads), torch.autograd.grad(loss, heads), strict=True)
    for got, want in pairs:
        torch.testing.assert_close(got, want)


def chosen_by_loops(values: torch.Tensor, target: torch.Tensor, number: int) -> torch.Tensor:
    others = [
        (float(values[i, j]), i, j)
        for i in range(len(values))
        for j in range(values.shape[1])
        if j != int(target[i])
    ]
    chosen = torch.zeros_like(values, dtype=torch.bool)
    for _, i, j in sorted(others, reverse=True)[:number]:
        chosen[i, j] = True
    return chosen


def test_pseudo_positives_by_ratio_and_by_a_running_threshold(example):
    chances, target = torch.randn(6, 8).softmax(1), torch.randint(8, (6,))
    true = torch.zeros(6, 8, dtype=torch.bool).scatter(1, target[:, None], True)
    ratio = example.ChangedLoss("by ratio", COUNTS)._pseudo_positives(chances, true)
    assert torch.equal(ratio, chosen_by_loops(chances / COUNTS, target, 4 * 6))
    running = example.ChangedLoss("running threshold", COUNTS)
    assert torch.equal(running._pseudo_positives(chances, true), chosen_by_loops(chances, target, 4 * 6))
    first = running.threshold
    running._pseudo_positives(0.5 * chances, true)
    assert running.threshold == pytest.approx(0.99 * first + 0.01 * 0.5 * first)


@pytest.mark.slow
def test_the_table_has_a_line_for_each_change(example, monkeypatch, capsys):
    small = ["--set", "data.max_classes=20", "--set", "data.train_images=800"]
    monkeypatch.setattr(sys, "argv", ["two_head_changes.py", "--seeds", "2", "--epochs", "3", *small])
    example.main()
    lines = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line[0].strip() for line in lines[2:]] == list(example.CHANGES)
    assert lines[-1][1].strip() == "" and "±" in lines[-1][3]
