"""A run: everything needed to reproduce, resume, compare and serve it, in one folder."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._files import replacing, replacing_folder, write_text
from shortlist._json import read_json
from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.model.files import write_promises
from shortlist.model.saved import SavedModel
from shortlist.predictors import Promise, SetPredictor
from shortlist.recipes.content import recipe_hash, training_hash
from shortlist.recipes.default_sets import complete_recipe, without_default_predictors
from shortlist.recipes.places import with_absolute_places
from shortlist.recipes.recipe import Recipe, load_recipe, save_recipe
from shortlist.runs.folder import RunError, RunFolder, versions
from shortlist.runs.score_blocks import ScoreBlocks
from shortlist.runs.score_writer import ScoreWriter
from shortlist.scores import PriorRecord, ScoreMap

__all__ = ["Run", "RunError"]


class Run(RunFolder):
    """A run folder.

    ``recipe.yaml`` (resolved), ``run.json`` (format, state, versions), ``epochs.csv`` (metrics by epoch),
    ``checkpoints/best.ckpt`` and ``last.ckpt``, ``scores/val.safetensors`` and ``scores/test.safetensors``
    (as the network gives them), ``scores/declared.json`` (what the loss says that they mean),
    ``results.json``, ``logs/``, and in ``model/`` the finished model: network, class table, score map,
    predictors. :class:`shortlist.Model` opens that folder by itself.
    """

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @staticmethod
    def create(path: str | Path, recipe: Recipe) -> "Run":
        """Make a new run folder; an existing folder is never used.

        It is filled under another name first: a folder of a run is one that can be resumed, whenever the
        process is killed.
        """
        path, recipe = Path(path), with_absolute_places(recipe)
        there = RunError(
            f"{path} exists: choose another --out, continue that run with --resume {path}, or delete it"
        )
        if path.exists():
            raise there
        try:
            with replacing_folder(path) as folder:
                save_recipe(recipe, folder / "recipe.yaml")
                Run(folder).set_state("started", versions=versions(), training=training_hash(recipe))
        except FileExistsError:  # another process was faster
            raise there from None
        run = Run(path)
        run.recipe = recipe
        return run

    @staticmethod
    def open(path: str | Path) -> "Run":
        """Open an existing run; the error says what is missing if it is not a run."""
        run = Run(path)
        if not run.path.is_dir():
            what = "it is a file" if run.path.exists() else "there is no such folder"
            raise RunError(f"{path} is not a run folder: {what}")
        if not (run.path / "run.json").is_file() or not (run.path / "recipe.yaml").is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json and recipe.yaml")
        run.info  # noqa: B018  (refuses what is no run)
        return run

    def refresh(self) -> None:
        """Forget what was read, so that it is read again: other files are there now."""
        super().refresh()
        for name in ("saved", "recipe"):
            self.__dict__.pop(name, None)

    def check_recipe(self) -> None:
        """Refuse to continue a training whose recipe was changed since it began."""
        if self.info.get("training") not in (None, training_hash(self.recipe)):
            raise RunError(
                f"{self.path / 'recipe.yaml'} was changed since the training began: put it back or train anew"
            )

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        return load_recipe(self.checked("recipe.yaml"))

    def has_recipe(self, recipe: Recipe) -> bool:
        """Return whether the run is that of a recipe, which may leave the default predictors out."""
        wanted, own = with_absolute_places(recipe), self.recipe
        if wanted.predictors is None:
            own = without_default_predictors(own)
        return recipe_hash(wanted) == recipe_hash(own)

    def complete_recipe(self, recipe: Recipe, num_classes: int) -> Recipe:
        """Write what is known now into the recipe of a run that begins: default predictors, moved data."""
        found = complete_recipe(with_absolute_places(recipe), num_classes)
        if found != self.recipe:
            save_recipe(found, self.path / "recipe.yaml")
            self.recipe = found
        return found

    def check_data(self, class_table: ClassTable) -> None:
        """Refuse data that are not those that the run began with, as far as their class table tells."""
        path = self.model_path / "class_table.json"
        try:
            known = ClassTable.load(path) if path.is_file() else class_table
        except ValueError:  # damaged: it is written again
            known = class_table
        if known != class_table:
            raise RunError(
                f"{self.path} began with other data: their classes or training counts differ from those in "
                f"{path}. Name the place of its own data with --data"
            )

    @cached_property
    def saved(self) -> SavedModel:
        """The files of the model, whose manifest must be the one that was written here."""
        if self.state == "finished":
            self.checked("model/model.json")
        return SavedModel(self.model_path)

    @property
    def class_table(self) -> ClassTable:
        """The classes."""
        return self.saved.class_table

    @property
    def model_path(self) -> Path:
        """The folder of the finished model."""
        return self.path / "model"

    @property
    def head(self) -> str:
        """The head of the network to predict from."""
        return self.saved.description["head"]

    @property
    def score_map(self) -> ScoreMap:
        """Map from the network's scores to those from which sets are made."""
        return self.saved.score_map

    def predictors(self) -> dict[str, SetPredictor]:
        """Return the calibrated predictors, in the order of their names."""
        return dict(sorted(self.saved.predictors.items()))

    def results(self, part: str = "test") -> Results:
        """Read the results on the test rows, or on the validation rows (``val``)."""
        return Results.load(self.checked(_results_file(part)))

    def save_results(self, results: Results, part: str = "test") -> None:
        """Save the results of a part, and take them into the manifest."""
        name = _results_file(part)
        results.save(self.path / name)
        self.record(name)

    def save_promises(self, promises: Mapping[str, Promise]) -> None:
        """Give the finished model what came of the promises of its predictors on held-out rows.

        Two manifests change. That of the run knows the new one of the model before it is there, and the old
        one until then, so that a process that is killed between leaves a run that is whole.
        """
        name = "model/model.json"
        write_promises(self.saved.folder, promises, partial(self.announce, name))
        self.record(name)
        self.refresh()

    def has_results(self, part: str = "test") -> bool:
        """Return whether the results of a part are saved."""
        name = _results_file(part)
        return (self.path / name).is_file() and self.is_written(name)

    def epochs(self) -> list[dict[str, float]]:
        """Return the metrics of each epoch, of both stages one after the other."""
        found = []
        for name in ("epochs.csv", "epochs_second_stage.csv"):
            if (self.path / name).is_file() or name in self.info["files"]:
                with self.checked(name).open(encoding="utf-8", newline="") as file:
                    lines = list(csv.DictReader(file))
                found += [{key: float(value) for key, value in line.items() if value} for line in lines]
        return found

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
        tensors = {"target": target}
        for head, output in scores.items():
            tensors[f"{head}.scores"] = output
            found = (norms or {}).get(head)
            if found is not None:
                tensors[f"{head}.norms"], tensors[f"{head}.offsets"] = found
        self._save_tensors(part, tensors)

    @contextmanager
    def writing_scores(
        self, part: str, rows: int, norms: Mapping[str, tuple[Tensor, Tensor] | None]
    ) -> Iterator[ScoreWriter]:
        """Give a writer of the scores of at most so many rows; it takes them some rows at a time.

        The file is there when the block ends well. ``norms`` are those of :meth:`save_scores`.
        """
        with replacing(self._score_file(part)) as temporary:
            with closing(ScoreWriter(temporary, rows, norms)) as writer:
                yield writer
                writer.finish()
        self.record(f"scores/{part}.safetensors")

    def load_scores(self, part: str, head: str = "set") -> tuple[Tensor, Tensor]:
        """Read one head's scores (n, c) before the score map and targets (n,) of ``val`` or ``test``."""
        key = f"{head}.scores"
        with self._opened(part, key, "target") as file:
            return file.get_tensor(key), file.get_tensor("target")

    def scored(self, part: str) -> tuple[Tensor, Tensor]:
        """Return the mapped scores (n, c) of the head to predict from, and the targets (n,) of a part."""
        scores, target = self.load_scores(part, self.head)
        return self.score_map(scores), target

    def score_blocks(
        self, part: str, head: str | None = None, score_map: ScoreMap | None = None
    ) -> tuple[ScoreBlocks, Tensor]:
        """As :meth:`scored`, with the scores read from the file some rows at a time.

        Head and score map are those of the finished model if they are ``None``.
        """
        key = f"{self.head if head is None else head}.scores"
        score_map = self.score_map if score_map is None else score_map

        def read(start: int, stop: int) -> Tensor:
            # the file is opened for each block: what is mapped of it is let go together with the block
            with self._opened(part, key) as file:
                return score_map(file.get_slice(key)[start:stop])

        with self._opened(part, key, "target") as file:
            return ScoreBlocks(read, file.get_slice(key).get_shape()), file.get_tensor("target").clone()

    def shown(self, score_map: ScoreMap | None = None) -> Callable[[Tensor], Tensor | None]:
        """Convert mapped scores (n, c) to log-posteriors for the class frequencies of the training rows.

        The function gives ``None`` if the class priors in the scores are unknown: then there are none.
        """
        score_map = self.score_map if score_map is None else score_map
        training = PriorRecord.training(self.class_table.class_counts)
        return lambda scores: None if score_map.now is None else score_map.converted(scores, priors=training)

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Return the probabilities of mapped scores (n, c) that people see; ``None`` if there are none."""
        found = self.shown()(scores)
        return None if found is None else found.softmax(1)

    def load_norms(self, head: str = "set") -> tuple[Tensor, Tensor]:
        """Read the norms of the class weights (c,) and the offsets (c,) of the classifier."""
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
        """Save the meaning that the loss declares for the scores of each head, and its class weights (c,)."""
        declared = {head: score_map.to_dict() for head, score_map in maps.items()}
        weight = None if loss_weight is None else loss_weight.double().tolist()
        content = {"heads": declared, "loss_weight": weight}
        write_text(self.path / "scores" / "declared.json", json.dumps(content) + "\n")
        self.record("scores/declared.json")

    def load_declared(self) -> dict[str, ScoreMap]:
        """Read the meaning that the loss declares for the scores of each head."""
        return {head: ScoreMap.from_dict(found) for head, found in self._declared()["heads"].items()}

    def load_loss_weight(self) -> Tensor | None:
        """Read the class weights (c,) of the loss at the epoch that is kept; ``None`` if it had none."""
        weight = self._declared()["loss_weight"]
        return None if weight is None else torch.tensor(weight)

    def _declared(self) -> dict[str, Any]:
        path = self.checked("scores/declared.json")
        try:
            content = read_json(path)
            for found in content["heads"].values():
                ScoreMap.from_dict(found)
            torch.tensor(content["loss_weight"] or [0.0])
            return content
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error

    @property
    def calibration_part(self) -> str:
        """Name of the part whose scores calibrate the predictors: ``calibration`` or ``val``."""
        return "calibration" if self.recipe.calibration.rows == "separate" else "val"

    def score_shape(self, part: str) -> tuple[int, ...]:
        """Return the numbers of rows and classes of a part's scores, from the header of the file."""
        key = f"{self.head}.scores"
        with self._opened(part, key) as file:
            return tuple(file.get_slice(key).get_shape())

    def has_scores(self, part: str) -> bool:
        """Return whether the scores of a part are saved."""
        return self._score_file(part).is_file() and self.is_written(f"scores/{part}.safetensors")

    def _score_file(self, part: str) -> Path:
        return self.path / "scores" / f"{part}.safetensors"

    def _save_tensors(self, part: str, tensors: Mapping[str, Tensor]) -> None:
        from safetensors.torch import save_file

        with replacing(self._score_file(part)) as temporary:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
        self.record(f"scores/{part}.safetensors")

    @contextmanager
    def _opened(self, part: str, *needed: str) -> Iterator[Any]:
        """The file of a part's scores, which must hold some tensors."""
        from safetensors import SafetensorError, safe_open

        path = self.checked(f"scores/{part}.safetensors")
        try:
            with safe_open(path, "pt") as file:
                keys = file.keys()
                for key in needed:
                    if key not in keys:
                        raise RunError(f"{path} must hold {key}, got {', '.join(keys)}")
                yield file
        except (SafetensorError, OSError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error


def _results_file(part: str) -> str:
    return "results.json" if part == "test" else f"results_{part}.json"
