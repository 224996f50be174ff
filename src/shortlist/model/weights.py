"""Weights of 16 or 8 bits: rounded in a network, so that it can be calibrated as it will be, and kept small.

Only the weights of layers are rounded. A runtime makes 32 bits of them when it loads the file, and computes
as with others: the scores of the file are those of the rounded network.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from onnx import ModelProto

Weights = Literal["float32", "float16", "int8"]
WEIGHTS: tuple[Weights, ...] = ("float32", "float16", "int8")
"""What the weights of an exported network may be rounded to."""
_LARGEST = 127
_EXACT = 1e-6  # of the largest weight of a row: how far a number may be from the one that is kept


def round_weights(network: nn.Module, weights: Weights) -> nn.Module:
    """Round the weights of a network's layers in place, and return it.

    With ``"int8"``, each row of a matrix, or filter of a convolution, has 255 steps of its own up to its
    largest weight. Vectors, such as biases, stay as they are.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> layer.weight.data = torch.tensor([[127.0, 3.4]])
        >>> round_weights(layer, "int8").weight.data
        tensor([[127.,   3.]])
    """
    with torch.no_grad():
        for parameter in network.parameters():
            if weights != "float32" and parameter.ndim > 1 and parameter.is_floating_point():
                parameter.copy_(parameter.half() if weights == "float16" else _of_8_bits(parameter))
    return network


def _of_8_bits(values: Tensor) -> Tensor:
    scale = values.abs().flatten(1).amax(1).view(-1, *[1] * (values.ndim - 1)) / _LARGEST
    return (values / scale.where(scale > 0, 1.0)).round() * scale


def keep_small(model: "ModelProto", weights: Weights) -> None:
    """Keep in 16 or 8 bits those weights of an ONNX model that :func:`round_weights` rounded so."""
    from onnx import helper, numpy_helper

    if weights == "float32":
        return
    kept, nodes = [], []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        small = _small(values, weights) if values.ndim > 1 and values.dtype == np.float32 else None
        if small is None:
            kept.append(tensor)
            continue
        numbers, scale = small
        name, wide = f"{tensor.name}/{weights}", tensor.name if scale is None else f"{tensor.name}/wide"
        kept.append(numpy_helper.from_array(numbers, name))
        nodes.append(helper.make_node("Cast", [name], [wide], to=1))
        if scale is not None:
            kept.append(numpy_helper.from_array(scale, f"{tensor.name}/scale"))
            nodes.append(helper.make_node("Mul", [wide, f"{tensor.name}/scale"], [tensor.name]))
    rest: list[Any] = list(model.graph.node)
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend([*nodes, *rest])


def _small(values: np.ndarray, weights: Weights) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Return weights in fewer bits, and their scale if they have one; ``None`` if they were not rounded."""
    if weights == "float16":
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        return (half, None) if np.array_equal(half.astype(np.float32), values) else None
    for axis in (0, -1):  # an exporter may turn a matrix
        others = tuple(place for place in range(values.ndim) if place != axis % values.ndim)
        largest = np.abs(values).max(others, keepdims=True)
        scale = np.where(largest > 0, largest / np.float32(_LARGEST), np.float32(1)).astype(np.float32)
        numbers = np.rint(values / scale)
        if (np.abs(numbers * scale - values) <= _EXACT * largest).all():
            return numbers.astype(np.int8), scale
    return None
