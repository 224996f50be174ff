"""Every loss under torch.func's transforms and on the meta device: it works, or says that it does not."""

import pytest
import torch

from shortlist.losses import LOSSES
from tests.loss_calls import WAYS, loss_call
from tests.test_losses_common import C, N, batch

# the first and each hundredth call of a process looks
pytestmark = pytest.mark.filterwarnings("ignore:ldam_loss expects cosine scores")

# They couple the rows of a batch, and compute their gradients by hand.
REFUSE = {"average_k", "role"}
each = pytest.mark.parametrize("way", [way for way in WAYS if way not in REFUSE])


def one_row(way):
    loss = loss_call(way)
    return lambda scores, target: loss(scores[None], target[None])


def by_rows(function, scores, target):
    torch.manual_seed(1)
    return torch.stack([function(row, true) for row, true in zip(scores, target, strict=True)])


def gradient_of_row(way):
    def gradient(scores, target):
        leaf = scores.clone().requires_grad_()
        return torch.autograd.grad(one_row(way)(leaf, target), leaf)[0]

    return gradient


@each
def test_gradient_by_torch_func(way):
    loss, (scores, target) = loss_call(way), batch(way)
    leaf = scores.clone().requires_grad_()
    torch.manual_seed(1)
    want = torch.autograd.grad(loss(leaf, target), leaf)[0]
    torch.manual_seed(1)
    got = torch.func.grad(lambda x: loss(x, target))(scores)
    if "drawn" not in way:  # draws are made another way where values cannot be looked at
        torch.testing.assert_close(got, want)
    assert got.shape == want.shape and torch.isfinite(got).all() and (got != 0).any()


@each
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of PyTorch's own scatter_
def test_one_row_at_a_time_by_vmap(way):
    scores, target = batch(way)
    got = torch.vmap(one_row(way), randomness="different")(scores, target)
    gradient = torch.vmap(torch.func.grad(one_row(way)), randomness="different")(scores, target)
    if "drawn" in way:
        assert got.shape == (N,) and torch.isfinite(got).all() and torch.isfinite(gradient).all()
        return
    torch.testing.assert_close(got, by_rows(one_row(way), scores, target))
    torch.testing.assert_close(gradient, by_rows(gradient_of_row(way), scores, target))


@pytest.mark.parametrize("way", sorted(REFUSE))
@pytest.mark.parametrize("transform", ["grad", "vmap"])
def test_losses_of_a_whole_batch_refuse_in_a_sentence(way, transform):
    scores, target = batch(way)
    loss = loss_call(way)
    message = f"{way}_loss must be called outside of torch.func's transforms"
    with pytest.raises(ValueError, match=message):
        if transform == "grad":
            torch.func.grad(lambda x: loss(x, target))(scores)
        else:
            torch.vmap(one_row(way))(scores, target)


@pytest.mark.parametrize("way", WAYS)
def test_on_the_meta_device(way):
    scores = torch.randn(N, C, device="meta", requires_grad=True)
    loss = loss_call(way, "meta")(scores, batch(way)[1].to("meta"))
    loss.backward()
    assert loss.shape == () and loss.is_meta and scores.grad.shape == (N, C)


def test_every_loss_is_here():
    assert set(LOSSES) <= set(WAYS)
