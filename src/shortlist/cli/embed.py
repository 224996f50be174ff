"""``shortlist embed``: features of images by a frozen network, as a data set to train on."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shortlist.cli._engine import Address, Device, EngineName, Workers, engine_of, print_counts, run_pass
from shortlist.cli._options import AllowCode, AsJson, OwnNetwork, argument, option

if TYPE_CHECKING:
    from shortlist.preprocessing import Preprocessing


def embed(
    model: Annotated[
        str,
        argument(
            "What makes the features: the folder of a run or of a saved model, timm:NAME, or "
            "package.module:function (with --allow-code), a function without arguments that returns an "
            "nn.Module from images to features (n, d)."
        ),
    ],
    data: Annotated[
        str,
        argument(
            "Images: a folder (DATA/CLASS/*.jpg, or DATA/train/CLASS/*.jpg, DATA/test/...), a list "
            "(.csv or .parquet with the column path and perhaps label and split), or a .tar file or a folder "
            "of such (WebDataset)."
        ),
    ],
    out: Annotated[Path, option("Folder to write the embeddings to.", "--out", "-o")],
    size: Annotated[int | None, option("Side of the images that the network takes.")] = None,
    resize: Annotated[
        int | None, option("Length of the shorter side before the center crop; 8/7 of --size by default.")
    ] = None,
    mean: Annotated[
        str, option("Mean to subtract: one number, or three separated by commas.")
    ] = "0.485,0.456,0.406",
    std: Annotated[
        str, option("Standard deviation to divide by: one number, or three separated by commas.")
    ] = "0.229,0.224,0.225",
    pixels: Annotated[
        str, option("Range of the pixels for --mean and --std: unit is 0 to 1, levels is 0 to 255.")
    ] = "unit",
    interpolation: Annotated[str, option("How images are resized: bilinear or bicubic.")] = "bilinear",
    workers: Workers = None,
    shard_rows: Annotated[
        int, option("Number of images in each file of embeddings; a tar file becomes one.", min=1)
    ] = 1024,
    engine: EngineName = "local",
    address: Address = None,
    device: Device = "cpu",
    network: OwnNetwork = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Compute the features of images with a network, and write them as embeddings to train on.

    If the command is stopped, run it again: it continues where it stopped. Features are kept in half
    precision. Images that cannot be read are left out, counted, and named in embeddings.json. The options
    --size, --resize, --mean, --std, --pixels and --interpolation say how images are prepared for a function
    of your own. Saved models and networks of timm know it themselves.
    """
    from shortlist.passes import EmbedderSource, embed_images

    prepare = None if size is None else _preprocessing(size, resize, mean, std, pixels, interpolation)
    source = EmbedderSource(model, prepare, network, device, allow_code)
    how: Any = {"workers": workers, "engine": engine_of(engine, address, device), "shard_rows": shard_rows}
    named = partial(embed_images, source, data, out, **how)
    counts = run_pass(lambda show: named(progress=partial(show, "embedding")))
    words = [f"{number:,} {part}" for part, number in counts.rows.items()]
    words += [f"{counts.dimensions} features", f"{counts.classes} classes"]
    words += [f"{counts.without_class:,} without a class"] if counts.without_class else []
    words += [f"{counts.unreadable:,} images left out (see embeddings.json)"] if counts.unreadable else []
    words += [f"{counts.kept} files were already there"] if counts.kept else []
    print_counts("embeddings", out, vars(counts), words, as_json, then=("init", out))


def _preprocessing(
    size: int, resize: int | None, mean: str, std: str, pixels: Any, interpolation: Any
) -> "Preprocessing":
    from shortlist.preprocessing import Preprocessing

    return Preprocessing(
        height=size,
        width=size,
        resize=round(size * 8 / 7) if resize is None else resize,
        mean=_three("--mean", mean),
        std=_three("--std", std),
        pixels=pixels,
        interpolation=interpolation,
    )


def _three(name: str, text: str) -> list[float]:
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be one number, or three with commas, got {text!r}") from None
    return numbers * 3 if len(numbers) == 1 else numbers
