"""Small networks that timm and torchvision do not have; each has ``features`` and a classifier ``head``."""

from shortlist.models.bounds import build_within
from shortlist.models.classifiers import (
    class_norms,
    classifier_input,
    classifier_name,
    freeze_features,
    num_outputs,
    output_and_features,
    replace_classifier,
)
from shortlist.models.conv_net import ConvNet, deep_cnn, small_cnn
from shortlist.models.densenet import DenseNet, densenet40_40, densenet_cifar
from shortlist.models.heads import LinearHead, ScaledHead, head_outputs, head_scores
from shortlist.models.label_set_head import predicted_sizes
from shortlist.models.mlp import MLP, linear, mlp
from shortlist.models.registry import MODELS, OF_FIXED_SIZE
from shortlist.models.resnet_cifar import (
    CifarResNet,
    resnet20_cifar,
    resnet32_cifar,
    resnet44_cifar,
    resnet56_cifar,
    resnet_cifar,
)
from shortlist.models.spec import (
    HeadName,
    NetworkSpec,
    build_network,
    code_in_network,
    in_channels_last,
    own_network,
)
from shortlist.models.weights import load_weights

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
