"""A run on disk: everything needed to reproduce, resume, compare and serve it."""

import csv
import fcntl
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._files import replacing, write_text
from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.model.files import read_description, read_predictors, read_score_map
from shortlist.predictors import SetPredictor
from shortlist.recipes.content import training_hash
from shortlist.recipes.recipe import Recipe, load_recipe, save_recipe
from shortlist.runs.score_blocks import ScoreBlocks
from shortlist.scores import PriorRecord, ScoreMap

__all__ = ["Run", "RunError"]

FORMAT = "shortlist run 2"
_OLDER = ("shortlist run 1",)


class RunError(ValueError):
    """A folder that is no run, or not one that can be used as asked."""


class Run:
    """A run folder.

    ``recipe.yaml`` (resolved), ``run.json`` (format, state, versions), ``epochs.csv`` (metrics by epoch),
    ``checkpoints/best.ckpt`` and ``last.ckpt``, ``scores/val.safetensors`` and ``scores/test.safetensors``
    (as the network gives them), ``scores/declared.json`` (what the loss says that they mean),
    ``results.json``, ``logs/``, and in ``model/`` the finished model: network, class table, score map,
    predictors. :class:`shortlist.Model` opens that folder by itself.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @staticmethod
    def create(path: str | Path, recipe: Recipe) -> "Run":
        """A new folder; one that exists is never used.

        It is filled under another name first: a folder of a run is one that can be resumed, whenever the
        process is killed.
        """
        path = Path(path)
        there = RunError(f"{path} exists: choose another --out, or continue that run with --resume {path}")
        if path.exists() or path.is_symlink():
            raise there
        new = Run(path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}"))
        new.path.mkdir(parents=True)
        try:
            save_recipe(recipe, new.path / "recipe.yaml")
            new.set_state("started", versions=versions(), training=training_hash(recipe))
            new.path.rename(path)
        except OSError:
            if path.exists():  # another process was faster
                raise there from None
            raise
        finally:
            shutil.rmtree(new.path, ignore_errors=True)
        return Run(path)

    @staticmethod
    def open(path: str | Path) -> "Run":
        """An existing run; the message says what is missing if it is none."""
        run = Run(path)
        if not run.path.is_dir():
            what = "it is a file" if run.path.exists() else "there is no such folder"
            raise RunError(f"{path} is not a run folder: {what}")
        if not (run.path / "run.json").is_file() or not (run.path / "recipe.yaml").is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json and recipe.yaml")
        found = run.info().get("format")
        if found in _OLDER:
            raise RunError(
                f"{path} was written by an earlier version ({found}), whose runs do not say what their "
                "scores mean: train it again"
            )
        if found != FORMAT:
            raise RunError(f"{path} was written by another version: its format is {found!r}, not {FORMAT!r}")
        return run

    def discard_if_untrained(self) -> None:
        """Remove the folder if no epoch of the run is in it."""
        if not any((self.path / "checkpoints").glob("*.ckpt")):
            shutil.rmtree(self.path, ignore_errors=True)

    def info(self) -> dict[str, Any]:
        """What ``run.json`` says."""
        path = self.path / "run.json"
        try:
            info = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{path} is not JSON: {error}") from error
        if not isinstance(info, dict):
            raise RunError(f"{path} must hold a mapping of keys to values, got {type(info).__name__}")
        return info

    def set_state(self, state: str, **more: Any) -> None:
        """Note how far the run is: started, trained, finished; calibrating while that is done again."""
        info = self.info() if (self.path / "run.json").is_file() else {"format": FORMAT, "created": _now()}
        info |= {"state": state, "updated": _now(), **more}
        write_text(self.path / "run.json", json.dumps(info, indent=2) + "\n")

    @property
    def state(self) -> str:
        """How far the run is."""
        state = self.info().get("state")
        if state is None:
            raise RunError(f"{self.path / 'run.json'} does not say how far the run is: it has no state")
        return state

    def check_calibrated(self) -> None:
        """Refuse a run of which some predictors may be of another calibration than others."""
        if self.state == "calibrating":
            raise RunError(f"{self.path} was stopped while it was calibrated: calibrate it again")

    def check_recipe(self) -> None:
        """Refuse to go on with a training whose recipe was changed since it began."""
        if self.info().get("training") not in (None, training_hash(self.recipe)):
            raise RunError(
                f"{self.path / 'recipe.yaml'} was changed since the training began: put it back or train anew"
            )

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        return load_recipe(self.path / "recipe.yaml")

    @property
    def class_table(self) -> ClassTable:
        """The classes."""
        return ClassTable.load(self.model_path / "class_table.json")

    @property
    def model_path(self) -> Path:
        """The folder of the finished model."""
        return self.path / "model"

    @property
    def head(self) -> str:
        """The head of the network to predict from."""
        return read_description(self.model_path)["head"]

    @property
    def score_map(self) -> ScoreMap:
        """What turns the network's scores into those that sets are made of."""
        return read_score_map(self.model_path)

    def predictors(self) -> dict[str, SetPredictor]:
        """The calibrated predictors of the recipe, in the order of their names."""
        return read_predictors(self.model_path, sorted(self.recipe.predictors))

    def results(self, part: str = "test") -> Results:
        """What was found on the test rows, or on the validation rows (``val``)."""
        return Results.load(self._results_file(part))

    def save_results(self, results: Results, part: str = "test") -> None:
        """Keep what was found."""
        results.save(self._results_file(part))

    def has_results(self, part: str = "test") -> bool:
        """Whether results of a part are kept."""
        return self._results_file(part).is_file()

    def _results_file(self, part: str) -> Path:
        return self.path / ("results.json" if part == "test" else f"results_{part}.json")

    def epochs(self) -> list[dict[str, float]]:
        """The metrics of each epoch, of both stages one after the other."""
        found = []
        for name in ("epochs.csv", "epochs_second_stage.csv"):
            if (self.path / name).is_file():
                with (self.path / name).open(encoding="utf-8", newline="") as file:
                    lines = list(csv.DictReader(file))
                found += [{key: float(value) for key, value in line.items() if value} for line in lines]
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training here; the lock goes with the process, however it ends."""
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"{self.path} is in use: another process is training in it") from None
            yield

    def save_scores(
        self,
        part: str,
        scores: Mapping[str, Tensor],
        target: Tensor,
        norms: Mapping[str, tuple[Tensor, Tensor] | None] | None = None,
    ) -> None:
        """Keep the scores (n, c) of each head and the targets (n,) of a part of the data.

        ``norms`` are, by head, those of the class weights (c,) and the offsets (c,) that the scores were made
        with; ``None`` where these are not of a linear classifier.
        """
        tensors = {"target": target}
        for head, output in scores.items():
            tensors[f"{head}.scores"] = output
            found = (norms or {}).get(head)
            if found is not None:
                tensors[f"{head}.norms"], tensors[f"{head}.offsets"] = found
        self._save_tensors(part, tensors)

    def load_scores(self, part: str, head: str = "set") -> tuple[Tensor, Tensor]:
        """Scores (n, c) as the network gave them, of one head, and targets (n,) of ``val`` or ``test``."""
        key = f"{head}.scores"
        with self._opened(part, key, "target") as file:
            return file.get_tensor(key), file.get_tensor("target")

    def scored(self, part: str) -> tuple[Tensor, Tensor]:
        """Scores (n, c) through the score map, of the head to predict from, and targets (n,) of a part."""
        scores, target = self.load_scores(part, self.head)
        return self.score_map(scores), target

    def score_blocks(self, part: str) -> tuple[ScoreBlocks, Tensor]:
        """As :meth:`scored`, with the scores read from the file some rows at a time."""
        key, score_map = f"{self.head}.scores", self.score_map

        def read(start: int, stop: int) -> Tensor:
            # the file is opened for each block: what is mapped of it is let go together with the block
            with self._opened(part, key) as file:
                return score_map(file.get_slice(key)[start:stop])

        with self._opened(part, key, "target") as file:
            return ScoreBlocks(read, file.get_slice(key).get_shape()), file.get_tensor("target").clone()

    def shown(self) -> Callable[[Tensor], Tensor | None]:
        """From mapped scores (n, c) to log-posteriors of rows whose classes occur as the training rows' did.

        The function gives ``None`` if the class priors in the scores are unknown: then there are none.
        """
        score_map = self.score_map
        training = PriorRecord.training(self.class_table.class_counts)
        return lambda scores: None if score_map.now is None else score_map.converted(scores, priors=training)

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Of mapped scores (n, c), the probabilities that people are shown; ``None`` if there are none."""
        found = self.shown()(scores)
        return None if found is None else found.softmax(1)

    def load_norms(self, head: str = "set") -> tuple[Tensor, Tensor]:
        """Norms of the class weights (c,) and offsets (c,) of the classifier that made the scores."""
        wanted = [f"{head}.norms", f"{head}.offsets"]
        with self._opened("val") as file:
            if wanted[0] not in file.keys():
                raise RunError(
                    f"adjust.weight_normalization needs the scores of a linear classifier: {self.path} has "
                    "no norms of class weights with its scores"
                )
            norms, offsets = map(file.get_tensor, wanted)
        return norms, offsets

    def save_declared(self, maps: Mapping[str, ScoreMap], loss_weight: Tensor | None = None) -> None:
        """Keep what the loss says that the scores of each head mean, and its class weights (c,) then."""
        declared = {head: score_map.to_dict() for head, score_map in maps.items()}
        weight = None if loss_weight is None else loss_weight.double().tolist()
        content = {"heads": declared, "loss_weight": weight}
        write_text(self.path / "scores" / "declared.json", json.dumps(content) + "\n")

    def load_declared(self) -> dict[str, ScoreMap]:
        """What the loss says that the scores of each head mean."""
        return {head: ScoreMap.from_dict(found) for head, found in self._declared()["heads"].items()}

    def load_loss_weight(self) -> Tensor | None:
        """The class weights (c,) that the loss had at the epoch that is kept; ``None`` if it had none."""
        weight = self._declared()["loss_weight"]
        return None if weight is None else torch.tensor(weight)

    def _declared(self) -> dict[str, Any]:
        path = self.path / "scores" / "declared.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            for found in content["heads"].values():
                ScoreMap.from_dict(found)
            torch.tensor(content["loss_weight"] or [0.0])
            return content
        except FileNotFoundError:
            raise RunError(f"{self.path} does not say what its scores mean: {path} is missing") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error

    def score_shape(self, part: str) -> tuple[int, ...]:
        """Rows and classes of the scores of a part, of which only the head of the file is read."""
        key = f"{self.head}.scores"
        with self._opened(part, key) as file:
            return tuple(file.get_slice(key).get_shape())

    def has_scores(self, part: str) -> bool:
        """Whether scores of a part are kept."""
        return self._score_file(part).is_file()

    def _score_file(self, part: str) -> Path:
        return self.path / "scores" / f"{part}.safetensors"

    def _save_tensors(self, part: str, tensors: Mapping[str, Tensor]) -> None:
        from safetensors.torch import save_file

        with replacing(self._score_file(part)) as temporary:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)

    @contextmanager
    def _opened(self, part: str, *needed: str) -> Iterator[Any]:
        """The file of a part's scores, which must hold some tensors."""
        from safetensors import SafetensorError, safe_open

        path = self._score_file(part)
        if not path.is_file():
            raise RunError(f"{self.path} has no scores of {part}: {path} is missing")
        try:
            with safe_open(path, "pt") as file:
                keys = file.keys()
                for key in needed:
                    if key not in keys:
                        raise RunError(f"{path} must hold {key}, got {', '.join(keys)}")
                yield file
        except (SafetensorError, OSError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error


def versions() -> dict[str, str]:
    """What the run was made with."""
    found = {"python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    for package in ("shortlist", "torch", "lightning", "torchmetrics", "numpy", "pillow"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name()
    return found


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
