"""See each operation that PyTorch dispatches: count those that are kernels, refuse those that wait."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Dispatched", "Kernels", "count_kernels"]

# operations that give memory a name or a shape, and start no kernel; views are known by their schema
_NO_KERNELS = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"}
)


class Dispatched(TorchDispatchMode):
    """Passes each operation to :meth:`seen`; operators of this library are opened, not seen as one."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation."""
        kwargs = kwargs or {}
        if func.namespace == "shortlist":
            with self:
                return _body_of(func)(*args, **kwargs)
        out = func(*args, **kwargs)
        self.seen(func, args, kwargs, out)
        return out

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Look at one operation that ran."""
        raise NotImplementedError


def _body_of(func: Any) -> Callable[..., Any]:
    """Return the Python function of an operator that was made by ``torch.library.custom_op``."""
    return OPDEFS[func._schema.name]._init_fn


class Kernels(Dispatched):
    """Counts operations that are no views and that write numbers: on a GPU, each starts a kernel or a few.

    One operation of ATen counts as one, also where CUDA takes two kernels for it (``sort``, or a ``scatter``
    that copies first). Below autograd, so that the backward pass is seen as it runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many kernels there were."""
        return self.counts.total()

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Count one operation."""
        name = func._schema.name.removeprefix("aten::")
        if not func.is_view and name not in _NO_KERNELS:
            self.counts[name] += 1


def count_kernels(make: Callable[[], Callable[[Tensor, Tensor], Tensor]], n: int, c: int) -> tuple[int, int]:
    """Count the kernels of a loss of scores (n, c), forward and backward, in its second call.

    All is on the device "meta", where nothing is computed: what a GPU would start, without a GPU.
    """
    forward = backward = Kernels()
    with torch.device("meta"):
        loss, scores = make(), torch.zeros(n, c, requires_grad=True)
        target = torch.zeros(n, dtype=torch.int64)
        for _ in range(2):  # the first call may make tables, and keep them
            scores.grad = None
            with Kernels() as forward:
                value = loss(scores, target)
            with Kernels() as backward:
                value.backward()
    return forward.total, backward.total
