"""Every loss compiled by inductor, into C++, has the value and the gradient that it has without."""

import os
import shutil

import pytest
import torch
from torch._inductor import config

from shortlist.losses import LabelEstimates, RoleLoss
from tests.loss_calls import WAYS, loss_call
from tests.test_losses_common import C, N, batch

HAS_COMPILER = any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.compiled,
    pytest.mark.skipif(not HAS_COMPILER, reason="inductor needs a C++ compiler"),
]


@pytest.fixture(autouse=True)
def compiled_here(tmp_path_factory, monkeypatch):
    """Compile anew, into the folder of the test session, and draw the random numbers that torch draws."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    torch._dynamo.reset()
    with config.patch({"compile_threads": 1, "fallback_random": True, "fx_graph_cache": False}):
        yield
    torch._dynamo.reset()


def value_and_gradient(loss, logits, target):
    torch.manual_seed(1)
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, target)
    value.backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize("way", WAYS)
def test_value_and_gradient_are_those_without(way):
    loss = loss_call(way)
    compiled = torch.compile(loss, fullgraph=True)
    for n in (N, N - 2, N - 1):  # compiled for one size, then for any, then used again
        logits, target = batch(way, torch.float32, n)
        if way == "ldam scaled":  # which wants cosines
            logits = logits.tanh()
        got = value_and_gradient(compiled, logits, target)
        want = value_and_gradient(loss, logits, target)
        assert want[1].abs().sum() > 0
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_the_table_of_role_has_its_gradient():
    logits, target = batch("role", torch.float32)
    loss = RoleLoss(estimates=LabelEstimates(target, num_classes=C), k=2.5)
    gradients = []
    for run in (torch.compile(loss, fullgraph=True), loss):
        loss.zero_grad()
        run(logits, target, torch.arange(N).flip(0)).backward()
        gradients.append([table.grad for table in loss.parameters()])
    for got, want in zip(*gradients, strict=True):
        assert want.is_sparse and want.to_dense().abs().sum() > 0
        assert got.is_sparse
        torch.testing.assert_close(got.to_dense(), want.to_dense(), rtol=1e-5, atol=1e-6)
