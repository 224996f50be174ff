"""A head that was trained on features, put behind the network that made them: a model that takes images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shortlist.datasets import MANIFEST, read_manifest
from shortlist.model import Model
from shortlist.models import NetworkSpec, build_network, classifier_name, replace_classifier
from shortlist.passes.embedder import Embedder, EmbedderSource
from shortlist.passes.score import changed_model
from shortlist.preprocessing import Preprocessing
from shortlist.recipes import moved
from shortlist.runs import Run

# what a specification says about the head, which is the run's; all else is the network's of the features
_OF_HEAD = ("num_classes", "head", "bias", "scale", "learn_scale", "scaled_head")


def join_head(
    run: str | Path,
    *,
    data: str | Path | None = None,
    network: str | None = None,
    allow_code: bool = False,
) -> Model:
    """Join the linear model of a run on embeddings with the network that ``shortlist embed`` made them by.

    The result takes images. Classes, score map, predictors, promises and detector are those of the run: they
    were calibrated on features in half precision, which the joined network does not round.

    Args:
        run: Folder of a run on embeddings, whose network is linear.
        data: Folder of the embeddings, if it was moved.
        network: If the features are of a saved model whose network is the user's own code, the function that
            makes that network.
        allow_code: Whether a function of the user's own, which made the features, may be called.

    Raises:
        ValueError: If the run was not trained on embeddings of ``shortlist embed``, has hidden layers, or the
            network is not the one that made them.
    """
    folder = _embeddings_of(run, data)
    manifest, trained = read_manifest(folder), Model.load(run)
    if trained.spec is None or trained.spec.name != "linear":
        name = "a network of your own" if trained.spec is None else trained.spec.name
        raise ValueError(
            f"only a linear model can be joined (model: {{name: linear}}), got {name}: join others in "
            "Python, with nn.Sequential and Model.from_parts"
        )
    source = _source_of(manifest, network, allow_code)
    embedder = source.open()
    if embedder.digest != manifest["model"]:
        raise ValueError(
            f"{source.model} is not the network that made {folder}: its weights or preprocessing changed"
        )
    joined, spec, classifier = _joined(source, embedder.preprocessing, trained)
    preprocessing = embedder.preprocessing
    model = changed_model(
        trained, network=joined, preprocessing=preprocessing, classifier=classifier, spec=spec
    )
    _check_features(model, embedder, folder)
    return model


def _embeddings_of(run: str | Path, data: str | Path | None) -> Path:
    """Return the folder of the embeddings that a run was trained on."""
    recipe = moved(Run.open(run).recipe, data)
    if recipe.data.name != "embeddings":
        raise ValueError(f"{run} must be a run on embeddings, got one on {recipe.data.name}")
    folder = Path(recipe.data.options["root"])
    if not (folder / MANIFEST).is_file():
        raise ValueError(
            f"{folder} has no {MANIFEST}, which shortlist embed writes and which says what network made the "
            "features. If the folder was moved, name its place with --data"
        )
    return folder


def _source_of(manifest: dict[str, Any], network: str | None, allow_code: bool) -> EmbedderSource:
    model = manifest["network"]
    rule = None if Path(model).is_dir() else Preprocessing.from_dict(manifest["preprocessing"])
    return EmbedderSource(model, rule, network, allow_code=allow_code)


def _joined(
    source: EmbedderSource, preprocessing: Preprocessing, trained: Model
) -> tuple[nn.Module, NetworkSpec, str | None]:
    """Return the network with the trained head, how to build it again, and the name of its classifier."""
    assert trained.spec is not None
    layer = trained.network.get_submodule(classifier_name(trained.network, trained.classifier))
    parts: dict[str, Any] = {name: getattr(trained.spec, name) for name in _OF_HEAD}
    of_images: dict[str, Any] = parts | {"input_shape": preprocessing.shape}
    if Path(source.model).is_dir():
        base = Model.load(source.model, network=source.network)
        joined = replace_classifier(base.network, layer, name=base.classifier)
        if base.spec is not None:
            return joined, replace(base.spec, **parts), base.classifier
        of_images |= {"classifier": base.classifier, "takes_classes": False}
        return joined, NetworkSpec(name=source.network or "", **of_images), base.classifier
    if source.model.startswith("timm:"):
        spec = NetworkSpec(name=source.model, options={"pretrained": True}, **of_images)
        joined = build_network(spec)
        joined.get_submodule(classifier_name(joined)).load_state_dict(layer.state_dict())
        return joined, spec, None
    of_images |= {"classifier": "1", "takes_classes": False, "features": trained.spec.input_shape[0]}
    spec = NetworkSpec(name=source.model, **of_images)
    return nn.Sequential(source.own_network(), layer), spec, "1"


def _check_features(model: Model, embedder: Embedder, folder: Path) -> None:
    """Refuse a network whose classifier takes other features than those that were embedded."""
    assert model.preprocessing is not None
    inputs = torch.randn(2, *model.preprocessing.shape, generator=torch.Generator().manual_seed(0))
    given, wanted = model.features(inputs), embedder.features(inputs)
    if given.shape != wanted.shape or not torch.allclose(given, wanted, rtol=1e-3, atol=1e-4):
        raise ValueError(
            f"the classifier of the network does not take the features of {folder}: join them in Python, "
            "with nn.Sequential and Model.from_parts"
        )
