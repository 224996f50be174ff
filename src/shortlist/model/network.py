"""Make the network of a saved model, as its folder says or by a function that the caller names."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from shortlist.model.files import model_folder, read_description
from shortlist.models import NetworkSpec, build_network, build_within, own_network


def network_of(spec: NetworkSpec | None, weights: Path) -> nn.Module:
    """Return the network before its weights are loaded; the global random state does not change."""
    if spec is None:
        raise ValueError(
            "the file does not say how the network is built: make the network yourself and pass it, "
            "Model.load(folder, network=...) or --network MODULE:FUNCTION"
        )
    with torch.random.fork_rng(devices=[]):
        return build_within(weights, partial(build_network, spec, pretrained=False, allow_code=False))


def network_by_name(path: str | Path, name: str) -> nn.Module:
    """Make the network for a saved model by a function that the caller names. Its code is run.

    Args:
        path: Folder of the model, as for :meth:`Model.load`.
        name: Name ``"package.module:function"``. If the folder says how the network is built, this function
            replaces the one that it names; otherwise it is called without arguments.
    """
    content = read_description(model_folder(path))[0]["network"]
    if content is None:
        return own_network("network", name)
    spec = replace(NetworkSpec.from_dict(content), name=name)
    return build_network(spec, pretrained=False, allow_code=True)


def needs_code(path: str | Path) -> bool:
    """Whether a saved model has a network that only code of its maker's own can make."""
    content = read_description(model_folder(path))[0]["network"]
    return content is None or NetworkSpec.from_dict(content).runs_code
