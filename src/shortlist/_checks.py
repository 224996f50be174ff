"""Checks of input. Every error message names the argument, the bound and the value."""

import inspect
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor
from torch.jit._trace import is_tracing

from shortlist._bounds import require_count, require_number

_LOOK_AT = 256  # rows that tell probabilities from logits
_ROUNDED = 1e-3
_SHORT_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32)
_hidden: ContextVar[bool] = ContextVar("values_hidden", default=False)


def can_read_values(tensor: Tensor) -> bool:
    """Return whether a tensor's values can be read at no cost: on the CPU, not traced, not transformed.

    On an accelerator it would wait for the device; there, an index out of range fails in the gather that uses
    it. This is also the one door to what is done for the CPU alone: see :func:`values_hidden`.
    """
    return (
        tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not is_tracing()
        and not is_functorch_wrapped_tensor(tensor)
        and not _hidden.get()
    )


@contextmanager
def values_hidden() -> Iterator[None]:
    """Treat tensors on the CPU like those on an accelerator, inside this context.

    Every operator, loss and predictor takes its general path, and checks do not look at values. It is how the
    tests get where a GPU would go.
    """
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


def is_transformed(tensor: Tensor) -> bool:
    """Return whether a tensor is inside of a transform of ``torch.func``, such as ``grad`` or ``vmap``."""
    return not torch.compiler.is_compiling() and is_functorch_wrapped_tensor(tensor)


def refuse_transforms(name: str, *tensors: Tensor) -> None:
    """Raise an error if a tensor is inside of a transform of ``torch.func``."""
    if any(map(is_transformed, tensors)):
        raise ValueError(
            f"{name} must be called outside of torch.func's transforms (grad, vmap, ...), got one of them"
        )


def refuse_vmap(name: str, tensor: object) -> None:
    """Raise an error if a tensor is inside of ``torch.vmap``, where values cannot be looked at."""
    while isinstance(tensor, Tensor) and is_transformed(tensor):
        if is_batchedtensor(tensor):
            raise ValueError(f"{name} must be called outside of torch.vmap: make one batch of all rows")
        tensor = get_unwrapped(tensor)


def promote(scores: Tensor) -> Tensor:
    """Convert half precision to float32, and leave float32 and float64 as they are."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def refuse_second_derivative(name: str) -> None:
    """Raise an error in the backward pass of an operator whose gradient cannot be differentiated again."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(f"{name} has no second derivative: its gradient cannot be differentiated again")


def check_number(
    name: str,
    value: int | float,
    *,
    low: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    high: float = math.inf,
) -> int | float:
    """Require a finite number ``>= low``, ``> above``, ``< below``, ``<= high``; return a Python number."""
    if torch.compiler.is_compiling():  # numbers may be symbols there
        return value
    return require_number(name, value, low=low, above=above, below=below, high=high)


def check_average_size(k: float, num_classes: int | None = None) -> float:
    """Require a real number ``1 <= k < num_classes``; return it as a Python number."""
    k = check_number("k", k, low=1.0)
    if num_classes is not None and not torch.compiler.is_compiling() and k >= num_classes:
        raise ValueError(f"k must be < the number of classes ({num_classes}), got {k}")
    return k


def check_count(name: str, value: int, *, low: int = 1) -> None:
    """Require an integer ``>= low``."""
    if not torch.compiler.is_compiling():
        require_count(name, value, low=low)


def check_k(k: int, num_classes: int | None = None, *, name: str = "k", up_to: bool = False) -> None:
    """Require an integer ``1 <= k < num_classes`` (``<=`` with ``up_to``)."""
    check_count(name, k)
    if num_classes is None or torch.compiler.is_compiling():
        return
    if k > num_classes or (k == num_classes and not up_to):
        sign = "<=" if up_to else "<"
        raise ValueError(f"{name} must be {sign} the number of classes ({num_classes}), got {k}")


def tensor_words(value: object) -> str:
    """Say the type and shape of a tensor, or what else was given.

    Example:
        >>> tensor_words(torch.zeros(2, 3)), tensor_words([1])
        ('torch.float32 (2, 3)', 'list')
    """
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def check_sets(sets: Tensor) -> None:
    """Require a bool (n, c) tensor."""
    if not isinstance(sets, Tensor) or sets.ndim != 2 or sets.dtype != torch.bool:
        raise ValueError(f"sets must be a bool tensor of shape (n, c), got {tensor_words(sets)}")


