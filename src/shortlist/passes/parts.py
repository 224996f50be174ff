"""Parts of a pass on disk: one file for each shard of rows, and a manifest, written last, that lists them.

A part is a parquet file (a table with a line for each row of the shard) or a safetensors file (tensors of
the rows that could be read). Both have the same header: what the part was made from, and its counts of rows.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._row_facts import RowFacts
from shortlist._store.files import replacing
from shortlist._store.manifest import write_sealed

FORMAT = "shortlist part 1"
_KEY = "shortlist"  # of the header: one entry, since safetensors writes several in no fixed order
_EXAMPLES = 100  # unreadable rows that a part or a manifest names; the others are only counted

# messages for a part whose header has another value of a key
_MADE_OTHERWISE = {
    "keep": "with --keep {}",
    "predictors": "with other predictors",
    "place": "for another place, or with another coverage or other calibration rows",
    "data": "of other rows, or their files have changed since (then this part alone must go)",
}


@dataclass(frozen=True)
class Mapped:
    """What a pass computes from the rows of a shard.

    Args:
        ids: Id of each row.
        targets: Class index of each row; -100 where it is not known.
        kept: Numbers of the rows that could be read.
        columns: Columns of the kept rows by name: tensors (n, ...), or for a table Arrow arrays or lists.
        errors: For each other row, by its number, why it could not be read.
        facts: Facts about all rows beside their class.
    """

    ids: Sequence[str]
    targets: Sequence[int]
    kept: Sequence[int]
    columns: Mapping[str, Any]
    errors: Mapping[int, str]
    facts: RowFacts | None = None


@dataclass(frozen=True)
class Part:
    """A part, as its header describes it.

    Args:
        file: Name of its file.
        data: Digest of the rows that it was made from.
        rows: Number of rows, including those that could not be read.
        errors: Number of rows that could not be read.
        without_class: Number of rows that could be read, and whose class is not known.
        examples: Id and reason of the first rows that could not be read.
    """

    file: str
    data: str
    rows: int
    errors: int
    without_class: int
    examples: Sequence[Sequence[str]]

    @property
    def name(self) -> str:
        """Name of the shard."""
        return self.file.rpartition(".")[0]

    def listed(self) -> dict[str, Any]:
        """Return what a manifest says about the part."""
        return {key: value for key, value in asdict(self).items() if key != "examples"}


def write_part(path: Path, mapped: Mapped, made: Mapping[str, Any]) -> Part:
    """Write a part completely or not at all, as a table or as tensors by the suffix of its path.

    Args:
        path: The file.
        mapped: The rows.
        made: What the part was made with, such as the hash of the model; ``data`` is the digest of the shard.
    """
    part = Part(
        file=path.name,
        data=made["data"],
        rows=len(mapped.ids),
        errors=len(mapped.errors),
        without_class=sum(mapped.targets[row] < 0 for row in mapped.kept),
        examples=[[mapped.ids[row], mapped.errors[row]] for row in sorted(mapped.errors)[:_EXAMPLES]],
    )
    header = {"format": FORMAT, "made": made, "part": asdict(part)}
    with replacing(path) as temporary:
        (_write_table if path.suffix == ".parquet" else _write_tensors)(temporary, mapped, header)
    return part


def _write_table(path: Path, mapped: Mapped, header: Mapping[str, Any]) -> None:
    import pyarrow
    from pyarrow import parquet

    labels = np.asarray(mapped.targets, dtype=np.int32)
    rows = range(len(mapped.ids))
    table: dict[str, Any] = {
        "id": pyarrow.array(mapped.ids, pyarrow.string()),
        "target": pyarrow.array(labels, mask=labels < 0),
        "error": pyarrow.array([mapped.errors.get(row) for row in rows], pyarrow.string()),
    }
    if mapped.facts is not None:
        table |= {key: pyarrow.array(values) for key, values in mapped.facts.plain().items()}
    place = np.full(len(rows), -1)
    place[list(mapped.kept)] = np.arange(len(mapped.kept))
    take = pyarrow.array(place, mask=place < 0)
    for key, values in mapped.columns.items():
        array = _arrow(values.numpy()) if isinstance(values, Tensor) else pyarrow.array(values)
        table[key] = array if len(mapped.kept) == len(rows) else array.take(take)
    written = pyarrow.table(table).replace_schema_metadata({_KEY: json.dumps(header)})
    options: Any = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
    parquet.write_table(written, path, use_dictionary=False, **options)


def _arrow(values: np.ndarray) -> Any:
    """Return numbers (n,) as an Arrow array, and numbers (n, m) as an Arrow array of lists."""
    import pyarrow

    if values.ndim == 1:
        return pyarrow.array(values)
    # all lists have one length, but most versions of pyarrow cannot write such lists beside missing ones
    ends = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), pyarrow.array(values.reshape(-1)))


def _write_tensors(path: Path, mapped: Mapped, header: Mapping[str, Any]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    targets = torch.tensor([mapped.targets[row] for row in mapped.kept], dtype=torch.int64)
    tensors: dict[str, Tensor] = {**mapped.columns, "targets": targets}
    header = {**header, "ids": [mapped.ids[row] for row in mapped.kept]}
    if mapped.facts is not None:
        facts, names = mapped.facts.take(torch.tensor(mapped.kept, dtype=torch.int64)).to_tensors()
        tensors, header = tensors | facts, header | {"groups": names}
    try:
        save_file(tensors, path, metadata={_KEY: json.dumps(header)})
    except SafetensorError as error:  # such as a full disk
        raise OSError(f"{path.name} cannot be written: {error}") from error


def check_part(path: Path, made: Mapping[str, Any]) -> Part:
    """Return a part whose header must have these values, such as those of the model and the options.

    Raises:
        ValueError: If it is damaged, or has another value.
    """
    header = _header_of(path)
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is of the format {header.get('format')!r}, not {FORMAT!r}")
    for key, value in made.items():
        if (other := header["made"].get(key)) != value:
            words = _MADE_OTHERWISE.get(key, f"with another {key}").format(other)
            raise ValueError(f"{path} was made {words}: choose another folder, or remove {path.parent}")
    return Part(**header["part"])


def ids_of_part(path: Path) -> list[str]:
    """Return the ids of the rows of a part of tensors, in their order.

    Raises:
        ValueError: If it is damaged.
    """
    return _header_of(path)["ids"]


def _header_of(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return json.loads(parquet.read_schema(path).metadata[_KEY.encode()])
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            return json.loads(file.metadata()[_KEY])
    except Exception as error:  # a damaged file fails in many ways
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is damaged: remove it, and run the command again ({error})")


def read_table(
    path: Path, columns: Sequence[str] | None = None, *, optional: Callable[[str], bool] | None = None
) -> Any:
    """Read a part that is a table: all columns, or ``columns`` and those that ``optional`` accepts.

    Raises:
        ValueError: If it is damaged.
    """
    from pyarrow import parquet

    try:
        if columns is not None:
            columns = [*columns, *filter(optional or (lambda _: False), parquet.read_schema(path).names)]
        return parquet.read_table(path, columns=columns, page_checksum_verification=True)
    except Exception as error:
        raise _damaged(path, error) from error


def write_part_manifest(path: Path, content: Mapping[str, Any], parts: Sequence[Part]) -> dict[str, Any]:
    """Write the manifest of parts, which tells readers that nothing is missing, and return it.

    Args:
        path: The file, beside the parts.
        content: Its format, what the parts were made with, and what else it says.
        parts: The parts, in the order of their rows.
    """
    totals = {key: sum(getattr(part, key) for part in parts) for key in ("rows", "errors", "without_class")}
    examples = [(name, why) for part in parts for name, why in part.examples][:_EXAMPLES]
    listed = [{**part.listed(), "size": (path.parent / part.file).stat().st_size} for part in parts]
    content = {**content, **totals, "examples": dict(examples), "parts": listed}
    write_sealed(path, content)
    return content
