"""Take a batch of prepared inputs as a tensor or an array, and say why one does not fit a network."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shortlist._checks import tensor_of
from shortlist.model.images import tensor_as_it_is
from shortlist.models import in_channels_last

Rows = Tensor | np.ndarray


def tensor_on(device: torch.device, scores: Rows) -> Tensor:
    """Return scores, as a tensor or an array, as a tensor on a device."""
    return tensor_of(scores).to(device)


def inputs_for(network: nn.Module, device: torch.device, batch: Rows) -> Tensor:
    """Return a batch of inputs on the device of a network, and in its precision."""
    tensor = tensor_as_it_is(batch) if isinstance(batch, np.ndarray) else batch
    kinds = (one.dtype for one in network.parameters() if one.is_floating_point())
    dtype = next(kinds, tensor.dtype) if tensor.is_floating_point() else tensor.dtype
    return in_channels_last(tensor.to(device, dtype))


def check_batch(batch: Any, shape: Sequence[int] | None) -> None:
    """Require inputs (n, ...), and not one input alone.

    Args:
        batch: A tensor or an array of inputs; anything else is not looked at.
        shape: Shape of one input; ``None`` if it is not known.
    """
    if not isinstance(batch, Tensor | np.ndarray):
        return
    got = tuple(batch.shape)
    if isinstance(batch, np.ndarray) and batch.dtype == np.uint8 and len(got) == 3 and got[-1] in (3, 4):
        raise ValueError(f"images must be several, got one picture {got}: put it in a list")
    is_floating = batch.is_floating_point() if isinstance(batch, Tensor) else batch.dtype.kind == "f"
    is_vector = len(got) < 2 and is_floating
    if is_vector or not got or (shape is not None and got == tuple(shape)):
        wanted = "(n, ...)" if shape is None else _rows_of(shape)
        raise ValueError(
            f"inputs must be a batch {wanted}, got {got}: one input is batch[:1], or input[None]"
        )


@contextmanager
def running(
    network: nn.Module, device: torch.device, batch: Rows, shape: Sequence[int] | None
) -> Iterator[Tensor]:
    """Give a batch as a network takes it, without gradients.

    If the network fails on inputs of another shape than it takes, the error says both shapes.
    """
    check_batch(batch, shape)
    try:
        with torch.inference_mode():
            yield inputs_for(network, device, batch)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        got = tuple(batch.shape)
        first = _first_layer(network)
        if shape is not None and got[1:] != tuple(shape):
            raise ValueError(
                f"inputs must be {_rows_of(shape)}, as the model takes them, got {got}"
            ) from error
        if shape is None and first is not None and math.prod(got[1:]) != first.in_features:
            wanted = f"(n, ...) with {first.in_features} values in a row"
            raise ValueError(f"inputs must be {wanted}, as the network takes them, got {got}") from error
        raise


def _rows_of(shape: Sequence[int]) -> str:
    return f"(n, {', '.join(map(str, shape))})"


def _first_layer(network: nn.Module) -> nn.Linear | None:
    """Return the first layer that has parameters, if it is a linear one."""
    layers = (one for one in network.modules() if next(one.parameters(recurse=False), None) is not None)
    first = next(layers, None)
    return first if isinstance(first, nn.Linear) else None