def check_scores(scores: Tensor, *, name: str = "logits") -> None:
    """Require a floating (n, c) tensor."""
    if isinstance(scores, Tensor) and scores.ndim == 2 and scores.is_floating_point():
        return
    got = tensor_words(scores)
    hint = ""
    if hasattr(scores, "set_logits"):
        hint = ": of a network with two heads, pass output.set_logits"
    elif isinstance(scores, Tensor) and scores.ndim > 2:
        hint = (
            f": there are {scores.ndim} dimensions. If the second one has the classes, as for each pixel of "
            "an image, make a row of each place: logits.movedim(1, -1).flatten(0, -2) and target.flatten()"
        )
    raise ValueError(f"{name} must be a floating tensor of shape (n, c), got {got}{hint}")


def tensor_of(values: Any, *, device: torch.device | None = None, name: str = "an array") -> Any:
    """Convert a NumPy array to a tensor, whole numbers to int64; leave anything else as it is.

    Example:
        >>> tensor_of(np.array([[0.25, 0.75]], dtype=np.float32))
        tensor([[0.2500, 0.7500]])
    """
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers, got {values.dtype}")
    shared = values.flags.writeable and values.flags.c_contiguous
    tensor = torch.from_numpy(values if shared else values.copy())
    return (tensor.long() if values.dtype.kind in "iu" else tensor).to(device)


def classes_of(target: Any, *, device: torch.device | None = None) -> Any:
    """Convert class numbers in a list, an array or a tensor of any integer type to int64; leave others.

    Example:
        >>> classes_of([2, 0]), classes_of(torch.tensor([2, 0], dtype=torch.int32))
        (tensor([2, 0]), tensor([2, 0]))
    """
    if isinstance(target, Tensor):
        return target.long() if target.dtype in _SHORT_INTEGERS else target
    if isinstance(target, (list, tuple)):  # a union of types stops torch.export of torch 2.6
        target = np.asarray(target)
    if isinstance(target, np.ndarray) and target.dtype.kind not in "fiub":
        first = f" such as {str(target.flat[0])!r}" if target.size else ""
        raise ValueError(
            f"target must hold the numbers of classes, which are counted from 0, got {target.dtype}{first}"
        )
    return tensor_of(target, device=device)


def check_target(target: Tensor, scores: Tensor, *, ignore_index: int | None) -> bool:
    """Require class indices (n,) in [0, c) or equal to ``ignore_index``, if there is one.

    Returns:
        Whether it is known that no row is ignored.
    """
    n, c = scores.shape
    if not isinstance(target, Tensor) or target.dtype != torch.int64 or target.shape != (n,):
        got = tensor_words(target)
        raise ValueError(
            f"target must be int64 class indices of shape ({n},) to go with scores of shape ({n}, {c}), "
            f"got {got}"
        )
    if not can_read_values(target):
        return False
    if n:
        low, high = target.aminmax()
        if int(low) >= 0 and int(high) < c:
            return ignore_index is None or not int(low) <= ignore_index <= int(high)
    outside = (target < 0) | (target >= c)
    if ignore_index is not None:
        outside &= target != ignore_index
    if outside.any():
        bound = f"in [0, {c})" if ignore_index is None else f"in [0, {c}) or {ignore_index}"
        raise ValueError(f"target must be {bound}, got {int(target[outside][0])}")
    return False


def check_label_sets(target: Tensor, scores: Tensor) -> None:
    """Require labels of the scores' shape, each 0 or 1, with at least one 1 in each row."""
    if target.shape != scores.shape:
        raise ValueError(
            f"target must have the logits' shape {tuple(scores.shape)}, got {tuple(target.shape)}"
        )
    if not can_read_values(target):
        return
    wrong = (target != 0) & (target != 1)
    if bool(wrong.any()):
        raise ValueError(f"target must be 0 or 1, got {target[wrong][0].item()}")
    empty = ~(target != 0).any(1)
    if bool(empty.any()):
        raise ValueError(
            f"target must have at least one positive in each row, got none in row {int(empty.nonzero()[0])}"
        )


