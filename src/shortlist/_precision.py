"""Precision: the type to add up in, and buffers that keep theirs when the model around them changes."""

from typing import Any

import torch
from torch import Tensor, nn


def wide_type(values: Tensor) -> torch.dtype:
    """Return the type in which sums of values hardly depend on their order: float64, if the device has it."""
    return values.dtype if values.device.type == "mps" else torch.float64


class KeepsPrecision(nn.Module):
    """A module whose buffers move to other devices and keep their type, so that nothing is rounded."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = dict(self._buffers)
        try:
            result = super()._apply(fn, recurse)
        except TypeError:  # a device without float64
            return super()._apply(lambda tensor: fn(_single(tensor)), recurse)
        for name, buffer in self._buffers.items():
            old = before[name]
            if buffer is not None and old is not None and buffer.dtype != old.dtype:
                self._buffers[name] = old.to(buffer.device)
        return result


def _single(tensor: Tensor) -> Tensor:
    """Convert float64 to float32, and leave other types as they are."""
    return tensor.float() if tensor.dtype == torch.float64 else tensor
