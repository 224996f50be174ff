"""Every file of a run, a model, an index and a store of feedback, damaged in every way, before every verb.

A verb ends with the numbers of the undamaged files, or in one line that names what is wrong: never in a
traceback, and never with other numbers.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from shortlist import Model
from shortlist.feedback import Event, FeedbackStore
from shortlist.index import ImageIndex, IndexWriter, add_images
from shortlist.recipes.recipe import make_recipe
from shortlist.training.fit import train
from tests.commands import run
from tests.index.small import CLASSES, jpeg, make_rows, name_of, projection_model, start
from tests.serve.parts import png
from tests.training.small import RECIPE, silent

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROWS = {"num_rows": 128, "num_val_rows": 100, "num_test_rows": 120}
TINY = RECIPE | {
    "data": RECIPE["data"] | ROWS,
    "epochs": 1,
    "novelty": {"strangeness": "distance", "level": 0.2},
}
BATCH = torch.randn(6, 5, generator=torch.Generator().manual_seed(3))


def flip(content: bytes, place: float) -> bytes:
    changed = bytearray(content)
    changed[min(int(place * len(changed)), len(changed) - 1)] ^= 1
    return bytes(changed)


def in_words(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    """Change what a text file says; other files get the text behind their bytes."""

    def changed(content: bytes) -> bytes:
        try:
            return change(content.decode()).encode()
        except UnicodeDecodeError:
            return content + change(" ").encode()

    return changed


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "cut by one": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "first bit": lambda content: flip(content, 0),
    "middle bit": lambda content: flip(content, 0.5),
    "late bit": lambda content: flip(content, 0.9),
    "zeros": lambda content: bytes(len(content)),
    "noise": lambda content: bytes((37 * i + 11) % 256 for i in range(len(content))),
    "a list": lambda content: b"[]",
    "a number": lambda content: b"3",
    "deep": lambda content: b"[" * 5000 + b"]" * 5000,
    "older": in_words(lambda text: text.replace("shortlist ", "shortlist old ") + "\n"),
    "other numbers": in_words(lambda text: text.replace("1", "2").replace("0.", "7.") + "\n"),
    "hostile names": in_words(lambda text: text.replace('": "', '": "../../../etc/=cmd|') + "\n"),
}
IN_PLACE = ("gone", "a folder", "a pipe", "of another run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Iterator[Path]:
    """A run, another of the same recipe with another seed, and the model of the first; all small."""
    folder = tmp_path_factory.mktemp("whole")
    train(make_recipe(TINY), folder / "run", progress=silent)
    train(make_recipe(TINY, ["seed=1"]), folder / "other", progress=silent)
    run("evaluate", folder / "run", "--split", "val")
    run("evaluate", folder / "other", "--split", "val")
    for name in ("run", "other"):
        Model.load(folder / name).save(folder / f"{name} model")
    make_index(folder / "index", seed=0)
    make_index(folder / "other index", seed=10)
    make_store(folder / "store", person="p")
    make_store(folder / "other store", person="q")
    yield folder


def make_index(folder: Path, *, seed: int) -> None:
    """Two segments of the same sizes for any seed, and a deleted image."""
    rows = [make_rows(30, seed), make_rows(30, seed + 1)]
    start(folder, *rows)
    with IndexWriter.open(folder) as writer:
        writer.delete([name_of(int(rows[0].classes[0]), bytes(rows[0].digests[0]))])


PHOTO = png(1)
PHOTO_FILE = f"images/{hashlib.sha256(PHOTO).hexdigest()[:2]}/{hashlib.sha256(PHOTO).hexdigest()}"


def make_store(folder: Path, *, person: str) -> None:
    """Answers of some people, one of them with a photo, one of them deleted."""
    with FeedbackStore(folder) as store:
        for number in range(40):
            store.add(answer_of(f"{person}{number % 4}", number), [] if number else [PHOTO])
        store.erase_person(f"{person}2")


def answer_of(person: str, number: int) -> Event:
    photo = PHOTO if number == 0 else f"photo {number // 4}".encode()
    images = (hashlib.sha256(photo).hexdigest(),)
    label = f"class {number % 3}"
    return Event("confirm", f"r{number}", person=person, label=label, images=images, consent=number == 0)


def results_in(folder: Path, name: str = "results.json") -> object:
    return json.loads((folder / name).read_text())


def evaluate(folder: Path) -> tuple[str, object]:
    code, out, err = run("evaluate", folder, "--json")
    return err, (json.loads(out), results_in(folder)) if code == 0 else None


def evaluate_val(folder: Path) -> tuple[str, object]:
    code, out, err = run("evaluate", folder, "--split", "val", "--json")
    return err, json.loads(out) if code == 0 else None


def calibrate(folder: Path) -> tuple[str, object]:
    code, out, err = run("calibrate", folder, "--json")
    return err, (json.loads(out)["predictors"], results_in(folder)) if code == 0 else None


def resume(folder: Path) -> tuple[str, object]:
    code, out, err = run("train", "--resume", folder, "--json")
    return err, json.loads(out)["results"] if code == 0 else None


def compare(folder: Path) -> tuple[str, object]:
    code, out, err = run("compare", folder, "--json")
    return err, json.loads(out)["rows"][0]["metrics"] if code == 0 else None


def report(folder: Path) -> tuple[str, object]:
    page = folder.parent / "page.html"
    code, _, err = run("report", folder, "--no-pictures", "--out", page)
    return err, re.sub(r"\d\d:\d\d(:\d\d)?", "", page.read_text()) if code == 0 else None  # without times


def open_model(folder: Path) -> tuple[str, object]:
    try:
        model = Model.load(folder)
        scores = model.scores(BATCH)
        sets = {name: model.sets(scores, name).tolist() for name in model.predictors}  # reads the rows
    except ValueError as error:
        return str(error), None
    assert model.novelty is not None
    strange = model.novelty.p_values(features=model.features(BATCH)).tolist()
    promises = {name: promise.to_dict() for name, promise in model.promises.items()}
    return "", (scores.tolist(), sets, strange, promises)


def examine(folder: Path) -> tuple[str, object]:
    code, out, err = run("doctor", folder)
    return out + err, None if code else "well"


def search(folder: Path) -> tuple[str, object]:
    """All that an index holds, with the thumbnails."""
    try:
        index = ImageIndex.open(folder)
        found = index.similar(torch.linspace(-1, 1, index.dimension), range(CLASSES), 100)
        shown = [(one, index.thumbnail(one.id)) for images in found for one in images]
        return "", (shown, index.class_means().nan_to_num().tolist())
    except ValueError as error:
        return str(error), None


def append(folder: Path) -> tuple[str, object]:
    try:
        add_images(projection_model(), folder, [jpeg(1)], [2])
    except ValueError as error:
        return str(error), None
    return search(folder)


def compact(folder: Path) -> tuple[str, object]:
    code, _, err = run("index", folder.parent, "--out", folder, "--compact")
    return (err, None) if code else search(folder)


def export(folder: Path) -> tuple[str, object]:
    out = folder.parent / "votes.csv"
    code, _, err = run("feedback", "export", folder, "--out", out)
    return err, out.read_text() if code == 0 else None


def answer(folder: Path) -> tuple[str, object]:
    """Record an answer; then all that is there, without the time."""
    try:
        with FeedbackStore(folder) as store:
            store.add(answer_of("p7", 70))
            return "", [one.content() for one in store.events()]
    except (ValueError, OSError) as error:
        return str(error), None


RUN_VERBS = (evaluate, evaluate_val, calibrate, resume, compare, report, open_model, examine)
MODEL_VERBS = (open_model, examine)
STORE_VERBS = (export, answer, examine)
INDEX_VERBS = (search, append, compact, examine)
# what a verb does not look at, or makes again from the rest, may be damaged: its numbers are the same then
MODEL_FILES = (
    "model.json",
    "README.md",
    "coverage.svg",
    "network.safetensors",
    "calibration_rows.safetensors",
    "class_table.json",
    "score_map.json",
    "novelty",
    *(f"predictors/{name}" for name in ("top2", "average2", "average2_macro", "conformal")),
)
RUN_FILES = (
    "run.json",
    "recipe.yaml",
    "epochs.csv",
    "results.json",
    "results_val.json",
    "checkpoints/best.ckpt",
    "checkpoints/last.ckpt",
    "scores/val.safetensors",
    "scores/test.safetensors",
    "scores/declared.json",
    "scores/features_val.safetensors",
    *(f"model/{name}" for name in MODEL_FILES),
)

INDEX_FILES = ("index.json", "segment-000001", "segment-000003", "deleted-000005")
STORE_FILES = ("feedback.json", "events.sqlite", PHOTO_FILE)
OTHERS = {"store": "other store", "run": "other", "run model": "other model", "index": "other index"}


def files_of(folder: Path, name: str) -> list[Path]:
    """Return a file, or the description and the state of a predictor or a detector."""
    if "." in Path(name).name or name in (*INDEX_FILES, *STORE_FILES):
        return [folder / name]
    return sorted((folder / name).parent.glob(f"{Path(name).name}.*"))


def spoil(folder: Path, name: str, damage: str, other: Path) -> None:
    """Damage a file, or of a predictor or a detector its description and its state."""
    for path in files_of(folder, name):
        if damage in DAMAGES:
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
            continue
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        elif damage == "a pipe":
            os.mkfifo(path)
        elif damage == "of another run":
            found = sorted((other / name).parent.glob(f"{path.name.split('.')[0]}*{path.suffix}"))
            shutil.copy(found[0], path)


def check(verbs: tuple, whole: Path, kind: str, name: str, tmp_path: Path) -> int:
    cases = 0
    for verb in verbs:
        expected = verb(Path(shutil.copytree(whole / kind, tmp_path / verb.__name__ / "copy")))[1]
        assert expected is not None
        for damage in (*DAMAGES, *IN_PLACE):
            folder = tmp_path / f"{verb.__name__} {damage}" / "copy"
            shutil.copytree(whole / kind, folder)
            before = results_in(folder) if kind == "run" else None
            spoil(folder, name, damage, whole / OTHERS[kind])
            said, found = verb(folder)
            case = f"{verb.__name__} of {name}, {damage}: {said[-600:]}"
            assert "Traceback" not in said, case
            if found is None:
                lines = [line for line in said.splitlines() if not line.startswith("left out")]
                assert lines and str(folder) in said and len(said) < 6000, case
                named = Path(name).name in said or (name.startswith("model/") and "model" in said)
                # of a manifest that belongs to other files, these are named
                others = ("is damaged or was changed", "is not a run folder", "another version", "is missing")
                assert named or any(words in said for words in others), case
                if kind == "run" and not name.startswith("results.json"):
                    assert results_in(folder) == before, case
            else:
                assert found == expected, case
            shutil.rmtree(folder.parent)
            cases += 1
    return cases


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_run(name, whole, tmp_path):
    assert check(RUN_VERBS, whole, "run", name, tmp_path) == len(RUN_VERBS) * (len(DAMAGES) + len(IN_PLACE))


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_saved_model(name, whole, tmp_path):
    assert check(MODEL_VERBS, whole, "run model", name, tmp_path) == 2 * (len(DAMAGES) + len(IN_PLACE))


@pytest.mark.parametrize("name", INDEX_FILES)
def test_an_index(name, whole, tmp_path):
    cases = len(INDEX_VERBS) * (len(DAMAGES) + len(IN_PLACE))
    assert check(INDEX_VERBS, whole, "index", name, tmp_path) == cases


@pytest.mark.parametrize("name", STORE_FILES)
def test_a_store_of_feedback(name, whole, tmp_path):
    cases = len(STORE_VERBS) * (len(DAMAGES) + len(IN_PLACE))
    assert check(STORE_VERBS, whole, "store", name, tmp_path) == cases


@pytest.mark.parametrize(
    ("kind", "names"),
    [("run", RUN_FILES), ("run model", MODEL_FILES), ("index", INDEX_FILES), ("store", STORE_FILES)],
)
def test_every_file_is_damaged(kind, names, whole):
    """A file that is new in a run, a model, an index or a store belongs into the lists above."""
    nothing = (".lock", "reserve")  # which nobody reads
    there = {path for path in (whole / kind).rglob("*") if path.is_file() and path.name not in nothing}
    assert there == {path for name in names for path in files_of(whole / kind, name)}


def test_there_are_enough_cases():
    ways = len(DAMAGES) + len(IN_PLACE)
    assert ways >= 12
    assert ways * (len(RUN_VERBS) * len(RUN_FILES) + len(MODEL_VERBS) * len(MODEL_FILES)) >= 3000
    assert ways * len(INDEX_VERBS) * len(INDEX_FILES) >= 300
