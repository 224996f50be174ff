"""Classifiers of vectors, such as saved embeddings: linear, and with hidden layers."""

import math
from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from shortlist._checks import check_number
from shortlist.models._base import Network, check_sizes


class MLP(Network):
    """A network of fully connected layers with ReLU, with initial weights of variance 2 / fan-in.

    It computes logits (n, c) from vectors (n, in_channels) or images.

    Args:
        num_classes: Number c of classes.
        in_channels: Length of the vectors, or number of channels of the images.
        image_size: Height and width of the images; ``None`` for vectors.
        hidden: Lengths of the hidden layers; none gives :func:`linear`.
        norm: Whether each hidden layer is normalized over the batch.
        dropout_rate: Dropout rate after each hidden layer.

    Raises:
        ValueError: If an argument is outside its bounds.

    Example:
        >>> MLP(10, in_channels=64, hidden=(32, 16)).features(torch.randn(2, 64)).shape
        torch.Size([2, 16])
    """

    def __init__(
        self,
        num_classes: int,
        *,
        in_channels: int = 3,
        image_size: Sequence[int] | None = None,
        hidden: Sequence[int] = (256,),
        norm: bool = False,
        dropout_rate: float = 0.0,
    ) -> None:
        check_sizes(in_channels=in_channels)
        if not isinstance(hidden, Sequence):
            raise ValueError(f"hidden must be a sequence of lengths, got {hidden!r}")
        for length in hidden:
            check_sizes(hidden=length)
        check_number("dropout_rate", dropout_rate, low=0.0, below=1.0)
        lengths = [in_channels * _positions(image_size), *hidden]
        super().__init__(lengths[-1], num_classes)
        self.in_features = lengths[0]
        parts: list[nn.Module] = []
        for before, after in pairwise(lengths):
            layer = nn.Linear(before, after, bias=not norm)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            parts.append(layer)
            if norm:
                parts.append(nn.BatchNorm1d(after))
            else:
                nn.init.zeros_(layer.bias)
            parts.append(nn.ReLU(inplace=True))
            if dropout_rate:
                parts.append(nn.Dropout(dropout_rate))
        self.layers = nn.Sequential(*parts)

    def features(self, x: Float[Tensor, "*rows"]) -> Float[Tensor, "n d"]:
        """Return the last hidden layer (n, d), or the flattened input if there is no hidden layer."""
        shape = tuple(x.shape)
        if x.ndim < 2 or math.prod(shape[1:]) != self.in_features:
            raise ValueError(f"input must be (n, ...) with {self.in_features} values in a row, got {shape}")
        return self.layers(x.flatten(1))


def linear(num_classes: int, *, in_channels: int = 3, image_size: Sequence[int] | None = None) -> MLP:
    """Make a linear classifier of the input itself: saved embeddings, or flattened images.

    Args:
        num_classes: Number c of classes.
        in_channels: Length of the vectors, or number of channels of the images.
        image_size: Height and width of the images; ``None`` for vectors.

    Returns:
        A model from vectors (n, in_channels) or images to logits (n, c).

    Raises:
        ValueError: If an argument is outside its bounds.

    Example:
        >>> linear(10, in_channels=1, image_size=(8, 8)).head
        Linear(in_features=64, out_features=10, bias=True)
    """
    return MLP(num_classes, in_channels=in_channels, image_size=image_size, hidden=())


mlp = MLP
"""The name of :class:`MLP` in recipes."""


def _positions(image_size: Sequence[int] | None) -> int:
    if image_size is None:
        return 1
    if not isinstance(image_size, Sequence) or len(image_size) != 2:
        raise ValueError(f"image_size must be a height and a width, got {image_size!r}")
    for length in image_size:
        check_sizes(image_size=length)
    return math.prod(image_size)
