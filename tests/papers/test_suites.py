"""The suites of published experiments: each parses, and they make every number that a run can have."""

import re
from pathlib import Path

import pytest
import torch

from shortlist.datasets.embeddings import save_embeddings
from shortlist.losses import LOSSES
from shortlist.papers import recipe_path
from shortlist.papers.matching import find_published
from shortlist.papers.published import PublishedTable, load_published
from shortlist.report.sections.beside_published import published_table
from shortlist.runs.experiments import Experiment
from shortlist.runs.groups import group_runs, read_runs
from shortlist.suites.plan import Cell, plan_suite, resolve, source_cell
from shortlist.suites.run import run_suite
from shortlist.suites.suite import Suite, SuiteError, load_suite
from tests.datasets import trees

FOLDER = recipe_path("garcin2022_noise").parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
PLANS: dict[str, tuple[Suite, list[Cell]]] = {}


def plan(name: str) -> tuple[Suite, list[Cell]]:
    if name not in PLANS:
        suite = load_suite(FOLDER / f"{name}.yaml")
        PLANS[name] = suite, plan_suite(suite)
    return PLANS[name]


def runs_of(suite: Suite, cell: Cell) -> int:
    """Each seed at the chosen point, and the seeds that choose at all others."""
    return len(suite.seeds) + (len(cell.points) - 1) * len(suite.tune.seeds)


@pytest.mark.parametrize("name", NAMES)
def test_every_suite_parses_and_says_how_many_runs_it_trains(name):
    suite, cells = plan(name)
    trained = sum(runs_of(suite, cell) for cell in cells if cell.method.trains)
    assert suite.name == name
    assert re.findall(r"\b(\d+) (?:trained )?runs\b", suite.about) == [str(trained)]
    assert f"shortlist suite run papers:{name}" in (FOLDER / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("petersen2022")])
def test_the_unpublished_steepness_of_sinkhorn_sort_is_chosen(name):
    """No run has that of somebody else's data: by factors of 2, on validation rows."""
    suite, cells = plan(name)
    tried = 0
    for cell in cells:
        losses = [resolve(suite, cell, point, 0).loss for point in cell.points]
        if losses[0].name == "ranked_topk" and losses[0].method == "sinkhorn":
            assert [loss.steepness for loss in losses] == [2.0**power for power in range(-2, 6)]
            tried += 1
    assert tried


def numbers_of(table: PublishedTable) -> set[tuple[str, str, str]]:
    """Row, column and metric of every number."""
    return {
        (row.method, column.name, number.metric)
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        for number in cell
    }


def numbers_made(name: str, tables: list[PublishedTable]) -> set[tuple[str, str, str, str]]:
    """Table, row, column and metric of every number that a run of the suite has, with no departure."""
    suite, cells = plan(name)
    made = set()
    for cell in cells:
        source = source_cell(cell, cells)
        first = None if source is None else (source, source.points[0])
        recipe = resolve(suite, cell, cell.points[0], 0, first).model_dump(mode="json")
        for value in find_published(recipe, every=True):
            if value.table in tables and not set(value.departures) - {value.number.remark} - ALLOWED:
                made.add((value.table.name, value.method, value.column, value.metric))
    return made


# rows to fit tau on are taken from the training rows here, and are the test rows there
ALLOWED = {"data.val_size 1000, there 0", "data.val_fraction 0.05, there 0.0"}

# the equalized loss is that of Tan et al. there, whose threshold is not stated
ALLOWED |= {"loss.threshold not set, there a value that is not stated"}

# what is given to a loss by the run or changes no method, and what papers tune without saying it
UNNAMED = {
    "name",
    "k",
    "class_counts",
    "class_balanced",
    "estimates",
    "zero_counts",
    "generator",
    "noise",
    "margins",
}
UNNAMED |= {"steepness", "label_smoothing"}


