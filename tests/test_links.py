"""A stranger's folder with links in it: none is followed, whatever it leads to, and the doctor names it."""

import os
from pathlib import Path

import pytest
import torch

from shortlist import ClassTable, Model
from shortlist._store.manifest import read_sealed, write_sealed
from shortlist.index import ImageIndex, ImageIndexError
from shortlist.recipes.recipe import make_recipe
from shortlist.releases import Releases, ReleasesError
from shortlist.runs.folder import RunFolder
from shortlist.runs.run import Run
from shortlist.runs.scoring import evaluate_run
from tests.commands import run
from tests.compare.pixels import pixel_model
from tests.index.test_hostile import make as make_index
from tests.run_factory import finished_run

FILES = {"README.md", "class_table.json", "model.json", "network.safetensors", "score_map.json"}


@pytest.fixture
def model(tmp_path) -> Path:
    pixel_model().save(tmp_path / "model")
    return tmp_path / "model"


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def put_link(path: Path) -> None:
    """Move a file or folder out of the folder, and put a link to it in its place: the bytes are the same."""
    away = path.parent.parent / f"away-{path.name}"
    path.rename(away)
    path.symlink_to(away)


def test_a_release_is_made_of_the_files_of_the_manifest(model, tmp_path):
    """Nothing else is copied: neither a link, nor what it leads to, nor a file that nobody wrote down."""
    whole = names(model)
    assert whole > FILES
    (tmp_path / "secret").write_text("a password")
    (model / "notes.txt").symlink_to(tmp_path / "secret")
    (model / "zeros").symlink_to("/dev/zero")
    (model / "predictors" / "up").symlink_to(tmp_path)
    (model / "readme.txt").write_text("of a stranger")
    os.mkfifo(model / "pipe")
    place = Releases(tmp_path / "releases")
    copy = place.model_path(place.add(model))
    assert names(copy) == whole
    assert all((copy / name).read_bytes() == (model / name).read_bytes() for name in whole)
    assert run("doctor", place.folder)[0] == 0
    code, out, _ = run("doctor", model)
    assert code == 1 and out.count("is a link") == 3
    assert all(f" {name}: " in out for name in ("notes.txt", "zeros", "predictors/up"))


@pytest.mark.errors
@pytest.mark.parametrize("name", [*sorted(FILES - {"README.md"}), "predictors", "predictors/c90.json"])
def test_no_file_of_a_model_is_read_through_a_link(name, model, tmp_path):
    put_link(model / name)
    with pytest.raises(ValueError, match="is a link, which is not followed"):
        Model.load(model)
    place = Releases(tmp_path / "releases")
    with pytest.raises(ValueError, match="is a link, which is not followed"):
        place.add(model)
    assert place.all() == []
    code, out, err = run("doctor", model)
    assert code and "is a link, which is not followed" in out + err and Path(name).name in out + err


@pytest.mark.errors
def test_the_state_of_a_predictor_is_not_read_through_a_link(model):
    (state,) = (model / "predictors").glob("*.safetensors")
    put_link(state)
    with pytest.raises(ValueError, match="is a link, which is not followed"):
        Model.load(model)


@pytest.mark.errors
def test_a_released_copy_is_not_followed_elsewhere(model, tmp_path):
    place = Releases(tmp_path / "releases")
    release = place.add(model)
    put_link(place.folder / "models" / release.version / "network.safetensors")
    code, out, _ = run("doctor", place.folder)
    assert code == 1 and "network.safetensors: is a link, which is not followed" in out
    with pytest.raises(ReleasesError, match="is a link"):
        place.add(model)
    put_link(place.folder / "releases.json")
    with pytest.raises(ReleasesError, match="is a link"):
        place.current()


