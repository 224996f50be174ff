"""DenseNet for small images (G. Huang et al., CVPR 2017)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, dropout, relu

from shortlist._checks import check_number
from shortlist.models._base import Network, check_images, check_sizes, draw_he_normal


class DenseLayer(nn.Module):
    """A layer that computes ``growth_rate`` new channels and appends them to its input."""

    def __init__(self, in_channels: int, growth_rate: int, *, bottleneck: bool, dropout_rate: float) -> None:
        super().__init__()
        inner = 4 * growth_rate if bottleneck else in_channels
        self.dropout_rate = dropout_rate
        self.reduce = NormConv(in_channels, inner, kernel_size=1) if bottleneck else None
        self.grow = NormConv(inner, growth_rate, kernel_size=3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input with the new channels appended."""
        new = x
        if self.reduce is not None:
            new = dropout(self.reduce(new), self.dropout_rate, self.training)
        return torch.cat([x, dropout(self.grow(new), self.dropout_rate, self.training)], dim=1)


class NormConv(nn.Module):
    """Normalization, ReLU and convolution, in this order."""

    def __init__(self, in_channels: int, out_channels: int, *, kernel_size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(in_channels)
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the new channels."""
        return self.conv(relu(self.norm(x), inplace=True))


class Transition(nn.Module):
    """The layer between two blocks: fewer channels, half the height and width."""

    def __init__(self, in_channels: int, out_channels: int, *, dropout_rate: float) -> None:
        super().__init__()
        self.dropout_rate = dropout_rate
        self.reduce = NormConv(in_channels, out_channels, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the smaller feature map."""
        return avg_pool2d(dropout(self.reduce(x), self.dropout_rate, self.training), 2)


class DenseNet(Network):
    """A DenseNet of three blocks for small images, at full, half and quarter height and width.

    With ``bottleneck`` and ``compression`` below 1 this is the paper's DenseNet-BC, without and with
    ``compression=1`` its plain DenseNet. The first convolution has ``2 * growth_rate`` channels with a
    bottleneck and 16 without, as in the paper. Convolutions start from a normal of variance 2 / fan-out.

    It computes logits (n, c) from images (n, in_channels, height, width), at least 4 x 4.

    Args:
        num_classes: Number c of classes.
        in_channels: Number of channels of the images.
        depth: Number of convolutions on the way and the classifier: ``4 + 6 n`` with a bottleneck, else
            ``4 + 3 n``, for n layers in each block.
        growth_rate: Number of channels that each layer adds (k in the paper).
        bottleneck: Whether a 1 x 1 convolution to ``4 * growth_rate`` channels comes before each 3 x 3 one.
        compression: Share of the channels that a transition keeps (theta in the paper), in (0, 1].
        dropout_rate: Dropout rate after each convolution in blocks and transitions. The paper uses 0.2 for
            training without augmentation.

    Raises:
        ValueError: If an argument is outside its bounds.

    Example:
        >>> DenseNet(10, depth=40, growth_rate=12, bottleneck=False, compression=1.0).head
        Linear(in_features=448, out_features=10, bias=True)

    References:
        G. Huang, Z. Liu, L. van der Maaten, K. Weinberger, "Densely Connected Convolutional Networks", CVPR
        2017, sections 3 and 4.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        in_channels: int = 3,
        depth: int = 40,
        growth_rate: int = 40,
        bottleneck: bool = True,
        compression: float = 0.5,
        dropout_rate: float = 0.0,
    ) -> None:
        check_sizes(in_channels=in_channels, depth=depth, growth_rate=growth_rate)
        check_number("compression", compression, above=0.0, high=1.0)
        check_number("dropout_rate", dropout_rate, low=0.0, below=1.0)
        step = 6 if bottleneck else 3
        if depth < 4 + step or (depth - 4) % step:
            raise ValueError(f"depth must be 4 + {step} n with n >= 1, got {depth}")
        channels = stem = 2 * growth_rate if bottleneck else 16
        parts: list[nn.Module] = []
        for block in range(3):
            if block:
                kept = max(1, int(channels * compression))
                parts.append(Transition(channels, kept, dropout_rate=dropout_rate))
                channels = kept
            for _ in range((depth - 4) // step):
                layer = DenseLayer(channels, growth_rate, bottleneck=bottleneck, dropout_rate=dropout_rate)
                parts.append(layer)
                channels += growth_rate
        super().__init__(channels, num_classes)
        self.in_channels = in_channels
        self.stem = nn.Conv2d(in_channels, stem, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(*parts)
        self.norm = nn.BatchNorm2d(channels)
        draw_he_normal(self, fan="fan_out")
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def features(self, x: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n d"]:
        """Compute the means over the last feature map, (n, d)."""
        check_images(x, in_channels=self.in_channels, smallest=4)
        return relu(self.norm(self.blocks(self.stem(x))), inplace=True).mean((2, 3))


densenet_cifar = DenseNet
"""The name of :class:`DenseNet` in recipes."""


def densenet40_40(num_classes: int, *, in_channels: int = 3, dropout_rate: float = 0.0) -> DenseNet:
    """Make the DenseNet 40-40 of the experiments on CIFAR-100, where it has 1,941,620 parameters.

    The papers name only depth and growth rate. The code published with them has bottlenecks and compression
    0.5 (DenseNet-BC) and no dropout, and so has this; :class:`DenseNet` makes the plain one.

    Args:
        num_classes: Number c of classes.
        in_channels: Number of channels of the images.
        dropout_rate: See :class:`DenseNet`.

    Returns:
        A model from images (n, in_channels, height, width) to logits (n, c).

    Example:
        >>> densenet40_40(100).features(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 440])

    References:
        L. Berrada, A. Zisserman, M. P. Kumar, "Smooth Loss Functions for Deep Top-k Classification", ICLR
        2018, and C. Garcin, M. Servajean, A. Joly, J. Salmon, "Stochastic smoothing of the top-K calibrated
        hinge loss for deep imbalanced classification", ICML 2022: experiments on CIFAR-100.
    """
    return DenseNet(num_classes, in_channels=in_channels, dropout_rate=dropout_rate)
