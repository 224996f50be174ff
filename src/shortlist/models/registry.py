"""The networks that recipes know by name."""

from collections.abc import Callable

from torch import nn

from shortlist.models.conv_net import deep_cnn, small_cnn
from shortlist.models.densenet import densenet40_40, densenet_cifar
from shortlist.models.mlp import linear, mlp
from shortlist.models.resnet_cifar import (
    resnet20_cifar,
    resnet32_cifar,
    resnet44_cifar,
    resnet56_cifar,
    resnet_cifar,
)

MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "small_cnn": small_cnn,
    "deep_cnn": deep_cnn,
    "resnet_cifar": resnet_cifar,
    "resnet20_cifar": resnet20_cifar,
    "resnet32_cifar": resnet32_cifar,
    "resnet44_cifar": resnet44_cifar,
    "resnet56_cifar": resnet56_cifar,
    "densenet_cifar": densenet_cifar,
    "densenet40_40": densenet40_40,
}
"""The function that makes each network, by the name that recipes use."""
OF_FIXED_SIZE = frozenset({"linear", "mlp"})
"""Networks for inputs of one size, which take ``image_size`` too."""
