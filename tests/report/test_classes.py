"""The table of classes: numbers against loops, the worst class first."""

import html
import re

import pytest
import torch

from shortlist.class_table import ClassTable
from shortlist.report.page import make_page
from shortlist.report.rows import measure_method
from shortlist.report.sections import classes
from shortlist.report.sections.classes import measure_classes
from shortlist.report.views import MethodView
from shortlist.runs.groups import read_runs
from tests.report.test_page import HOSTILE, experiments, folders, page_run, runs  # noqa: F401 (runs is a fixture)


def test_classes_against_loops(runs):  # noqa: F811
    read, _ = read_runs(folders(runs))
    method = experiments(read)[0].methods[0]
    section = measure_classes(MethodView("1-1", method, measure_method(method), None))
    table = method.runs[0].class_table
    lines = {}
    for index, name in enumerate(table.names):
        rows = top1 = top5 = 0
        held = dict.fromkeys(("average_2", "conformal_80", "top_3"), 0)
        sizes = dict.fromkeys(held, 0)
        for run in method.runs:
            scores, target = run.load_scores("test")
            for score in scores[target == index]:
                place = int((score >= score[index]).sum())
                rows, top1, top5 = rows + 1, top1 + (place <= 1), top5 + (place <= 5)
                for key in held:
                    inside = run.predictors[key](score[None])[0]
                    held[key] += bool(inside[index])
                    sizes[key] += int(inside.sum())
        if rows:
            lines[name] = [rows, top1 / rows, top5 / rows]
            lines[name] += [held["average_2"] / rows, sizes["average_2"] / rows]
            lines[name] += [held["conformal_80"] / rows, sizes["conformal_80"] / rows, held["top_3"] / rows]
    assert list(section.table.heads) == [
        *("class", "training rows", "test rows", "top-1", "top-5"),
        *("in average_2", "its size", "in conformal_80", "its size", "in top_3"),
    ]  # sets of three classes have no column of sizes
    assert len(section.table.rows) == len(lines) == 20 and section.left_out == 0
    for row in section.table.rows:
        number, *shares = lines[row[0]]
        assert row[1:3] == [table.counts[table.names.index(row[0])], number]
        scales = [1 if head == "its size" else 100 for head in section.table.heads[3:]]
        found = [float(cell) / scale for cell, scale in zip(row[3:], scales, strict=True)]
        assert found == pytest.approx(shares, abs=0.0051)
    order = [(lines[row[0]][1], lines[row[0]][2], row[0]) for row in section.table.rows]
    assert order == sorted(order)
    assert HOSTILE in lines


def test_classes_without_test_rows_and_very_many(tmp_path, monkeypatch):
    table = ClassTable([f"class {i}" for i in range(12)], counts=[9] * 12)
    targets = {"val": torch.arange(60) % 12, "test": torch.arange(60) % 11}
    content = {"data": {"name": "cifar100", "root": str(tmp_path / "gone")}, "predictors": {}}
    page_run(tmp_path / "run", content, table=table, targets=targets)
    page, _ = make_page([tmp_path / "run"])
    figure = page[page.index('id="classes-1-1"') :].partition("</figure>")[0]
    assert re.findall(r'<th scope="col".*?>(.*?)</th>', figure) == [
        *("class", "training rows", "test rows", "top-1", "top-5")
    ]
    assert figure.count('<th scope="row">') == 11 and "1 class has no test rows." in figure
    monkeypatch.setattr(classes, "MOST", 4)
    page, _ = make_page([tmp_path / "run"])
    figure = html.unescape(page[page.index('id="classes-1-1"') :].partition("</figure>")[0])
    assert figure.count('<th scope="row">') == 4
    words = " ".join(figure.split())
    assert "The 4 worst of 11 classes are shown; results.json of each run has all." in words
