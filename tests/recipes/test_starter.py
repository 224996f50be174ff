"""A first recipe for somebody's own data."""

import os
import shlex
import sys
import warnings
from importlib import import_module

import pytest
import torch

import shortlist.cli
from shortlist.datasets.embeddings import save_embeddings
from shortlist.model import Model
from shortlist.recipes.recipe import load_recipe
from shortlist.recipes.starter import explain, look_at, starter_recipe
from shortlist.training.fit import train
from tests.datasets import trees
from tests.training.small import silent


def test_a_folder_of_images_becomes_a_recipe_that_runs(tmp_path, monkeypatch, capsys):
    birds = tmp_path / "my birds"
    trees.class_folders(birds / "Train", {"ash": 12, "Élan": 12, "elan": 3})
    trees.class_folders(birds / "Test", {"ash": 4, "Élan": 4, "elan": 2}, seed=90)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["shortlist", "init", "my birds", "--features", "none"])
    with pytest.raises(SystemExit) as stop:
        shortlist.cli.main()
    said = capsys.readouterr().out
    assert stop.value.code == 0
    # of each class a tenth of the training images, rounded up, is for validation
    assert "a folder of images, 3 classes, 22 training, 5 validation and 10 test rows" in said
    assert "training rows of a class: 2 to 10, median 10" in said
    assert "images of a median size of 24 x 20" in said
    assert "the classes 'elan' and 'Élan' have nearly the same name" in said
    assert "1 of 3 classes have fewer than 5 training rows (elan)" in said
    assert "Wrote my-birds.yaml. Next:\n  shortlist train my-birds.yaml\n" in said
    recipe = load_recipe(tmp_path / "my-birds.yaml", ["epochs=1"])
    assert recipe.data.options == {"root": str(birds), "image_size": 32}
    assert list(recipe.predictors) == ["top1", "average1", "conformal"]
    with pytest.warns(UserWarning):  # a promise needs more rows than these
        run = train(recipe, tmp_path / "run", progress=silent)
    assert run.results.rows == 10


def test_a_published_set_is_recognized_by_its_files(tmp_path):
    trees.plantnet(tmp_path)
    found = look_at(tmp_path)
    assert found.data == {"name": "plantnet300k", "root": str(tmp_path)} and found.are_images
    assert "genus" in found.class_table.parents  # which folders of ids alone do not have
    (tmp_path / "first.yaml").write_text(starter_recipe(found, "first"))
    assert load_recipe(tmp_path / "first.yaml").data.name == "plantnet300k"


@pytest.mark.parametrize(("classes", "metric"), [(12, "macro_top1"), (60, "macro_top5")])
def test_the_first_place_chooses_the_epoch_of_few_classes(classes, metric, tmp_path):
    """Of 12 classes the second epoch had the right one among five guesses each time: it was kept."""
    trees.class_folders(tmp_path / "photos", {f"class {i}": 3 for i in range(classes)})
    (tmp_path / "first.yaml").write_text(starter_recipe(look_at(tmp_path / "photos"), "first"))
    recipe = load_recipe(tmp_path / "first.yaml")
    assert recipe.selection.metric == metric and recipe.predictors["top5"].options == {"k": 5}


def test_embeddings_and_lists_are_recognized(tmp_path):
    x, y = torch.randn(480, 8), torch.arange(480) % 12
    save_embeddings(tmp_path / "train.safetensors", x, y)
    found = look_at(tmp_path)
    drawn = {"name": "embeddings", "root": str(tmp_path), "val_fraction": 0.1}
    assert found.data == drawn and found.input_shape == (8,)
    assert found.rows == {"train": 384, "val": 48, "test": 48} and len(found.class_table) == 12
    path = tmp_path / "first.yaml"
    path.write_text(starter_recipe(found, "first"))
    recipe = load_recipe(path)
    assert recipe.model.name == "linear" and recipe.predictors["top5"].options == {"k": 5}
    assert recipe.selection.metric == "last" and recipe.data.options["val_fraction"] == 0.1
    for part in ("val", "test"):
        save_embeddings(tmp_path / f"{part}.safetensors", x[:60], y[:60])
    assert look_at(tmp_path).data == {"name": "embeddings", "root": str(tmp_path)}
    lines = [f"{trees.image(tmp_path / f'{i}.png', seed=i).name},{'ab'[i % 2]}" for i in range(8)]
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines))
    assert look_at(tmp_path / "list.csv").data == {"name": "image_list", "path": str(tmp_path / "list.csv")}


def _init(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["shortlist", *words])
    with pytest.raises(SystemExit) as stop:
        shortlist.cli.main()
    said = capsys.readouterr()
    assert stop.value.code == 0, said.err
    return said.out


