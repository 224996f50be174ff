"""Replace the classifier of a model, or train it alone."""

from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from shortlist.models.heads import CosineHead, LinearHead, ScaledHead, TwoHead
from shortlist.models.label_set_head import LabelSetHead

Model = TypeVar("Model", bound=nn.Module)


def replace_classifier(
    model: Model, head: nn.Module | Callable[[int], nn.Module], *, name: str | None = None
) -> Model:
    """Replace a model's classifier by a head.

    Args:
        model: A timm or torchvision model, or any other module. It is changed in place.
        head: The new head, or a function that makes it from the length of the features, which is read from
            the layer that is replaced. It moves to that layer's device and type.
        name: Dotted name of the module to replace: exactly that one, under all names that it has. ``None``
            finds the classifier: what ``model.get_classifier()`` (timm) returns, else the last linear layer
            in ``fc``, ``classifier``, ``head`` or ``heads.head``, whichever the model has.

    Returns:
        The model. Its ``num_classes``, if it has one, is that of the new head.

    Raises:
        ValueError: If no module or more than one could be meant, or the lengths of the features differ.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 100))
        >>> model = replace_classifier(model, lambda d: CosineHead(d, 5), name="3")
        >>> model[3]
        CosineHead(8, 5, scale=1, learn_scale=False)
    """
    name = classifier_name(model, name)
    old = model.get_submodule(name)
    length = getattr(old, "in_features", None)
    if isinstance(head, nn.Module):
        new = head
    elif isinstance(length, int):
        new = head(length)
    else:
        raise ValueError(
            f"head must be a module where the replaced one has no in_features: {name!r} is of type "
            f"{type(old).__name__}; {_linear_layers(model)}"
        )
    if not isinstance(new, nn.Module):
        raise ValueError(f"head must be a module or make one, got {type(new).__name__}")
    wanted = getattr(new, "in_features", length)
    if isinstance(length, int) and wanted != length:
        raise ValueError(f"head must take the {length} features of {name!r}, got in_features={wanted}")
    like = next(old.parameters(), None)
    if like is not None:
        new.to(device=like.device, dtype=like.dtype)
    new.train(old.training)
    aliases = [alias for alias, module in model.named_modules(remove_duplicate=False) if module is old]
    for alias in aliases:
        parent, _, leaf = alias.rpartition(".")
        setattr(model.get_submodule(parent), leaf, new)
    num_classes = getattr(new, "num_classes", getattr(new, "out_features", None))
    if isinstance(vars(model).get("num_classes"), int) and isinstance(num_classes, int):
        vars(model)["num_classes"] = num_classes
    return model


def freeze_features(model: Model, *, name: str | None = None, reset: bool = False) -> Model:
    """Freeze all layers but the classifier, to train it again on class-balanced batches.

    Parameters outside the classifier stop asking for gradients; those inside are left as they are. Batch
    normalization outside the classifier uses its running statistics from now on and no longer updates them,
    also in train mode: a hook puts each of these layers into evaluation mode before it runs, so that
    ``model.train()`` does not undo it. Dropout is left as it is.

    Args:
        model: A model with a classifier. It is changed in place.
        name: Dotted name of the classifier, found as by :func:`replace_classifier` if ``None``.
        reset: Whether to draw new initial parameters for the classifier, as the paper does.

    Returns:
        The model.

    Raises:
        ValueError: If the classifier is not found, or is to be reset and has no ``reset_parameters``.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        >>> model = freeze_features(model, name="2").train()
        >>> [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        ['2.weight', '2.bias']

    References:
        B. Kang et al., ICLR 2020, section 4; in full at :class:`ScaledHead`.
    """
    name = classifier_name(model, name)
    classifier = model.get_submodule(name)
    if reset:
        draw_anew = getattr(classifier, "reset_parameters", None)
        if draw_anew is None:
            kind = type(classifier).__name__
            raise ValueError(f"reset must be False for a {kind}, which has no reset_parameters: {name!r}")
        draw_anew()
    kept, inside = set(classifier.parameters()), set(classifier.modules())
    for parameter in model.parameters():
        if parameter not in kept:
            parameter.requires_grad_(False)
    for module in model.modules():
        has_hook = _use_running_statistics in module._forward_pre_hooks.values()
        if isinstance(module, _BATCH_NORMS) and module not in inside and not has_hook:
            module.register_forward_pre_hook(_use_running_statistics)
    return model


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_LINEAR = (nn.Linear, LinearHead, CosineHead, TwoHead, LabelSetHead, ScaledHead)
_USUAL_NAMES = ("fc", "classifier", "head", "heads.head")


def _use_running_statistics(module: nn.Module, _: tuple) -> None:
    module.eval()


