"""Load initial weights from a file; the classifier stays new where the classes differ."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shortlist.models.classifiers import classifier_name

_WRAPPERS = ("state_dict", "model", "model_state_dict")  # where checkpoints keep the weights
_PREFIXES = ("", "module.", "model.")  # what parallel and Lightning wrappers put before the names


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the named tensors of a ``.safetensors`` file or a torch checkpoint, without running its code.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It cannot be read, or holds no named tensors.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: model.weights_file must name a file of weights")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format has errors of its own
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path} cannot be read as a file of weights: {reason}") from error
    for key in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    tensors = {}
    if isinstance(content, Mapping):
        tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"{path} holds no named tensors: it must be a state dict or a checkpoint with one")
    return tensors


def load_weights(model: nn.Module, path: str | Path, *, classifier: str | None = None) -> list[str]:
    """Load the weights of a model from a file, and warn of tensors that were not in it.

    Args:
        model: The model. It is changed in place.
        path: Path of a ``.safetensors`` file or a torch checkpoint.
        classifier: Dotted name of the classifier, found as by
            :func:`~shortlist.models.classifiers.replace_classifier` if ``None``. Its tensors, and only its,
            may have other shapes in the file or be missing there: they are left as they are.

    Returns:
        Names of the classifier's tensors that were left as they are.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a file of weights, or not of this model.
    """
    saved, expected = read_weights(path), model.state_dict()
    prefix = max(_PREFIXES, key=lambda start: sum(start + name in saved for name in expected))
    saved = {name.removeprefix(prefix): value for name, value in saved.items() if name.startswith(prefix)}
    counters = {name for name in expected if name.endswith("num_batches_tracked")}  # old files lack them
    fitting = {name for name in expected if name in saved and saved[name].shape == expected[name].shape}
    lacking = [name for name in expected if name not in fitting | (counters - saved.keys())]
    start = classifier_name(model, classifier) + "."
    foreign = [name for name in lacking if not name.startswith(start)]
    if foreign:
        raise ValueError(
            f"{path} has the weights of another model: {len(foreign)} of {len(expected)} tensors are missing "
            f"or of another shape, such as {_shapes(foreign[0], saved, expected)}"
        )
    model.load_state_dict({name: saved[name] for name in fitting}, strict=False)
    unused = [name for name in saved if name not in expected]
    if lacking or unused:
        left = "; ".join(_shapes(name, saved, expected) for name in lacking) or "nothing"
        extra = f"; {len(unused)} tensors of the file were not used ({unused[0]}, ...)" if unused else ""
        warnings.warn(f"{path}: left as drawn: {left}{extra}", stacklevel=2)
    return lacking


def _shapes(name: str, given_tensors: Mapping[str, Tensor], model_tensors: Mapping[str, Tensor]) -> str:
    there = tuple(given_tensors[name].shape) if name in given_tensors else "missing"
    return f"{name} ({there} in the file, {tuple(model_tensors[name].shape)} wanted)"
