"""The table of label estimates that ROLE learns, and an optimizer for it."""

import random
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from shortlist._checks import can_read_values, check_count, check_number

_TYPES = (torch.bfloat16, torch.float32, torch.float64)


class LabelEstimates(nn.Module):
    """A table (rows, classes) of the scores of each training row's labels, looked up by sample id.

    Observed classes start at chance 0.995, the others uniformly between 0.4 and 0.6. The gradient is sparse,
    of the batch's rows only. The table takes ``rows * classes * bytes`` of memory (:attr:`nbytes`): 240,000 x
    1,081 takes 1,038 MB in float32 and 519 MB in bfloat16. :class:`RowSGD`, and ``torch.optim.SGD`` without
    momentum, add nothing to that; ``SparseAdam`` holds two more tables. In bfloat16 only RowSGD learns: the
    others round most of their steps away.

    Give the table an optimizer of its own, or put :meth:`parameter_group` into the model's SGD. Adam, and the
    clipping of gradients by their norm, do not take sparse gradients: clip those of the model alone.

    **Across processes** the table must be inside of what ``DistributedDataParallel`` wraps, for example as a
    part of one module with network and loss; otherwise each process would learn a table of its own, too
    fast. Sparse gradients are added up over processes by gloo; NCCL cannot.

    Args:
        target: The observed class of each training row (rows,).
        num_classes: Number of classes.
        dtype: ``torch.float32``, ``torch.float64``, or ``torch.bfloat16`` for half the memory, with
            :class:`RowSGD`. float16 is refused: its range is too small for the steps.
        generator: Random generator of the uniform start values.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> estimates = LabelEstimates(torch.tensor([2, 0]), num_classes=3)
        >>> estimates(torch.tensor([1])).sigmoid()[0, 0].item()
        0.995...
    """

    def __init__(
        self,
        target: Int[Tensor, " rows"],
        *,
        num_classes: int,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if target.dtype != torch.int64 or target.ndim != 1:
            raise ValueError(
                f"target must be int64 of shape (rows,), got {target.dtype} {tuple(target.shape)}"
            )
        check_count("num_classes", num_classes)
        if dtype not in _TYPES:
            raise ValueError(f"dtype must be one of {', '.join(map(str, _TYPES))}, got {dtype}")
        if len(target) and not (0 <= int(target.min()) and int(target.max()) < num_classes):
            label_range = f"{int(target.min())} to {int(target.max())}"
            raise ValueError(f"target must be in [0, {num_classes}), got {label_range}")
        target = target.cpu()  # the table is drawn there, and moved with the module
        table = torch.empty(len(target), num_classes, dtype=dtype)
        for rows in torch.arange(len(target)).split(4096):  # in parts: no second table is ever held
            chance = torch.rand(len(rows), num_classes, generator=generator) * 0.2 + 0.4
            chance.scatter_(1, target[rows, None], 0.995)
            table[rows] = chance.logit().to(dtype)
        # an nn.Embedding: DistributedDataParallel expects sparse gradients from no other module
        self.lookup = nn.Embedding(len(target), num_classes, sparse=True, _weight=table)

    @property
    def table(self) -> Tensor:
        """The table (rows, classes), a parameter."""
        return self.lookup.weight

    @property
    def nbytes(self) -> int:
        """Memory of the table in bytes."""
        return self.table.numel() * self.table.element_size()

    def forward(self, sample_ids: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        """Look up the scores (n, c) of the rows with these sample ids (n,)."""
        if sample_ids.ndim != 1 or sample_ids.dtype not in (torch.int32, torch.int64):
            got = f"{sample_ids.dtype} {tuple(sample_ids.shape)}"
            raise ValueError(f"sample_ids must be int64 or int32 of shape (n,), got {got}")
        if can_read_values(sample_ids) and len(sample_ids):
            low, high = (int(bound) for bound in sample_ids.aminmax())
            if low < 0 or high >= len(self.table):
                outside = low if low < 0 else high
                raise ValueError(f"sample_ids must be in [0, {len(self.table)}), got {outside}")
        return self.lookup(sample_ids)

    def parameter_group(self, *, lr: float, factor: float = 10.0) -> dict[str, Any]:
        """Make a parameter group for SGD or :class:`RowSGD`, at ``factor`` times the model's learning rate.

        It has no momentum, whose buffer would grow by the rows of each batch, and no decay, which sparse
        gradients do not take.
        """
        check_number("lr", lr, above=0.0)
        check_number("factor", factor, above=0.0)
        return {
            "params": [self.table],
            "lr": factor * lr,
            "momentum": 0.0,
            "dampening": 0.0,
            "nesterov": False,
            "weight_decay": 0.0,
        }


class RowSGD(torch.optim.Optimizer):
    r"""Plain SGD on the rows that have a gradient, without state, for tables in any precision.

    .. math:: \theta_i \leftarrow \mathrm{round}(\theta_i - \eta\, g_i)

    computed in float32 at least. A bfloat16 table is rounded at random, up or down with the chances that make
    the expected result exact: steps far below the spacing of its numbers still count, on average. The draws
    depend on ``seed`` and the number of the step alone, so that all processes round alike, and a run that is
    resumed from the optimizer's state does as well.

    Args:
        params: Parameters or groups, for example ``[estimates.parameter_group(lr=0.1)]``.
        lr: Learning rate (eta in the formula) of groups that name none.
        seed: Seed of the random rounding.

    Raises:
        ValueError: If an argument is out of its range, or a parameter is in float16.

    Example:
        >>> estimates = LabelEstimates(torch.zeros(8, dtype=torch.int64), num_classes=3, dtype=torch.bfloat16)
        >>> optimizer = RowSGD([estimates.parameter_group(lr=0.1)])
        >>> estimates(torch.tensor([1, 5])).sum().backward()
        >>> optimizer.step()

    References:
        S. Gupta, A. Agrawal, K. Gopalakrishnan, P. Narayanan, "Deep Learning with Limited Numerical
        Precision", ICML 2015 (stochastic rounding).
    """

    def __init__(self, params: Any, *, lr: float = 1e-3, seed: int = 0) -> None:
        check_number("lr", lr, low=0.0)
        super().__init__(params, {"lr": lr, "seed": seed, "steps": 0})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if parameter.dtype not in _TYPES:
                raise ValueError(f"params must be in {', '.join(map(str, _TYPES))}, got {parameter.dtype}")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows that have a gradient; return what the closure returns, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for place, group in enumerate(self.param_groups):
            noise = random.Random(f"{group['seed']}, {group['steps']}, {place}").getrandbits(32)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _move_rows(parameter, parameter.grad, float(group["lr"]), noise)
            group["steps"] += 1
        return loss


def _move_rows(table: Tensor, gradient: Tensor, lr: float, seed: int) -> None:
    if not gradient.is_sparse:
        raise ValueError("params must have sparse gradients, got a dense one")
    digits = torch.promote_types(table.dtype, torch.float32)
    rows, place = gradient._indices()[0].unique(return_inverse=True)  # an id may come twice in a batch
    values = gradient._values().to(digits)
    step = values.new_zeros(len(rows), *values.shape[1:]).index_add_(0, place, values)
    moved = table[rows].to(digits).sub_(step, alpha=lr)
    table[rows] = _rounded_at_random(moved, seed) if table.dtype == torch.bfloat16 else moved


def _rounded_at_random(values: Tensor, seed: int) -> Tensor:
    """Round float32 to bfloat16 at random, up or down, so that the mean stays the same.

    bfloat16 is float32 without the last 16 bits: add a random number of 16 bits, drop the last 16.
    """
    generator = torch.Generator(values.device).manual_seed(seed)
    noise = torch.randint(2**16, values.shape, dtype=torch.int32, device=values.device, generator=generator)
    bits = (values.contiguous().view(torch.int32) + noise) & -(2**16)
    return torch.where(values.isfinite(), bits.view(torch.float32), values).to(torch.bfloat16)
