"""The specification of a network by name and plain values, which is saved with its weights."""

import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_keys, check_number
from shortlist._named_code import code_error, find_code
from shortlist.models.classifiers import classifier_name, replace_classifier
from shortlist.models.heads import CosineHead, LinearHead, ScaledHead, TwoHead
from shortlist.models.label_set_head import LabelSetHead
from shortlist.models.registry import MODELS, OF_FIXED_SIZE

HeadName = Literal["linear", "cosine", "two_head", "label_set"]

# options that read weights from somewhere
_WEIGHTS = ("pretrained", "pretrained_backbone", "weights", "weights_backbone", "checkpoint_path")
# of these, those that name a file or an address of anybody's: some versions of timm read pickles from there
_FILES_OF_TIMM = ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay")


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """The specification of a network in plain values for JSON; see :func:`build_network`.

    Args:
        name: A key of ``MODELS``, ``"timm:NAME"``, ``"torchvision:NAME"`` or ``"package.module:function"``.
        options: Further arguments of the function that makes the network.
        small_stem: Whether the first convolution is replaced by one of 3 x 3 with stride 1.
        head: Head that replaces the classifier: ``"linear"``, ``"cosine"``, ``"two_head"`` or
            ``"label_set"``.
        bias: Whether linear heads have offsets.
        scale: Factor of a cosine head, > 0.
        learn_scale: Whether the scale of a cosine head is learned.
        classifier: Dotted name of the classifier; found as by
            :func:`~shortlist.models.classifiers.replace_classifier` if ``None``.
        scaled_head: Whether the head is inside a :class:`~shortlist.models.heads.ScaledHead`.
        takes_classes: Whether a function of one's own gets the number of classes and the options. If not, it
            is called without arguments.
        features: Number of features that a function's network gives, if it has no classifier: the head is put
            behind it, in an ``nn.Sequential``. ``None`` if it has one, which the head replaces.
        num_classes: Number c of classes.
        input_shape: Shape of one input, without the batch axis.

    Example:
        >>> spec = NetworkSpec(name="small_cnn", num_classes=5, input_shape=(1, 16, 16), head="cosine")
        >>> build_network(spec)(torch.zeros(2, 1, 16, 16)).shape
        torch.Size([2, 5])
        >>> NetworkSpec.from_dict(spec.to_dict()) == spec
        True
    """

    name: str
    num_classes: int
    input_shape: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict)
    small_stem: bool = False
    head: HeadName = "linear"
    bias: bool = True
    scale: float = 1.0
    learn_scale: bool = False
    classifier: str | None = None
    scaled_head: bool = False
    takes_classes: bool = True
    features: int | None = None

    def __post_init__(self) -> None:
        for name, kind in (("name", str), ("classifier", str | None)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} must be text, got {getattr(self, name)!r}")
        if self.name not in MODELS and ":" not in self.name:
            allowed = f"{', '.join(MODELS)}, timm:NAME, torchvision:NAME or package.module:function"
            raise ValueError(f"name must be one of {allowed}, got {self.name!r}")
        for name in ("small_stem", "bias", "learn_scale", "scaled_head", "takes_classes"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        check_count("num_classes", self.num_classes)
        if self.features is not None:
            check_count("features", self.features)
        check_choice("head", self.head, get_args(HeadName))
        check_number("scale", self.scale, above=0.0)
        for length in self.input_shape:
            check_count("input_shape", length)
        object.__setattr__(self, "input_shape", tuple(self.input_shape))
        object.__setattr__(self, "options", _plain(self.options))

    @property
    def runs_code(self) -> bool:
        """Whether the name refers to a user's own function, which runs when the network is made."""
        return "name" in code_in_network(self.name, {})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"input_shape": list(self.input_shape)}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "NetworkSpec":
        """Make one from what :meth:`to_dict` returned.

        Raises:
            ValueError: If a value is missing, unknown or out of its bounds.
        """
        check_keys("a network", content, [field.name for field in fields(NetworkSpec)])
        if not isinstance(content["input_shape"], list | tuple):
            raise ValueError(f"input_shape must be a list of lengths, got {content['input_shape']!r}")
        return NetworkSpec(**content)


