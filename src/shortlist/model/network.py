"""Make the network of a saved model, as its folder says or by a function that the caller names."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from shortlist._named_code import find_code
from shortlist.model.files import model_folder, read_description
from shortlist.models.spec import NetworkSpec, build_network

__all__ = ["network_by_name", "network_of"]


def network_of(spec: NetworkSpec | None) -> nn.Module:
    """Return the network before its weights are loaded; the global random state does not change."""
    if spec is None:
        raise ValueError(
            "the file does not say how the network is built: make the network yourself and pass it, "
            "Model.load(folder, network=...) or --network MODULE:FUNCTION"
        )
    with torch.random.fork_rng(devices=[]):
        return build_network(spec, pretrained=False, allow_code=False)


def network_by_name(path: str | Path, name: str) -> nn.Module:
    """Make the network for a saved model by a function that the caller names. Its code is run.

    Args:
        path: Folder of the model, as for :meth:`Model.load`.
        name: Name ``"package.module:function"``. If the folder says how the network is built, this function
            replaces the one that it names; otherwise it is called without arguments.
    """
    content = read_description(model_folder(path))["network"]
    if content is not None:
        spec = replace(NetworkSpec.from_dict(content), name=name)
        return build_network(spec, pretrained=False, allow_code=True)
    made = find_code("network", name)()
    if not isinstance(made, nn.Module):
        raise ValueError(f"{name} must make a network, an nn.Module, got {type(made).__name__}")
    return made
