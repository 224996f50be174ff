"""The small set of photos that a person is asked about, and the page that collects the answers."""

import csv
import json
import re
from pathlib import Path

import pytest
import torch

from shortlist.class_table import ClassTable
from shortlist.compare.ask import draw_mini_set
from shortlist.compare.person import compare_with_person
from shortlist.recipes import build_data
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from tests.commands import invoke, output_of
from tests.run_factory import TOP_2, finished_run

TABLE = ClassTable(
    ["a1", "a2", "b1", "b2", "c"], parents={"genus": ["A", "A", "B", "B", "C"]}, counts=(9, 8, 7, 6, 5)
)
TARGET = torch.tensor([0] * 9 + [1] * 3 + [2] * 6 + [-100] * 2 + [4] * 7)


@pytest.mark.parametrize("per_class", [1, 5])
def test_all_classes_of_the_groups_and_few_photos_of_each(per_class):
    rows, classes = draw_mini_set(TARGET, TABLE, ["A", "B"], per_class=per_class, seed=3)
    assert classes == [0, 1, 2, 3]
    assert len(set(rows)) == len(rows)
    drawn = TARGET[rows].bincount(minlength=5).tolist()
    assert drawn == [min(per_class, number) for number in (9, 3, 6, 0, 0)]
    assert draw_mini_set(TARGET, TABLE, ["A", "B"], per_class=per_class, seed=3) == (rows, classes)
    others = [draw_mini_set(TARGET, TABLE, ["A", "B"], per_class=per_class, seed=s)[0] for s in range(9)]
    assert len({tuple(other) for other in others}) > 1
    if per_class == 5:
        assert any(sorted(TARGET[other].tolist()) != TARGET[other].tolist() for other in others)  # mixed


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": ["D"]}, "group must be a genus of the class table, got 'D'"),
        (
            {"groups": ["A"], "level": "family"},
            r"level must be one of the class table \(genus\), got 'family'",
        ),
        ({"groups": ["A"], "per_class": 0}, "per_class must be an integer >= 1, got 0"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        draw_mini_set(TARGET, TABLE, **options)


@pytest.fixture(scope="module")
def glyph_run(tmp_path_factory) -> Run:
    recipe = make_recipe({"data": {"name": "glyphs", "max_classes": 40}, "predictors": TOP_2})
    splits = build_data(recipe)
    generator = torch.Generator().manual_seed(0)
    scores = {}
    for part in ("val", "test"):
        target = getattr(splits, part).targets
        scores[part] = (torch.randn(len(target), len(splits.class_table), generator=generator), target)
    return finished_run(tmp_path_factory.mktemp("glyphs") / "run", recipe, scores, splits.class_table)


def group_of(run: Run) -> str:
    """The genus with most classes."""
    genera = sorted(run.class_table.parents["genus"])
    return max(genera, key=genera.count)


def page_of(run: Run, folder: Path, *words: str) -> tuple[Path, dict]:
    group = group_of(run)
    out = folder / "ask.html"
    output_of("papers", "ask", run.path, "--of", group, "-o", out, *words)
    text = out.read_text(encoding="utf-8")
    (content,) = re.findall(r'<script type="application/json" id="content">(.*?)</script>', text, re.S)
    return out, json.loads(content)


def test_the_page_has_the_photos_and_not_their_classes(glyph_run, tmp_path):
    _, content = page_of(glyph_run, tmp_path, "--lang", "de", "--per-class", "2")
    table, target = glyph_run.class_table, glyph_run.score_blocks("test")[1]
    group = group_of(glyph_run)
    of_group = [i for i, parent in enumerate(table.parents["genus"]) if parent == group]
    assert len(of_group) > 1
    assert [entry["id"] for entry in content["classes"]] == [table.ids[i] for i in of_group]
    rows = [photo["row"] for photo in content["photos"]]
    assert set(target[rows].tolist()) <= set(of_group) and max(target[rows].bincount()) <= 2
    assert all(set(photo) == {"row", "source", "small"} for photo in content["photos"])
    assert content["words"]["title"] == "Welche Klassen kommen infrage?" and content["language"] == "de"


@pytest.mark.slow
def test_a_person_answers_in_a_browser(glyph_run, tmp_path, browser):
    """Ticks become the file that ``compare --person`` reads; a reload keeps them."""
    out, content = page_of(glyph_run, tmp_path)
    tab = browser.new_page(accept_downloads=True)
    try:
        tab.goto(out.as_uri())
        photos = tab.locator("article")
        assert photos.count() == len(content["photos"])
        number = len(content["classes"])
        photos.nth(0).locator("input").nth(0).check()
        photos.nth(0).locator("input").nth(number - 1).check()
        photos.nth(1).locator("input").nth(number).check()  # none of these names
        tab.reload()
        assert "2 of" in tab.locator("#count").text_content()
        with tab.expect_download() as waiting:
            tab.locator("#save").click()
        waiting.value.save_as(tmp_path / "answers.csv")
    finally:
        tab.close()
    with (tmp_path / "answers.csv").open(encoding="utf-8", newline="") as file:
        lines = [(int(line["row"]), line["class"]) for line in csv.DictReader(file)]
    first, second = (photo["row"] for photo in content["photos"][:2])
    ends = {content["classes"][0]["id"], content["classes"][-1]["id"]}
    assert lines == [
        (first, content["classes"][0]["id"]),
        (first, content["classes"][-1]["id"]),
        (second, ""),
    ]
    beside = compare_with_person([glyph_run.path], tmp_path / "answers.csv")
    true = glyph_run.class_table.ids[int(glyph_run.score_blocks("test")[1][first])]
    assert beside.num_rows == 2 and beside.coverage.value == (true in ends) / 2


def test_answers_as_the_page_writes_them_are_read(glyph_run, tmp_path):
    _, content = page_of(glyph_run, tmp_path)
    target, table = glyph_run.score_blocks("test")[1], glyph_run.class_table
    with (tmp_path / "answers.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "class"])
        writer.writerows((p["row"], table.ids[int(target[p["row"]])]) for p in content["photos"])
    beside = compare_with_person([glyph_run.path], tmp_path / "answers.csv")
    assert (beside.num_rows, beside.coverage.value) == (len(content["photos"]), 1.0)


@pytest.mark.errors
def test_the_verb_refuses(glyph_run, tmp_path):
    result = invoke("papers", "ask", glyph_run.path, "--of", "x", "-o", tmp_path / "a.txt")
    assert "--out must end in .html" in str(result.exception)
    result = invoke("papers", "ask", glyph_run.path, "--of", "x", "-o", tmp_path / "a.html", "--lang", "ja")
    assert "--lang must be one of en, fr, de, es, pt, it, got 'ja'" in str(result.exception)
    result = invoke("papers", "ask", glyph_run.path, "--of", "x", "-o", tmp_path / "a.html")
    assert "group must be a genus" in str(result.exception) and not (tmp_path / "a.html").exists()
