import csv
import json
import shutil
import sys

import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import shortlist.cli
from shortlist.cli.predict import predict_files
from shortlist.model import Model
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from shortlist.sentences import promise_numbers
from shortlist.training.fit import train
from tests.commands import invoke, output_of, shell
from tests.datasets import trees
from tests.training.small import RECIPE, silent, write_recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(make_recipe(RECIPE, ["epochs=2"]), tmp_path_factory.mktemp("cli") / "run", progress=silent)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A run on images."""
    folder = tmp_path_factory.mktemp("glyphs")
    data = {"name": "glyphs", "characters": "abcdefghijklmnopqrst", "train_images": 400}
    data["cache"] = str(folder / "cache")
    changes = {"data": data, "model": {"name": "small_cnn", "width": 4}, "epochs": 3}
    return train(make_recipe(RECIPE | changes, ["loss=cross_entropy"]), folder / "run", progress=silent)


@pytest.mark.slow
def test_from_a_file_to_metrics_in_a_real_shell(tmp_path):
    recipe = write_recipe(tmp_path)
    done = shell(
        "train", recipe, "--set", "epochs=1", "--set", "loss.k=3", "--out", tmp_path / "run", "--json"
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["results"]["rows"] == 300
    assert (printed["kept_epoch"]["epoch"], printed["kept_epoch"]["epochs"]) == (1, 1)
    assert Run.open(tmp_path / "run").recipe.loss.k == 3
    assert "training: 100 %" in done.stderr
    again = shell("train", recipe, "--out", tmp_path / "run")
    assert again.returncode == 2 and again.stdout == ""
    assert again.stderr.strip().count("\n") == 0 and "exists: choose another --out" in again.stderr


@pytest.mark.errors
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "--set", "loss.kk=3"), "loss.kk: unknown key"),
        (("train", "--set", "optimizer.lrr=3"), "optimizer.lrr: unknown key; did you mean 'lr'?"),
        (("train", "nothing.yaml"), "nothing.yaml"),
        (("train", "--set", "epochs"), "--set wants KEY=VALUE"),
        (("train", "--resume", "nowhere"), "nowhere is not a run folder"),
        (("train", "--resume", "nowhere", "--set", "epochs=1"), "--resume goes on with the run's own recipe"),
        (("train", "--resume", "nowhere", "--variant", "x"), "--resume goes on with the run's own recipe"),
        (("train", "--variant", "x"), "--variant is of a recipe: name its file too"),
        (("evaluate", "nowhere"), "nowhere is not a run folder"),
        (("evaluate", "nowhere", "--split", "train"), "--split must be test or val, got 'train'"),
        (("predict", "nowhere", "image.png", "-o", "x.csv"), "nowhere is not a folder with a saved model"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["shortlist", *words])
    with pytest.raises(SystemExit) as stop:
        shortlist.cli.main()
    said = capsys.readouterr().err
    assert stop.value.code == 2 and message in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_variant_of_a_recipe(monkeypatch, capsys, tmp_path):
    recipe = write_recipe(tmp_path, epochs=1, name="small")
    variants = {"recipe": {"two_head": ["loss=average_k", "loss.k=2"], "focal": ["loss=focal"]}}
    (tmp_path / "variants.yaml").write_text(json.dumps(variants))  # which is YAML, too
    monkeypatch.chdir(tmp_path)
    output_of("train", recipe, "--variant", "two_head", "--set", "seed=3")
    made = Run.open(tmp_path / "runs" / "small-two_head-seed3")
    assert made.state == "finished" and (made.recipe.loss.name, made.recipe.seed) == ("average_k", 3)
    monkeypatch.setattr(sys, "argv", ["shortlist", "train", str(recipe), "--variant", "two_heads"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        shortlist.cli.main()
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    assert "must be one of two_head, focal, got 'two_heads'; did you mean 'two_head'?" in said


def test_evaluate_prints_a_table_or_json(trained):
    assert "average2_macro" in output_of("evaluate", trained.path)
    assert json.loads(output_of("evaluate", trained.path, "--split", "val", "--json"))["rows"] == 200


def test_calibrate_adds_a_predictor_and_refuses_to_change_the_training(trained):
    said = output_of("calibrate", trained.path, "--set", "predictors.average3={name: average_k, k: 3}")
    assert "average3: 200 rows, average size 3.000" in said
    assert set(Run.open(trained.path).predictors) == {*RECIPE["predictors"], "average3"}
    assert "The scores are log-posteriors under the training priors: temperature" in said
    result = invoke("calibrate", trained.path, "--set", "epochs=9")
    assert "adjust, predictors, novelty and evaluation only" in str(result.exception)


def test_predict_from_saved_scores_in_three_formats(trained, tmp_path):
    trained = Run.open(trained.path)
    save_file({"scores": trained.load_scores("test")[0]}, tmp_path / "scores.safetensors")
    scores, _ = trained.scored("test")
    expected = trained.predictors["average2"](scores)
    for suffix in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"lists.{suffix}"
        options = ("--predictor", "average2", "--top", 2, "--batch-size", 64)
        said = output_of("predict", trained.path, tmp_path / "scores.safetensors", "-o", out, *options)
        assert said.startswith("300 items")
        sets, listed = torch.zeros_like(expected), torch.zeros_like(expected)
        if suffix == "jsonl":
            lines = [json.loads(line) for line in out.read_text().splitlines()]
            rows = [(line["item"], c["class"], c["in_set"]) for line in lines for c in line["candidates"]]
            numbers = promise_numbers(Model.load(trained.path).promises["average2"])
            assert all(line["promise"] == {"predictor": "average2", **numbers} for line in lines)
        else:
            table = (
                list(csv.DictReader(out.read_text().splitlines()))
                if suffix == "csv"
                else pq.read_table(out).to_pylist()
            )
            rows = [(row["item"], int(row["class"]), row["in_set"] in ("1", True)) for row in table]
            assert all(row["name"] == trained.class_table.names[int(row["class"])] for row in table)
        for item, index, inside in rows:
            sets[int(item.split(":")[1]), index] = inside
            listed[int(item.split(":")[1]), index] = True
        assert torch.equal(sets, expected)
        assert torch.equal(listed, expected | torch.zeros_like(sets).scatter(1, scores.topk(2).indices, True))


def test_predict_from_several_files_of_scores(trained, tmp_path):
    for folder, rows in (("a", 3), ("b", 2)):
        (tmp_path / folder).mkdir()
        save_file({"scores": torch.randn(rows, 12)}, tmp_path / folder / "scores.safetensors")
    files = [tmp_path / folder / "scores.safetensors" for folder in ("a", "b")]
    told = []
    out = tmp_path / "lists.jsonl"
    predict_files(
        Model.load(trained.path), files, out, batch_size=2, progress=lambda *counts: told.append(counts)
    )
    items = [json.loads(line)["item"] for line in out.read_text().splitlines()]
    assert items == [f"{files[0]}:{i}" for i in range(3)] + [f"{files[1]}:{i}" for i in range(2)]
    assert told == [(2, 3), (3, 3), (5, 5)]


def test_predict_from_images_folders_and_lists(pictures, tmp_path):
    data = build_data(pictures.recipe)
    folder = tmp_path / "images"
    folder.mkdir()
    for row in range(6):
        Image.fromarray(data.test.inputs[row, 0].numpy()).save(folder / f"{row}.png")
    (folder / "broken.png").write_bytes(b"no image")
    out = tmp_path / "lists.csv"
    result = invoke("predict", pictures.path, folder, "-o", out, "--top", "20")
    assert "7 items" in result.stdout and "1 could not be read" in result.stdout
    assert "broken.png cannot be read" in result.stderr and result.exit_code == 1
    scores, _ = pictures.scored("test")
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [set(row.values()) for row in rows if "broken" in row["item"]] == [
        {str(folder / "broken.png"), ""}
    ]
    for row in (row for row in rows if row["class"]):
        number = int(row["item"].split("/")[-1].split(".")[0])
        assert float(row["probability"]) == pytest.approx(
            float(scores[number].softmax(0)[int(row["class"])]), abs=1e-5
        )
    (tmp_path / "list.csv").write_text("path\nimages/3.png\nimages/1.png\n")
    output_of("predict", pictures.path, tmp_path / "list.csv", folder / "0.png", "-o", tmp_path / "b.jsonl")
    items = [json.loads(line)["item"] for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [item.split("/")[-1] for item in items] == ["3.png", "1.png", "0.png"]


def test_predict_needs_neither_the_data_nor_the_checkpoints(tmp_path):
    trees.class_folders(tmp_path / "data", {"ä": 12, "b": 12, "c d": 12})
    data = {"name": "image_folder", "root": str(tmp_path / "data"), "image_size": 32}
    changes = {"data": data, "model": {"name": "small_cnn", "width": 4}, "epochs": 1, "batch_size": 8}
    made = train(make_recipe(RECIPE | changes, ["loss=cross_entropy"]), tmp_path / "run", progress=silent)
    scores, _ = made.scored("test")
    image = build_data(made.recipe).test.paths[1]
    shutil.copy(image, tmp_path / "picture.jpg")
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(made.path / "checkpoints")
    output_of("predict", made.path, tmp_path / "picture.jpg", "-o", tmp_path / "lists.csv", "--top", 3)
    lines = list(csv.DictReader((tmp_path / "lists.csv").read_text().splitlines()))
    for line in lines:
        expected = float(scores[1].softmax(0)[int(line["class"])])
        assert float(line["probability"]) == pytest.approx(expected, abs=1e-5)
    assert {line["name"] for line in lines} == {"ä", "b", "c d"}


@pytest.mark.errors
def test_predict_says_what_is_wrong_and_leaves_no_file(trained, pictures, tmp_path):
    for words, message in (
        ((trained.path, tmp_path / "x.png", "-o", tmp_path / "a.csv"), "x.png does not exist"),
        ((trained.path, tmp_path, "-o", tmp_path / "a.csv"), "holds no images"),
        ((pictures.path, __file__, "-o", tmp_path / "a.xlsx"), "must end in .csv, .jsonl or .parquet"),
        ((trained.path, "x.npz", "x.png", "-o", tmp_path / "a.csv"), "or all images, got both"),
        ((trained.path, "x.npz", "-o", tmp_path / "a.csv"), "x.npz does not exist"),
        ((trained.path, "x.npz", "-o", tmp_path / "a.csv", "--batch-size", 0), "batch_size must be"),
        ((pictures.path, __file__, "-o", tmp_path / "a.csv"), "images that can be read, got none among 1"),
        ((pictures.path, tmp_path / "a.csv", "-o", tmp_path / "a.csv"), "must not be one of the inputs"),
        ((pictures.path, __file__, "-o", tmp_path / "a.txt"), "got 'a.txt'"),
        (
            (trained.path, "x.npz", "-o", tmp_path / "a.csv", "--predictor", "top9"),
            "predictor must be one of top2,",
        ),
    ):
        result = invoke("predict", *words)
        assert message in str(result.exception), result.exception
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "verb", [(), ("train",), ("calibrate",), ("evaluate",), ("predict",), ("demo",), ("data",)]
)
def test_help_is_there(verb):
    assert "Usage" in output_of(*verb, "--help")
