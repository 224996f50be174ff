"""Photos that are kept on the disk at the size that a training needs."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from shortlist.datasets import EvalTransform, ImageFiles, TrainTransform
from shortlist.preprocessing import read_image
from shortlist.recipes.build import build_data
from shortlist.recipes.content import recipe_content, recipe_hash
from shortlist.recipes.recipe import Recipe
from shortlist.recipes.transforms import RandomCrop

SIZES = [(300, 200), (200, 420), (90, 70), (40, 30), (500, 400)]


@pytest.fixture
def photos(tmp_path):
    generator, paths = np.random.default_rng(0), []
    for i, (width, height) in enumerate(SIZES):
        coarse = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        exif = Image.Exif()
        exif[0x0112] = 6 if i % 2 else 1
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        paths.append(tmp_path / f"{i}.jpg")
        image.save(paths[-1], exif=exif)
    return paths


@pytest.fixture
def decoded(monkeypatch):
    """Count the photos that are decoded."""
    opened, really = [], Image.open
    monkeypatch.setattr(Image, "open", lambda *args, **more: opened.append(args) or really(*args, **more))
    return opened


def files_of(paths, transform, cache=None):
    files = ImageFiles(paths, torch.arange(len(paths)), transform=transform)
    if cache is not None:
        files.keep_prepared(cache)
    return files


def epoch(files):
    torch.manual_seed(0)
    return files.batch(torch.arange(len(files)))[0]


def kept(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


@pytest.mark.parametrize("transform", [TrainTransform(32), RandomCrop(32), EvalTransform(32)])
def test_the_second_epoch_never_decodes(transform, photos, decoded, tmp_path):
    files = files_of(photos, transform, tmp_path / "cache")
    first = epoch(files)
    assert len(decoded) == len(photos)
    assert torch.equal(epoch(files), first)
    assert torch.equal(epoch(files_of(photos, transform, tmp_path / "cache")), first)  # another run
    assert len(decoded) == len(photos)
    assert len(kept(tmp_path / "cache")) == len(photos)


def test_what_is_evaluated_has_the_same_bits(photos, tmp_path):
    plain = epoch(files_of(photos, EvalTransform(32)))
    for _ in range(2):
        assert torch.equal(epoch(files_of(photos, EvalTransform(32), tmp_path / "cache")), plain)


@pytest.mark.parametrize("transform", [TrainTransform(32, area=(0.5, 1.0)), RandomCrop(32)])
def test_random_parts_are_those_of_the_photos(transform, photos, tmp_path):
    """With pixels as they are: the photos that are small have the same bits, the others nearly."""
    plain = epoch(files_of(photos, transform))
    made = epoch(files_of(photos, transform, tmp_path / "cache"))
    assert torch.equal(made[3], plain[3])  # 40 x 30
    gray_level = 1 / 255 / 0.225
    assert (made - plain).abs().mean() < gray_level
    assert (made - plain).abs().max() < 8 * gray_level


def test_at_most_twice_the_needed_side_is_kept(photos, tmp_path):
    epoch(files_of(photos, TrainTransform(32), tmp_path / "cache"))
    numbers = [(path.stat().st_size - 12) // 3 for path in kept(tmp_path / "cache")]
    assert sorted(numbers) == sorted([96 * 64, 64 * 134, 64 * 82, 40 * 30, 80 * 64])


def test_a_changed_photo_is_decoded_anew(photos, decoded, tmp_path):
    files = files_of(photos, EvalTransform(32), tmp_path / "cache")
    before = epoch(files)
    Image.new("RGB", (64, 64), "red").save(photos[1])
    decoded.clear()
    after = epoch(files)
    assert len(decoded) == 1
    assert [i for i in range(len(photos)) if not torch.equal(before[i], after[i])] == [1]


def test_damage_is_made_good(photos, decoded, tmp_path):
    cache = tmp_path / "cache"
    files = files_of(photos, TrainTransform(32), cache)
    right = epoch(files)
    empty, cut, changed, short, *_ = kept(cache)
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:-100])
    content = bytearray(changed.read_bytes())
    content[500] ^= 1
    changed.write_bytes(content)
    short.write_bytes(b"abc")
    decoded.clear()
    assert torch.equal(epoch(files), right) and len(decoded) == 4
    assert torch.equal(epoch(files), right) and len(decoded) == 4


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_killed_process_leaves_what_is_right(photos, decoded, tmp_path):
    paths = [tmp_path / f"more{i}.jpg" for i in range(100)]
    for path in paths:
        path.write_bytes(photos[3].read_bytes())
    cache = tmp_path / "cache"
    child = os.fork()
    if not child:
        files = files_of(paths, TrainTransform(32), cache)
        for row in range(len(paths)):
            files[row]
        os._exit(0)
    while len(kept(cache)) < 5:
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    there = len(kept(cache))
    resumed = epoch(files_of(paths, TrainTransform(32), cache))
    assert len(paths) - there <= len(decoded) <= len(paths) - there + 1  # one file may be half written
    assert torch.equal(resumed, epoch(files_of(paths, TrainTransform(32))))


def test_a_cache_that_cannot_be_written_is_none(photos, decoded, tmp_path):
    (tmp_path / "cache").write_text("a file")
    files = files_of(photos, EvalTransform(32), tmp_path / "cache")
    assert torch.equal(epoch(files), epoch(files_of(photos, EvalTransform(32))))
    assert len(decoded) == 2 * len(photos)


def test_unreadable_photos_are_left_out(photos, tmp_path):
    photos[2].write_bytes(photos[2].read_bytes()[:200])
    files = files_of([*photos, tmp_path / "none.jpg"], TrainTransform(32), tmp_path / "cache")
    with pytest.warns(UserWarning, match=r"2\.jpg cannot be read as an image"):
        inputs, targets = files.batch(torch.arange(6))
    assert targets.tolist() == [0, 1, -100, 3, 4, -100]
    assert not inputs[2].any() and not inputs[5].any() and inputs[4].any()
    assert len(kept(tmp_path / "cache")) == 4


class Darker(EvalTransform):
    def __call__(self, image):
        return super().__call__(image.point(lambda value: value // 2))


class DarkerPart(TrainTransform):
    def __call__(self, image):
        return super().__call__(image.point(lambda value: value // 2))


@pytest.mark.parametrize("kind", [Darker, DarkerPart])
def test_a_transform_that_extends_ours_is_called(kind, photos):
    files = files_of(photos, kind(32))
    torch.manual_seed(0)
    right = kind(32)(read_image(photos[4]))
    torch.manual_seed(0)
    assert torch.equal(files[4][0], right)
    with pytest.raises(ValueError, match="must have a needed_side"):
        files.keep_prepared()


def test_transforms_of_others_are_refused(photos):
    with pytest.raises(ValueError, match="must have a needed_side"):
        files_of(photos, lambda image: torch.zeros(3)).keep_prepared()


def test_recipes_without_it_have_the_hash_of_before():
    data = {"name": "image_folder", "root": "photos"}
    plain, prepared = (Recipe.model_validate({"data": data | more}) for more in ({}, {"prepared": True}))
    assert "prepared" not in recipe_content(plain)["data"] and recipe_hash(plain) != recipe_hash(prepared)


def test_only_photos_are_prepared():
    recipe = Recipe.model_validate({"data": {"name": "glyphs", "max_classes": 3, "prepared": True}})
    with pytest.raises(ValueError, match="prepared must be no for glyphs"):
        build_data(recipe)
