"""Batches and checks that the tests of several losses share."""

import pytest
import torch

from tests.conftest import tensor


def heads(n=6, c=8, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores, proposals = torch.randn(2, n, c, generator=generator, dtype=dtype)
    return scores, 2 * proposals, torch.randint(c, (n,), generator=generator)


def golden_single_positive(golden, kind):
    """Cases of the authors' code, with their scores and targets."""
    reference = golden("spml")
    cases = [case for case in reference.cases if case["kind"] == kind]
    assert len(cases) == 3
    for case in cases:
        logits = reference.shared[case["inputs"]["f_logits"]].clone().requires_grad_()
        yield case, logits, reference.shared[case["inputs"]["observed"]].argmax(1)


def assert_equals_case(loss, case, logits):
    loss.backward()
    assert loss.item() == pytest.approx(case["total"], abs=1e-7)
    torch.testing.assert_close(logits.grad, tensor(case["grad_f_logits"]), rtol=0, atol=1e-7)


def golden_long_tail(golden, kind):
    """Cases of the authors' code, with their scores, targets and class weights."""
    reference = golden("longtail")
    cases = [case for case in reference.cases if case["kind"] == kind]
    assert len(cases) == 4
    for case in cases:
        logits = reference.shared[case["inputs"]["x"]].clone() * case["inputs"].get("x_multiplier", 1)
        weight = case["params"]["weight"]
        weight = None if weight is None else tensor(weight)
        yield case, logits.requires_grad_(), reference.shared[case["inputs"]["y"]], weight


def assert_equals_golden_noise(golden, kind, rows_of):
    """The rows come from scores, targets, the case's parameters, and options that hold its noise."""
    reference = golden("noised_topk")
    cases = [case for case in reference.cases if case["kind"] == kind]
    assert cases
    for case in cases:
        inputs, params = reference.inputs(case), case["params"]
        scores, noise = inputs["s"].requires_grad_(), inputs["Z"].permute(2, 0, 1)
        options = {"k": params["k"], "noise_std": params["eps"], "noise": noise, "reduction": "none"}
        rows = rows_of(scores, inputs["y"], params, options)
        rows.mean().backward()
        torch.testing.assert_close(rows.detach(), tensor(case["per_sample"]), rtol=0, atol=1e-12)
        assert rows.mean().item() == pytest.approx(case["mean"], abs=1e-12)
        torch.testing.assert_close(scores.grad, tensor(case["grad_of_mean"]), rtol=0, atol=1e-12)


def assert_transforms_agree_with_rows(loss):
    """vmap and its gradient equal the loss of each row by itself; the loss takes one row and its class."""
    scores, target = torch.randn(4, 20), torch.randint(20, (4,))

    def row(scores, true):
        return loss(scores[None], true[None])

    want = torch.stack([row(one, true) for one, true in zip(scores, target, strict=True)])
    torch.testing.assert_close(torch.func.vmap(row)(scores, target), want)
    leaf = scores.clone().requires_grad_()
    sum(row(one, true) for one, true in zip(leaf, target, strict=True)).backward()
    gradients = torch.func.vmap(torch.func.grad(row))(scores, target)
    torch.testing.assert_close(gradients, leaf.grad)


def assert_batches_of_another_size_compile(loss):
    compiled = torch.compile(loss, backend="aot_eager")
    for n in (4, 7, 9):
        leaf = torch.randn(n, 20, requires_grad=True)
        compiled(leaf, torch.zeros(n, dtype=torch.int64)).backward()
        assert torch.isfinite(leaf.grad).all()
    torch._dynamo.reset()
