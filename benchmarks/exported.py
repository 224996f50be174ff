"""Lists of an exported model beside those of Python and of a server: how many agree, and how close.

    python benchmarks/exported.py RUN [--photos FOLDER]

500 test glyphs of a run on glyphs, and 200 photos of 30 to 4,000 pixels: made ones, or crops of the photos in
a folder. Portraits, landscapes, gray, palette, CMYK, transparent ones, and some with a rotation in their EXIF
data.
"""

import argparse
import io
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

from shortlist.model import Choice, Model, export_lists
from shortlist.recipes import build_data
from shortlist.runs import Run

COVERAGES = (0.8, 0.9, 0.95)
MODES = ("RGB", "RGB", "RGB", "L", "P", "CMYK", "RGBA", "EXIF")
AROUND, CLOSE = 7, 0.01


class Object(NamedTuple):
    """A file as it is sent, and as an upright picture in RGB."""

    sent: bytes
    upright: Image.Image


def made_photo(generator: np.random.Generator, height: int, width: int) -> Image.Image:
    """A picture with large shapes, fine ones, edges and noise, like a photo has them."""
    layers = np.zeros((height, width, 3))
    for cells, weight in ((2, 0.5), (AROUND, 0.3), (40, 0.2)):
        few = generator.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
        wide = Image.fromarray(few).resize((width, height), Image.Resampling.BICUBIC)
        layers += weight * np.asarray(wide)
    y, x = np.ogrid[:height, :width]
    for _ in range(12):
        top, left, size = generator.random(3) * (height, width, max(height, width) / 6)
        inside = (y - top) ** 2 + (x - left) ** 2 < size**2
        layers[inside] = 0.4 * layers[inside] + 0.6 * generator.integers(0, 256, 3)
    layers += generator.normal(0, 4, (height, width, 1))
    return Image.fromarray(layers.clip(0, 255).astype(np.uint8))


def photos(folder: Path | None, number: int) -> Iterator[Object]:
    """Photos of many sizes and kinds."""
    generator = np.random.default_rng(0)
    every = [] if folder is None else sorted(folder.rglob("*"))
    files = [each for each in every if each.suffix in (".jpg", ".png")]
    for place in range(number):
        height, width = np.exp(generator.uniform(np.log(30), np.log(4000), 2)).astype(int)
        if max(height, width) > 3 * min(height, width):
            height = width = max(height, width) // 2 or 1
        image = made_photo(generator, height, width)
        if files:
            with Image.open(files[place % len(files)]) as opened:
                upright = ImageOps.exif_transpose(opened).convert("RGB")
                image = ImageOps.fit(upright, (int(width), int(height)))
        yield _sent(image, MODES[place % len(MODES)])


def _sent(image: Image.Image, mode: str) -> Object:
    """Encode a picture as a file of some kind; a file without losses is what it decodes to."""
    exif, buffer = Image.Exif(), io.BytesIO()
    if mode == "EXIF":
        exif[0x0112] = 6
        image = image.transpose(Image.Transpose.ROTATE_90)
    elif mode != "RGB":
        image = image.convert(mode)
    form = {"P": "PNG", "RGBA": "PNG"}.get(mode, "JPEG")
    image.save(buffer, form, quality=90, exif=exif)
    with Image.open(io.BytesIO(buffer.getvalue())) as opened:
        return Object(buffer.getvalue(), ImageOps.exif_transpose(opened).convert("RGB"))


def glyphs(run: Run, number: int) -> Iterator[Object]:
    """Test rows of a run on glyphs as pictures without losses."""
    split = build_data(run.recipe).test
    mean, std = ((run.saved.description["preprocessing"][key][0]) for key in ("mean", "std"))
    for place in range(min(number, len(split))):
        levels = (split[place][0][0] * std + mean).round().clamp(0, 255).byte().numpy()
        image, buffer = Image.fromarray(levels).convert("RGB"), io.BytesIO()
        image.save(buffer, "PNG")
        yield Object(buffer.getvalue(), image)


class Exported:
    """Lists of an exported folder, by the functions of examples/onnx_lists.py."""

    def __init__(self, folder: Path) -> None:
        import runpy

        example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "onnx_lists.py"))
        self.posterior = example["posterior"]
        self.apart = example["calibration_scores"](folder / "rows.safetensors")
        self.about = json.loads((folder / "lists.json").read_text(encoding="utf-8"))
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]

    def __call__(self, picture: Image.Image) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return probabilities (c,), and the sets (c,) of each coverage."""
        made: dict[str, Any] = dict(
            zip(self.names, self.session.run(None, {"picture": np.asarray(picture)}), strict=True)
        )
        shifted = made["scores"] - made["scores"].max()
        fit = self.posterior((shifted - np.log(np.exp(shifted).sum())).astype(np.float16))[0]
        ranks = [max(1, int(np.ceil((len(self.apart) + 1) * level - 1e-9))) for level in COVERAGES]
        return made["probabilities"][0], [1 - fit <= self.apart[rank - 1] for rank in ranks]


def asked(client: Any, sent: bytes, level: float, model: Model) -> set[int] | None:
    """Return the classes of the list that a server makes of a file; ``None`` if not all are listed."""
    files = [("images", ("photo", sent, "application/octet-stream"))]
    answer = client.post("/v1/identify", params={"coverage": level, "limit": 100}, files=files)
    answer.raise_for_status()
    content, number = answer.json(), {id: index for index, id in enumerate(model.classes.ids)}
    members = {number[each["id"]] for each in content["candidates"] if each["in_set"]}
    return members if len(members) == content["set_size"] else None


def compare(name: str, objects: Iterator[Object], model: Model, exported: Exported, client: Any) -> None:
    """Print how many lists agree, and the largest difference of a probability."""
    lists, agree_python, agree_server, close, largest, seconds = 0, 0, 0, 0, 0.0, 0.0
    for sent, upright in objects:
        begin = time.perf_counter()
        probabilities, sets = exported(upright)
        seconds += time.perf_counter() - begin
        scores = model.scores(model.prepare([upright]))
        apart = float(np.abs(model.probabilities(scores)[0].numpy() - probabilities).max())
        largest, close = max(largest, apart), close + (apart <= CLOSE)
        for level, inside in zip(COVERAGES, sets, strict=True):
            [python] = model.lists(scores, Choice(coverage=level))
            here = set(np.nonzero(inside)[0].tolist())
            lists, agree_python = (
                lists + 1,
                agree_python + (python is not None and here == set(python.members)),
            )
            agree_server += here == asked(client, sent, level, model)
    count = lists // len(COVERAGES)
    print(
        f"{name}: {count} pictures, {lists} lists; the same as Python {agree_python / lists:.2%}, as the "
        f"server {agree_server / lists:.2%}; probabilities within {CLOSE} {close / count:.2%}, largest "
        f"difference {largest:.2g}; {1000 * seconds / count:.1f} ms a picture"
    )


def main() -> None:
    """Compare the lists of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--number", type=int, default=200)
    options = parser.parse_args()
    run, model = Run.open(options.run), Model.load(options.run)
    with tempfile.TemporaryDirectory() as folder:
        export_lists(model, Path(folder) / "lists")
        exported = Exported(Path(folder) / "lists")
    from fastapi.testclient import TestClient

    from shortlist.serve import Service
    from shortlist.serve.app import make_app

    with TestClient(make_app(Service(model, source=options.run))) as client:
        if run.recipe.data.name == "glyphs":
            compare("glyphs", glyphs(run, 500), model, exported, client)
        compare("photos", photos(options.photos, options.number), model, exported, client)


if __name__ == "__main__":
    main()