@pytest.mark.errors
@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "predictors/../../secret", "", "."])
def test_a_manifest_names_no_file_of_another_folder(name, model, tmp_path):
    (tmp_path / "secret").write_text("a password")
    content = read_sealed(model / "model.json")
    content["files"][name] = {"size": 10, "sha256": "0" * 64}
    write_sealed(model / "model.json", content)
    with pytest.raises(ReleasesError, match="is no file of this folder"):
        Releases(tmp_path / "releases").add(model)
    code, out, _ = run("doctor", model)
    assert code == 1 and "is no file of this folder" in out


def test_names_of_a_stranger_do_not_write_to_the_terminal(model, tmp_path):
    content = read_sealed(model / "model.json")
    content["files"]["a\x1b[2J\nb"] = {"size": 1, "sha256": "0"}
    write_sealed(model / "model.json", content)
    code, out, _ = run("doctor", model)
    assert code == 1 and r"a\x1b[2J b: is missing" in out and "\x1b" not in out
    place = Releases(tmp_path / "releases")
    pixel_model().save(tmp_path / "whole")
    place.add(tmp_path / "whole", who="ann\x1b[2J", data="round\n1")
    code, out, _ = run("releases", place.folder)
    assert code == 0 and r"ann\x1b[2J  round 1" in out and "\x1b" not in out


@pytest.mark.errors
@pytest.mark.parametrize("record", [3, {}, {"size": "1", "sha256": 2}, {"size": -1}, None, {"next": {}}])
def test_a_record_that_is_none_is_no_record_of_the_file(record, model, tmp_path):
    content = read_sealed(model / "model.json")
    content["files"]["class_table.json"] = record
    write_sealed(model / "model.json", content)
    for act in (Model.load, Releases(tmp_path / "releases").add):
        with pytest.raises(ValueError, match=r"class_table.json is damaged or was changed"):
            act(model)
    code, out, _ = run("doctor", model)
    assert code == 1 and "class_table.json: is damaged or was changed" in out


@pytest.mark.errors
@pytest.mark.parametrize("name", ["run.json", "recipe.yaml"])
def test_no_file_of_a_run_is_read_through_a_link(name, tmp_path):
    folder = RunFolder.create(tmp_path / "run", make_recipe({})).path
    put_link(folder / name)
    with pytest.raises(ValueError, match="is a link, which is not followed"):
        Run.open(folder).recipe  # noqa: B018


@pytest.mark.errors
@pytest.mark.parametrize("name", ["results.json", "scores", "scores/test.safetensors", "model"])
def test_no_file_of_a_finished_run_is_read_through_a_link(name, tmp_path):
    target = torch.arange(60) % 3
    scores = 3 * torch.nn.functional.one_hot(target, 3).float() + torch.rand(
        60, 3, generator=torch.Generator().manual_seed(0)
    )
    table = ClassTable(("a", "b", "c"), counts=(9, 9, 9))
    parts = {part: (scores, target) for part in ("val", "test")}
    folder = finished_run(tmp_path / "run", make_recipe({"name": "linked"}), parts, table).path
    assert run("doctor", folder)[0] == 0
    put_link(folder / name)
    reader = {"results.json": lambda run: run.results, "model": lambda run: Model.load(run.path)}.get(
        name, evaluate_run
    )
    with pytest.raises(ValueError, match="is a link, which is not followed"):
        reader(Run.open(folder))
    code, out, _ = run("doctor", folder)
    assert code == 1 and out.count(f" {name}: is a link, which is not followed") == 1


@pytest.mark.errors
@pytest.mark.parametrize("kind", ["index.json", "segment", "deleted"])
def test_no_file_of_an_index_is_read_through_a_link(kind, tmp_path):
    folder = make_index(tmp_path / "index")
    (path,) = sorted(folder.glob(f"{kind}*"))[:1]
    put_link(path)
    with pytest.raises(ImageIndexError, match="is a link, which is not followed"):
        ImageIndex.open(folder)
    code, out, _ = run("doctor", folder)
    assert code == 1 and "is a link, which is not followed" in out
