import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from shortlist.losses import assume_negative_loss
from tests.losses.batches import assert_equals_case, golden_single_positive, heads


@pytest.mark.parametrize("kind", ["an", "an_ls", "wan"])
def test_golden(golden, kind):
    for case, logits, target in golden_single_positive(golden, kind):
        loss = assume_negative_loss(
            logits,
            target,
            negative_weight=None if kind == "wan" else 1.0,
            label_smoothing=case["params"]["ls_coef"] or 0.0,
            normalization="original",
        )
        assert_equals_case(loss, case, logits)


def test_papers_normalization():
    scores, _, target = heads()
    chance = torch.sigmoid(scores)
    true = chance[torch.arange(6), target]
    others = torch.ones_like(scores).scatter(1, target[:, None], 0)
    want = (-true.log() - (others * (1 - chance).log()).sum(1) / 7).mean()
    torch.testing.assert_close(assume_negative_loss(scores, target), want)
    labels = torch.zeros_like(scores).scatter(1, target[:, None], 1)
    plain = binary_cross_entropy(chance, labels, reduction="sum") / 6
    torch.testing.assert_close(assume_negative_loss(scores, target, negative_weight=1.0), plain)


def test_smoothing_leaves_masked_classes_out():
    scores, _, target = heads()
    target[target > 4] = 1
    scores[:, 5:] = -math.inf
    for target_form in (target, torch.nn.functional.one_hot(target, 8).double()):
        leaf = scores.clone().requires_grad_()
        loss = assume_negative_loss(leaf, target_form, label_smoothing=0.1, negative_weight=0.3)
        loss.backward()
        want = assume_negative_loss(
            scores[:, :5],
            target_form if target_form.ndim == 1 else target_form[:, :5],
            label_smoothing=0.1,
            negative_weight=0.3,
        )
        torch.testing.assert_close(loss.detach(), want)
        assert torch.isfinite(leaf.grad).all() and (leaf.grad[:, 5:] == 0).all()


def test_float32_keeps_its_digits_where_all_is_learned():
    """True scores far up, others far down: losses near 0 that the sum of all terms would drown."""
    scores = torch.full((1, 1000), -12.0)
    scores[0, 0], target = 12.0, torch.tensor([0])
    one_hot = torch.zeros_like(scores).scatter(1, target[:, None], 1)
    for loss in (
        lambda s: assume_negative_loss(s, target),
        lambda s: assume_negative_loss(s, one_hot.to(s)),
    ):
        assert loss(scores).item() == pytest.approx(loss(scores.double()).item(), rel=1e-4, abs=6e-7)
    assert assume_negative_loss(scores, target).item() == pytest.approx(
        2 * math.log1p(math.exp(-12)), rel=1e-5
    )
