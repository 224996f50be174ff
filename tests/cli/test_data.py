import json
import os
import sys
from pathlib import Path

import pytest
import torch

import shortlist.cli
from shortlist.class_table import ClassTable
from shortlist.curation.contact_sheet import contact_sheet
from shortlist.datasets import DATASETS, DatasetInfo, Splits, TensorSplit
from tests.commands import invoke, output_of, shell
from tests.datasets import trees


@pytest.fixture
def source(tmp_path) -> Path:
    for name, n in {"Acer album": 10, "Acer nigrum": 5, "Bellis alba": 30}.items():
        (tmp_path / "source" / name).mkdir(parents=True)
        for i in range(n):
            (tmp_path / "source" / name / f"{i}.jpg").write_bytes(b"x")
    return tmp_path / "source"


def test_build_shows_first_and_writes_only_when_told(source, tmp_path):
    dest = tmp_path / "made"
    output = output_of("data", "build", source, dest, "--genus-fraction", 1)
    assert "Nothing was written" in output
    assert not dest.exists()
    content = json.loads(output_of("data", "build", source, dest, "--genus-fraction", 1, "--json", "--apply"))
    assert content["images"] == {"train": 35, "val": 5, "test": 5}
    assert (content["classes"], content["genera"], content["applied"]) == (3, 2, True)
    assert len(list(dest.rglob("*.jpg"))) == 45


def test_build_of_classes_without_a_genus_does_not_speak_of_genera(tmp_path):
    for name in ("no entry", "stop"):
        (tmp_path / "source" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "source" / name / f"{i}.jpg").write_bytes(b"x")
    output = output_of("data", "build", tmp_path / "source", tmp_path / "made")
    assert "gen" not in output and "left out: images" in output


