"""Parts of scored rows on disk: one parquet file for each shard, and a manifest that is written last."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._files import replacing
from shortlist._manifest import read_sealed, write_sealed
from shortlist.engine.measuring import Columns
from shortlist.engine.shards import OTHER_ROWS
from shortlist.model import Model, model_hash
from shortlist.predictors import SetPredictor

__all__ = [
    "PartInfo",
    "ScoredPart",
    "finished_part",
    "model_key",
    "part_path",
    "predictor_key",
    "read_part",
    "read_parts",
    "read_scores",
    "remove_scores",
    "rows_key",
    "write_part",
    "write_scores",
]

FORMAT = "shortlist scores 3"
MANIFEST = "scores.json"


def model_key(model: Model) -> str:
    """Return a hash of all that the scores of a model depend on: network, preprocessing, head, score map."""
    told = [model_hash(model), model.head, model.score_map.to_dict()]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def rows_key(about: Mapping[str, Any]) -> str:
    """Return a hash of the rows that a manifest of scores is about, whatever their order."""
    digests = sorted(part["data"] for part in about["parts"])
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def predictor_key(predictor: SetPredictor) -> str:
    """Return a hash of the options and the calibrated state of a predictor."""
    found = hashlib.sha256(
        json.dumps([type(predictor).__name__, predictor.options()], sort_keys=True).encode()
    )
    for name, value in sorted(predictor.state_dict().items()):
        if isinstance(value, Tensor):
            found.update(name.encode())
            found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class PartInfo:
    """What a part tells about itself.

    Args:
        name: Name of the shard.
        rows: Number of rows, those that could not be read among them.
        errors: Number of rows that could not be read.
        data: Digest of the rows that it was made of.
        example: Id and reason of the first row that could not be read, or nothing.
    """

    name: str
    rows: int
    errors: int
    data: str
    example: str = ""


def part_path(folder: str | Path, name: str) -> Path:
    """Return the path of a part."""
    return Path(folder) / f"{name}.parquet"


def write_part(
    folder: str | Path,
    name: str,
    ids: Sequence[str],
    target: Sequence[int],
    read: Sequence[int],
    columns: Columns,
    errors: Mapping[int, str],
    about: Mapping[str, Any],
) -> PartInfo:
    """Write a part completely or not at all.

    Args:
        folder: Folder of the parts.
        name: Name of the shard.
        ids: Id of each row.
        target: Class index of each row, -100 where it is not known.
        read: Numbers of the rows that could be read.
        columns: Their columns.
        errors: Of the other rows, why each could not be read.
        about: What the part was made of: ``model``, ``predictors``, ``keep``, ``data``.
    """
    import pyarrow
    from pyarrow import parquet

    labels = np.asarray(target)
    table: dict[str, Any] = {
        "id": pyarrow.array(ids, pyarrow.string()),
        "target": pyarrow.array(labels, pyarrow.int32(), mask=labels < 0),
        "error": pyarrow.array([errors.get(row) for row in range(len(ids))], pyarrow.string()),
    }
    place = np.full(len(ids), -1)
    place[list(read)] = np.arange(len(read))
    take = pyarrow.array(place, mask=place < 0)
    unknown = labels[list(read)] < 0
    for key, values in columns.items():
        if key.endswith(".whole"):
            continue
        if key.endswith(".set"):
            array = _lists(columns["classes"], values, columns[key.removesuffix("set") + "whole"])
        elif key in _OF_TRUE or key.endswith(".hit"):
            array = pyarrow.array(values.numpy(), mask=unknown)
        else:
            array = _arrow(values.numpy())
        table[key] = array if not errors else array.take(take)
    first = next(((ids[row], errors[row]) for row in sorted(errors)), None)
    example = "" if first is None else f"{first[0]}: {first[1]}"
    info = PartInfo(name, len(ids), len(errors), about["data"], example)
    told = json.dumps(
        {"format": FORMAT, **about, "rows": info.rows, "errors": info.errors, "example": info.example}
    )
    made = pyarrow.table(table).replace_schema_metadata({"shortlist": told})
    with replacing(part_path(folder, name)) as temporary:
        parquet.write_table(made, temporary, compression="zstd", compression_level=1, use_dictionary=False)
    return info


_OF_TRUE = (
    "true_log_probability",
    "true_probability",
    "rank",
    "first_rank",
    "shown_nll",
    "shown_right",
)


def _lists(classes: Tensor, chosen: Tensor, whole: Tensor) -> Any:
    """The chosen classes of each row, of those that are kept; nothing for a row with others in its set."""
    import pyarrow

    chosen = chosen & whole[:, None]
    ends = np.concatenate([[0], chosen.sum(1).cumsum(0).numpy()]).astype(np.int32)
    flat = pyarrow.array(classes[chosen].numpy())
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), flat, mask=pyarrow.array(~whole.numpy()))


def _arrow(values: np.ndarray) -> Any:
    import pyarrow

    if values.ndim == 1:
        return pyarrow.array(values)
    # all are of one length, but most versions of pyarrow cannot write that with rows that have none
    ends = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), pyarrow.array(values.reshape(-1)))


def finished_part(folder: str | Path, name: str, about: Mapping[str, Any]) -> PartInfo | None:
    """Return what an earlier call wrote for a shard, if there is such a part.

    Raises:
        ValueError: If it is damaged, or was made of something else.
    """
    path = part_path(folder, name)
    if not path.exists():
        return None
    told = _told(path)
    words = {
        "model": "with another model",
        "predictors": "with other predictors",
        "keep": f"with --keep {told.get('keep')}",
        "data": OTHER_ROWS,
    }
    for key, made in words.items():
        if told.get(key) != about[key]:
            raise ValueError(f"{path} was made {made}: choose another folder, or remove {folder}")
    return PartInfo(name, told["rows"], told["errors"], told["data"], told["example"])


def _told(path: Path) -> dict[str, Any]:
    from pyarrow import parquet

    try:
        told = json.loads(parquet.read_schema(path).metadata[b"shortlist"])
    except Exception as error:  # a damaged file fails in many ways
        raise ValueError(f"{path} is damaged: remove it, and run the command again ({error})") from error
    if told.get("format") != FORMAT:
        raise ValueError(f"{path} is of the format {told.get('format')!r}, not {FORMAT!r}")
    return told


def write_scores(folder: str | Path, parts: Sequence[PartInfo], about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest of scored rows, by which readers know that nothing is missing."""
    content = {
        "format": FORMAT,
        **about,
        "rows": sum(part.rows for part in parts),
        "errors": sum(part.errors for part in parts),
        "examples": [part.example for part in parts if part.example][:100],
        "parts": [_listed(part) for part in parts],
    }
    write_sealed(Path(folder) / MANIFEST, content)
    return content


