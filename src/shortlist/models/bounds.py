"""Make the network that a stranger's file describes, in no more memory than its weights account for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.overrides import TorchFunctionMode

TIMES_WEIGHTS = 4
"""How many bytes a network may take for each byte of its weights, which may be saved in half precision."""

FREE_BYTES = 256 << 20
"""What a network may take besides: classifiers that are replaced, and tables that are not saved."""

_MODULE_BYTES = 4096  # about what an empty layer takes: a network may have many of them


def build_within(weights: str | Path, build: Callable[[], nn.Module]) -> nn.Module:
    """Make a network whose size is bounded by that of the file of its weights.

    It is made without memory first, to count. Some networks cannot be made so: of these, the parts are
    counted as they come, each before it is filled.

    Args:
        weights: File of the weights.
        build: Function that makes the network.

    Raises:
        ValueError: If the network is too large; and what ``build`` raises.
    """
    most = TIMES_WEIGHTS * Path(weights).stat().st_size + FREE_BYTES
    try:
        with _counting(most), torch.device("meta"), _WithoutDraws():
            build()
    except _TooLargeError:
        raise
    except Exception:  # what is wrong with the network itself is said below
        pass
    with _counting(most):
        return build()


class _TooLargeError(ValueError):
    """A network that does not go with its weights."""


class _WithoutDraws(TorchFunctionMode):
    """Leaves out random initialization: without memory it has no effect, and its import takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in (Tensor.normal_, Tensor.uniform_) else func(*args, **(kwargs or {}))


@contextmanager
def _counting(most: int) -> Iterator[None]:
    """Refuse parameters and buffers beyond a number of bytes, for modules that this thread makes."""
    left, thread = most, get_ident()

    def count(_: nn.Module, __: str, tensor: Any) -> None:
        nonlocal left
        if get_ident() == thread and isinstance(tensor, torch.Tensor):
            left -= max(_MODULE_BYTES, tensor.numel() * tensor.element_size())
            if left < 0:
                raise _TooLargeError(f"the network is too large for its weights: more than {most:,} bytes")

    hooks = [
        register_module_parameter_registration_hook(count),
        register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
