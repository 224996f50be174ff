"""What the data say about photos is on the page: credits below pictures, and numbers by organ or view."""

import csv
import html
import re
from collections import defaultdict

import pytest
from PIL import Image

from shortlist.recipes.recipe import make_recipe
from shortlist.report.page import make_page
from shortlist.training.fit import train
from tests.training.small import silent

ORGANS = ("leaf", "leaf", "leaf", "<b>flower</b>", "<b>flower</b>", "")


def write_list(path, *, organs=ORGANS) -> list[dict[str, str]]:
    """Four classes by color; of each, photos to learn from and one test photo of each of the organs."""
    rows = []
    for index in range(4):
        for number in range(12 + len(organs)):
            file = path.parent / f"{index}-{number}<i>.png"
            Image.new("RGB", (8, 8), (60 * index, 10 * number, 90)).save(file)
            part = "train" if number < 8 else "val" if number < 12 else "test"
            row = {"path": file.name, "label": f"class {index}", "split": part, "author": f"Ann <{number}>"}
            row |= {"licence": "cc-by", "date": "2024-05-01", "observation": f"o{index}-{number}"}
            rows.append(row | {"view": organs[number - 12] if part == "test" else "leaf"})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return rows


def organ_run(tmp_path, **about):
    rows = write_list(tmp_path / "photos.csv", **about)
    content = {
        "data": {"name": "image_list", "path": str(tmp_path / "photos.csv"), "image_size": 32},
        "model": {"name": "small_cnn", "width": 4},
        "epochs": 1,
        "batch_size": 16,
        "predictors": {"top2": {"name": "topk", "k": 2}},
        "loggers": [],
    }
    return rows, train(make_recipe(content), tmp_path / "run", progress=silent)


@pytest.mark.filterwarnings("ignore")
def test_credits_and_numbers_by_organ(tmp_path):
    rows, run = organ_run(tmp_path)
    page, outcome = make_page([run.path])
    assert list(outcome.remarks) == []
    shown = set(re.findall(r"Photo: (.*?)</p>", page))
    test = [row for row in rows if row["split"] == "test"]
    credits = [
        ", ".join(part for part in (row["view"], f"by {row['author']}", "cc-by", "2024-05-01") if part)
        for row in test
    ]
    assert shown and shown <= {html.escape(one, quote=True) for one in credits}
    files = re.findall(r"Test row (\d+), (.*?)\.(?: Set|</p>)", page)
    assert files and all(html.unescape(file) == test[int(row)]["path"] for row, file in files)
    mistaken = re.findall(r'<p class="soft files">(.*?)</p>', page)
    assert mistaken and set(", ".join(mistaken).split(", ")) <= {html.escape(row["path"]) for row in test}
    assert "<b>flower" not in page and 'title="leaf, by Ann &lt;' in page

    scores, target = run.load_scores("test")
    hits = defaultdict(list)
    for score, true, row in zip(scores, target.tolist(), test, strict=True):
        better = int((score >= score[true]).sum())
        hits[row["view"] or "not known"].append((better <= 1, better <= 2))
    table = page[page.index("By organ or view") :].partition("</figure>")[0]
    lines = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', table, flags=re.S)
    assert [html.unescape(name) for name, _ in lines] == ["leaf", "<b>flower</b>", "not known"]
    for name, cells in lines:
        own = hits[html.unescape(name)]
        numbers = re.findall(r'<td class="n">(?:<span>)?([\d.]+)', cells)
        expected = [len(own), *(100 * sum(one) / len(own) for one in zip(*own, strict=True))]
        assert [float(number) for number in numbers] == pytest.approx(expected, abs=0.05)


@pytest.mark.filterwarnings("ignore")
def test_without_two_organs_there_is_nothing_to_compare(tmp_path):
    _, run = organ_run(tmp_path, organs=("leaf", ""))
    page, _ = make_page([run.path])
    assert "By organ or view" not in page and "Photo: by Ann" in page
    assert "By organ or view" not in make_page([run.path], pictures=False)[0]