def _linear_names(module: nn.Module) -> list[str]:
    """Return the names of the linear layers and heads inside, in order; ``""`` for the module itself."""
    names: list[str] = []
    for name, part in module.named_modules():
        if isinstance(part, _LINEAR) and not (names and (not names[-1] or name.startswith(names[-1] + "."))):
            names.append(name)  # the parts of a head are not classifiers
    return names


def _linear_layers(model: nn.Module) -> str:
    return f"last linear layers of the model: {', '.join(_linear_names(model)[-8:]) or 'none'}"


def classifier_input(model: nn.Module, inputs: Tensor, *, name: str | None = None) -> Tensor:
    """Run a network, and return the features (n, d) that its classifier took.

    Args:
        model: Network, which other threads may be running too.
        inputs: Inputs of the network (n, ...).
        name: Dotted name of the classifier, found as by :func:`replace_classifier` if ``None``.
    """
    return output_and_features(model, inputs, name=name)[1]


def output_and_features(model: nn.Module, inputs: Tensor, *, name: str | None = None) -> tuple[Any, Tensor]:
    """Run a network, and return its output and the features (n, d) that its classifier took.

    The arguments are those of :func:`classifier_input`.
    """
    seen: list[Tensor] = []
    thread = get_ident()

    def keep(_: nn.Module, given: tuple) -> None:
        if get_ident() == thread:
            seen.append(given[0])

    hook = model.get_submodule(classifier_name(model, name)).register_forward_pre_hook(keep)
    try:
        output = model(inputs)
    finally:
        hook.remove()
    if len(seen) != 1:
        raise ValueError(f"classifier must be the name of a module that runs once, it ran {len(seen)}x")
    return output, seen[0]


def classifier_name(model: nn.Module, name: str | None = None) -> str:
    """Return the dotted name of a model's classifier, as :func:`replace_classifier` finds it."""
    modules = dict(model.named_modules(remove_duplicate=False))  # a module may have several names
    if name is not None:
        if name and name in modules:
            return name
        raise ValueError(f"name must be that of a module of the model, got {name!r}; {_linear_layers(model)}")
    if hasattr(model, "get_classifier"):
        classifier = model.get_classifier()  # type: ignore[operator]
        candidates = [name for name, module in modules.items() if module is classifier]
    else:
        named = [(usual, _linear_names(modules[usual])) for usual in _USUAL_NAMES if usual in modules]
        candidates = [f"{usual}.{names[-1]}".rstrip(".") for usual, names in named if names]
    candidates = list({id(modules[name]): name for name in reversed(candidates)}.values())[
        ::-1
    ]  # the first of each
    if len(candidates) != 1:
        raise ValueError(
            f"name must be given where the classifier cannot be found, got None; found "
            f"{', '.join(candidates) or 'nothing'}; {_linear_layers(model)}"
        )
    return candidates[0]


def num_outputs(model: nn.Module) -> int | None:
    """Return the number of classes that a network scores, where its last layer tells it for sure.

    That is a linear layer or head itself, a sequence that ends in one, and a network of timm or torchvision.
    What the forward function of another network does after its last layer is not known.

    Example:
        >>> num_outputs(nn.Sequential(nn.Flatten(), nn.Linear(12, 5))), num_outputs(nn.Identity())
        (5, None)
    """
    last: nn.Module = model
    while type(last) is nn.Sequential and "forward" not in vars(last) and len(last):
        last = last[-1]
    if type(model).__module__.partition(".")[0] in ("timm", "torchvision"):
        try:
            last = model.get_submodule(classifier_name(model))
        except ValueError:
            return None
    if isinstance(last, nn.Linear):
        return last.out_features
    return (
        int(last.num_classes) if isinstance(last, CosineHead | LinearHead | TwoHead | LabelSetHead) else None
    )


def class_norms(model: nn.Module, name: str | None = None) -> dict[str, tuple[Tensor, Tensor] | None]:
    """Return norms of the class weights (c,) and offsets (c,) of each head; a cosine head has none."""
    head = model.get_submodule(classifier_name(model, name))
    if isinstance(head, TwoHead):
        return {"set": _norms(head.set_head), "proposal": _norms(head.proposal_head)}
    return {"set": _norms(head.class_head if isinstance(head, LabelSetHead) else head)}


def _norms(head: nn.Module) -> tuple[Tensor, Tensor] | None:
    factors = torch.ones(())
    if isinstance(head, ScaledHead):
        factors, head = head.scale.detach().cpu(), head.head
    if not isinstance(head, LinearHead | nn.Linear):
        return None
    norms = head.weight.detach().float().norm(dim=1).cpu() * factors
    offsets = torch.zeros_like(norms) if head.bias is None else head.bias.detach().float().cpu()
    return norms, offsets
