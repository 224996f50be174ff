"""A run on embeddings of ``shortlist embed`` shows the images that they were made of."""

import base64
import io
import re

import pytest
from PIL import Image

from shortlist._store.manifest import read_sealed, write_sealed
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import make_recipe
from shortlist.report.page import make_page
from shortlist.report.pictures import open_pictures
from shortlist.training.fit import train
from tests.index.small import SMALL
from tests.training.small import silent

BACKBONE = "tests.passes.small:make_backbone"  # the first three features are the mean color


def embedded(root, splits=("",)):
    """Images of one color each, some without a class, and their embeddings."""
    lines = ["path,label,author" + (",split" if splits[0] else "")]
    for number in range(66):
        label = "" if number % 11 == 5 else ("ash", "oak")[number % 2]
        name = f"{number:02d}.png"
        Image.new("RGB", (20, 20), (3 * number, 255 - 3 * number, 10 + number)).save(root / name)
        split = splits[(number // 2) % len(splits)]
        lines.append(f"{name},{label},Ann {number}" + (f",{split}" if split else ""))
    (root / "photos.csv").write_text("\n".join(lines))
    source = EmbedderSource(BACKBONE, SMALL, allow_code=True)
    embed_images(source, root / "photos.csv", root / "features", workers=1, shard_rows=7)
    return root / "features"


def embedded_run(features, out, **data):
    recipe = {
        "data": {"name": "embeddings", "root": str(features), "val_fraction": 0.2, **data},
        "model": {"name": "linear"},
        "epochs": 1,
        "predictors": {"top1": {"name": "topk", "k": 1}},
    }
    return train(make_recipe(recipe), out, progress=silent)


def color(picture):
    encoded = picture.source.partition("base64,")[2]
    return Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB").getpixel((3, 3))


def color_of(features):
    """The color that a row of features was made of, by the rule of the preprocessing."""
    return tuple(round(255 * (0.25 * value + 0.5)) for value in features[:3].tolist())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("splits", "changes"),
    [
        (("",), {}),
        (("train", "train", "val", "test"), {"label_noise": 0.2, "noise_blocks": 1, "max_per_class": 8}),
        (("train", "test"), {"long_tail": "exp", "rho": 4}),
    ],
    ids=["drawn", "changed", "tail"],
)
def test_pictures_are_of_the_images_that_the_rows_were_made_of(splits, changes, tmp_path):
    run = embedded_run(embedded(tmp_path, splits), tmp_path / "run", **changes)
    data, (_, target) = build_data(run.recipe), run.load_scores("test")
    pictures, reason = open_pictures(run, target)
    assert reason is None
    for row in range(len(target)):
        picture = pictures.test(row, alt="")
        assert color(picture) == color_of(data.test[row][0])
        number = color(picture)[0] // 3
        assert (picture.file, picture.about) == (f"{number:02d}.png", f"by Ann {number}")
    for label in (0, 1):
        first = data.train.targets.tolist().index(label)
        assert color(pictures.of_class(label, alt="")) == color_of(data.train[first][0])
    page, outcome = make_page([run.path])
    assert list(outcome.remarks) == []
    files = dict(re.findall(r"Test row (\d+), (.*?)\.(?: Set|</p>)", page))
    assert files and all(pictures.test(int(row), alt="").file == file for row, file in files.items())


@pytest.mark.filterwarnings("ignore")
def test_embeddings_that_moved_and_images_that_are_gone(tmp_path):
    (tmp_path / "photos").mkdir()
    run = embedded_run(embedded(tmp_path / "photos"), tmp_path / "run")
    moved = (tmp_path / "photos" / "features").rename(tmp_path / "moved")
    (remark,) = make_page([run.path])[1].remarks
    assert remark.startswith("without pictures: the data set of run could not be opened: ")
    page, outcome = make_page([run.path], data=moved)
    assert list(outcome.remarks) == [] and "<img" in page
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    page, outcome = make_page([run.path], data=moved)
    gone = f"the images of {moved} are no longer in {tmp_path / 'photos'}"
    assert list(outcome.remarks) == [f"without pictures: {gone}"] and "<img" not in page
    manifest = read_sealed(moved / "embeddings.json")
    write_sealed(moved / "embeddings.json", {key: manifest[key] for key in manifest if key != "images"})
    (remark,) = make_page([run.path], data=moved)[1].remarks
    assert remark == f"without pictures: {moved} does not say in which files its images are"
