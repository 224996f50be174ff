"""Finding where a computation on an accelerator would wait for it, without one."""

from contextlib import contextmanager

import torch
from torch._C import DispatchKey
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# what needs a tensor's values: numbers, branches, shapes that depend on them
NEED_VALUES = {
    "_local_scalar_dense",
    "_unique",
    "_unique2",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "nonzero_static",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
}


class WaitError(AssertionError):
    """The device would be waited for."""


class _RefuseReading(TorchDispatchMode):
    """Refuses what reads values, and copies between devices; looks inside of this library's operators."""

    def __init__(self, *, only_look: bool = False) -> None:
        super().__init__()
        self.only_look = only_look

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "shortlist":
            with self:  # the function that the operator was made of: otherwise it would run unseen
                return func._op_dk(DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        with self:  # inside of an operator, what is made of other operators arrives in one piece
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        if self.only_look:
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        masks = args[1] if name in ("index", "index_put", "index_put_", "_index_put_impl_") else ()
        if name in NEED_VALUES or any(mask is not None and mask.dtype == torch.bool for mask in masks):
            raise WaitError(f"{name} needs values")
        ends = {
            "copy_": lambda: (args[0].device, args[1].device),
            "_to_copy": lambda: (args[0].device, torch.device(kwargs.get("device") or args[0].device)),
        }
        if name in ends and len(set(ends[name]())) > 1:
            raise WaitError(f"{name} from one device to another")
        return func(*args, **kwargs)


class _RefuseNumbers(TorchFunctionMode):
    """Refuses tensors made from Python's numbers on a device, which are copied there."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.new_tensor and args[0].device.type != "cpu":
            raise WaitError("new_tensor copies numbers to the device")
        if (
            func in (torch.tensor, torch.as_tensor)
            and torch.device(kwargs.get("device") or "cpu").type != "cpu"
        ):
            raise WaitError("torch.tensor copies numbers to the device")
        return func(*args, **kwargs)


@contextmanager
def first_run():
    """Within, constants that are kept may be copied to the device, those of this library's operators too."""
    with _RefuseReading(only_look=True):
        yield


@contextmanager
def no_waiting():
    """Within, what would wait for an accelerator, for which "meta" stands, raises :class:`WaitError`."""
    with _RefuseNumbers(), _RefuseReading():
        yield
