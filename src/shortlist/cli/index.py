"""``shortlist index``: keep the known images of each class, to show those most like a photo."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shortlist._progress import Progress
from shortlist.cli._engine import Address, EngineName, Workers, engine_of, print_counts, run_pass
from shortlist.cli._options import AllowCode, AsJson, DataPlace, ModelPlace, OwnNetwork, option

if TYPE_CHECKING:
    from shortlist.index import BuildCounts
    from shortlist.passes import Engine


def index(
    model: ModelPlace,
    images: Annotated[
        str | None,
        option(
            "Images to take: a folder DIR/CLASS_ID/*.jpg, a list (.csv or .parquet with the columns "
            "path and label, and perhaps author, license, source, date, organ, observation), a .tar file, or "
            "a folder of .tar files (WebDataset). By default, the training images of the run."
        ),
    ] = None,
    out: Annotated[
        Path | None, option("Folder of the index; by default the folder index inside MODEL.")
    ] = None,
    max_per_class: Annotated[
        int, option("Most images to keep of a class. If it has more, those that differ most are kept.")
    ] = 2000,
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    delete: Annotated[
        list[str] | None, option("Only delete this image from the index. May be repeated.", metavar="ID")
    ] = None,
    compact: Annotated[
        bool, option("Only merge small parts of the index, and erase deleted images.", "--compact")
    ] = False,
    network: OwnNetwork = None,
    data: DataPlace = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Keep features and thumbnails of known images, so that those most similar to a photo can be shown.

    If the command is stopped, run it again: it continues where it stopped. If there are new images later, the
    same command adds them. The index is the same for any engine and any number of workers.

    Opening a run or a model never runs code that it names.
    """
    folder = model / "index" if out is None else out
    if (delete or compact) and any(value is not None for value in (images, network, data)):
        raise ValueError(
            "--delete and --compact change the index alone: give no --images, no --network and no --data"
        )
    if images is not None and data is not None:
        raise ValueError("--data is where the training images of the run lie: give it without --images")
    if delete or compact:
        counts = _change(folder, delete or [], compact, max_per_class)
    else:
        sizes = {"max_per_class": max_per_class, "workers": workers}
        runner = partial(engine_of, engine, address)
        counts = vars(_build(model, images, folder, network, data, runner, sizes))
    names = {"left_out": "left out", "unreadable": "could not be read"}
    words = [f"{n:,} {names.get(name, name)}" for name, n in counts.items() if n or name == "images"]
    place = () if out is None else ("--index", out)
    print_counts("index", folder, counts, words, as_json, then=("serve", model, *place))


def _change(folder: Path, delete: list[str], compact: bool, max_per_class: int) -> dict[str, int]:
    from shortlist.index import IndexWriter

    with IndexWriter.open(folder) as writer:
        deleted = writer.delete(delete)
        if compact:
            writer.compact(max_per_class=max_per_class)
        return {"images": int(writer.counts.sum()), "deleted": deleted}


def _build(
    path: Path,
    images: str | None,
    folder: Path,
    network: str | None,
    data: Path | None,
    engine: "Callable[[str], Engine]",
    sizes: dict[str, Any],
) -> "BuildCounts":
    """Build an index; ``engine`` makes the engine of a device."""
    import torch

    from shortlist.index import FileSource, build_index, source_of_images, source_of_run
    from shortlist.passes import ModelSource, usual_workers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    opened = ModelSource(str(path.absolute()), network, device)
    runner, model = engine(device), opened.open()
    if images is None and not (path / "run.json").is_file():
        raise ValueError(f"{path} is a model without the data of a run: name its images with --images")

    def run(show: Progress) -> "BuildCounts":
        if images is None:
            source = source_of_run(path, model, data=data, progress=show)
        else:
            source = source_of_images(images, model)
        # small pictures in memory are done before another process has begun
        workers = usual_workers(device) if isinstance(source, FileSource) else 1
        sizes["workers"] = sizes["workers"] or workers
        how: Any = {"engine": runner, "load": opened.open, "progress": partial(show, "embedding")}
        return build_index(model, source, folder, **sizes, **how)

    return run_pass(run)
