"""Set sizes of methods side by side, and where mistakes lie, on the page: numbers against loops."""

from pathlib import Path

import pytest
import torch

from shortlist.class_table import ClassTable
from shortlist.report.columns import score_columns
from shortlist.report.page import make_page
from shortlist.report.sections.sizes_beside import MOST_METHODS, measure_sizes_beside
from shortlist.report.views import ExperimentView
from shortlist.runs.experiments import group_by_data
from shortlist.runs.groups import group_runs, read_runs
from shortlist.runs.run import Run
from tests.run_factory import scored_run

ROWS, CLASSES = 90, 6
TARGET = torch.arange(ROWS) % CLASSES
TABLE = ClassTable(names=tuple("abcdef"), counts=(50, 40, 30, 20, 10, 5), parents={"genus": tuple("xxyyzz")})


def sized_run(path: Path, *, name: str, seed: int = 0, predictors: dict | None = None) -> Run:
    chosen = {"some": {"name": "average_k", "k": 2}, "fixed": {"name": "topk", "k": 2}}
    content = {"predictors": chosen if predictors is None else predictors}
    data = {"name": "cifar100", "root": str(path.parent / "gone")}
    size, targets = len(name), dict.fromkeys(("val", "test"), TARGET)
    content |= {"data": data, "seed": seed, "name": name, "epochs": size}
    return scored_run(path, TABLE, targets, content, draw=seed + size, skill=2 / size, scale=size)


def view(folder: Path) -> ExperimentView:
    (experiment,) = group_by_data(group_runs(read_runs([folder])[0])[0])
    return ExperimentView(1, experiment, {}, [])


@pytest.fixture
def folder(tmp_path) -> Path:
    for seed in (0, 1):
        sized_run(tmp_path / f"a-{seed}", name="a", seed=seed)
    sized_run(tmp_path / "bcd", name="bcd")
    return tmp_path


def test_bars_are_the_shares_of_sizes_in_a_loop(folder):
    found = measure_sizes_beside(view(folder))
    assert found is not None and [table.caption for table in found.tables] == ["some: number of sets"]
    (table,) = found.tables
    assert list(table.heads) == ["size", "a", "bcd"]
    for place, runs in ((1, ("a-0", "a-1")), (2, ("bcd",))):
        sizes = []
        for name in runs:
            run = Run.open(folder / name)
            sizes += [sum(row) for row in run.predictors["some"](run.scored("test")[0]).tolist()]
        assert [row[place] for row in table.rows] == [sizes.count(int(row[0])) for row in table.rows]
    assert [sign.label for sign in found.signs] == ["a", "bcd"]


def test_the_page_shows_them(folder):
    html, _ = make_page([folder], pictures=False)
    assert 'id="sizes-beside-1"' in html and "Set sizes of the methods" in html
    assert "mistakes within genus" in html


def test_nothing_to_compare_is_not_drawn(tmp_path):
    sized_run(tmp_path / "one" / "a", name="a")
    assert measure_sizes_beside(view(tmp_path / "one")) is None
    for name in ("a", "bb"):
        sized_run(tmp_path / "fixed" / name, name=name, predictors={"two": {"name": "topk", "k": 2}})
    assert measure_sizes_beside(view(tmp_path / "fixed")) is None
    for number in range(MOST_METHODS + 1):
        sized_run(tmp_path / "many" / str(number), name="m" * (number + 1))
    assert measure_sizes_beside(view(tmp_path / "many")) is None


def test_mistakes_within_a_genus_are_a_column(folder):
    columns = score_columns(view(folder).experiment)
    assert columns[-1] == ("mistakes within genus", "confused_within.genus", True)
