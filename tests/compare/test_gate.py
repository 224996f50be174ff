"""The gate before a release: against loops over rows; the list of releases, and the way back."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from shortlist import ClassTable, Model
from shortlist._store.manifest import write_sealed
from shortlist.compare.frozen import look_at, read_frozen_images
from shortlist.compare.gate import judge_release
from shortlist.curation.build import build_benchmark
from shortlist.inputs.rows import Rows
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import TopK
from shortlist.releases import Releases, ReleasesError
from shortlist.scores import PriorRecord, ScoreMap
from tests.commands import run
from tests.compare.pixels import PREPARE, C, pixel_model


@pytest.fixture(scope="module")
def frozen(tmp_path_factory) -> Path:
    """Test images whose brightest pixel is mostly that of their class."""
    folder = tmp_path_factory.mktemp("frozen")
    generator = torch.Generator().manual_seed(1)
    for index in range(C):
        (folder / "test" / f"c{index:02d}").mkdir(parents=True)
        for number in range(12):
            pixels = torch.randint(120, (16,), generator=generator, dtype=torch.uint8)
            pixels[index] = 200
            image = Image.fromarray(pixels.view(4, 4).numpy())
            image.save(folder / "test" / f"c{index:02d}" / f"{number}.png")
    return folder


def checks(verdict) -> dict:
    return {check.name: check for check in verdict.checks}


def with_predictors(model: Model, **predictors) -> Model:
    """The same model with other predictors."""
    parts = {"preprocessing": PREPARE, "score_map": model.score_map, "spec": model.spec}
    return Model.from_parts(model.network, model.classes, predictors=predictors, **parts)


def test_a_promise_of_the_old_model_cannot_be_dropped(frozen):
    old = pixel_model()
    c90 = old.predictors["c90"]
    assert judge_release(with_predictors(old, renamed=c90), old, frozen).passed
    for fewer in (with_predictors(old, top=TopK(3)), with_predictors(old)):
        verdict = judge_release(fewer, old, frozen)
        assert [check.name for check in verdict.failed] == ["promise of c90 of the old model"]
        assert "90" in verdict.failed[0].words
    assert judge_release(old, with_predictors(old, top=TopK(3)), frozen).passed  # more may be promised


@pytest.mark.errors
@pytest.mark.parametrize("change", [{"current": 1.0}, {"current": True}, {"current": "1"}, {"current": None}])
def test_a_list_with_an_odd_number_is_refused(change, tmp_path):
    place = Releases(tmp_path / "releases")
    pixel_model().save(tmp_path / "model")
    place.add(tmp_path / "model")
    path = place.folder / "releases.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    write_sealed(path, content | change)
    with pytest.raises(ReleasesError, match=r"releases\.json"):
        place.current()


def test_the_same_model_passes_and_a_worse_one_is_named(frozen):
    good, worse = pixel_model(), pixel_model(wrong=(0, 1, 2, 3))
    assert judge_release(good, good, frozen).passed
    verdict = judge_release(worse, good, frozen)
    assert not verdict.passed and verdict.rows == 12 * C
    found = checks(verdict)
    assert not found["top1.micro"].passed and found["top5.rare"].passed
    images = read_frozen_images(frozen)
    hits = [look_at(model, images).values["top1"] for model in (worse, good)]
    assert found["top1.micro"].new == pytest.approx(hits[0].mean().item())
    assert found["top1.micro"].high < 0 and judge_release(good, worse, frozen).passed
    # allowed to be worse by as much
    lax = judge_release(worse, good, frozen, metrics=["top1.micro"], tolerance=0.5)
    assert checks(lax)["top1.micro"].passed


def test_rare_classes_have_their_own_say(frozen):
    """Two of four rare classes are lost: hardly seen in the mean over all rows, but among the rare."""
    good, worse = pixel_model(), pixel_model(wrong=(9, 10))
    found = checks(judge_release(worse, good, frozen, metrics=["top1.rare", "top1.micro"], tolerance=0.2))
    assert found["top1.micro"].passed and not found["top1.rare"].passed
    expected = []
    images = read_frozen_images(frozen)
    for model in (worse, good):
        hits = look_at(model, images).values["top1"]
        own = [
            [bool(h) for h, c in zip(hits, images.labels, strict=True) if c == f"c{i:02d}"]
            for i in range(8, 12)
        ]
        expected.append(sum(sum(one) / len(one) for one in own) / 4)
    assert [found["top1.rare"].new, found["top1.rare"].old] == pytest.approx(expected)


def test_a_broken_promise_stops_a_release(frozen):
    broken = pixel_model(shift=8.0)  # calibrated on rows that are far easier than the test images
    verdict = judge_release(broken, None, frozen)
    assert [check.name for check in verdict.failed] == ["promise of c90"] and len(verdict.checks) == 2
    assert judge_release(pixel_model(), None, frozen).passed


def sizes_of(model: Model, images: Rows) -> list[int]:
    """The sizes of the sets, image by image."""
    return [int(model.sets(model.scores(model.prepare([path])), "c90").sum()) for path in images.addresses()]


def test_sets_that_grew_stop_a_release(frozen):
    """Their promise holds all the more; by default they may be larger by a quarter."""
    old, larger, little = (pixel_model(shift=shift) for shift in (-0.8, -1.5, -0.85))
    images = read_frozen_images(frozen)
    before, after = sizes_of(old, images), sizes_of(larger, images)
    assert sum(after) > 1.6 * sum(before) and 1 < sum(sizes_of(little, images)) / sum(before) < 1.2
    found = checks(judge_release(larger, old, images))
    check = found["sets.c90.size.micro"]
    assert not check.passed and found["promise of c90"].passed and found["size of c90"].passed
    assert [check.new, check.old] == pytest.approx([sum(after) / len(after), sum(before) / len(before)])
    differences = torch.tensor([a - b for a, b in zip(after, before, strict=True)]).double()
    spread = 1.96 * differences.std() / len(differences) ** 0.5
    assert check.low == pytest.approx(float(differences.mean() - spread), abs=0.05)
    assert check.high == pytest.approx(float(differences.mean() + spread), abs=0.05)
    for new, ratio in ((old, 0.0), (little, 0.25), (larger, 3.0)):
        assert checks(judge_release(new, old, images, size_tolerance=ratio))["sets.c90.size.micro"].passed
    assert checks(judge_release(old, larger, images))["sets.c90.size.micro"].passed
    assert not checks(judge_release(larger, old, images, metrics=["sets.c90.size.rare"]))[
        "sets.c90.size.rare"
    ].passed


@pytest.mark.filterwarnings("ignore:coverage=0.9 needs at least 9")
def test_sets_of_all_classes_keep_every_promise_and_are_not_released(frozen):
    """Calibrated on five rows, sets that hold the class 90 times in 100 must hold everything."""
    full = pixel_model(rows=5)
    assert set(sizes_of(full, read_frozen_images(frozen))) == {C}
    for old in (None, full):
        verdict = judge_release(full, old, frozen)
        assert [check.name for check in verdict.failed] == ["size of c90"]
        assert "12.00 of 12 classes on average" in verdict.failed[0].words
    assert not checks(judge_release(full, pixel_model(), frozen))["sets.c90.size.micro"].passed


def test_release_list_and_roll_back_by_command(frozen, tmp_path):
    pixel_model().save(tmp_path / "first")
    pixel_model(wrong=(0,)).save(tmp_path / "worse")
    place = tmp_path / "releases"
    words = ("--data", frozen, "--to", place, "--who", "ann")
    code, out, err = run("release", tmp_path / "first", *words, "--trained-on", "round 1", "--json")
    assert code in (0, 1), err
    assert json.loads(out)["released"] == 1, out
    code, out, _ = run("release", tmp_path / "worse", *words)
    assert code == 1 and "FAILED  top1.micro" in out and "Not released" in out
    assert [one.number for one in Releases(place).all()] == [1]
    code, out, _ = run("release", tmp_path / "worse", *words, "--tolerance", "0.5")
    assert code == 0 and "Released as number 2" in out and f"shortlist index {tmp_path / 'worse'}" in out
    first, second = Releases(place).all()
    assert second.against == first.version and (first.who, first.data) == ("ann", "round 1")
    assert Releases(place).current() == second
    code, out, _ = run("releases", place, "--back", "--json")
    assert code == 0 and json.loads(out)["current"] == 1
    history = Releases(place).history()
    assert [(one["number"], one["what"]) for one in history] == [
        (1, "released"),
        (2, "released"),
        (1, "rolled back"),
    ]
    assert len(Model.load(Releases(place).model_path(first)).classes) == C
    code, _, err = run("releases", place, "--back")
    assert code == 2 and "no release before" in err
    assert run("doctor", place)[0] == 0
    damaged = place / "models" / second.version / "class_table.json"
    damaged.write_text("[]")
    code, out, _ = run("doctor", place)
    assert code == 1 and f"models/{second.version}/class_table.json" in out
    (place / "releases.json").write_text("{}")
    assert run("doctor", place)[0] == 1
    with pytest.raises(ReleasesError, match=r"releases.json"):
        Releases(place).current()


def test_a_class_that_the_new_model_lost_is_named_though_no_image_shows_it(frozen, tmp_path):
    images = read_frozen_images(frozen)
    some = [row for row, name in enumerate(images.labels) if int(name[1:]) % 2 == 0]
    seen = images.take(some)
    found = checks(judge_release(pixel_model(names="cd"), pixel_model(), seen))
    assert (
        not found["classes"].passed and "6 of the old model are missing: c01, c03" in found["classes"].words
    )
    assert checks(judge_release(pixel_model(), pixel_model(), seen))["classes"].passed


def test_models_of_three_classes_are_compared_by_what_they_have(tmp_path):
    """Five classes are more than there are: by default what there is counts."""
    table = ClassTable(("c00", "c01", "c02"), counts=(9, 9, 9))
    spec = NetworkSpec(name="linear", num_classes=3, input_shape=(1, 4, 4))
    score_map = ScoreMap(3, contains=PriorRecord.training(table.class_counts))
    model = Model.from_parts(
        build_network(spec), table, preprocessing=PREPARE, score_map=score_map, spec=spec
    )
    for name in table.names:
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4), 9).save(tmp_path / name / "1.png")
    verdict = judge_release(model, model, tmp_path)
    assert [check.name for check in verdict.checks] == ["classes", "top1.micro"] and verdict.passed


@pytest.mark.errors
def test_frozen_test_images_of_a_benchmark_are_as_they_were(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for number in range(9):
            Image.new("L", (4, 4), 9 * number).save(tmp_path / "all" / name / f"{number}.png")
    data = tmp_path / "data"
    build_benchmark(tmp_path / "all", data, genus_fraction=1.0, min_images=3, held_out=0.3)
    images = read_frozen_images(data)
    assert len(images) == 6
    Image.new("L", (4, 4), 250).save(data / "test" / "a" / "more.png")
    with pytest.raises(ValueError, match=r"more.png is no frozen test image"):
        read_frozen_images(data)
    (data / "test" / "a" / "more.png").unlink()
    content = Path(images.address(0)).read_bytes()
    Path(images.address(0)).unlink()
    with pytest.raises(ValueError, match="it is missing or changed"):
        read_frozen_images(data)
    Path(images.address(0)).write_bytes(content + b"0")
    with pytest.raises(ValueError, match="it is missing or changed"):
        read_frozen_images(data)
    (data / "metadata.json").write_text("{")
    with pytest.raises(ValueError, match=r"metadata.json is not JSON"):
        read_frozen_images(data)


@pytest.mark.errors
def test_bad_metrics_and_data_are_refused(frozen, tmp_path):
    model = pixel_model()
    with pytest.raises(ValueError, match="metrics must be of what both models have"):
        judge_release(model, model, frozen, metrics=["top3.micro"])
    with pytest.raises(ValueError, match=r"must end in .micro"):
        judge_release(model, model, frozen, metrics=["top5.all"])
    (tmp_path / "c00").mkdir()
    with pytest.raises(ValueError, match="has no test images"):
        judge_release(model, model, tmp_path)