def other(value):
    """A value that no publication has."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return 0.123 if value is None else 2 * value + 0.37
    return not value if isinstance(value, bool) else [*value, 0.5] if isinstance(value, list) else "other"


def test_every_option_of_a_loss_that_differs_is_a_departure_or_another_method():
    seen, tried = set(), 0
    for name in sorted({t.suite for t in load_published() if t.compared}):
        suite, cells = plan(name)
        for cell in cells:
            if not cell.method.trains:
                continue
            recipe = resolve(suite, cell, cell.points[0], 0).model_dump(mode="json")
            loss = recipe["loss"]
            if (key := (name, loss["name"], loss.get("method"))) in seen:
                continue
            seen.add(key)
            for option in sorted(loss.keys() - UNNAMED):
                if option in ("art_lambda", "comparator", "wiring") and loss["method"] not in NETWORKS:
                    continue
                if option == "art_lambda" and loss["comparator"] != "logistic_phi":
                    continue
                changed = recipe | {"loss": loss | {option: other(loss[option])}}
                for value in find_published(changed, every=True):
                    stated = value.table.setting | column_of(value).setting | row_of(value).setting
                    if stated.get(f"loss.{option}") == "*":  # the paper does not say it
                        continue
                    tried += 1
                    assert any(one.startswith(f"loss.{option} ") for one in value.departures), (key, option)
    assert tried > 500
    assert {loss for _, loss, _ in seen} >= losses_of_tables()


def losses_of_tables():
    """The losses that a printed table has a row of."""
    named = set()
    for table in load_published():
        for part in (table, *table.columns, *table.rows):
            value = part.when.get("loss.name", [])
            named |= {value} if isinstance(value, str) else set(value)
    return named


@pytest.mark.parametrize("loss", [*sorted(set(LOSSES) - losses_of_tables()), "mine:Loss"])
def test_a_loss_that_no_table_has_is_no_published_method(loss):
    for name in sorted({t.suite for t in load_published() if t.compared}):
        suite, cells = plan(name)
        cell = next(cell for cell in cells if cell.method.trains)
        recipe = resolve(suite, cell, cell.points[0], 0).model_dump(mode="json")
        assert find_published(recipe | {"loss": {"name": loss}}, every=True) == []


NETWORKS = ("splitter", "bitonic", "odd_even")


def row_of(value):
    return next(row for row in value.table.rows if row.method == value.method)


def column_of(value):
    return next(column for column in value.table.columns if column.name == value.column)


@pytest.mark.parametrize("name", sorted({t.suite for t in load_published() if t.compared}))
def test_the_suite_of_a_table_makes_every_number_of_it(name):
    tables = [t for t in load_published() if t.suite == name]
    made = numbers_made(name, tables)
    for table in tables:
        wanted = {(table.name, *key) for key in numbers_of(table)}
        assert wanted - made == set()


def test_a_variant_needs_a_base_that_is_a_file(tmp_path):
    (tmp_path / "suite.yaml").write_text("name: s\nbase: {epochs: 1}\nmethods: {a: {variant: smooth}}\n")
    with pytest.raises(SuiteError, match=r"methods\.a\.variant needs a base that is a file"):
        load_suite(tmp_path / "suite.yaml")
    base = recipe_path("cifar100_top5_noise")
    (tmp_path / "suite.yaml").write_text(f"name: s\nbase: {base}\nmethods: {{a: {{variant: smoth}}}}\n")
    with pytest.raises(SuiteError, match="did you mean 'smooth'"):
        load_suite(tmp_path / "suite.yaml")


def test_overrides_of_a_suite_come_last():
    suite = load_suite(FOLDER / "menon2021_cifar_lt.yaml", ["data.root=here", "epochs=3"])
    roots = {
        (cell.axes["set"], resolve(suite, cell, cell.points[0], 0).data.options["root"])
        for cell in plan_suite(suite)
        if cell.method.trains
    }
    assert roots == {("cifar10_lt", "here"), ("cifar100_lt", "here")}


DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_papers_names_every_suite_and_every_table():
    text = (DOCS / "guides/papers.md").read_text()
    assert {name for name in NAMES if f"`{name}`" not in text} == set()
    of_paper = dict(re.findall(r"^## (\w+ et al\., \w* ?\d{4}).*?\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    parts = {
        "garcin2022": of_paper["Garcin et al., ICML 2022"],
        "garcin2023": of_paper["Garcin et al., 2023"],
        "garcin2021": of_paper["Garcin et al., NeurIPS 2021"],
        "petersen2022": of_paper["Petersen et al., ICML 2022"],
        "menon2021": of_paper["Menon et al., ICLR 2021"],
    }
    for table in load_published():
        lines = [line for line in parts[table.paper].splitlines() if f"`{table.suite}`" in line]
        number = table.table.removeprefix("thesis ")
        if not table.suite:
            lines = parts[table.paper].splitlines()
        places = [line.split("|")[1] for line in lines if line.startswith("|")]
        assert any(re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", place) for place in places), (
            table.name
        )


def trained_runs(path: Path) -> int:
    """Trainings of a suite; runs that begin with a second stage of the same network share one."""
    suite, trainings = load_suite(path), set()
    for cell in plan_suite(suite):
        points = cell.points if cell.method.trains else []
        for number, point in enumerate(points):
            for seed in suite.seeds if number == 0 else suite.tune.seeds:
                recipe = resolve(suite, cell, point, seed).model_dump_json(
                    exclude={"name", "about", "second_stage", "adjust", "predictors", "evaluation"}
                )
                trainings.add(recipe)
    return len(trainings)


def test_the_page_of_suites_counts_their_runs():
    lines = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \|.*\| (\d+)(?: each)? \|$",
        (DOCS / "reference/suites.md").read_text(),
        re.M,
    )
    rows = {
        name: number for names, number in lines for name in re.findall(r"\w+", names) if name not in NAMES
    }
    measured = DOCS.parent / "recipes"
    files = {path.stem: path for kind in ("cpu/*.yaml", "real/*_*.yaml") for path in measured.glob(kind)}
    assert rows == {name: str(trained_runs(path)) for name, path in files.items()}


# Short trainings of each kind of suite, on small data in the layouts of the real sets.

SHORT = [
    "batch_size=8",
    "optimizer.lr=1.0e-4",
    "schedule.warm_up=0",
    "workers=0",
    "accelerator=cpu",
    "loggers=[]",
]
CNN = ["model=small_cnn", *SHORT]


def short_suite(name: str, methods: list[str], overrides: list[str], **changes) -> Suite:
    suite = load_suite(FOLDER / f"{name}.yaml", overrides)
    kept = {method: suite.methods[method] for method in methods}
    return suite.model_copy(update={"seeds": [0], "methods": kept, "baseline": None, **changes})


def rows_beside(folder: Path) -> set[tuple[str, str]]:
    """Metric and published number of the rows that the page would show."""
    groups, left_out = group_runs(read_runs([folder])[0])
    assert not left_out
    tables = [published_table(Experiment("one", [group])) for group in groups]
    return {(row[1], row[2].text) for table in tables if table is not None for row in table.table.rows}


@pytest.mark.slow
def test_a_short_run_of_long_tails_by_steps(tmp_path):
    trees.cifar10(tmp_path / "data", per_class=40)
    methods = ["cross_entropy", "weight_normalization", "post_hoc", "logit_adjusted"]
    overrides = [f"data.root={tmp_path / 'data'}", "steps=3", *CNN, "batch_size=64"]
    suite = short_suite(
        "menon2021_cifar_step", methods, overrides, vary={"set": {"cifar10_lt": ["data.profile=step"]}}
    )
    state = run_suite(suite, tmp_path / "runs")
    assert not state.failed and not state.undecided
    shown = rows_beside(tmp_path / "runs" / suite.name)
    assert {"36.54", "30.86", "28.66", "27.57"} <= {number for _, number in shown}


@pytest.mark.slow
def test_a_short_run_of_the_noise(tmp_path):
    trees.cifar100(tmp_path / "data", per_class=30, classes=10)
    overrides = [
        f"data.root={tmp_path / 'data'}",
        "data.val_size=20",
        "epochs=1",
        *CNN,
    ]
    overrides += ["schedule=constant"]
    suite = short_suite("garcin2022_noise", ["noised"], overrides, vary={"loss.noise_std": [0.0, 1.0]})
    state = run_suite(suite, tmp_path / "runs")
    assert not state.failed
    shown = rows_beside(tmp_path / "runs" / suite.name)
    assert {("validation.top5", "19.38"), ("validation.top5", "94.24")} <= shown


@pytest.mark.slow
def test_a_short_run_of_lists_of_twenty(tmp_path):
    generator = torch.Generator().manual_seed(0)
    for part, count in {"train": 180, "test": 60}.items():
        rows = torch.randn(count, 8, generator=generator)
        save_embeddings(tmp_path / "data" / f"{part}.safetensors", rows, torch.arange(count) % 60)
    methods = ["cross_entropy", "networks_k20_5050", "sinkhorn_k10_1090"]
    overrides = [f"data.root={tmp_path / 'data'}", "data.val_fraction=0.3", "epochs=1", *SHORT]
    vary = {"selection.metric": ["top10", "top20"]}
    suite = short_suite("petersen2022_imagenet21kp", methods, overrides, vary=vary)
    state = run_suite(suite, tmp_path / "runs")
    assert not state.failed
    shown = rows_beside(tmp_path / "runs" / suite.name)
    assert {("top20.micro", "85.49"), ("top10.micro", "79.33"), ("top20.micro", "85.33")} <= shown
