"""Modules that are calibrated in pieces, whose unfinished rows travel along with their state."""

from typing import Any

import torch
from torch import Tensor

from shortlist._precision import KeepsPrecision

__all__ = ["KeepsPending"]

_PENDING = "pending."  # before the names of rows that are not yet finished, in a state


class KeepsPending(KeepsPrecision):
    """A module whose state holds the rows that were added and not yet finished, until it is calibrated."""

    calibrated: bool

    def pending(self) -> dict[str, Tensor]:
        """Return the rows that were added and not yet finished, as tensors to save."""
        return {}

    def restore_pending(self, state: dict[str, Tensor]) -> None:
        """Restore the rows that :meth:`pending` returned."""

    def _loaded(self) -> None:
        """Set what follows from the buffers, once they are loaded."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # rows that are taken in and not yet finished travel along: to forget them would change the threshold
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self.calibrated:
            for name, rows in self.pending().items():
                destination[f"{prefix}{_PENDING}{name}"] = rows.detach()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        start = f"{prefix}{_PENDING}"
        kept = [key for key in state_dict if key.startswith(start)]
        pending = {key.removeprefix(start): state_dict.pop(key) for key in kept}
        # thresholds take the shape and type that they were calibrated with
        device = next(buffer.device for buffer in self._buffers.values() if buffer is not None)
        for name, buffer in self._buffers.items():
            saved = state_dict.get(prefix + name)
            if saved is not None:
                place = device if buffer is None else buffer.device
                self._buffers[name] = torch.empty_like(saved, device=place)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._loaded()
        self.restore_pending(pending)
