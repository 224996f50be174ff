"""A model of 50 classes on 12 features, and rows for it."""

import errno
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shortlist import ClassTable, Model
from shortlist.datasets.embeddings import save_embeddings
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.passes.score import ModelSource
from shortlist.predictors import AverageK, Conformal, TopK
from shortlist.scores import PriorRecord, ScoreMap

ROWS, CLASSES, FEATURES = 700, 50, 12


def _centers() -> torch.Tensor:
    return torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(9))


def make_rows(rows: int = ROWS, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(CLASSES, (rows,), generator=generator)
    return (_centers()[target] + 0.8 * torch.randn(rows, FEATURES, generator=generator)).half(), target


def density_model(folder: Path, *, adjusted: bool = False) -> Model:
    """A model with predictors that do and do not need all scores; ``adjusted``: with equal priors in them."""
    counts = torch.arange(1, CLASSES + 1)
    table = ClassTable(
        [f"class {c}" for c in range(CLASSES)], [f"c{c}" for c in range(CLASSES)], counts.tolist()
    )
    spec = NetworkSpec(name="linear", num_classes=CLASSES, input_shape=(FEATURES,))
    network = build_network(spec).eval()
    for parameter in network.parameters():  # the logarithm of the density of each class, but for a constant
        centers = _centers()
        parameter.data = centers.clone() if parameter.ndim == 2 else -0.5 * (centers**2).sum(1)
    own = PriorRecord.balanced(CLASSES) if adjusted else PriorRecord.training(counts)
    inputs, target = make_rows(400, seed=5)
    score_map = ScoreMap(CLASSES, contains=own)
    with torch.no_grad():
        scores = score_map(network(inputs.float()))
    priors = counts / counts.sum()
    predictors = {
        "top5": TopK(5),
        "average3": AverageK(3).calibrate(scores),
        "conformal": Conformal(coverage=0.7).calibrate(scores, target),
        "aps": Conformal(coverage=0.9, score="aps").calibrate(scores, target),
        "macro": AverageK(3, priors=priors).calibrate(scores),
    }
    model = Model.from_parts(network, table, score_map=score_map, predictors=predictors, spec=spec)
    model.save(folder)
    return model


def make_embeddings(folder: Path) -> Path:
    for part, seed in (("train", 3), ("test", 4)):
        save_embeddings(folder / f"{part}.safetensors", *make_rows(ROWS, seed))
    return folder


def source_of(folder: Path) -> ModelSource:
    return ModelSource(str(folder))


@dataclass(frozen=True)
class Disturbed:
    """Work during which something happens once, where the file ``mark`` is not yet there.

    Args:
        work: The work.
        mark: File that tells that it has happened.
        what: ``"killed"`` or ``"full disk"``; anything else: nothing but slowness.
    """

    work: Any
    mark: str
    what: str

    def __call__(self):
        function = self.work()

        def one(shard):
            time.sleep(0.2)
            if self.what in ("killed", "full disk") and not Path(self.mark).exists():
                Path(self.mark).touch()
                if self.what == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                self._fill_the_disk(function, shard)
            return function(shard)

        return one

    def _fill_the_disk(self, function, shard):
        before = os.fsync

        def full(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        os.fsync = full
        try:
            function(shard)
        finally:
            os.fsync = before
