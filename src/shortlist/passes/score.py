"""The pass that scores rows. Of each row it keeps the best classes, and numbers that need all scores."""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist.inputs import absolute
from shortlist.model import Model, model_hash, network_hash
from shortlist.passes.at_place import PlaceLists
from shortlist.passes.blocks import IMAGES, map_rows, read_blocks
from shortlist.passes.local import Engine, run_local
from shortlist.passes.measuring import Columns, keep_rows
from shortlist.passes.parts import Mapped, write_part_manifest
from shortlist.passes.scaffold import Map, Pass, Progress, pass_over, usual_workers
from shortlist.passes.shards import Shard
from shortlist.predictors import SetPredictor

SCORES_FORMAT = "shortlist scores 5"
MANIFEST = "scores.json"
KEEP = 64
_ROWS = 256  # prepared inputs that go through the network at a time


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from, as plain values: each worker opens its own.

    Args:
        path: Folder of a saved model or a run.
        network: For a model whose network is the user's own code, the function that makes it.
        device: Device of the model.
    """

    path: str
    network: str | None = None
    device: str = "cpu"

    def open(self) -> Model:
        """Load the model."""
        return Model.load(self.path, network=self.network, device=self.device)


def changed_model(model: Model, **changes: Any) -> Model:
    """Return a model with other parts in place of some of its own; see :meth:`Model.from_parts`."""
    names = [field.name for field in fields(model) if not field.name.startswith("_")]
    parts: dict[str, Any] = {name: getattr(model, name) for name in (*names, "calibration_rows")} | changes
    return Model.from_parts(class_table=parts.pop("classes"), **parts)


def model_key(model: Model) -> str:
    """Return a hash of all that the scores of a model depend on: network, preprocessing, head, score map."""
    content = [model_hash(model), model.head, model.score_map.to_dict()]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def predictor_key(predictor: SetPredictor) -> str:
    """Return a hash of the options and the calibrated state of a predictor."""
    return network_hash(predictor, [type(predictor).__name__, predictor.options()])


def _open(source: ModelSource, keep: int, at: PlaceLists | None) -> tuple[dict[str, Any], Map]:
    """Load a model, and return what parts depend on and the map of this pass."""
    model = source.open()
    keep = min(keep, len(model.classes))
    keys = {name: predictor_key(predictor) for name, predictor in model.predictors.items()}
    made = {"model": model_key(model), "predictors": keys, "keep": keep, "classes": len(model.classes)}
    if at is not None and "place" in keys:
        raise ValueError("a place must not be given: the model has a predictor with the name 'place'")
    made["place"] = None if at is None else at.key(model)
    return made, partial(score_shard, model, keep, at)


def score_shard(
    model: Model, keep: int, at: PlaceLists | None, shard: Shard, pool: ThreadPoolExecutor
) -> Mapped:
    """Score the rows of a shard: the map of this pass."""
    rows = shard.open(model.classes)
    highest, num_classes = max(rows.targets, default=0), len(model.classes)
    if highest >= num_classes:
        raise ValueError(
            f"{shard.name} has the class {highest}, but the model has {num_classes} classes only"
        )
    target = torch.tensor(rows.targets, dtype=torch.int64)
    size = IMAGES if rows.inputs is None else _ROWS
    mapped = map_rows(
        rows,
        read_blocks(rows, model.preprocessing, pool, size),
        model.scores,
        lambda scores, numbers: keep_rows(model, scores, target[numbers], keep, at),
        size=size,
        width=num_classes,
        problem="its scores are not numbers",
    )
    return replace(mapped, columns=_for_table(dict(mapped.columns), target[mapped.kept] < 0))


def _for_table(columns: Columns, unknown: Tensor) -> dict[str, Any]:
    """Return the columns of a table: sets as lists, and no numbers about true classes that are unknown."""
    import pyarrow

    table: dict[str, Any] = {}
    for key, values in columns.items():
        if key.endswith(".set"):
            whole = columns[key.removesuffix("set") + "whole"]
            classes = columns[
                "place.classes" if key == "place.set" and "place.classes" in columns else "classes"
            ]
            table[key] = _lists(classes, values, whole)
        elif key in _OF_TRUE or key.endswith(".hit"):
            table[key] = pyarrow.array(values.numpy(), mask=unknown.numpy())
        elif not key.endswith(".whole"):
            table[key] = values
    return table


# columns about the true class
_OF_TRUE = (
    *("true_log_probability", "true_probability", "rank", "first_rank", "brier"),
    *("shown_nll", "shown_brier", "shown_right"),
)


def _lists(classes: Tensor, chosen: Tensor, whole: Tensor) -> Any:
    """Return the classes of each set as lists; null for a set with classes that are not kept."""
    import pyarrow

    chosen = chosen & whole[:, None]
    ends = np.concatenate([[0], chosen.sum(1).cumsum(0).numpy()]).astype(np.int32)
    flat = pyarrow.array(classes[chosen].numpy())
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), flat, mask=pyarrow.array(~whole.numpy()))


@dataclass(frozen=True)
class ScoreCounts:
    """The counts of a pass that scored rows.

    Args:
        rows: Number of rows, including those that could not be read.
        errors: Number of rows that could not be read.
        parts: Number of parts.
        kept: Number of parts that an earlier call had finished.
    """

    rows: int
    errors: int
    parts: int
    kept: int


def score_shards(
    source: ModelSource,
    shards: Sequence[Shard],
    folder: str | Path,
    *,
    keep: int = KEEP,
    at: PlaceLists | None = None,
    workers: int | None = None,
    engine: Engine = run_local,
    progress: Progress | None = None,
) -> ScoreCounts:
    """Score the rows of shards, and write one part for each.

    A part appears when it is complete. ``scores.json``, written last, lists the parts. If the call is
    stopped, the next call makes only the missing parts. It refuses a part of another model, of other rows, of
    another place or with another ``keep``. Rows that cannot be read are in the parts, with the reason.

    Args:
        source: Where the model comes from.
        shards: The shards, from :func:`~shortlist.passes.planning.find_shards`.
        folder: Folder of the parts.
        keep: Number of best classes of each row that are kept.
        at: Lists for a place, which are made and kept too.
        workers: Number of workers; by default one per core, or a single one for a model on an accelerator.
        engine: What runs the work.
        progress: Function that is called with the number of shards done and in all.
    """
    check_count("keep", keep)
    source, folder = replace(source, path=absolute(source.path)), Path(absolute(folder))
    open_model, workers = partial(_open, source, keep, at), workers or usual_workers(source.device)
    made = open_model()[0]  # here too, to know the model's hash, and to fail early
    work = Pass(open_model, source.path, str(folder), ".parquet", made, workers)
    with pass_over(shards, work, MANIFEST, engine, progress) as (parts, kept):
        content = {"format": SCORES_FORMAT, **made}
        total = write_part_manifest(folder / MANIFEST, content, sorted(parts, key=lambda part: part.name))
    return ScoreCounts(total["rows"], total["errors"], len(parts), kept)