def _listed(part: PartInfo) -> dict[str, Any]:
    return {"name": part.name, "rows": part.rows, "errors": part.errors, "data": part.data}


def remove_scores(folder: str | Path) -> None:
    """Remove the manifest of an earlier call, before parts are written that it does not know."""
    (Path(folder) / MANIFEST).unlink(missing_ok=True)


def read_scores(folder: str | Path) -> dict[str, Any]:
    """Read the manifest of scored rows.

    Raises:
        ValueError: If there is none, since the scoring did not finish, or it is of another format.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise ValueError(
            f"{folder} holds no finished scores, it has no {MANIFEST}: run shortlist score again"
        )
    content = read_sealed(path)
    if content.get("format") != FORMAT:
        raise ValueError(f"{path} is of the format {content.get('format')!r}, not {FORMAT!r}")
    return content


@dataclass(frozen=True)
class ScoredPart:
    """The rows of a part that could be read: their columns by name, and the number of the others."""

    target: Tensor
    columns: Columns
    unread: int


def read_part(
    folder: str | Path,
    part: Mapping[str, Any],
    about: Mapping[str, Any],
    columns: Sequence[str],
    *,
    optional: Sequence[str] = (),
) -> ScoredPart:
    """Read some columns of a part; rows that could not be read are left out and counted.

    Args:
        folder: Folder of the parts.
        part: What the manifest tells about the part.
        about: The manifest.
        columns: Names of the columns.
        optional: Names of columns that not all parts have.

    Raises:
        ValueError: If the part is missing or damaged, or is not the one that the manifest tells about.
    """
    from pyarrow import compute, parquet

    path = part_path(folder, part["name"])
    made = {**about, "data": _told(path)["data"]} if path.exists() else about
    info = finished_part(folder, part["name"], made)
    if info is None:
        raise ValueError(f"{path} is missing: run shortlist score again")
    if _listed(info) != part:
        raise ValueError(
            f"{path} was made of other rows than those of {MANIFEST} ({info.rows} rows, not {part['rows']}): "
            "run shortlist score again"
        )
    try:
        there = set(parquet.read_schema(path).names)
        columns = [*columns, *(name for name in optional if name in there)]
        table = parquet.read_table(path, columns=["target", "error", *columns])
    except Exception as error:
        raise ValueError(f"{path} is damaged: remove it, and run shortlist score again ({error})") from error
    api: Any = compute
    table = table.filter(api.is_null(table["error"]))
    target = _tensor(table["target"].fill_null(-100), about["keep"]).long()
    found = {key: _tensor(table[key], about["keep"]) for key in columns}
    return ScoredPart(target, found, info.rows - len(target))


def _tensor(column: Any, keep: int) -> Tensor:
    """Return a column as a tensor: (n,), or (n, keep) if it has lists."""
    from pyarrow import types

    column = column.combine_chunks()
    has_lists = types.is_list(column.type)
    if has_lists:
        values = column.flatten()
    else:
        values = column.fill_null(0 if str(column.type) != "bool" else False)
    found = torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    return found.view(-1, keep) if has_lists else found


def read_parts(folder: str | Path, columns: Sequence[str]) -> Iterator[ScoredPart]:
    """Read some columns of all parts, one part after the other, in the order of the rows."""
    about = read_scores(folder)
    for part in about["parts"]:
        yield read_part(folder, part, about, columns)
