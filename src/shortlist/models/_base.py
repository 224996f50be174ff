"""The base of all networks (features, then a classifier ``head``), checks, and initial values."""

from abc import ABC, abstractmethod
from typing import Any, Literal

from torch import Tensor, nn

from shortlist._checks import check_count


class Network(nn.Module, ABC):
    """A network that computes features (n, d) of a batch, and scores from them by ``head``.

    The head is an ``nn.Linear`` until :func:`shortlist.models.classifiers.replace_classifier` puts another
    one in its place.
    """

    def __init__(self, feature_length: int, num_classes: int) -> None:
        super().__init__()
        check_sizes(num_classes=num_classes)
        self.num_classes = num_classes
        self.head: nn.Module = nn.Linear(feature_length, num_classes)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Compute the features (n, d) of a batch, which the classifier takes."""

    def forward(self, x: Tensor) -> Any:
        """Compute the output of the head for a batch, such as logits (n, c)."""
        return self.head(self.features(x))


def check_sizes(**sizes: int) -> None:
    """Require integers >= 1."""
    for name, size in sizes.items():
        check_count(name, size)


def check_images(images: Tensor, *, in_channels: int, smallest: int) -> None:
    """Require (n, in_channels, height, width), height and width >= ``smallest``."""
    shape = tuple(images.shape)
    if len(shape) != 4 or shape[1] != in_channels or shape[2] < smallest or shape[3] < smallest:
        want = f"(n, {in_channels}, height, width) with height and width >= {smallest}"
        raise ValueError(f"images must be {want}, got {shape}")


def draw_he_normal(model: nn.Module, *, fan: Literal["fan_in", "fan_out"]) -> None:
    """Draw the weights of all convolutions from a normal of variance 2 / fan (K. He et al., ICCV 2015)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=fan, nonlinearity="relu")
