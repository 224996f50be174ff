"""The scaffold of every pass over rows: plan, map each shard to a part, resume, merge.

1. *Plan.* A caller cuts its rows into shards: small values with a ``name`` and a ``digest()`` of their rows.
2. *Map.* Each worker opens the model once (:data:`Open`), and maps one shard after another to columns of its
   rows (:data:`Map`). A row depends on nothing but itself and the model, so any grouping gives the same bits.
3. *Part.* The columns become one file, which is complete or not there. A part says what it was made of: a
   shard whose part is there is not mapped again, and a part of something else is refused.
4. *Merge.* The caller writes a manifest of all parts last, or takes the parts over, as an index does.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shortlist._store.files import lock_folder
from shortlist.passes.local import Engine
from shortlist.passes.parts import Mapped, Part, check_part, read_table, write_part

Progress = Callable[[int, int], None]
"""Function that is called with the number of shards, or of rows, that are done and in all."""

Map = Callable[[Any, ThreadPoolExecutor], Mapped]
"""Function from a shard to what a part keeps of its rows. It reads no other rows, and writes nothing."""

Open = Callable[[], tuple[Mapping[str, Any], Map]]
"""Function that loads a model. It returns what parts depend on, such as a hash of weights, and the map."""


@dataclass(frozen=True)
class Pass:
    """A pass over shards. It is sent to each worker, which calls it once to get a function of shards.

    Args:
        open: Function that loads the model and makes the map. It must be picklable.
        model: Name or path of the model, for messages.
        folder: Folder of the parts.
        suffix: ``.parquet`` for parts that are tables, ``.safetensors`` for tensors.
        made: What parts depend on, as ``open`` returns it. A worker with other values is refused.
        workers: Number of workers.
        remake: Whether damaged parts are made again; otherwise they are refused.
    """

    open: Open
    model: str
    folder: str
    suffix: str
    made: Mapping[str, Any]
    workers: int
    remake: bool = False

    def __call__(self) -> Callable[[Any], Part]:
        """Load the model, and return the function from a shard to its part."""
        made, function = self.open()
        if made != self.made:
            raise ValueError(
                f"a worker has another model than the command: {self.model} must give the same weights, "
                "preprocessing and predictors on all machines and during the whole command"
            )
        return partial(self._part, function)

    def _part(self, function: Map, shard: Any) -> Part:
        # another worker may have written the part, and died before it could report it
        part = self.finished(shard)
        if part is not None:
            return part
        made = {**self.made, "data": shard.digest()}  # before rows are read, which may change meanwhile
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // self.workers)) as pool:
            return write_part(self._path(shard), function(shard, pool), made)

    def _path(self, shard: Any) -> Path:
        return Path(self.folder) / f"{shard.name}{self.suffix}"

    def finished(self, shard: Any) -> Part | None:
        """Return the part of a shard that is there already.

        Raises:
            ValueError: If it is damaged, or was made with another model or of other rows.
        """
        path = self._path(shard)
        if not path.exists():  # before the digest, which looks at each file of the shard
            return None
        try:
            if self.remake:
                read_table(path)
            return check_part(path, {**self.made, "data": shard.digest()})
        except ValueError:
            if self.remake:
                return None
            raise


@contextmanager
def pass_over(
    shards: Sequence[Any], work: Pass, manifest: str, engine: Engine, progress: Progress | None
) -> Iterator[tuple[list[Part], int]]:
    """Make the part of each shard, and give all parts to a ``with`` block that merges them.

    The folder is locked until the block ends. The manifest of an earlier call is removed before the first
    part is written, since it does not list that part.

    Args:
        shards: The shards.
        work: The pass.
        manifest: Name of the manifest.
        engine: What runs the work.
        progress: Function that is called with the number of shards done and in all.

    Returns:
        The parts in the order of the shards, and how many of them an earlier call had finished.
    """
    folder, names = Path(work.folder), [shard.name for shard in shards]
    if len(set(names)) < len(names):
        double = min(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"two shards have the name {double!r}")
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, ValueError(f"another process is writing to {folder}")):
        parts = {shard.name: part for shard in shards if (part := work.finished(shard)) is not None}
        unfinished, kept = [shard for shard in shards if shard.name not in parts], len(parts)
        if unfinished:
            (folder / manifest).unlink(missing_ok=True)
        for part in engine(work, unfinished, workers=min(work.workers, max(1, len(unfinished)))):
            parts[part.name] = part
            if progress is not None:
                progress(len(parts), len(shards))
        yield [parts[name] for name in names], kept


def usual_workers(device: str) -> int:
    """Return the default number of workers: one per core, or one for an accelerator."""
    return (os.cpu_count() or 1) if device == "cpu" else 1
