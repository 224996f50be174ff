"""Losses of very many scores, some rows at a time: the same values and gradients, and no further copies."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from shortlist.losses import LOSSES, call_loss, noised_topk_loss, pairwise_margin_loss
from tests.test_losses_common import CLASS_LOSSES, C, options

N = 7  # of which a block has two


@pytest.fixture
def divided(monkeypatch):
    """Have every batch divided, or none."""

    def divide(into_blocks: bool):
        monkeypatch.setattr("shortlist.losses._row_blocks._MANY", 1 if into_blocks else 10**9)
        monkeypatch.setattr("shortlist.losses._row_blocks._BLOCK", 2 * C)

    return divide


def some_batch(dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(N, C, dtype=torch.float64, generator=generator).mul(2).sub(1).to(dtype)
    target = torch.randint(C, (N,), generator=generator)
    target[4] = -100
    return scores.requires_grad_(), target


def value_and_gradient(loss, scores, target, dtype) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = scores.detach().to(dtype).requires_grad_()
    value = call_loss(loss, leaf, target, torch.arange(N))
    (100 * value).backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*CLASS_LOSSES, "cross_entropy", "smoothed cross_entropy"])
def test_blocks_give_what_the_whole_batch_gives(name, dtype, divided):
    weight = torch.linspace(0.5, 2, C)
    if name == "smoothed cross_entropy":
        loss = torch.nn.CrossEntropyLoss(label_smoothing=0.3)
    elif name == "cross_entropy":
        loss = torch.nn.CrossEntropyLoss(
            weight=weight.to(torch.float64 if dtype == torch.float64 else torch.float32)
        )
    else:
        loss = LOSSES[name](**options(name), weight=weight)
    divided(False)
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    value, gradient = value_and_gradient(loss, *some_batch(dtype), computed)
    divided(True)
    own_value, own_gradient = value_and_gradient(loss, *some_batch(dtype), dtype)
    assert own_gradient.dtype == dtype
    exact, rounding, smallest = {
        torch.float64: (1e-12, 1e-12, 1e-16),
        torch.bfloat16: (1e-5, 2**-7, 1e-9),  # two roundings to 8 bits
        torch.float16: (1e-5, 2**-10, 2**-24),
    }[dtype]
    assert torch.allclose(own_value.double(), value.double(), rtol=exact)
    assert torch.allclose(own_gradient.double(), gradient.double(), rtol=rounding, atol=smallest)


def test_small_gradients_of_float16_are_scaled_before_they_are_rounded(divided):
    """A class of probability 1e-8 has a gradient that float16 holds only times the trainer's scale."""
    divided(True)
    scores = torch.tensor([[0.0, -18.4]], dtype=torch.float16, requires_grad=True)
    (2.0**16 * call_loss(torch.nn.CrossEntropyLoss(), scores, torch.tensor([0]), torch.arange(1))).backward()
    assert scores.grad is not None
    assert float(scores.grad[0, 1]) == pytest.approx(2**16 * torch.tensor(-18.4).exp().item(), rel=0.01)


def test_what_else_is_learned_gets_its_gradient(divided):
    found = []
    for into_blocks in (False, True):
        divided(into_blocks)
        scores, target = some_batch(torch.float64)
        base = torch.ones(C, C, dtype=torch.float64, requires_grad=True)
        pairwise_margin_loss(scores, target, margins=2 * base).backward()
        found.append((scores.grad, base.grad))
    assert found[0][1].abs().sum() > 0
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_noise_that_is_given_is_that_of_all_rows(divided):
    noise = torch.randn(3, N, C, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = []
    for into_blocks in (False, True):
        divided(into_blocks)
        found.append(noised_topk_loss(*some_batch(torch.float64), k=3, noise=noise).item())
    assert found[0] == found[1]


@pytest.mark.errors
def test_a_second_derivative_is_refused_by_name(divided):
    divided(True)
    scores, target = some_batch(torch.float64)
    value = call_loss(torch.nn.CrossEntropyLoss(), scores, target, torch.arange(N))
    with pytest.raises(RuntimeError, match="four million scores has no second derivative"):
        torch.autograd.grad(value, scores, create_graph=True)


class LargeTensors(TorchDispatchMode):
    """Counts the tensors as large as the scores that are made."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.numel, self.made = numel, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() >= self.numel:
            old = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
            self.made += result.untyped_storage().data_ptr() not in old
        return result


def test_only_the_gradient_is_as_large_as_the_scores(divided):
    counts = []
    for into_blocks in (False, True):
        divided(into_blocks)
        scores, target = some_batch(torch.bfloat16)
        with LargeTensors(scores.numel()) as large:
            call_loss(LOSSES["focal"](), scores, target, torch.arange(N)).backward()
        counts.append(large.made)
    # the gradient of the rows, and the same times what comes from above, when the scores may be gone
    assert counts[1] == 2 < counts[0]


def test_a_batch_below_the_bound_is_that_of_cross_entropy():
    scores, target = some_batch(torch.float32)
    value = call_loss(torch.nn.CrossEntropyLoss(), scores, target, torch.arange(N))
    assert value.item() == cross_entropy(scores, target).item()


def test_probability_targets_of_many_scores_are_those_of_cross_entropy(divided):
    divided(True)
    scores, _ = some_batch(torch.float64)
    target = torch.rand(N, C, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).softmax(1)
    weight = torch.linspace(0.5, 2, C, dtype=torch.float64)
    value = call_loss(torch.nn.CrossEntropyLoss(weight=weight), scores, target, torch.arange(N))
    wanted = -(scores.log_softmax(1) * target * weight).sum() / N
    assert value.item() == pytest.approx(wanted.item(), rel=1e-12)
