"""A run on disk: everything needed to reproduce, resume, compare and serve it."""

import fcntl
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._files import replacing, write_text
from shortlist.class_table import ClassTable
from shortlist.training.recipe import Recipe, load_recipe, save_recipe, training_hash

__all__ = ["Run", "RunError"]

FORMAT = "shortlist run 1"


class RunError(ValueError):
    """A folder that is no run, or not one that can be used as asked."""


class Run:
    """A run folder.

    ``recipe.yaml`` (resolved), ``run.json`` (format, state, versions), ``class_table.json``, ``epochs.csv``
    (figures by epoch), ``checkpoints/best.ckpt`` and ``last.ckpt``, ``model.safetensors``,
    ``adjustment.json``, ``predictors/``, ``scores/val.safetensors`` and ``scores/test.safetensors``,
    ``results.json``, ``logs/``.
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
        if run.info().get("format") != FORMAT:
            raise RunError(
                f"{path} was written by another version: its format is {run.info().get('format')!r}"
            )
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
        return ClassTable.load(self.path / "class_table.json")

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
        self, part: str, scores: Tensor, target: Tensor, norms: tuple[Tensor, Tensor] | None = None
    ) -> None:
        """Keep the scores (n, c) and targets (n,) of a part of the data.

        ``norms`` are those of the class weights (c,) and the offsets (c,) that the scores were made with.
        """
        from safetensors.torch import save_file

        tensors = {"scores": scores, "target": target}
        if norms is not None:
            tensors |= {"class_norms": norms[0], "class_offsets": norms[1]}
        with replacing(self.path / "scores" / f"{part}.safetensors") as temporary:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)

    def load_scores(self, part: str) -> tuple[Tensor, Tensor]:
        """Scores (n, c) and targets (n,) of ``val`` or ``test``."""
        tensors = self._load_tensors(part)
        return tensors["scores"], tensors["target"]

    def load_norms(self) -> tuple[Tensor, Tensor]:
        """Norms of the class weights (c,) and offsets (c,) of the classifier that made the scores."""
        tensors = self._load_tensors("val")
        if "class_norms" not in tensors:
            raise RunError(
                f"adjust.weight_normalisation needs the scores of a linear classifier: {self.path} has no "
                "norms of class weights with its scores"
            )
        return tensors["class_norms"], tensors["class_offsets"]

    def _load_tensors(self, part: str) -> dict[str, Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / "scores" / f"{part}.safetensors"
        if not path.is_file():
            raise RunError(f"{self.path} has no scores of {part}: {path} is missing")
        try:
            return load_file(path)
        except SafetensorError as error:
            raise RunError(f"{path} cannot be read: {error}") from error

    def predictor_paths(self) -> dict[str, Path]:
        """The calibrated predictors, by name."""
        return {path.stem: path for path in sorted((self.path / "predictors").glob("*.json"))}


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
