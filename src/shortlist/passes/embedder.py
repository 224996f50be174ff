"""What makes features of images: a saved model, a network of timm, or a function of the user's own."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shortlist._checks import promote
from shortlist._named_code import code_error, is_trusted
from shortlist.inputs import absolute
from shortlist.model import Model, model_hash, network_hash
from shortlist.models import in_channels_last, own_network
from shortlist.preprocessing import Preprocessing


@dataclass(frozen=True)
class Embedder:
    """A function from prepared inputs to features.

    Args:
        features: Function from inputs (n, ...) to features (n, d), floating.
        preprocessing: Rule from an image to an input.
        digest: Hash of weights and preprocessing.
    """

    features: Callable[[Tensor], Tensor]
    preprocessing: Preprocessing
    digest: str


@dataclass(frozen=True)
class EmbedderSource:
    """Where an embedder comes from, as plain values: each worker opens its own.

    Args:
        model: Folder of a saved model or a run, ``"timm:NAME"`` (with its pretrained weights), or
            ``"package.module:function"``, a function without arguments that returns an ``nn.Module`` from
            images (n, channels, height, width) to features (n, d).
        preprocessing: Rule from an image to an input; ``None`` to take the model's, or timm's.
        network: For a model whose network is the user's own code, the function that makes it.
        device: Device of the network.
        allow_code: Whether a function of the user's own may be called.
    """

    model: str
    preprocessing: Preprocessing | None = None
    network: str | None = None
    device: str = "cpu"
    allow_code: bool = False

    def absolute(self) -> "EmbedderSource":
        """Return the same source for processes that may work in another folder."""
        return replace(self, model=absolute(self.model)) if Path(self.model).is_dir() else self

    def open(self) -> Embedder:
        """Load the network.

        Raises:
            ValueError: If there is none, or it does not say how images are prepared.
        """
        if Path(self.model).is_dir():
            return self._of_model()
        if self.model.startswith("timm:"):
            return self._of_timm()
        if ":" not in self.model:
            raise ValueError(
                "MODEL must be the folder of a run or a model, timm:NAME or package.module:function, got "
                f"{self.model!r}"
            )
        network = self.own_network()
        if self.preprocessing is None:
            raise ValueError(
                f"{self.model} does not say how images are prepared: give --size, --mean and --std"
            )
        return self._of_network(network, self.preprocessing)

    def own_network(self) -> nn.Module:
        """Call the function of the user's own that makes the network.

        Raises:
            ValueError: If it may not be called, or there is no such function of a network.
        """
        if not self.allow_code and not is_trusted(self.model):
            raise code_error("MODEL", self.model)
        return own_network("MODEL", self.model)

    def _of_model(self) -> Embedder:
        if self.preprocessing is not None:
            raise ValueError("a saved model prepares images in its own way: give no --size, --mean or --std")
        model = Model.load(self.model, network=self.network, device=self.device)
        if model.preprocessing is None:
            raise ValueError(f"{self.model} does not say how a picture becomes an input: it takes no images")
        return Embedder(model.features, model.preprocessing, model_hash(model))

    def _of_timm(self) -> Embedder:
        timm: Any = importlib.import_module("timm")
        name = self.model.removeprefix("timm:")
        if not timm.is_model(name):
            raise ValueError(f"MODEL must be timm:NAME with a name that timm knows, got {self.model!r}")
        network = timm.create_model(name, pretrained=True, num_classes=0)
        config = timm.data.resolve_model_data_config(network)
        return self._of_network(network, self.preprocessing or _of_timm_config(config))

    def _of_network(self, network: nn.Module, preprocessing: Preprocessing) -> Embedder:
        digest = network_hash(network, [self.model, preprocessing.to_dict()])
        memory: Any = {"memory_format": torch.channels_last}
        network = network.eval().to(self.device).to(**memory)

        def features(inputs: Tensor) -> Tensor:
            with torch.inference_mode():
                return promote(network(in_channels_last(inputs.to(self.device))))

        return Embedder(features, preprocessing, digest)


def _of_timm_config(config: dict[str, Any]) -> Preprocessing:
    """Return the preprocessing that timm's configuration of a network describes."""
    _, height, width = config["input_size"]
    resize = round(max(height, width) / config["crop_pct"])
    method: Any = config["interpolation"] if config["interpolation"] in ("bilinear", "bicubic") else "bicubic"
    return Preprocessing(
        height=height,
        width=width,
        resize=resize,
        mean=config["mean"],
        std=config["std"],
        interpolation=method,
    )