def test_an_error_is_one_line_and_code_2(source, tmp_path):
    """In a real shell: no traceback, the path, nothing on stdout."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "precious").touch()
    result = shell("data", "build", source, tmp_path / "made", "--genus-fraction", 1)
    assert result.returncode == 2
    assert result.stdout == ""
    expected = f"shortlist: {tmp_path / 'made'} exists and is not empty: nothing is overwritten"
    assert result.stderr.startswith(expected)
    assert result.stderr.count("\n") == 1


def test_main_turns_errors_into_lines(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["shortlist", "data", "votes", "no.csv"])
    monkeypatch.delenv("SHORTLIST_DEBUG", raising=False)
    with pytest.raises(SystemExit, match="2"):
        shortlist.cli.main()
    assert capsys.readouterr().err.startswith("shortlist: no.csv is missing.")
    monkeypatch.setenv("SHORTLIST_DEBUG", "1")
    with pytest.raises(FileNotFoundError, match=r"no.csv is missing"):
        shortlist.cli.main()
    monkeypatch.setattr(sys, "argv", ["shortlist", "data", "votes", "--theta", "x", "no.csv"])
    with pytest.raises(SystemExit, match="2"):
        shortlist.cli.main()


def test_votes(tmp_path):
    lines = ["item,user,label,author", "1,u,oak,u", "1,v,oak,u", "1,w,oak,u", "2,u,ash,"]
    (tmp_path / "votes.csv").write_text("\n".join(lines))
    content = json.loads(
        output_of("data", "votes", tmp_path / "votes.csv", "-o", tmp_path / "labels.csv", "--json")
    )
    assert content == {
        "votes": 4, "users": 3, "items": 2, "valid items": 1, "iterations": 1, "converged": True,
    }  # fmt: skip
    header, first, second = (tmp_path / "labels.csv").read_text().splitlines()
    assert header == '"item","label","weight","valid","agreement","votes"'
    assert first.startswith('1,"oak",')
    assert first.endswith("true,1,3")
    assert second.endswith("false,1,1")
    assert "valid items" in output_of("data", "votes", tmp_path / "votes.csv", "--theta", 0.1)


def test_check_in_a_real_shell_finds_and_deletes_nothing(tmp_path):
    trees.class_folders(tmp_path / "set", {"a": 3}, suffix=".png")
    (tmp_path / "set" / "a" / "bad.png").write_bytes(b"")
    result = shell("data", "check", tmp_path / "set", "--json", "--workers", 2)
    assert (result.returncode, result.stderr) == (1, "")
    report = json.loads(result.stdout)
    assert report["num_images"] == 4
    assert report["empty"] == [str(tmp_path / "set" / "a" / "bad.png")]
    assert report["duplicates"] == []
    (tmp_path / "set" / "a" / "bad.png").unlink()
    assert "3 images" in output_of("data", "check", tmp_path / "set", "--workers", 0)


def test_check_prints_what_it_found(tmp_path):
    trees.class_folders(tmp_path / "train", {"a": 2}, suffix=".png")
    trees.class_folders(tmp_path / "test", {"a": 2}, suffix=".png")
    output = output_of("data", "check", tmp_path, "--workers", 0, code=1)
    assert f"in two splits: {tmp_path}/train/a/image 0.png, {tmp_path}/test/a/image 0.png" in output


def test_describe_a_table_and_a_folder(tmp_path):
    ClassTable(["a", "b", "c"], counts=[300, 50, 10]).save(tmp_path / "table.json")
    content = json.loads(output_of("data", "describe", tmp_path / "table.json", "--json"))
    assert content["groups"] == {"few": 1, "medium": 1, "many": 1}
    assert content["lorenz"]["images"] == pytest.approx([0, 1 / 36, 6 / 36, 1])
    output = output_of("data", "describe", tmp_path / "table.json", "--figure", tmp_path / "lorenz.svg")
    assert "imbalance" in output
    assert "30.0" in output
    assert (tmp_path / "lorenz.svg").read_text().startswith("<?xml")
    trees.plantnet(tmp_path / "plants")
    output = output_of("data", "describe", tmp_path / "plants", "--sheet", tmp_path / "sheet.png")
    assert "genus groups" in output
    assert (tmp_path / "sheet.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.errors
def test_describe_needs_images_for_a_sheet(tmp_path):
    ClassTable(["a"], counts=[3]).save(tmp_path / "table.json")
    result = invoke("data", "describe", tmp_path / "table.json", "--sheet", tmp_path / "x.png")
    assert isinstance(result.exception, ValueError)
    assert "--sheet needs a data set with images, got a class table" in str(result.exception)


def test_a_sheet_of_classes_without_parents_has_rows_of_them(tmp_path):
    from PIL import Image

    trees.class_folders(tmp_path / "photos", {f"class {i}": 12 + i for i in range(10)})
    output_of("data", "describe", tmp_path / "photos", "--sheet", tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height == 2 * (32 + 2 * 14 + 3 * 3)  # 8 classes and 2
    part = TensorSplit(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([1, 1, 2, 2]))
    table = ClassTable("abcd")
    assert contact_sheet(part, table, level=None, num_classes=1).height == 2 * (32 + 2 * 14 + 3 * 3)


def test_build_keeps_all_classes_of_a_plain_folder(tmp_path):
    trees.class_folders(tmp_path / "photos", {f"kind{i}": 5 for i in range(28)})
    content = json.loads(output_of("data", "build", tmp_path / "photos", tmp_path / "made", "--json"))
    assert content["classes"] == 28, content


def test_help_names_every_verb_and_option():
    assert {"build", "votes", "check", "describe"} <= set(output_of("data", "--help").split())
    for verb in ("build", "votes", "check", "describe"):
        assert "--json" in output_of("data", verb, "--help")


def test_sheet_shows_the_smallest_groups(tmp_path, monkeypatch):
    """Those of look-alikes, not of scripts, wherever they are in the table."""
    parents = {"genus": ["g", "g", "h", "h"], "superclass": ["s"] * 4}
    table = ClassTable("abcd", counts=[1] * 4, parents=parents)
    part = TensorSplit(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.arange(4))
    drawn = []
    monkeypatch.setattr(
        "shortlist.curation.contact_sheet",
        lambda split, table, *, level: drawn.append(level) or contact_sheet(split, table, level=level),
    )
    monkeypatch.setitem(DATASETS, "letters", DatasetInfo(lambda: Splits(part, part, part, table)))
    output_of("data", "describe", "letters", "--sheet", tmp_path / "sheet.png")
    assert drawn == ["genus"]


def test_square_brackets_are_shown(tmp_path):
    trees.class_folders(tmp_path / "set [old]", {"a": 2}, suffix=".png")
    assert "set [old]: 2 images" in output_of("data", "check", tmp_path / "set [old]", "--workers", 0)


@pytest.mark.parametrize("name", ["glyphs_full", "image_list"])
def test_a_name_that_is_not_enough_is_one_line(name):
    result = shell("data", "describe", name)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(f"shortlist: {name} needs ")


@pytest.mark.errors
def test_votes_are_not_overwritten(tmp_path):
    (tmp_path / "votes.csv").write_text("item,user,label\n1,u,oak\n")
    result = invoke("data", "votes", tmp_path / "votes.csv", "-o", tmp_path / "x" / ".." / "votes.csv")
    assert "--out must not be the file of votes itself" in str(result.exception)
    assert (tmp_path / "votes.csv").read_text().startswith("item,user")


def test_file_names_that_are_no_utf8(tmp_path):
    name = os.fsdecode(b"x\xff.png")
    for i, image in enumerate([name, *(f"{i}.png" for i in range(4))]):
        trees.image(tmp_path / "set" / "a" / "plain.png", seed=i).rename(tmp_path / "set" / "a" / image)
    trees.image(tmp_path / "set" / "a" / "copy.png", seed=0)
    strict = {"PYTHONIOENCODING": "utf-8:strict"}  # as in most locales
    result = shell("data", "check", tmp_path / "set", "--json", "--no-near", "--workers", 0, **strict)
    assert json.loads(result.stdout)["duplicates"] == [[f"{tmp_path}/set/a/{x}" for x in ("copy.png", name)]]
    output_of("data", "build", tmp_path / "set", tmp_path / "made", "--genus-fraction", 1, "--apply")
    images = json.loads((tmp_path / "made" / "metadata.json").read_text())["images"]
    assert len(images) == 6
    assert all((tmp_path / "made" / image).is_file() for image in images)
