"""Plain convolutional networks for small images, small enough to train on a CPU."""

from collections import OrderedDict

from jaxtyping import Float
from torch import Tensor, nn

from shortlist.models._base import Network, check_images, check_sizes, draw_he_normal


class ConvNet(Network):
    """A network of 3 x 3 convolutions and max-pooling; made by :func:`small_cnn` and :func:`deep_cnn`.

    Args:
        num_classes: Number c of classes.
        in_channels: Number of channels of the images.
        stages: Numbers of channels of the convolutions, a sequence for each stage.
        pool_last: Whether the last stage pools too.
    """

    def __init__(
        self, num_classes: int, *, in_channels: int, stages: tuple[tuple[int, ...], ...], pool_last: bool
    ) -> None:
        super().__init__(stages[-1][-1], num_classes)
        check_sizes(in_channels=in_channels)
        self.in_channels = in_channels
        pools = len(stages) if pool_last else len(stages) - 1
        self.smallest = 2**pools
        parts: list[nn.Module] = []
        channels = in_channels
        for index, stage in enumerate(stages):
            for position, out_channels in enumerate(stage):
                pool = index < pools and position == len(stage) - 1
                parts.append(_convolution(channels, out_channels, pool=pool))
                channels = out_channels
        self.blocks = nn.Sequential(*parts)
        draw_he_normal(self, fan="fan_in")

    def features(self, x: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n d"]:
        """Compute the means over the last feature map, (n, d)."""
        check_images(x, in_channels=self.in_channels, smallest=self.smallest)
        return self.blocks(x).mean((2, 3))


def _convolution(in_channels: int, out_channels: int, *, pool: bool) -> nn.Sequential:
    parts = OrderedDict[str, nn.Module](conv=nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False))
    if pool:  # before the normalization, which then has a quarter of the work
        parts["pool"] = nn.MaxPool2d(2)
    return nn.Sequential(parts | {"norm": nn.BatchNorm2d(out_channels), "relu": nn.ReLU(inplace=True)})


def small_cnn(num_classes: int, *, in_channels: int = 3, width: int = 16) -> ConvNet:
    """Make a network of four convolutions, each with max-pooling, normalization and ReLU.

    The first convolution, the only one at full height and width, has ``width / 2`` channels, the others 2,
    4 and 8 times ``width``. Convolutions start from a normal of variance 2 / fan-in.

    Args:
        num_classes: Number c of classes.
        in_channels: Number of channels of the images: 1 for gray, 3 for color.
        width: Number of channels, even; the cost grows about with its square.

    Returns:
        A model from images (n, in_channels, height, width), at least 16 x 16, to logits (n, c).

    Raises:
        ValueError: If an argument is outside its bounds.

    Example:
        >>> small_cnn(10, in_channels=1).features(torch.randn(2, 1, 32, 32)).shape
        torch.Size([2, 128])
    """
    first = _first_channels(width)
    stages = ((first,), (2 * width,), (4 * width,), (8 * width,))
    return ConvNet(num_classes, in_channels=in_channels, stages=stages, pool_last=True)


def deep_cnn(num_classes: int, *, in_channels: int = 3, width: int = 16) -> ConvNet:
    """Make a network of eight convolutions in four stages of 1, 2, 2 and 3, with max-pooling in between.

    The stages have as many channels as the convolutions of :func:`small_cnn`; ``width=8`` costs about as
    much as that one with 16.

    Args:
        num_classes: Number c of classes.
        in_channels: Number of channels of the images: 1 for gray, 3 for color.
        width: Number of channels, even; the cost grows about with its square.

    Returns:
        A model from images (n, in_channels, height, width), at least 8 x 8, to logits (n, c).

    Raises:
        ValueError: If an argument is outside its bounds.

    Example:
        >>> deep_cnn(10, in_channels=1, width=8).features(torch.randn(2, 1, 32, 32)).shape
        torch.Size([2, 64])
    """
    first = _first_channels(width)
    stages = ((first,), (2 * width,) * 2, (4 * width,) * 2, (8 * width,) * 3)
    return ConvNet(num_classes, in_channels=in_channels, stages=stages, pool_last=False)


def _first_channels(width: int) -> int:
    check_sizes(width=width)
    if width % 2:
        raise ValueError(f"width must be even, got {width}")
    return width // 2
