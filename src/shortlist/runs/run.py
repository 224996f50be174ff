"""A run as a value: what its folder held when it was opened."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_target
from shortlist._row_facts import RowFacts
from shortlist._store.files import check_regular
from shortlist._store.json import read_json
from shortlist._store.manifest import check_file, read_run_manifest
from shortlist.class_table import ClassTable, group_names
from shortlist.metrics import Results, RowMeasurer, RowNumbers
from shortlist.model import SavedModel
from shortlist.predictors import SetPredictor
from shortlist.recipes import (
    Recipe,
    load_recipe,
    own_metrics,
    recipe_hash,
    training_hash,
    with_absolute_places,
    without_default_predictors,
)
from shortlist.runs.score_blocks import ScoreBlocks
from shortlist.scores import PriorRecord, ScoreMap


class RunError(ValueError):
    """Raised if a folder is not a run, or cannot be used as asked."""


@dataclass(frozen=True, eq=False)
class Run:
    """A run as it was when it was opened.

    Its folder has ``recipe.yaml`` (resolved), ``run.json`` (format, state, versions, manifest),
    ``epochs.csv`` (metrics by epoch), ``checkpoints/best.ckpt`` and ``last.ckpt``,
    ``scores/val.safetensors`` and ``scores/test.safetensors`` (as the network gives them),
    ``scores/declared.json`` (what the loss says that they mean), ``scores/facts_val.safetensors``
    and the like (observation and groups of each row, where the data have them), ``results.json``, ``logs/``,
    and in ``model/`` the finished model, which :class:`shortlist.Model` opens by itself.

    Each part is read once, when it is first asked for, and checked against the manifest that was read at
    the opening. What was replaced since is refused, so that nothing of two states of a folder is mixed. To
    see what another process wrote, open the run again.

    Args:
        path: Path of the run folder.
        info: Content of ``run.json``.
    """

    path: Path
    info: Mapping[str, Any] = field(repr=False)
    _seen: dict[str, Any] = field(default_factory=dict, repr=False)  # files that were checked

    @staticmethod
    def open(path: str | Path) -> "Run":
        """Open an existing run; the error says what is missing if it is not a run."""
        folder = Path(path)
        if not folder.is_dir():
            what = "it is a file" if folder.exists() else "there is no such folder"
            raise RunError(f"{path} is not a run folder: {what}")
        if not (folder / "run.json").is_file() or not (folder / "recipe.yaml").is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json and recipe.yaml")
        return Run(folder, read_info(folder))

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.path.name

    @property
    def state(self) -> str:
        """State of the run: started, trained, finished or calibrating."""
        return self.info["state"]

    @property
    def is_limit(self) -> bool:
        """Whether the scores are the data's own probabilities, which no method can beat."""
        return self.info.get("scores_from") == "posterior"

    def checked(self, name: str) -> Path:
        """Return the path of a file of the run, which must be the one that was written here.

        Raises:
            RunError: If it is missing, damaged, changed, or not of this run.
        """
        path, files = self.path / name, self.info["files"]
        identity = file_identity(path)
        if identity is None or self._seen.get(name) != identity:
            try:
                if self.state != "finished" and name not in files:  # in the making
                    if not path.is_file():
                        raise ValueError(f"{path} is missing")
                    check_regular(path, links=False)
                else:
                    check_file(self.path, name, files)
            except ValueError as error:
                raise RunError(f"{error}; shortlist doctor {self.path} says what can be done") from None
            self._seen[name] = identity
        return path

    def _has(self, name: str) -> bool:
        """Return whether a file was written completely: the manifest lists it then."""
        return (self.path / name).is_file() and (name in self.info["files"] or self.state != "finished")

    def check_calibrated(self) -> None:
        """Refuse a run whose calibration was interrupted, since its predictors may not belong together."""
        if self.state == "calibrating":
            raise RunError(f"{self.path} was stopped while it was calibrated: calibrate it again")

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        path = self.checked("recipe.yaml")
        return _read_recipe(path, file_identity(path))

    def check_recipe(self) -> None:
        """Refuse to continue a training whose recipe was changed since it began."""
        if self.info.get("training") not in (None, training_hash(self.recipe)):
            raise RunError(
                f"{self.path / 'recipe.yaml'} was changed since the training began: put it back or train anew"
            )

    def has_recipe(self, recipe: Recipe) -> bool:
        """Return whether the run is that of a recipe, which may leave the default predictors out."""
        wanted, made_with = with_absolute_places(recipe), self.recipe
        if wanted.predictors is None:
            made_with = without_default_predictors(made_with)
        return recipe_hash(wanted) == recipe_hash(made_with)

    @property
    def model_path(self) -> Path:
        """The folder of the finished model."""
        return self.path / "model"

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
    def class_groups(self) -> dict[str, Tensor]:
        """By name of a group of classes, which of them are in it, bool (c,); none without training counts."""
        evaluation, table = self.recipe.evaluation, self.class_table
        if not table.counts:
            return {}
        groups = table.groups(**evaluation.groups)
        return {name: groups == number for number, name in enumerate(group_names(evaluation.count_bins))}

    @property
    def head(self) -> str:
        """The head of the network to predict from."""
        return self.saved.description["head"]

    @property
    def score_map(self) -> ScoreMap:
        """Map from the network's scores to those from which sets are made."""
        return self.saved.score_map

    @property
    def score_words(self) -> str:
        """What the mapped scores mean, in a sentence."""
        return self.score_map.words()

    @cached_property
    def predictors(self) -> Mapping[str, SetPredictor]:
        """The calibrated predictors, in the order of their names."""
        return dict(sorted(self.saved.predictors.items()))

    def sets(self, scores: Tensor) -> Tensor:
        """Return the sets (p, n, c) of all predictors, by name in order, from mapped scores (n, c)."""
        return self.saved.sets(scores)

    @cached_property
    def results(self) -> Results:
        """The results on the test rows."""
        return self.results_of("test")

    def results_of(self, part: str) -> Results:
        """Read the results on the rows of ``test`` or ``val``."""
        return Results.load(self.checked(results_file(part)))

    def has_results(self, part: str = "test") -> bool:
        """Return whether the results of a part are saved."""
        return self._has(results_file(part))

    @cached_property
    def epochs(self) -> Sequence[Mapping[str, float]]:
        """The metrics of each epoch, of both stages one after the other."""
        epochs = []
        for name in ("epochs.csv", "epochs_second_stage.csv"):
            if (self.path / name).is_file() or name in self.info["files"]:
                with self.checked(name).open(encoding="utf-8", newline="") as file:
                    lines = list(csv.DictReader(file))
                epochs += [{key: float(value) for key, value in line.items() if value} for line in lines]
        return epochs

    @property
    def calibration_part(self) -> str:
        """Name of the part whose scores calibrate the predictors: ``calibration`` or ``val``."""
        return "calibration" if self.recipe.calibration.rows == "separate" else "val"

    def has_scores(self, part: str) -> bool:
        """Return whether the scores of a part are saved."""
        return self._has(f"scores/{part}.safetensors")

    def score_files(self) -> list[str]:
        """Return the names of the files of scores of held-out rows, and of what is known about the rows."""
        parts = [part + more for part in ("val", "calibration", "test") for more in ("", "_further")]
        names = [name for part in parts for name in (f"scores/{part}.safetensors", facts_file(part))]
        return [name for name in names if self._has(name)]

    def score_shape(self, part: str) -> tuple[int, ...]:
        """Return the numbers of rows and classes of a part's scores, from the header of the file."""
        key = f"{self.head}.scores"
        with self._opened(part, key) as file:
            return tuple(file.get_slice(key).get_shape())

    def load_scores(self, part: str, head: str = "set") -> tuple[Tensor, Tensor]:
        """Read one head's scores (n, c) before the score map and targets (n,) of ``val`` or ``test``."""
        key = f"{head}.scores"
        with self._opened(part, key, "target") as file:
            return file.get_tensor(key), file.get_tensor("target")

    def facts(self, part: str) -> RowFacts | None:
        """Return what is known about the rows of a part beside their class: observations and groups."""
        return RowFacts.load(self.checked(facts_file(part))) if self._has(facts_file(part)) else None

    def photos(self, part: str, head: str | None = None) -> tuple[Tensor, Tensor, RowFacts | None]:
        """Return the scores before the score map, the targets and the facts of all photos of a part.

        Further photos of the same objects, which are no rows of the part, come last.
        """
        head = self.head if head is None else head
        parts = [name for name in (part, f"{part}_further") if name == part or self.has_scores(name)]
        rows = [self.load_scores(name, head) for name in parts]
        facts = [(self.facts(name), len(target)) for name, (_, target) in zip(parts, rows, strict=True)]
        scores, target = (torch.cat(columns) for columns in zip(*rows, strict=True))
        return scores, target, RowFacts.joined(facts)

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

    def measure(
        self,
        part: str,
        predictors: Mapping[str, SetPredictor] | None = None,
        head: str | None = None,
        score_map: ScoreMap | None = None,
        metrics: Mapping[str, Callable[..., Tensor]] | None = None,
    ) -> RowNumbers:
        """Measure the rows of a part, some at a time; the predictors are those of the model by default.

        ``metrics`` are those of :func:`shortlist.metrics.evaluate`.
        """
        (blocks, target), shown = self.score_blocks(part, head, score_map), self.shown(score_map)
        check_target(target, torch.empty(blocks.shape, device="meta"), ignore_index=-100)
        predictors, start = self.predictors if predictors is None else predictors, 0
        measurer = RowMeasurer(predictors, len(target), metrics=metrics)
        for scores in blocks:
            measurer.add(scores, target[start : start + len(scores)], shown(scores))
            start += len(scores)
        return measurer.finish()

    def own_metrics(self) -> Mapping[str, Callable[..., Tensor]]:
        """Import the metrics of the recipe that are somebody's own."""
        return own_metrics(self.recipe)

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Return the probabilities of mapped scores (n, c) that people see; ``None`` if there are none."""
        shown = self.shown()(scores)
        return None if shown is None else shown.softmax(1)

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

    @property
    def declared(self) -> Mapping[str, ScoreMap]:
        """The meaning that the loss declares for the scores of each head."""
        return self._declared[0]

    @property
    def loss_weight(self) -> Tensor | None:
        """The class weights (c,) of the loss at the epoch that is kept; ``None`` if it had none."""
        return self._declared[1]

    @cached_property
    def _declared(self) -> tuple[Mapping[str, ScoreMap], Tensor | None]:
        path = self.checked("scores/declared.json")
        try:
            content = read_json(path)
            maps = {head: ScoreMap.from_dict(declared) for head, declared in content["heads"].items()}
            weight = content["loss_weight"]
            return maps, None if weight is None else torch.tensor(weight)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error

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


def facts_file(part: str) -> str:
    """Return the name of the file of what is known about the rows of a part's scores."""
    return f"scores/facts_{part}.safetensors"


def results_file(part: str) -> str:
    """Return the name of the file of a part's results."""
    return "results.json" if part == "test" else f"results_{part}.json"


def read_info(folder: Path) -> dict[str, Any]:
    """Read ``run.json`` of a run folder."""
    try:
        return read_run_manifest(folder)
    except ValueError as error:
        raise RunError(str(error)) from error


def file_identity(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file is replaced; ``None`` if there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


@lru_cache(maxsize=16)
def _read_recipe(path: Path, identity: tuple[int, ...]) -> Recipe:
    """Read a recipe; the same file is parsed once."""
    return load_recipe(path)
