"""The scaffold of every pass: open a model in each worker, map shards to parts, resume what was stopped."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shortlist._files import lock_folder
from shortlist.engine.local import Engine
from shortlist.engine.parts import Mapped, Part, finished_part, read_table, write_part

__all__ = ["Map", "Open", "Pass", "Progress", "cores_for", "make_parts", "writing_to"]

Progress = Callable[[int, int], None]
"""Function that is called with the number of shards, or of rows, that are done and in all."""

Map = Callable[[Any, ThreadPoolExecutor], Mapped]
"""Function from a shard to what a part keeps of its rows. It reads no other rows, and writes nothing."""

Open = Callable[[], tuple[Mapping[str, Any], Map]]
"""Function that loads a model: what its parts depend on, such as a hash of its weights, and the map."""


@dataclass(frozen=True)
class Pass:
    """A pass over shards. It is sent to each worker, which calls it once for the function of a shard.

    Args:
        open: Function that loads the model and makes the map. It must be picklable.
        model: Name or path of the model, for messages.
        made: What ``open`` says that parts depend on: a worker for which it says something else is refused.
        folder: Folder of the parts.
        suffix: ``.parquet`` for parts that are tables, ``.safetensors`` for tensors.
        decoders: Number of threads of a worker that read images.
        remake: Whether a part that is damaged is made again. Otherwise it is refused: somebody may want it.
    """

    open: Open
    model: str
    made: Mapping[str, Any]
    folder: str
    suffix: str
    decoders: int = 1
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
        # another worker may have been given the shard before, and have died after the part was written
        part = self.finished(shard)
        if part is not None:
            return part
        data = shard.digest()  # before its rows are read
        with ThreadPoolExecutor(self.decoders) as pool:
            mapped = function(shard, pool)
        return write_part(self.path_of(shard), mapped, self.made, data)

    def path_of(self, shard: Any) -> Path:
        """Return the path of the part of a shard."""
        return Path(self.folder) / f"{shard.name}{self.suffix}"

    def finished(self, shard: Any) -> Part | None:
        """Return the part of a shard that is there already.

        Raises:
            ValueError: If it is damaged, or was made with another model or of other rows.
        """
        path = self.path_of(shard)
        if not path.exists():  # the state of all files of a shard is asked for only where there is a part
            return None
        try:
            if self.remake:
                read_table(path)
            return finished_part(path, self.made, shard.digest())
        except ValueError:
            if self.remake:
                return None
            raise


def cores_for(workers: int | None, device: str) -> tuple[int, int]:
    """Return the number of workers, by default one per core or one on an accelerator, and their decoders."""
    cores = os.cpu_count() or 1
    workers = workers or (cores if device == "cpu" else 1)
    return workers, max(1, cores // workers)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other processes from writing to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, ValueError(f"another process is writing to {folder}")):
        yield


def make_parts(
    work: Pass,
    shards: Sequence[Any],
    manifest: str,
    *,
    workers: int,
    engine: Engine,
    progress: Progress | None,
) -> tuple[list[Part], int]:
    """Make the part of each shard, but for those that an earlier call finished.

    The manifest of an earlier call is removed before the first part is written: it would not list that part.

    Returns:
        The parts, in the order of the shards, and how many of them an earlier call had finished.
    """
    names = [shard.name for shard in shards]
    if twice := {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else None:
        raise ValueError(f"two shards have the name {min(twice)!r}")
    finished = {shard.name: work.finished(shard) for shard in shards}
    parts = {name: part for name, part in finished.items() if part is not None}
    left, kept = [shard for shard in shards if shard.name not in parts], len(parts)
    if left:
        (Path(work.folder) / manifest).unlink(missing_ok=True)
    for part in engine(work, left, workers=min(workers, max(1, len(left)))):
        parts[part.name] = part
        if progress is not None:
            progress(len(parts), len(shards))
    return [parts[name] for name in names], kept