def check_probabilities(target: Tensor, scores: Tensor) -> None:
    """Require rows of class probabilities (n, c)."""
    if not target.is_floating_point() or target.shape != scores.shape:
        raise ValueError(
            f"probability targets must be floating and of the logits' shape {tuple(scores.shape)}, "
            f"got {target.dtype} {tuple(target.shape)}"
        )
    if not can_read_values(target):
        return
    low, sums = float(target.min()) if target.numel() else 0.0, target.sum(-1)
    if not low >= 0:
        raise ValueError(f"probability targets must be >= 0, got {low}")
    off = (sums - 1).abs() > 1e-2  # bfloat16 rows add up to 1 only to about 2 digits
    if off.any():
        raise ValueError(f"probability targets must add up to 1 in each row, got {float(sums[off][0])}")


def rows_are_probabilities(scores: Tensor) -> bool:
    """Return whether the first few hundred rows (n, c) are all >= 0 and add up to 1."""
    some = scores[:_LOOK_AT].detach()
    if not can_read_values(scores) or not len(some) or scores.shape[1] < 2:
        return False
    return bool((some >= 0).all()) and bool(((some.double().sum(1) - 1).abs() <= _ROUNDED).all())


def refuse_logits(scores: Tensor, *, whose: str = "") -> None:
    """Require values in [0, 1], but for rounding and -inf, of the first few hundred rows (n, c)."""
    if not can_read_values(scores):
        return
    some = scores[:_LOOK_AT].detach()
    outside = ((some < -_ROUNDED) | (some > 1 + _ROUNDED)) & some.isfinite()
    if outside.any():
        raise ValueError(
            f"{whose and f'{whose}: '}scores must be probabilities in [0, 1] with activation='none', "
            f"got {float(some[outside][0]):g}: for logits, use activation='softmax'"
        )


def warn_of_probabilities(whose: str) -> None:
    """Warn that probabilities came where logits are meant; it names the line outside of this package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("shortlist.", "torch.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{whose}: scores look like probabilities (each row sums to 1): pass activation='none' to take them "
        "as they are. With activation='softmax', which is for logits, a softmax is applied once more",
        UserWarning,
        stacklevel=level + 1,
    )


def check_votes(votes: Tensor, scores: Tensor) -> None:
    """Require votes (n, c) in a floating tensor; their values are looked at where they are used."""
    if not votes.is_floating_point() or votes.shape != scores.shape:
        raise ValueError(
            f"target must be int64 classes (n,), or votes, floating and of the scores' shape "
            f"{tuple(scores.shape)}, got {votes.dtype} {tuple(votes.shape)}"
        )


def check_class_vector(name: str, vector: Tensor, *, num_classes: int | None = None) -> float | None:
    """Require a finite, non-negative vector with one entry per class.

    Returns:
        Its smallest entry, if values were looked at.
    """
    if (
        not isinstance(vector, Tensor)
        or vector.ndim != 1
        or not (vector.is_floating_point() or "int" in str(vector.dtype))
    ):
        got = tensor_words(vector)
        raise ValueError(f"{name} must be a tensor of shape (c,), got {got}")
    if num_classes is not None and vector.shape[0] != num_classes:
        raise ValueError(f"{name} must have one entry per class ({num_classes}), got {vector.shape[0]}")
    if not can_read_values(vector) or not vector.numel():
        return None
    low, high = (float(bound) for bound in vector.aminmax())  # NaN if there is one
    if not (low >= 0 and high < math.inf):
        bad = vector[~torch.isfinite(vector) | (vector < 0)]
        raise ValueError(f"{name} must be finite and >= 0, got {float(bad[0])}")
    return low


def check_priors(name: str, priors: Tensor, *, num_classes: int | None = None) -> None:
    """Require a vector (c,) of shares, each > 0, that add up to 1."""
    check_class_vector(name, priors, num_classes=num_classes)
    if bool((priors <= 0).any()):
        first = int((priors <= 0).nonzero()[0])
        raise ValueError(f"{name} must be > 0, got {float(priors[first])} for class {first}")
    total = float(priors.double().sum())
    if abs(total - 1) > 1e-2:  # half precision adds up to 1 only to 2 digits
        raise ValueError(f"{name} must add up to 1, got {total:g}")


def check_keys(name: str, content: Any, keys: Iterable[str]) -> None:
    """Require a mapping with exactly these keys."""
    if not isinstance(content, Mapping) or set(content) != set(keys):
        got = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise ValueError(f"{name} must have exactly {', '.join(sorted(keys))}, got {got}")
