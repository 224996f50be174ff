"""No loss waits for the device that its scores are on: that would leave an accelerator idle in each step."""

import pytest
import torch

from shortlist._checks import values_hidden
from shortlist.losses import LDAMLoss, topk_hinge_loss
from tests.loss_calls import WAYS, loss_call
from tests.test_losses_common import CLASS_LOSSES, COUNTS, C, N, batch
from tests.waiting import WaitError, first_run, no_waiting

# One evaluation for each probability that is not 0: how many there are has to be known.
COUNT_PROBABILITIES = {"smooth_topk", "pairwise_margin"}


def run_on_device(loss, target) -> None:
    """Forward and backward twice: constants are made, and copied to the device, in the first run."""
    for around in (first_run(), no_waiting()):
        scores = torch.randn(N, C, device="meta", requires_grad=True)
        with around:
            loss(scores, target).backward()


@pytest.mark.parametrize("way", WAYS)
def test_no_loss_waits(way):
    run_on_device(loss_call(way, "meta"), batch(way)[1].to("meta"))


@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_no_loss_waits_with_weights(name):
    loss = loss_call(name, "meta", weight=torch.ones(C), ignore_index=3)
    run_on_device(loss, batch(name)[1].to("meta"))


@pytest.mark.parametrize("name", sorted(set(CLASS_LOSSES) - COUNT_PROBABILITIES))
def test_no_loss_waits_for_probability_targets(name):
    run_on_device(loss_call(name, "meta"), torch.rand(N, C, device="meta"))


@pytest.mark.parametrize("name", sorted(COUNT_PROBABILITIES))
def test_losses_that_count_probabilities_wait(name):
    loss = loss_call(name, "meta")
    with pytest.raises(WaitError, match="nonzero"), no_waiting():
        loss(torch.randn(N, C, device="meta"), torch.rand(N, C, device="meta"))


WAITING = {
    "item": lambda scores: scores * scores.max().item(),
    "branch": lambda scores: scores if scores.sum() > 0 else -scores,
    "mask": lambda scores: scores[scores > 0],
    "nonzero": lambda scores: scores[(scores > 0).any(1).nonzero().squeeze(1)],
    "unique": lambda scores: scores.unique(),
    "host": lambda scores: scores.cpu(),
    "to the device": lambda scores: scores * torch.ones(C).to(scores),
    "numbers": lambda scores: scores * scores.new_tensor([2.0] * C),
    "more numbers": lambda scores: scores * torch.tensor([2.0] * C, device=scores.device),
}


@pytest.mark.parametrize("way", WAITING)
def test_a_loss_that_waits_is_found(way):
    def loss(scores, target):
        return topk_hinge_loss(scores, target, k=3) + WAITING[way](scores).sum()

    scores, target = torch.randn(N, C, device="meta"), torch.zeros(N, dtype=torch.int64, device="meta")
    with no_waiting():
        topk_hinge_loss(scores, target, k=3)
        with pytest.raises(WaitError):
            loss(scores, target)


def test_an_operator_that_waits_inside_is_found():
    """Operators of torch.library are looked into."""

    @torch.library.custom_op("shortlist::waits", mutates_args=())
    def waits(scores: torch.Tensor) -> torch.Tensor:
        return scores * float(scores.max())

    with no_waiting(), pytest.raises(WaitError, match="_local_scalar_dense"):
        waits(torch.randn(N, C, device="meta"))


def test_the_warning_of_scores_that_are_no_cosines_looks_once():
    """The one wait there is: of the first batch of a process, whose scores it is about."""
    loss, (scores, target) = LDAMLoss(class_counts=COUNTS), batch("ldam", torch.float32)
    with values_hidden():
        loss(0.1 * scores, target)
        with no_waiting():
            loss(0.1 * scores, target)
