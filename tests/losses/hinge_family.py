"""Checks that the three hinge losses of the first k share."""

import torch

from tests import references
from tests.conftest import tensor


def assert_equals_golden(golden, kind, loss):
    reference, checked = golden("hinge"), 0
    for case in reference.cases:
        if case["kind"] != kind:
            continue
        inputs = reference.inputs(case)
        scores = inputs["s"].requires_grad_()
        rows = loss(scores, inputs["y"], k=case["params"]["K"], reduction="none")
        rows.sum().backward()
        torch.testing.assert_close(rows.detach(), tensor(case["per_sample"]).double(), rtol=0, atol=1e-12)
        if "grad_of_sum" in case:
            torch.testing.assert_close(scores.grad, tensor(case["grad_of_sum"]), rtol=0, atol=1e-12)
        checked += 1
    assert checked == 7


def assert_equals_definition(loss, oracle, c, scale, ties, draw):
    """By a slow oracle, and for probability targets by the mean over the classes; draw gives k and a seed."""
    k, seed = draw(1, c - 1), draw(0, 99)
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(4, c, dtype=torch.float64, generator=generator)
    scores = scores.round() if ties else scores
    target = torch.randint(c, (4,), generator=generator)
    want = references.rows(lambda row, y: oracle(row, y, k, 0.7), scores, target)
    got = loss(scores, target, k=k, margin=0.7, reduction="none")
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-10)
    shares = torch.rand(4, c, dtype=torch.float64, generator=generator)
    shares = shares / shares.sum(1, keepdim=True)
    table = torch.stack(
        [loss(scores, torch.full((4,), j), k=k, margin=0.7, reduction="none") for j in range(c)], dim=1
    )
    mixed = loss(scores, shares, k=k, margin=0.7, reduction="none")
    torch.testing.assert_close(mixed, (shares * table).sum(1), rtol=1e-12, atol=1e-10)


def assert_k_1_is_the_multi_class_hinge(loss):
    scores, target = torch.randn(6, 5, dtype=torch.float64), torch.randint(5, (6,))
    want = references.rows(
        lambda row, y: (1 + references.without(row, int(y)).max() - row[y]).clamp_min(0), scores, target
    )
    torch.testing.assert_close(loss(scores, target, k=1, reduction="none"), want)
