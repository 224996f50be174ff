"""Hashes of a model: of what its features depend on, and of its manifest."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shortlist._store.files import check_regular
from shortlist.model.files import model_folder, reading
from shortlist.model.model import Model


def model_hash(model: Model) -> str:
    """Return the SHA-256 of weights, preprocessing, classifier and class ids.

    Predictors and score map have no part in it: after a new calibration an index is as good as before.
    """
    prepared = None if model.preprocessing is None else model.preprocessing.to_dict()
    return network_hash(model.network, [prepared, model.classifier, model.classes.ids])


def model_version(path: str | Path) -> str:
    """Return a name for this very model: the start of the hash of ``model.json``, which is its manifest."""
    path = model_folder(path) / "model.json"
    with reading(path):
        check_regular(path, links=False)
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def network_hash(network: nn.Module, about: Any) -> str:
    """Return the SHA-256 of a network's weights, and of plain values that tell what else belongs to it."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, value in sorted(network.state_dict().items()):
        value = value.detach().cpu().contiguous()
        digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
