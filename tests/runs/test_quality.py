"""A model says below which sharpness and size a photo is worse than nearly all that were held out."""

import pytest

from shortlist.curation import quality_bounds
from shortlist.curation.quality import quality_of
from shortlist.datasets import Splits
from shortlist.datasets.folders import image_folder
from shortlist.runs.network import quality_facts
from tests.serve.parts import png


def made(folder, held_out: int) -> Splits:
    for part, number in (("train", 2), ("val", held_out), ("test", 2)):
        for seed in range(number):
            file = folder / part / f"class{seed % 2}" / f"{seed}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(png(seed, (20 + seed % 7, 30)))
    return image_folder(folder, image_size=8)


def test_the_bounds_are_those_of_the_held_out_photos(tmp_path):
    """Of 250 photos the least sharp one: its rank is the floor of 251 times half of one in a hundred."""
    facts = quality_facts(made(tmp_path / "many", 250))
    measured = [quality_of(path) for path in (tmp_path / "many" / "val").rglob("*.png")]
    assert facts["quality"]["keep_good"] == 0.99
    assert facts["quality"]["sharpness"] == pytest.approx(min(one.sharpness for one in measured))
    assert facts["quality"]["side"] == min(one.side for one in measured) == 20
    bounds = quality_bounds(facts)
    assert bounds is not None and bounds.flags(quality_of("/no/such/photo")) == ["blurred", "small"]


def test_too_few_photos_promise_nothing_and_what_is_no_file_has_no_bounds(tmp_path):
    bounds = quality_bounds(quality_facts(made(tmp_path / "few", 20)))
    assert bounds is not None and bounds.flags(quality_of("/no/such/photo")) == []
    for about in ({}, {"quality": None}, {"quality": {"sharpness": "x", "side": 1}}, {"quality": 3}):
        assert quality_bounds(about) is None
