"""Losses that couple the rows of a batch, over the batch of two processes."""

import math

import torch

from shortlist.losses import (
    AverageKLoss,
    ExpectedPositiveLoss,
    LabelEstimates,
    RoleLoss,
    RowSGD,
    average_k_loss,
)
from shortlist.losses._global_batch import largest_in_batch
from tests.losses.batches import heads
from tests.processes import in_two_processes

N, C = 10, 7


def losses_of(model, features, target, ids, rows):
    first, second = model(features[rows])
    role = RoleLoss(estimates=estimates_of(target.clamp_min(0)), k=2.0)
    return {
        "average_k": AverageKLoss(k=2.5, alpha=0.7)((first, second), target[rows]),
        "average_k weighted": AverageKLoss(k=3.0, weight=torch.linspace(0.1, 1, C).double())(
            (first, second), target[rows]
        ),
        "expected_positive": ExpectedPositiveLoss(k=2.5, beta=0.5)(first, target[rows]),
        "role": role(first, target.clamp_min(0)[rows], ids[rows]),
    }


def estimates_of(target):
    return LabelEstimates(
        target, num_classes=C, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


class TwoLinear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.one = torch.nn.Linear(4, C, dtype=torch.float64)
        self.two = torch.nn.Linear(4, C, dtype=torch.float64)

    def forward(self, features):
        return self.one(features), self.two(features)


def gradients(name: str, rows: slice, parallel: bool) -> tuple:
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(N, 4, dtype=torch.float64, generator=generator)
    target = torch.randint(C, (N,), generator=generator)
    target[7] = -100 if "role" not in name else target[7]
    model = TwoLinear()
    wrapped = model
    if parallel:
        wrapped = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    loss = losses_of(
        wrapped, features, target.clamp_min(0) if "role" in name else target, torch.arange(N), rows
    )
    loss[name].backward()
    none = torch.zeros(C, 4, dtype=torch.float64)
    return (
        loss[name].detach(),
        model.one.weight.grad,
        none if model.two.weight.grad is None else model.two.weight.grad,
    )


CASES = ["average_k", "average_k weighted", "expected_positive", "role"]


class Whole(torch.nn.Module):
    """Network, table and loss in one, as DistributedDataParallel wants them."""

    def __init__(self, target, dtype):
        super().__init__()
        torch.manual_seed(3)
        self.net = torch.nn.Linear(4, C)
        generator = torch.Generator().manual_seed(1)
        estimates = LabelEstimates(target, num_classes=C, dtype=dtype, generator=generator)
        self.loss = RoleLoss(estimates=estimates, k=2.0)

    def forward(self, features, target, ids):
        return self.loss(self.net(features), target, ids)


def train_whole(rows: slice, parallel: bool, dtype=torch.float32, steps=3) -> tuple:
    generator = torch.Generator().manual_seed(5)
    features, ids = torch.randn(N, 4, generator=generator), torch.arange(N)
    target = torch.randint(C, (N,), generator=generator)
    model = Whole(target, dtype)
    wrapped = torch.nn.parallel.DistributedDataParallel(model) if parallel else model
    optimizers = [
        torch.optim.SGD(model.net.parameters(), lr=0.5, momentum=0.9),
        RowSGD([model.loss.estimates.parameter_group(lr=0.5)]),
    ]
    for _ in range(steps):
        wrapped.zero_grad()
        wrapped(features[rows], target[rows], ids[rows]).backward()
        for optimizer in optimizers:
            optimizer.step()
    return model.net.weight.detach(), model.loss.estimates.table.detach()


def masked_average_k(rows: slice) -> torch.Tensor:
    scores, proposals, target = heads(n=N, c=C)
    target[target > 3] = 2
    target[8] = -100
    proposals[:, 4:] = -math.inf
    leaf = scores.requires_grad_()
    average_k_loss(leaf[rows], proposals[rows], target[rows], k=5.5).backward()
    return leaf.grad


def on_part(rank: int) -> dict:
    part = slice(0, 6) if rank == 0 else slice(6, N)  # of unequal size
    return {name: gradients(name, part, parallel=True) for name in CASES} | {
        "whole": train_whole(part, parallel=True),
        "whole bfloat16": train_whole(part, parallel=True, dtype=torch.bfloat16),
        "masked": masked_average_k(part),
        # tied entries: any will do, but no more than wanted in all
        "ties": number_chosen(torch.zeros(3 + rank, 2), 9),
        "few ties": number_chosen(torch.tensor([[3.0, 1.0, 1.0], [2.0, 1.0, rank]]), 5),
    }


def number_chosen(scores: torch.Tensor, wanted: int) -> int:
    return len(largest_in_batch(scores, wanted=torch.tensor(wanted), most=wanted)[0])


def test_two_processes_equal_one_with_the_whole_batch(tmp_path):
    first, second = results = in_two_processes(on_part, tmp_path)
    assert (first["ties"], second["ties"]) == (6, 3)
    assert (first["few ties"], second["few ties"]) == (3, 2)
    start = train_whole(slice(0, N), parallel=False, steps=0)
    want = train_whole(slice(0, N), parallel=False)
    assert all((one - two).abs().max() > 0.02 for one, two in zip(want, start, strict=True))
    for result in results:
        torch.testing.assert_close(result["whole"], want, rtol=0, atol=1e-6)
    for one, two in zip(first["whole bfloat16"], second["whole bfloat16"], strict=True):
        assert one.equal(two)  # rounded alike
    # each process has the gradient of its rows, times 2 as they are to be averaged
    torch.testing.assert_close((first["masked"] + second["masked"]) / 2, masked_average_k(slice(0, N)))
    for name in CASES:
        want = gradients(name, slice(0, N), parallel=False)
        for result in results:
            torch.testing.assert_close(result[name], want, rtol=1e-9, atol=1e-12)