def code_in_network(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a network's name and options can run code that is neither ours nor a known library's.

    It is the name of a function, a model that timm gets from a folder or a hub, and a file or an address that
    timm reads weights from. Networks of ``MODELS``, of torchvision and of timm's own list have none of it.

    Example:
        >>> code_in_network("my_package:make", {"depth": 3}), code_in_network("timm:resnet18", {"depth": 3})
        ({'name': 'my_package:make'}, {})
    """
    if name in MODELS:
        return {}
    library, _, model = name.partition(":")
    if library == "timm" and ":" not in model:
        return {key: options[key] for key in _FILES_OF_TIMM if options.get(key)}
    return {} if library == "torchvision" else {"name": name}


def build_network(spec: NetworkSpec, *, pretrained: bool = True, allow_code: bool = False) -> nn.Module:
    """Make the network that a specification describes, with new initial parameters.

    Networks of images come with their channels innermost (``channels_last``).

    Args:
        spec: Specification of the network.
        pretrained: Whether options that load weights are followed; ``False`` if the weights are loaded next.
        allow_code: Whether ``"package.module:function"`` may be imported and called, and files of weights
            read that timm may unpickle (see :func:`code_in_network`): never where the specification comes
            from somebody else's file.

    Returns:
        The network, in training mode.

    Raises:
        ValueError: If it cannot be made.
    """
    if not allow_code and spec.runs_code:
        raise ValueError(
            f"the network is made by {spec.name!r}, and opening a model never runs code that is named in it: "
            "make the network yourself and pass it, Model.load(folder, network=...) or "
            "--network MODULE:FUNCTION"
        )
    if pretrained and not allow_code:
        for key, value in code_in_network(spec.name, spec.options).items():
            raise code_error(f"model.{key}", value)
    try:
        network = _make_network(spec, pretrained)
    except (TypeError, RuntimeError, LookupError, AssertionError) as error:  # each library has its own
        made = f"{spec.name} with the options {dict(spec.options) or 'none'}"
        raise ValueError(f"model: {made} cannot be made: {error}") from error
    if spec.small_stem:
        _shrink_stem(network, spec.name)
    network = replace_classifier(network, lambda length: _make_head(spec, length), name=spec.classifier)
    if spec.scaled_head:
        name = classifier_name(network, spec.classifier)
        head: Any = network.get_submodule(name)
        network = replace_classifier(network, ScaledHead(head), name=name)
    # images one after the other with their channels innermost: convolutions on the CPU are twice as fast
    return network.to(memory_format=torch.channels_last) if len(spec.input_shape) == 3 else network  # type: ignore[call-overload]


def in_channels_last(inputs: Tensor) -> Tensor:
    """Return images with their channels innermost, as the networks are kept; anything else as it is."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as JSON gives them back, so that a network is made of the same values later."""
    if not isinstance(options, Mapping):
        raise ValueError(f"options must be a mapping of names to values, got {type(options).__name__}")
    plain = {}
    for key, value in options.items():
        try:
            plain[str(key)] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"options[{key!r}] must be a plain value for JSON, got {value!r}") from error
    return plain


def _make_head(spec: NetworkSpec, length: int) -> nn.Module:
    if spec.head == "cosine":
        return CosineHead(length, spec.num_classes, scale=spec.scale, learn_scale=spec.learn_scale)
    kinds = {"linear": LinearHead, "two_head": TwoHead, "label_set": LabelSetHead}
    return kinds[spec.head](length, spec.num_classes, bias=spec.bias)


def _make_network(spec: NetworkSpec, pretrained: bool) -> nn.Module:
    name, num_classes, shape, options = spec.name, spec.num_classes, spec.input_shape, dict(spec.options)
    if not pretrained:
        options = {key: value for key, value in options.items() if key not in _WEIGHTS}
    if name in MODELS:
        options.setdefault("in_channels", shape[0])
        if name in OF_FIXED_SIZE and len(shape) == 3:
            options.setdefault("image_size", tuple(shape[1:]))
        return MODELS[name](num_classes, **options)
    library, _, model = name.partition(":")
    if library == "timm":
        return _optional("timm", "pretrained").create_model(model, num_classes=num_classes, **options)
    if library == "torchvision":
        models = _optional("torchvision.models", "pretrained")
        if options.pop("pretrained", False):
            options["weights"] = "DEFAULT"
        if not pretrained:
            options |= _no_weights(models, model)
        return _with_linear_classifier(models.get_model(model, **options))  # which is replaced
    made = own_network("model.name", name, *([num_classes] if spec.takes_classes else []), **options)
    return made if spec.features is None else nn.Sequential(made, nn.Linear(spec.features, num_classes))


def own_network(key: str, name: str, /, *arguments: Any, **options: Any) -> nn.Module:
    """Call a user's own function ``package.module:function``, which makes a network.

    Raises:
        ValueError: If there is none, or it makes something else; the message names the key.
    """
    made = find_code(key, name)(*arguments, **options)
    if not isinstance(made, nn.Module):
        raise ValueError(f"{key}: {name} must make a network, an nn.Module, got {type(made).__name__}")
    return made


def _no_weights(models: Any, model: str) -> dict[str, None]:
    """Options of a torchvision model that keep it from downloading weights, as some do unasked."""
    wants = inspect.signature(models.get_model_builder(model)).parameters
    return {key: None for key in ("weights", "weights_backbone") if key in wants}


def _with_linear_classifier(model: nn.Module) -> nn.Module:
    """Make a SqueezeNet that averages its maps before the classifier, which is then a linear layer."""
    classifier = getattr(model, "classifier", None)
    parts = list(classifier) if isinstance(classifier, nn.Sequential) else []
    if len(parts) == 4 and isinstance(last := parts[1], nn.Conv2d):
        linear = nn.Linear(last.in_channels, last.out_channels)
        model.classifier = nn.Sequential(parts[0], nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear)
    return model


def _shrink_stem(model: nn.Module, name: str) -> None:
    """Replace the first convolution by one of 3 x 3 with stride 1, for images of 32 x 32."""
    first = getattr(model, "conv1", None)
    if not isinstance(first, nn.Conv2d):
        raise ValueError(f"model.small_stem must be false for {name}: it has no convolution called conv1")
    model.conv1 = nn.Conv2d(first.in_channels, first.out_channels, 3, padding=1, bias=first.bias is not None)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")


def _optional(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        hint = f"; pip install 'shortlist[{extra}]'"
        raise ValueError(f"model.name needs {module}, which cannot be imported ({error}){hint}") from error