def test_the_commands_for_pretrained_features_give_a_model_of_photos(tmp_path, monkeypatch, capsys):
    trees.class_folders(tmp_path / "my birds", {"ash": 40, "elm": 40})
    (tmp_path / "starter_networks.py").write_text(
        "from torch import nn\n"
        "def backbone():\n    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said = _init(monkeypatch, capsys, "init", "my birds", "--features", "starter_networks:backbone")
    commands = [shlex.split(line) for line in said.split("Next:\n")[1].splitlines()]
    assert [words[:2] for words in commands] == [["shortlist", verb] for verb in ("embed", "train", "join")]
    assert "advice: features of starter_networks:backbone" in said
    for words in commands:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a promise needs more rows than these
            _init(monkeypatch, capsys, *words[1:])
    model = Model.load("my-birds-model", network="starter_networks:backbone")
    lists = model.short_lists([str(next((tmp_path / "my birds" / "elm").iterdir()))], "top1")
    assert [candidate.name in ("ash", "elm") for candidate in lists[0]] == [True]


@pytest.mark.parametrize(("smallest", "rule"), [(4, "macro"), (6, None)])
def test_rare_classes_are_helped_from_ten_times_as_many_rows_on(smallest, rule, tmp_path):
    y = torch.tensor([0] * 50 + [1] * 45 + [2] * smallest)  # of which a tenth is drawn, twice, rounded up
    save_embeddings(tmp_path / "train.safetensors", torch.randn(len(y), 4), y)
    for part in ("val", "test"):
        save_embeddings(tmp_path / f"{part}.safetensors", torch.randn(30, 4), torch.arange(30) % 3)
    opened = look_at(tmp_path)
    assert opened.class_table.counts == (50, 45, smallest)
    (tmp_path / "first.yaml").write_text(starter_recipe(opened, "first"))
    recipe = load_recipe(tmp_path / "first.yaml")
    assert recipe.predictors["conformal"].options.get("rule") == rule
    assert recipe.adjust.tau == (None if rule is None else 1)
    assert any("12 times the rows" in reason for reason in explain(opened, None)) == (rule is not None)


def test_features_are_advised_where_timm_is_installed(tmp_path, monkeypatch, capsys):
    module = import_module("shortlist.cli.init")  # the package has a function of this name
    trees.class_folders(tmp_path / "trees", {"ash": 12, "elm": 12})
    monkeypatch.chdir(tmp_path)
    for installed, command in ((object(), "embed timm:tf_efficientnet_lite0 trees"), (None, "train trees-1")):
        monkeypatch.setattr(module, "find_spec", lambda name, installed=installed: installed)
        said = _init(monkeypatch, capsys, "init", "trees", "-o", f"trees-{int(installed is None)}.yaml")
        assert f"Next:\n  shortlist {command}" in said


@pytest.mark.errors
def test_what_cannot_be_trained_on_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        look_at(tmp_path / "nowhere")
    trees.class_folders(tmp_path / "one", {"ash": 3})
    with pytest.raises(ValueError, match=r"must hold at least 2 classes, got 1: ash"):
        look_at(tmp_path / "one")
    (tmp_path / "a.mp3").write_bytes(b"no")
    with pytest.raises(ValueError, match="must be a folder or a list"):
        look_at(tmp_path / "a.mp3")


@pytest.mark.parametrize("name", ["2024", "null", "yes", "my: birds", "~"])
def test_a_folder_of_any_name_becomes_a_recipe_that_can_be_read(name, tmp_path, monkeypatch):
    trees.class_folders(tmp_path / name, {"ash": 12, "elm": 12})
    for place, words in enumerate(([name], [name, "--out", f"my {name}.yaml"])):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["shortlist", "init", *words, "--features", "none"])
        with pytest.raises(SystemExit, match="0"):
            shortlist.cli.main()
        assert len(list(tmp_path.glob("*.yaml"))) == place + 1
    for path in tmp_path.glob("*.yaml"):
        assert load_recipe(path).data.options["root"] == str(tmp_path / name)


def test_a_link_gives_its_own_name_to_the_recipe(tmp_path, monkeypatch):
    trees.class_folders(tmp_path / "disk" / "v3", {"ash": 12, "elm": 12})
    (tmp_path / "birds").symlink_to(tmp_path / "disk" / "v3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["shortlist", "init", "birds/", "--features", "none"])
    with pytest.raises(SystemExit, match="0"):
        shortlist.cli.main()
    assert [path.name for path in tmp_path.glob("*.yaml")] == ["birds.yaml"]
    assert load_recipe(tmp_path / "birds.yaml").name == "birds"


def test_pipes_and_bombs_of_a_strangers_list_are_passed_over(tmp_path, monkeypatch):
    from PIL import Image

    trees.class_folders(tmp_path, {"ash": 12, "\x1b[31melm": 6})
    for number in range(4):
        os.mkfifo(tmp_path / "ash" / f"pipe {number}.png")
        trees.image(tmp_path / "ash" / f"large {number}.png", size=(60, 60))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # of which Pillow refuses twice as many
    lines = [f"{path},{path.parent.name}" for path in sorted(tmp_path.glob("*/*"))]
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines))
    found = look_at(tmp_path / "list.csv")
    assert found.input_shape == (24, 20)
    assert any(r"(\x1b[31melm)" in note for note in found.notes), found.notes


@pytest.mark.errors
def test_arrays_of_other_names_are_told_how_embeddings_are_named(tmp_path):
    for name in ("embeddings.npy", "targets.npy"):
        (tmp_path / name).touch()
    with pytest.raises(
        ValueError, match=r"got embeddings.npy, targets.npy: write train.npz .*embeddings=.*targets="
    ):
        look_at(tmp_path)
