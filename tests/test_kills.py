"""A process is killed before each of its steps in the file system: what follows gives the same numbers.

The kill is injected: an audit hook counts every file that is opened for writing, renamed, linked or removed
below a folder, and every folder that is made or removed, and ends the process before a chosen one.
"""

import errno
import hashlib
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from shortlist import Model
from shortlist.cli.predict import predict_files
from shortlist.feedback import Event, FeedbackStore
from shortlist.feedback.doctor import examine_store
from shortlist.index import ImageIndex, IndexWriter, add_images, build_index, source_of_images
from shortlist.index.doctor import examine_index
from shortlist.model.doctor import examine_model
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.passes.planning import find_shards
from shortlist.passes.score import ModelSource, score_shards
from shortlist.recipes.recipe import make_recipe
from shortlist.releases import Releases
from shortlist.releases.doctor import examine_releases
from shortlist.runs.doctor import examine_run
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_again
from shortlist.suites.run import run_suite
from shortlist.suites.suite import load_suite
from shortlist.suites.worker import final_results
from shortlist.training.fit import resume, train
from tests.datasets.trees import class_folders
from tests.index.small import CLASSES, SMALL, jpeg, make_rows, name_of, projection_model, start
from tests.passes.scoring import density_model, make_embeddings
from tests.serve.parts import png
from tests.training.small import RECIPE, silent

pytestmark = pytest.mark.slow

LEFT = "is being written, or a killed process left it"
STEPS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
RETRAINED = ["second_stage.name=retrain_classifier", "second_stage.epochs=1"]
TINY = RECIPE | {
    "data": RECIPE["data"] | {"num_rows": 128, "num_val_rows": 100, "num_test_rows": 120},
    "epochs": 2,
    "novelty": {"strangeness": "distance", "level": 0.2},
}


