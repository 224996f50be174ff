"""Write a run folder: its state and its manifest, the lock, scores and results."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._row_facts import RowFacts
from shortlist._store.files import (
    is_temporary,
    link_file,
    lock_folder,
    remove_folder,
    replacing,
    replacing_folder,
    sweep,
    sweep_below,
    write_text,
)
from shortlist._store.manifest import RUN_FORMAT, record_files, write_sealed
from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.model import write_promises
from shortlist.promise import Promise
from shortlist.recipes import Recipe, complete_recipe, save_recipe, training_hash, with_absolute_places
from shortlist.runs.first_stage import first_stage_files
from shortlist.runs.run import Run, RunError, facts_file, file_identity, read_info, results_file
from shortlist.runs.score_writer import ScoreWriter
from shortlist.scores import ScoreMap

# what a run is made of; the files of its model are in the manifest of that
_FILES = ("recipe.yaml", "epochs*.csv", "results*.json", "*/*.ckpt", "scores/*", "model/model.json")


class RunFolder:
    """A run folder to write to; :meth:`read` gives what is in it as a value.

    ``run.json`` has the state of the run, and is the manifest: size and hash of each file, from the end of
    the training on.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._info: dict[str, Any] = {}
        self._info_file: tuple[int, ...] | None = None  # the file that it was read from or written to

    @staticmethod
    def create(path: str | Path, recipe: Recipe, first_stage: Run | None = None) -> "RunFolder":
        """Make a new run folder; an existing folder is never used.

        It is filled under another name first: a folder of a run is one that can be resumed, whenever the
        process is killed. With a finished run as ``first_stage``, it begins with what that one has trained.
        """
        begun = {} if first_stage is None else first_stage_files(first_stage, recipe)
        path, recipe = Path(path), with_absolute_places(recipe)
        there = RunError(
            f"{path} exists: choose another --out, continue that run with --resume {path}, or delete it"
        )
        if path.exists():
            raise there
        try:
            with replacing_folder(path) as folder:
                save_recipe(recipe, folder / "recipe.yaml")
                for name, file in begun.items():
                    link_file(file, folder / name)
                noted: dict[str, Any] = {"versions": _versions(), "training": training_hash(recipe)}
                if first_stage is not None:
                    noted["first_stage_from"] = os.path.relpath(first_stage.path, path)
                RunFolder(folder).set_state("started", **noted)
        except FileExistsError:  # another process has made the folder
            raise there from None
        return RunFolder(path)

    def read(self) -> Run:
        """Return the run as it is now."""
        return Run(self.path, self.info)

    @property
    def model_path(self) -> Path:
        """The folder of the finished model."""
        return self.path / "model"

    @property
    def info(self) -> Mapping[str, Any]:
        """The content of ``run.json``, which is read again only if another writer has replaced the file."""
        if self._info_file is None or self._info_file != file_identity(self.path / "run.json"):
            identity = file_identity(self.path / "run.json")
            self._info = read_info(self.path)
            self._info_file = identity
        return self._info

    @property
    def state(self) -> str:
        """State of the run: started, trained, finished or calibrating."""
        return self.info["state"]

    def discard_if_untrained(self) -> None:
        """Remove the folder if no epoch of the run is in it, and no other process works in it."""
        # an error here must not hide the error that made the run fail
        with suppress(OSError, ValueError), self.locked():
            if not any((self.path / "checkpoints").glob("*.ckpt")):
                remove_folder(self.path)

    @contextmanager
    def locked(self, *, wait: float = 0.0) -> Iterator[None]:
        """Keep other processes from training in this folder; the lock ends with the process.

        Args:
            wait: Seconds to wait for another process that has the lock.
        """
        in_use = RunError(f"{self.path} is in use: another process is working in it")
        with lock_folder(self.path, in_use, wait=wait):
            sweep(self.path.parent)
            sweep_below(self.path)
            yield

    def set_state(self, state: str, *, rewriting: Collection[str] = (), **more: Any) -> None:
        """Write the state of the run: started, trained, finished, or calibrating if that is done again.

        A run that is trained or finished has its manifest from then on.

        Args:
            state: How far the run is.
            rewriting: The files in the manifest that will be written again or removed. What is known of all
                others stays as it is, so that damage is never taken into the manifest.
            more: What else to note.
        """
        exists = (self.path / "run.json").is_file()
        info: dict[str, Any] = {**self.info} if exists else {"format": RUN_FORMAT, "created": _now()}
        info |= {"state": state, "updated": _now(), **more}
        files = {name: record for name, record in info.get("files", {}).items() if name not in rewriting}
        if state in ("trained", "finished"):
            files |= record_files(self.path, [name for name in self.own_files() if name not in files])
        info["files"] = {} if state == "started" else files
        self._write_info(info)

    def own_files(self) -> list[str]:
        """Return the names of the files of the run that are there, but for those of its model."""
        paths = {path for pattern in _FILES for path in self.path.glob(pattern) if path.is_file()}
        names = [path.relative_to(self.path) for path in sorted(paths)]
        return [str(name) for name in names if not is_temporary(name)]

    def _record(self, name: str) -> None:
        """Put a file that was written anew into the manifest, if there is one yet."""
        if self.state == "finished" or name in self.info["files"]:
            self._write_records(record_files(self.path, [name]))

    def _announce(self, name: str, new: Mapping[str, Any]) -> None:
        """Let the manifest know a file as it is and as it will be, until it is recorded."""
        files = self.info["files"]
        if name in files:
            self._write_records({name: files[name] | {"next": new}})

    def _write_records(self, records: Mapping[str, Any]) -> None:
        self._write_info({**self.info, "files": {**self.info["files"], **records}})

    def _write_info(self, info: dict[str, Any]) -> None:
        write_sealed(self.path / "run.json", info)
        self._info, self._info_file = info, file_identity(self.path / "run.json")

    def check_data(self, class_table: ClassTable) -> None:
        """Refuse data that are not those that the run began with, as far as their class table tells."""
        path = self.model_path / "class_table.json"
        try:
            begun_with = ClassTable.load(path) if path.is_file() else class_table
        except ValueError:  # damaged: it is written again
            begun_with = class_table
        if begun_with != class_table:
            raise RunError(
                f"{self.path} began with other data: their classes or training counts differ from those in "
                f"{path}. Name the place of its own data with --data"
            )

    def complete_recipe(self, recipe: Recipe, num_classes: int) -> Recipe:
        """Write what is known now into the recipe of a run that begins: default predictors, moved data."""
        completed = complete_recipe(with_absolute_places(recipe), num_classes)
        if completed != self.read().recipe:
            save_recipe(completed, self.path / "recipe.yaml")
        return completed

    def save_results(self, results: Results, part: str = "test") -> None:
        """Save the results of a part, and take them into the manifest."""
        results.save(self.path / results_file(part))
        self._record(results_file(part))

    def save_promises(self, promises: Mapping[str, Promise]) -> None:
        """Write to the finished model what was measured of its predictors' promises on held-out rows.

        Two manifests change. That of the run knows the new one of the model before it is there, and the old
        one until then, so that a process that is killed between leaves a run that is whole.
        """
        name = "model/model.json"
        write_promises(self.model_path, promises, partial(self._announce, name))
        self._record(name)

    def save_scores(
        self,
        part: str,
        scores: Mapping[str, Tensor],
        target: Tensor,
        norms: Mapping[str, tuple[Tensor, Tensor] | None] | None = None,
    ) -> None:
        """Save the scores (n, c) of each head and the targets (n,) of a split of the data.

        ``norms`` are, by head, those of the class weights (c,) and the offsets (c,) that the scores were made
        with; ``None`` where these are not of a linear classifier.
        """
        from safetensors.torch import save_file

        tensors = {"target": target}
        for head, output in scores.items():
            tensors[f"{head}.scores"] = output
            of_head = (norms or {}).get(head)
            if of_head is not None:
                tensors[f"{head}.norms"], tensors[f"{head}.offsets"] = of_head
        name = f"scores/{part}.safetensors"
        with replacing(self.path / name) as temporary:
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, temporary)
        self._record(name)

    @contextmanager
    def writing_scores(
        self, part: str, rows: int, norms: Mapping[str, tuple[Tensor, Tensor] | None]
    ) -> Iterator[ScoreWriter]:
        """Give a writer of the scores of at most so many rows; it takes them some rows at a time.

        The file is there when the block ends well. ``norms`` are those of :meth:`save_scores`.
        """
        name = f"scores/{part}.safetensors"
        with replacing(self.path / name) as temporary:
            with closing(ScoreWriter(temporary, rows, norms)) as writer:
                yield writer
                writer.finish()
        self._record(name)

    def save_facts(self, part: str, facts: RowFacts) -> None:
        """Save what is known about the rows of a split whose scores are saved."""
        name = facts_file(part)
        facts.save(self.path / name)
        self._record(name)

    def save_declared(self, maps: Mapping[str, ScoreMap], loss_weight: Tensor | None = None) -> None:
        """Save the meaning that the loss declares for the scores of each head, and its class weights (c,)."""
        declared = {head: score_map.to_dict() for head, score_map in maps.items()}
        weight = None if loss_weight is None else loss_weight.double().tolist()
        content = {"heads": declared, "loss_weight": weight}
        write_text(self.path / "scores" / "declared.json", json.dumps(content) + "\n")
        self._record("scores/declared.json")


def _versions() -> dict[str, str]:
    """Return the versions of the software that the run was made with."""
    versions = {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    for package in ("shortlist", "torch", "lightning", "torchmetrics", "numpy", "pillow"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    if torch.cuda.is_available():
        versions["cuda"] = torch.cuda.get_device_name()
    return versions


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
