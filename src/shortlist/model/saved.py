"""A saved model, read without any code that it names: each file is read and checked once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shortlist._messages import one_line
from shortlist._store.json import read_json
from shortlist._store.manifest import check_file, check_size
from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.model.checks import check_row_classes
from shortlist.model.files import (
    RESULTS,
    ROWS,
    ModelError,
    predictor_path,
    read_description,
    read_manifest,
    reading,
)
from shortlist.model.misfit import misfit
from shortlist.model.network import network_by_name, network_of
from shortlist.models import NetworkSpec
from shortlist.predictors import CalibrationRows, NoveltyDetector, SetPredictor, load, load_novelty
from shortlist.preprocessing import Preprocessing
from shortlist.promise import Promise
from shortlist.scores import ScoreMap


class SavedModel:
    """The folder of a model as it was when this object first looked at it.

    Every file is checked against ``model.json``, the manifest; of a model in the making, which has none, the
    files are taken as they are.

    Args:
        folder: Folder with ``model.json``.

    Raises:
        ModelError: From any part, if a file is missing, damaged or of another format; the message names it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return read_description(self.folder)

    @property
    def description(self) -> dict[str, Any]:
        """What ``model.json`` says of the model."""
        return self._content[0]

    @property
    def manifest(self) -> dict[str, Any]:
        """Size and hash of each file, by name."""
        try:
            return self._content[1]
        except ModelError:  # of the format before, whose network and classes can be calibrated anew
            return read_manifest(self.folder)

    @contextmanager
    def _checked(self, path: Path) -> Iterator[Path]:
        """Give a file that is as the manifest says; what fails while it is read is an error of this file."""
        with reading(path):
            if (self.folder / "model.json").is_file():
                check_file(self.folder, str(path.relative_to(self.folder)), self.manifest)
            yield path

    @cached_property
    def class_table(self) -> ClassTable:
        """The classes."""
        with self._checked(self.folder / "class_table.json") as path:
            return ClassTable.load(path)

    @cached_property
    def score_map(self) -> ScoreMap:
        """The map from the network's scores to those from which sets are made."""
        with self._checked(self.folder / "score_map.json") as path:
            return ScoreMap.from_dict(read_json(path))

    @cached_property
    def predictors(self) -> dict[str, SetPredictor]:
        """The calibrated predictors, by name."""
        predictors = {}
        for name in self.description["predictors"]:
            with self._checked(predictor_path(self.folder, name)) as path:
                predictors[name] = load(path)
        return predictors

    def sets(self, scores: Tensor) -> Tensor:
        """Return the sets (p, n, c) of all predictors, by name in order, from mapped scores (n, c)."""
        sets = [predictor(scores) for _, predictor in sorted(self.predictors.items())]
        return torch.stack(sets) if sets else torch.zeros(0, *scores.shape, dtype=torch.bool)

    @cached_property
    def promises(self) -> dict[str, Promise]:
        """What each predictor promises, with what was measured."""
        with reading(self.folder / "model.json"):
            return {name: Promise.from_dict(each) for name, each in self.description["promises"].items()}

    @cached_property
    def novelty(self) -> NoveltyDetector | None:
        """The detector of strangers; ``None`` if the model has none."""
        if not self.description["novelty"]:
            return None
        with self._checked(self.folder / "novelty.json") as path:
            return load_novelty(path)

    @cached_property
    def calibration_rows(self) -> CalibrationRows | None:
        """The calibration rows that are kept; ``None`` if none are."""
        from safetensors.torch import load_file

        path = self.folder / ROWS
        if not path.is_file() and ROWS not in self.manifest:
            return None
        with self._checked(path):
            rows = CalibrationRows.from_tensors(load_file(path))
            check_row_classes(rows, len(self.class_table))
            return rows

    def read_rows(self) -> CalibrationRows | None:
        """Read the calibration rows, if that was not done before."""
        return self.calibration_rows

    def _late_rows(self) -> Callable[[], CalibrationRows | None] | None:
        """Return what reads the rows when they are needed: to hash a large file is half of a first load.

        Its size is looked at here.
        """
        path = self.folder / ROWS
        if not path.is_file() and ROWS not in self.manifest:
            return None
        with reading(path):
            check_size(self.folder, ROWS, self.manifest)
        return self.read_rows

    @cached_property
    def results(self) -> Results | None:
        """The results of its run on test rows; ``None`` if the model has none."""
        if RESULTS not in self.manifest:
            return None
        with self._checked(self.folder / RESULTS) as path:
            return Results.load(path)

    @property
    def spec(self) -> NetworkSpec | None:
        """The specification of the network; ``None`` if only its owner can make it."""
        with reading(self.folder / "model.json"):
            network = self.description["network"]
            return None if network is None else NetworkSpec.from_dict(network)

    def fill(self, network: nn.Module) -> nn.Module:
        """Fill a network with the weights of ``network.safetensors``, all of them and no others."""
        from safetensors.torch import load_file

        path = self.folder / "network.safetensors"
        with self._checked(path):
            weights = load_file(path)
        try:
            network.load_state_dict(weights)
        except Exception as error:  # a network of one's own may fail in any way
            why = misfit(network, weights) or one_line(error)
            raise ModelError(f"the network does not fit the weights in {path}: {why}") from error
        return network

    def parts(self, network: nn.Module | str | None) -> dict[str, Any]:
        """Return the arguments of :meth:`shortlist.Model.from_parts`.

        Args:
            network: Network to fill with the weights, or the name of a function of the caller's own that
                makes it; the one that the folder describes if ``None``.
        """
        description, spec = self.description, self.spec
        with reading(self.folder / "model.json"):
            prepared = description["preprocessing"]
            preprocessing = None if prepared is None else Preprocessing.from_dict(prepared)
        with self._checked(self.folder / "network.safetensors") as weights:
            pass
        if isinstance(network, str):
            network = network_by_name(self.folder, network)
        elif network is None:
            try:
                network = network_of(spec, weights)
            except Exception as error:  # nothing is damaged: only the caller, or a package, can make it
                place, why = self.folder / "model.json", one_line(error)
                raise ModelError(f"{place} alone does not make a network: {why}") from error
        return {
            "network": self.fill(network),
            "class_table": self.class_table,
            "preprocessing": preprocessing,
            "score_map": self.score_map,
            "predictors": self.predictors,
            "promises": self.promises,
            "novelty": self.novelty,
            "head": description["head"],
            "classifier": description["classifier"],
            "spec": spec,
            "about": description["about"],
            "calibration_rows": self._late_rows(),
        }
