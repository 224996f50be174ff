"""Blurred and small photos are flagged, and the promised share of good ones is kept."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from shortlist import Model
from shortlist.curation import plan_benchmark
from shortlist.curation.quality import Quality, QualityBounds, quality_of
from shortlist.predictors import NoveltyDetector
from tests.commands import invoke, output_of
from tests.serve.parts import picture, png, tree_model


def photo(path, seed: int, *, side: int = 300, blur: float = 0.0):
    levels = np.random.default_rng(seed).integers(0, 256, (side // 10, side // 8, 3), dtype=np.uint8)
    picture = Image.fromarray(levels).resize((side + 50, side))
    picture.filter(ImageFilter.GaussianBlur(blur)).save(path)
    return path


def test_sharpness_is_the_variance_of_the_laplacian(tmp_path):
    gray = np.random.default_rng(0).integers(0, 256, (256, 200), dtype=np.uint8)
    Image.fromarray(gray).save(tmp_path / "a.png")  # of the size at which it is measured
    g = gray.astype(float)
    values = [
        g[i - 1, j] + g[i + 1, j] + g[i, j - 1] + g[i, j + 1] - 4 * g[i, j]
        for i in range(1, 255)
        for j in range(1, 199)
    ]
    assert quality_of(tmp_path / "a.png") == pytest.approx((np.var(values), 200))
    (tmp_path / "no.png").write_bytes(b"no image")
    assert quality_of(tmp_path / "no.png") == (0, 0)


def test_blurred_and_small_photos_are_flagged(tmp_path):
    good = [quality_of(photo(tmp_path / f"{seed}.png", seed)) for seed in range(99)]
    bounds = QualityBounds.calibrate(good, keep=0.9)
    assert bounds.flags(quality_of(photo(tmp_path / "blurred.png", 100, blur=6))) == ["blurred"]
    assert "small" in bounds.flags(quality_of(photo(tmp_path / "small.png", 100, side=60)))
    assert bounds.flags(Quality(0, 0)) == ["blurred", "small"]
    # too few good photos to promise anything: nothing is flagged
    assert QualityBounds.calibrate(good[:18], keep=0.9).flags(Quality(0, 0)) == []
    with pytest.raises(ValueError, match="keep must be"):
        QualityBounds.calibrate(good, keep=1.0)


@pytest.mark.parametrize("number", [19, 150])
def test_the_promised_share_of_good_photos_is_kept(number):
    """Over draws of calibration and new photos, with values of any law: here skewed, and tied sides."""
    chance, keep, flagged = np.random.default_rng(number), 0.9, []
    for _ in range(2000):
        values = np.stack([chance.lognormal(size=number + 20), chance.integers(1, 40, number + 20)], axis=1)
        qualities = [Quality(*row) for row in values.tolist()]
        bounds = QualityBounds.calibrate(qualities[:number], keep=keep)
        flagged.append(np.mean([bool(bounds.flags(one)) for one in qualities[number:]]))
    error = np.std(flagged) / np.sqrt(len(flagged))
    assert np.mean(flagged) <= 1 - keep + 3 * error
    assert np.mean(flagged) > 0.5 * (1 - keep)  # and the bounds are no empty ones


def test_an_observation_with_a_photo_of_another_one_waits(tmp_path):
    """The first one stays, unless they say different things of it."""
    names = {"oak/a": 1, "oak/b": 2, "oak/c": 1, "oak/d": 3, "ash/e": 3, "ash/f": 4, "ash/g": 5, "oak/h": 6}
    for name, seed in names.items():
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        photo(tmp_path / "photos" / f"{name}.png", seed, side=40)
    options = {"split": "hash", "min_images": 3, "held_out": 0.01}
    plan = plan_benchmark(tmp_path / "photos", keep_good=0.99, **options)
    kept = {"/".join(Path(path).with_suffix("").parts[-2:]) for path, *_ in plan.rows}
    assert kept == {"oak/a", "oak/b", "oak/h"}  # two photos of an ash are too few
    assert plan.left_out["observations with a photo of another one, which wait"] == 3
    assert len(plan_benchmark(tmp_path / "photos", **options).rows) == 8


def test_photos_like_nothing_known_are_named_and_wait(tmp_path, monkeypatch):
    """By the detector of a model, as it flags them by itself; without one the command says so."""
    plain = tree_model()
    known = plain.prepare([picture(seed) for seed in range(200)])
    detector = NoveltyDetector(strangeness="probability", level=0.4, num_classes=6)
    detector.calibrate(torch.zeros(200, dtype=torch.int64), scores=plain.scores(known))
    model = tree_model(novelty=detector)
    files = [tmp_path / "photos" / label / f"{seed}.png" for seed in range(12) for label in ("ash", "oak")]
    for seed, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(500 + seed))
    strange = detector.flag(scores=model.scores(model.prepare(list(map(str, files))))).tolist()
    expected = {str(file) for file, is_flagged in zip(files, strange, strict=True) if is_flagged}
    assert 2 < len(expected) < 16
    monkeypatch.setattr(Model, "load", lambda path: {"strict": model, "plain": plain}[path.name])
    words = ("data", "check", tmp_path / "photos", "--no-near", "--workers", 0, "--json", "--model")
    assert set(json.loads(output_of(*words, "strict", code=1))["strange"]) == expected
    build = ("data", "build", tmp_path / "photos", tmp_path / "d", "--split", "hash", "--min-images", "3")
    content = json.loads(output_of(*build, "--json", "--model", "strict"))
    assert content["left_out"]["observations with a photo like nothing known, which wait"] == len(expected)
    assert sum(content["images"].values()) == len(files) - len(expected)
    for verb in (words[:-1], (*build, "--json")):
        refused = invoke(*verb, "--model", "plain")
        assert "must have a detector of strangers" in str(refused.exception)
