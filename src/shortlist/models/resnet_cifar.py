"""Residual networks for small images (K. He et al., CVPR 2016, section 4.2)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from shortlist.models._base import Network, check_images, check_sizes, draw_he_normal


class BasicBlock(nn.Module):
    """A block of two convolutions beside a shortcut without parameters (option A of the paper)."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int) -> None:
        super().__init__()
        self.stride, self.extra = stride, out_channels - in_channels
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)

    def shortcut(self, x: Tensor) -> Tensor:
        """Return the input itself, or every second pixel of it, padded with channels of zeros."""
        if self.stride == 1 and not self.extra:
            return x
        before = self.extra // 2
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.extra - before))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the convolutions and the shortcut."""
        inner = relu(self.norm1(self.conv1(x)), inplace=True)
        return relu(self.norm2(self.conv2(inner)) + self.shortcut(x), inplace=True)


class CifarResNet(Network):
    """A residual network for small images: 3 x 3 convolutions, shortcuts without parameters (option A).

    Where a stage begins, the shortcut takes every second pixel and puts half of the new channels, all zero,
    before and half after the old ones. Convolutions and the classifier's weights start from a normal of
    variance 2 / fan-in.

    It computes logits (n, c) from images (n, in_channels, height, width).

    Args:
        num_classes: Number c of classes.
        in_channels: Number of channels of the images.
        depth: Number of convolutions and the classifier, ``2 + 6 n`` for n blocks in each of three stages.
        width: Number of channels of the first stage; the others have twice and four times as many.

    Raises:
        ValueError: If an argument is outside its bounds.

    Example:
        >>> CifarResNet(10, depth=20).features(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 64])

    References:
        K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, section
        4.2.
    """

    def __init__(self, num_classes: int, *, in_channels: int = 3, depth: int = 32, width: int = 16) -> None:
        check_sizes(in_channels=in_channels, depth=depth, width=width)
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"depth must be 2 + 6 n with n >= 1, got {depth}")
        super().__init__(4 * width, num_classes)
        self.in_channels = in_channels
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks, channels = [], width
        for stage in range(3):
            for block in range((depth - 2) // 6):
                wider = stage > 0 and block == 0
                blocks.append(BasicBlock(channels, width * 2**stage, stride=2 if wider else 1))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        draw_he_normal(self, fan="fan_in")
        nn.init.kaiming_normal_(self.head.weight)  # type: ignore[arg-type]

    def features(self, x: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n d"]:
        """Compute the means over the last feature map, (n, d)."""
        check_images(x, in_channels=self.in_channels, smallest=1)
        return self.blocks(relu(self.norm(self.stem(x)), inplace=True)).mean((2, 3))


resnet_cifar = CifarResNet
"""The name of :class:`CifarResNet` in recipes."""


def resnet20_cifar(num_classes: int, *, in_channels: int = 3, width: int = 16) -> CifarResNet:
    """Make a :class:`CifarResNet` of depth 20: 0.27 million parameters for 10 classes."""
    return CifarResNet(num_classes, in_channels=in_channels, depth=20, width=width)


def resnet32_cifar(num_classes: int, *, in_channels: int = 3, width: int = 16) -> CifarResNet:
    """Make a :class:`CifarResNet` of depth 32: 464,154 parameters for 10 classes.

    Used on long-tailed CIFAR by K. Cao et al. (LDAM, NeurIPS 2019) and A. K. Menon et al. (logit
    adjustment, ICLR 2021). For LDAM, put a :class:`shortlist.models.heads.CosineHead` in place of the
    classifier.
    """
    return CifarResNet(num_classes, in_channels=in_channels, depth=32, width=width)


def resnet44_cifar(num_classes: int, *, in_channels: int = 3, width: int = 16) -> CifarResNet:
    """Make a :class:`CifarResNet` of depth 44: 0.66 million parameters for 10 classes."""
    return CifarResNet(num_classes, in_channels=in_channels, depth=44, width=width)


def resnet56_cifar(num_classes: int, *, in_channels: int = 3, width: int = 16) -> CifarResNet:
    """Make a :class:`CifarResNet` of depth 56: 0.85 million parameters for 10 classes."""
    return CifarResNet(num_classes, in_channels=in_channels, depth=56, width=width)
