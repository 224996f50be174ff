"""Small networks that timm and torchvision do not have; each has ``features`` and a classifier ``head``."""

from collections.abc import Callable

from torch import nn

from shortlist.models.conv_net import ConvNet, deep_cnn, small_cnn
from shortlist.models.densenet import DenseNet, densenet40_40, densenet_cifar
from shortlist.models.mlp import MLP, linear, mlp
from shortlist.models.resnet_cifar import (
    CifarResNet,
    resnet20_cifar,
    resnet32_cifar,
    resnet44_cifar,
    resnet56_cifar,
    resnet_cifar,
)

__all__ = [
    "MLP",
    "MODELS",
    "OF_FIXED_SIZE",
    "CifarResNet",
    "ConvNet",
    "DenseNet",
    "deep_cnn",
    "densenet40_40",
    "densenet_cifar",
    "linear",
    "mlp",
    "resnet20_cifar",
    "resnet32_cifar",
    "resnet44_cifar",
    "resnet56_cifar",
    "resnet_cifar",
    "small_cnn",
]

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