def in_a_child(
    action: Callable[[], object], folder: Path, stop_at: int | None = None, full_at: int | None = None
) -> int:
    """Do something in a process of its own, which may be ended before a step of it below the folder.

    From the step ``full_at`` on, the disk has no space for another file.

    Returns:
        The number of steps if it came to its end, -1 if it was ended.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        count = 0

        def hook(event: str, values: tuple) -> None:
            nonlocal count
            writes = event == "open" and isinstance(values[2], int) and bool(values[2] & WRITING)
            if not (writes or event in STEPS) or not str(values[0]).startswith(str(folder)):
                return
            if count == stop_at:
                os._exit(9)
            if full_at is not None and count >= full_at and writes:
                raise OSError(errno.ENOSPC, "No space left on device", str(values[0]))
            count += 1

        status = 1
        try:
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 2)
                os.dup2(nothing.fileno(), 1)
            sys.addaudithook(hook)
            action()
            os.write(send, str(count).encode())
            status = 0
        except BaseException:
            os.write(send, traceback.format_exc().encode()[-3000:])
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive) as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in ((0,) if stop_at is None else (0, 9)), f"exit code {code}: {said}"
    return int(said) if code == 0 else -1


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock"}


def numbers_of(run: Path) -> dict[str, bytes]:
    names = ("results.json", "epochs.csv", "scores/val.safetensors", "scores/test.safetensors")
    return {name: (run / name).read_bytes() for name in names}


def test_train(tmp_path):
    recipe = make_recipe(TINY)
    whole = tmp_path / "whole" / "run"
    steps = in_a_child(lambda: train(recipe, whole, progress=silent), whole.parent)
    assert steps > 50
    for step in range(steps):
        folder = tmp_path / f"killed-{step}"
        folder.mkdir()
        run = folder / "run"
        assert in_a_child(lambda run=run: train(recipe, run, progress=silent), folder, step) == -1

        def go_on(run: Path = run) -> None:
            if run.exists():
                resume(run, progress=silent)
            else:  # it had not even begun
                train(recipe, run, progress=silent)

        in_a_child(go_on, folder)
        assert numbers_of(run) == numbers_of(whole), step
        assert files_of(folder) == files_of(whole.parent), step
        assert examine_run(run) == [], step


def test_calibrate(tmp_path):
    recipe = make_recipe(TINY, ["novelty=null"])
    changed = make_recipe(TINY, ["predictors.average3={name: average_k, k: 3}", "adjust.tau=0.5"])
    trained = train(recipe, tmp_path / "trained", progress=silent).path
    whole = shutil.copytree(trained, tmp_path / "whole")
    steps = in_a_child(lambda: calibrate_again(Run.open(whole), changed), whole)
    assert numbers_of(whole) != numbers_of(trained) and steps > 15
    for step in range(steps):
        run = shutil.copytree(trained, tmp_path / f"killed-{step}")
        assert in_a_child(lambda run=run: calibrate_again(Run.open(run), changed), run, step) == -1
        rest = [found for found in examine_run(run) if ".tmp-" not in found.file]
        new = [
            found for found in rest if "features_val" in found.file and "not in the manifest" in found.what
        ]
        assert Run.open(run).state == "calibrating" or rest == new, step
        in_a_child(lambda run=run: calibrate_again(Run.open(run), changed), run)
        assert numbers_of(run) == numbers_of(whole), step
        assert files_of(run) == files_of(whole), step
        assert examine_run(run) == [], step


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_predict(suffix, tmp_path):
    trained = train(make_recipe(TINY, ["novelty=null"]), tmp_path / "trained", progress=silent)
    model, scores = Model.load(trained.path), [trained.path / "scores" / "test.safetensors"]
    whole = tmp_path / "whole" / f"lists.{suffix}"
    whole.parent.mkdir()
    steps = in_a_child(lambda: predict_files(model, scores, whole, batch_size=50), whole.parent)
    assert steps > 2
    for step in range(steps):
        out = tmp_path / f"killed-{step}" / whole.name
        out.parent.mkdir()
        assert (
            in_a_child(lambda out=out: predict_files(model, scores, out, batch_size=50), out.parent, step)
            == -1
        )
        assert not out.exists() or out.read_bytes() == whole.read_bytes(), step
        in_a_child(lambda out=out: predict_files(model, scores, out, batch_size=50), out.parent)
        assert out.read_bytes() == whole.read_bytes(), step
        assert files_of(out.parent) == files_of(whole.parent), step


def test_the_first_evaluation_of_test_rows(tmp_path):
    """Of a finished run, as suites do: the results, and in the model what came of its promises."""
    trained = train(make_recipe(TINY), tmp_path / "trained", progress=silent, test=False).path
    whole = shutil.copytree(trained, tmp_path / "whole")
    steps = in_a_child(lambda: final_results(whole), whole)
    written = (whole / "model" / "model.json").read_bytes()
    assert written != (trained / "model" / "model.json").read_bytes() and steps > 15
    for step in range(steps):
        run = shutil.copytree(trained, tmp_path / f"killed-{step}")
        assert in_a_child(lambda run=run: final_results(run), run, step) == -1
        left = [found for found in examine_run(run) if ".tmp-" not in found.file]
        assert all(found.file == "results.json" and "not in the manifest" in found.what for found in left)
        Model.load(run)
        in_a_child(lambda run=run: final_results(run), run)
        assert numbers_of(run) == numbers_of(whole), step
        assert (run / "model" / "model.json").read_bytes() == written, step
        assert Run.open(run).info["files"] == Run.open(whole).info["files"], step
        assert files_of(run) == files_of(whole) and examine_run(run) == [], step


def tiny_suite(tmp_path: Path) -> Callable[[Path], Callable[[], object]]:
    """A small suite, as what makes it in a folder."""
    base = {key: value for key, value in TINY.items() if key not in ("loss", "name")} | {"epochs": 1}
    suite = {
        "name": "tiny",
        "base": base,
        "tune": {"metric": "top1.micro", "seeds": [0]},
        "seeds": [0],
        "baseline": "ce",
        "methods": {
            "ce": {"overrides": ["loss=cross_entropy"], "grid": {"optimizer.lr": [0.05, 0.1]}},
            "hot": {"from": "ce", "overrides": ["adjust.temperature=2.0"]},
            "again": {
                "overrides": ["optimizer.lr=0.1", "selection.metric=last", *RETRAINED],
            },
        },
        "metrics": ["top1.micro"],
    }
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump(suite))
    return lambda folder: lambda: run_suite(load_suite(file), folder)


def test_a_suite_on_a_full_disk(tmp_path):
    """What has no space fails and says so, nothing is half-written, and later the table is the same."""
    go = tiny_suite(tmp_path)
    whole = tmp_path / "whole"
    whole.mkdir()
    steps = in_a_child(go(whole), whole)
    table = (whole / "tiny" / "results.csv").read_text()

    def fails(folder: Path) -> None:
        try:
            state: Any = go(folder)()
        except OSError as error:
            assert error.errno == errno.ENOSPC
        else:
            assert state.failed or state.undecided

    for step in range(3, steps, steps // 5):
        folder = tmp_path / f"full-{step}"
        folder.mkdir()
        in_a_child(lambda folder=folder: fails(folder), folder, full_at=step)
        in_a_child(go(folder), folder)
        assert (folder / "tiny" / "results.csv").read_text() == table, step
        assert files_of(folder) == files_of(whole), step


def test_suite(tmp_path):
    go = tiny_suite(tmp_path)
    whole = tmp_path / "whole"
    whole.mkdir()
    steps = in_a_child(go(whole), whole)
    assert steps > 100
    table = (whole / "tiny" / "results.csv").read_text()
    for step in range(0, steps, 7):  # a seventh of them, each kind several times
        folder = tmp_path / f"killed-{step}"
        folder.mkdir()
        assert in_a_child(go(folder), folder, step) == -1
        in_a_child(go(folder), folder)
        assert (folder / "tiny" / "results.csv").read_text() == table, step
        assert files_of(folder) == files_of(whole), step


def all_of(folder: Path) -> list:
    """All that an index holds, in the order of a search, with the thumbnails."""
    index = ImageIndex.open(folder)
    query = torch.linspace(-1, 1, index.dimension)
    found = index.similar(query, range(CLASSES), 1000)
    return [(one, index.thumbnail(one.id)) for images in found for one in images]


def test_index_build(tmp_path):
    model = projection_model()
    class_folders(tmp_path / "images", {"c0": 3, "c1": 2, "c2": 4})

    def go(folder: Path) -> Callable[[], object]:
        source = source_of_images(tmp_path / "images", model)
        return lambda: build_index(model, source, folder / "index", segment_rows=4)

    whole = tmp_path / "whole"
    whole.mkdir()
    steps = in_a_child(go(whole), whole)
    assert steps > 20 and len(all_of(whole / "index")) == 9
    for step in range(steps):
        folder = tmp_path / f"killed-{step}"
        folder.mkdir()
        assert in_a_child(go(folder), folder, step) == -1
        in_a_child(go(folder), folder)
        assert all_of(folder / "index") == all_of(whole / "index"), step
        assert files_of(folder) == files_of(whole), step
        assert examine_index(folder / "index") == [], step


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_of(folder)}


@pytest.mark.parametrize("name", ["score", "embed"])
def test_passes_over_rows(tmp_path, name):
    """A pass that was killed before any step ends with the same files to the byte, and none else."""
    density_model(tmp_path / "model")
    rows = make_embeddings(tmp_path / "rows")
    class_folders(tmp_path / "images", {"ash": 3, "oak": 2})
    embedder = EmbedderSource("tests.passes.small:make_backbone", SMALL, allow_code=True)

    def go(folder: Path) -> Callable[[], object]:
        if name == "embed":
            return lambda: embed_images(embedder, tmp_path / "images", folder, workers=1, shard_rows=2)
        source = ModelSource(str(tmp_path / "model"))
        shards = find_shards(rows, source.open().classes.ids, shard_rows=500)
        return lambda: score_shards(source, shards, folder, workers=1)

    (tmp_path / "whole").mkdir()
    steps = in_a_child(go(tmp_path / "whole"), tmp_path / "whole")
    whole = bytes_of(tmp_path / "whole")
    assert steps > 10 and len(whole) == {"score": 4 + 1, "embed": 3 + 2}[name]
    for step in range(steps):
        folder = tmp_path / f"killed-{step}"
        folder.mkdir()
        assert in_a_child(go(folder), folder, step) == -1
        in_a_child(go(folder), folder)
        assert bytes_of(folder) == whole, step


def check_changes_of_an_index(tmp_path: Path, change: Callable[[Path], object], at_least: int) -> None:
    """Kill a change before each of its steps: the index is as before it or as after it, never between."""
    rows = [make_rows(12, 0), make_rows(5, 1), make_rows(4, 2)]
    before = start(tmp_path / "before", *rows)
    whole = Path(shutil.copytree(before, tmp_path / "whole"))
    steps = in_a_child(lambda: change(whole), whole)
    assert steps >= at_least
    for step in range(steps):
        folder = Path(shutil.copytree(before, tmp_path / f"killed-{step}"))
        assert in_a_child(lambda folder=folder: change(folder), folder, step) == -1
        assert all_of(folder) in (all_of(before), all_of(whole)), step
        in_a_child(lambda folder=folder: change(folder), folder)
        assert all_of(folder) == all_of(whole), step
        names = {name.split("-")[0] for name in files_of(folder)}
        assert len(files_of(folder)) == len(files_of(whole)) and names <= {"index.json", "segment", "deleted"}
        assert examine_index(folder) == [], step


def test_index_append(tmp_path):
    model = projection_model()
    check_changes_of_an_index(
        tmp_path, lambda folder: add_images(model, folder, [jpeg(1), jpeg(2)], [0, 5]), 8
    )


def test_index_delete(tmp_path):
    rows = make_rows(12, 0)
    names = [name_of(int(rows.classes[row]), bytes(rows.digests[row])) for row in range(0, 12, 2)]

    def delete(folder: Path) -> None:
        with IndexWriter.open(folder) as writer:
            writer.delete(names)

    check_changes_of_an_index(tmp_path, delete, 8)


def test_index_compaction(tmp_path):
    def compact(folder: Path) -> None:
        with IndexWriter.open(folder) as writer:
            writer.compact(segment_rows=12)

    check_changes_of_an_index(tmp_path, compact, 10)


PHOTO = png(1)
IMAGE = hashlib.sha256(PHOTO).hexdigest()


def contents_of(folder: Path) -> list:
    with FeedbackStore(folder) as store:  # which finishes what was begun
        kept = store.copy_of(IMAGE) is not None
        return [[(one.consent, one.content()) for one in store.events()], kept]


def check_changes_of_a_store(
    tmp_path: Path, change: Callable[[FeedbackStore], object], at_least: int, *, given: bool = False
) -> None:
    """Kill a change before each of its steps: the store is as before it or as after it, never between."""
    before = tmp_path / "before"
    with FeedbackStore(before) as store:
        store.add(Event("confirm", "r0", person="p0", label="oak", images=("0" * 64,)))
        if given:
            said = Event("confirm", "r1", person="p1", label="oak", images=(IMAGE,), consent=True)
            store.add(said, [PHOTO])

    def go(folder: Path) -> Callable[[], object]:
        def act() -> None:
            with FeedbackStore(folder) as store:
                change(store)

        return act

    first = contents_of(before)
    whole = Path(shutil.copytree(before, tmp_path / "whole"))
    steps = in_a_child(go(whole), whole)
    assert steps >= at_least and contents_of(whole) != first
    for step in range(steps):
        folder = Path(shutil.copytree(before, tmp_path / f"killed-{step}"))
        assert in_a_child(go(folder), folder, step) == -1
        assert contents_of(folder) in (first, contents_of(whole)), step
        in_a_child(go(folder), folder)
        assert contents_of(folder) == contents_of(whole), step
        assert examine_store(folder) == [], step


def test_feedback_with_a_copy(tmp_path):
    said = Event("confirm", "r2", person="p2", label="oak", images=(IMAGE,), consent=True)
    check_changes_of_a_store(tmp_path, lambda store: store.add(said, [PHOTO]), 5)


def test_feedback_deletion(tmp_path):
    check_changes_of_a_store(tmp_path, lambda store: store.erase_image(IMAGE), 2, given=True)


def test_feedback_that_takes_consent_back(tmp_path):
    said = Event("do_not_know", "r2", person="p1", images=(IMAGE,), withdraws=True)
    check_changes_of_a_store(tmp_path, lambda store: store.add(said), 2, given=True)


def test_a_new_store_of_feedback(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()

    def go(folder: Path) -> Callable[[], object]:
        def act() -> None:
            with FeedbackStore(folder / "store") as store:
                store.add(Event("confirm", "r0", person="p0", label="oak", images=(IMAGE,)))

        return act

    steps = in_a_child(go(whole), whole)
    assert steps >= 5
    for step in range(steps):
        folder = tmp_path / f"killed-{step}"
        folder.mkdir()
        assert in_a_child(go(folder), folder, step) == -1
        in_a_child(go(folder), folder)
        assert contents_of(folder / "store") == contents_of(whole / "store"), step
        assert files_of(folder) == files_of(whole) and examine_store(folder / "store") == [], step


def test_a_release(tmp_path):
    """Killed at any step, the current release is the one before or the new one, and is whole."""
    for name, seed in (("first", 0), ("second", 1)):
        torch.manual_seed(seed)
        projection_model().save(tmp_path / name)
    before = tmp_path / "before"
    Releases(before).add(tmp_path / "first", who="ann")
    whole = Path(shutil.copytree(before, tmp_path / "whole"))
    steps = in_a_child(lambda: Releases(whole).add(tmp_path / "second", who="ann"), whole)
    assert steps > 5
    for step in range(steps):
        place = Releases(shutil.copytree(before, tmp_path / f"killed-{step}"))
        assert (
            in_a_child(lambda place=place: place.add(tmp_path / "second", who="ann"), place.folder, step)
            == -1
        )
        current = place.current()
        assert current is not None and current.number in (1, 2)
        assert examine_model(place.model_path(current)) == []
        if current.number == 1:
            in_a_child(lambda place=place: place.add(tmp_path / "second", who="ann"), place.folder)
            assert [one.file for one in examine_releases(place.folder)] == [], step
        assert [one.version for one in place.all()] == [one.version for one in Releases(whole).all()]


def test_the_first_release(tmp_path):
    """Killed at any step, there is no release or the first one; then the same command makes it."""
    projection_model().save(tmp_path / "model")

    def go(folder: Path) -> Callable[[], object]:
        return lambda: Releases(folder / "releases").add(tmp_path / "model", who="ann")

    (tmp_path / "whole").mkdir()
    steps = in_a_child(go(tmp_path / "whole"), tmp_path / "whole")
    assert steps > 5
    for step in range(steps):
        folder = tmp_path / f"killed-{step}"
        folder.mkdir()
        assert in_a_child(go(folder), folder, step) == -1
        place = Releases(folder / "releases")
        if place.current() is None:
            in_a_child(go(folder), folder)
            assert examine_releases(place.folder) == [], step
            assert files_of(folder) == files_of(tmp_path / "whole"), step
        assert [one.number for one in place.all()] == [1], step
        assert {one.what for one in examine_releases(place.folder)} <= {LEFT}, step


def test_a_roll_back(tmp_path):
    for name, seed in (("first", 0), ("second", 1)):
        torch.manual_seed(seed)
        projection_model().save(tmp_path / name)
        Releases(tmp_path / "before").add(tmp_path / name, who="ann")
    whole = Path(shutil.copytree(tmp_path / "before", tmp_path / "whole"))
    steps = in_a_child(lambda: Releases(whole).roll_back(who="ann"), whole)
    assert steps >= 3
    for step in range(steps):
        place = Releases(shutil.copytree(tmp_path / "before", tmp_path / f"killed-{step}"))
        assert in_a_child(lambda place=place: place.roll_back(who="ann"), place.folder, step) == -1
        current = place.current()
        assert current is not None and current.number in (1, 2)
        if current.number == 2:
            in_a_child(lambda place=place: place.roll_back(who="ann"), place.folder)
        assert [one["number"] for one in place.history()] == [1, 2, 1], step
