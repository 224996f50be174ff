"""Figures of runs by groups of classes, sizes of sets and options: numbers against loops and scipy."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.papers.figures import load_figure
from shortlist.papers.figures._frequency import frequency_groups, rank_correlation
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from shortlist.suites.plan import plan_suite
from shortlist.suites.suite import load_suite
from tests.papers.linear_runs import CLASSES, linear_run
from tests.papers.test_figures_runs import interval, legend_texts
from tests.run_factory import finished_run

ROWS = 120
COUNTS = (5, 150, 60, 200, 10, 20)
TARGET = torch.arange(ROWS) ** 2 % 5  # classes 0, 1 and 4
SUITES = Path(__file__).parents[2] / "recipes" / "checks"


AVERAGE_2 = {"two": {"name": "average_k", "k": 2}}


def average_run(path: Path, *, seed: int = 0, overrides: tuple[str, ...] = ()) -> Run:
    """A run whose scores differ from those of runs with other overrides."""
    options = {"seed": seed, "draw": sum(map(ord, "".join(overrides))), "overrides": overrides}
    return linear_run(path, TARGET, COUNTS, predictors=AVERAGE_2, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three seeds with SGD, one run with Adam."""
    folder = tmp_path_factory.mktemp("groups")
    for seed in range(3):
        average_run(folder / f"sgd-{seed}", seed=seed, overrides=("name=sgd",))
    average_run(folder / "adam", seed=1, overrides=("name=adam", "optimizer.name=adam"))
    return folder


def paths(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), reverse=True)  # sgd first


def round_trip(numbers: dict) -> dict:
    return json.loads(json.dumps(numbers, allow_nan=False))


def errors_of(scores: np.ndarray, k: int = 1) -> dict[int, float]:
    wrong: dict[int, list[bool]] = {}
    for row, label in zip(scores, TARGET.tolist(), strict=True):
        wrong.setdefault(label, []).append(sum(row >= row[label]) > k)
    return {label: float(np.mean(found)) for label, found in wrong.items()}


def test_groups_by_frequency():
    found = frequency_groups(torch.tensor(COUNTS), 4)
    assert [group.tolist() for group in found] == [[3, 1], [2, 5], [4], [0]]
    assert len(frequency_groups(torch.tensor(COUNTS), 100)) == CLASSES
    equal = frequency_groups(torch.tensor([7, 7, 7]), 2)
    assert [group.tolist() for group in equal] == [[0, 1], [2]]


def test_rank_correlation_is_scipys():
    generator = torch.Generator().manual_seed(0)
    for ties in (3, 1000):
        first = torch.randint(ties, (40,), generator=generator)
        second = torch.randn(40, generator=generator) + first / ties
        expected = stats.spearmanr(first.numpy(), second.numpy()).statistic
        assert rank_correlation(first, second) == pytest.approx(expected)
    assert rank_correlation(torch.ones(3), torch.arange(3)) is None


# weight_norms


def test_norms_in_a_loop(folder):
    numbers = round_trip(load_figure("weight_norms").measure(runs=paths(folder), groups=3))
    sgd, adam = numbers["methods"]
    assert (sgd["label"], adam["label"], numbers["groups"]) == ("sgd", "adam", 3)
    members = [[3, 1], [2, 5], [4, 0]]
    assert sgd["images"] == [175, 40, 7.5]
    for method in (sgd, adam):
        norms = [Run.open(Path(path)).load_norms()[0].double().numpy() for path in method["runs"]]
        means = np.array([[one[group].mean() for group in members] for one in norms])
        assert method["norm"] == pytest.approx(means.mean(0))
        expected = [stats.spearmanr(one, COUNTS).statistic for one in norms]
        assert method["correlation_of_runs"] == pytest.approx(expected)
        assert method["mean"]["value"] == pytest.approx(np.mean(norms))
    assert sgd["deviation"] == pytest.approx(means_of(sgd, members).std(0, ddof=1))
    ends = [interval(column) for column in means_of(sgd, members).T]
    assert list(zip(sgd["low"], sgd["high"], strict=True)) == [pytest.approx(end) for end in ends]
    assert adam["deviation"] == [None] * 3


def means_of(method: dict, members) -> np.ndarray:
    norms = [Run.open(Path(path)).load_norms()[0].double().numpy() for path in method["runs"]]
    return np.array([[one[group].mean() for group in members] for one in norms])


def test_errors_with_and_without_norms(folder):
    numbers = load_figure("weight_norms").measure(runs=[folder / "adam"])
    run = Run.open(folder / "adam")
    scores = run.load_scores("test")[0].double().numpy()
    norms, offsets = (one.double().numpy() for one in run.load_norms())
    (method,) = numbers["methods"]
    assert numbers["groups"] == CLASSES  # no more groups than classes
    assert method["error"]["value"] == pytest.approx(np.mean(list(errors_of(scores).values())))
    normalized = (scores - offsets) / norms + offsets
    assert method["normalized_error"]["value"] == pytest.approx(np.mean(list(errors_of(normalized).values())))


def test_norms_are_drawn_in_units_of_their_mean(folder):
    figure = load_figure("weight_norms")
    numbers = round_trip(figure.measure(runs=paths(folder), groups=3))
    drawing = figure.draw(numbers)
    (axes,) = drawing.axes
    for container, method in zip(axes.containers, numbers["methods"], strict=True):
        unit = method["mean"]["value"]
        assert list(container.lines[0].get_ydata()) == pytest.approx([one / unit for one in method["norm"]])
    correlation = numbers["methods"][0]["correlation"]["value"]
    assert legend_texts(drawing)[0] == f"sgd: rank correlation {correlation:+.2f}"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["175", "40", "8"]


@pytest.mark.errors
def test_weight_norms_refuses(folder, tmp_path):
    measure = load_figure("weight_norms").measure
    with pytest.raises(ValueError, match="groups must be an integer >= 1, got 0"):
        measure(runs=paths(folder), groups=0)
    recipe = make_recipe({"predictors": {}}, [])
    made = {part: (torch.randn(ROWS, CLASSES), TARGET) for part in ("val", "test")}
    bare = finished_run(tmp_path / "bare", recipe, made, ClassTable(names=tuple("abcdef"), counts=COUNTS))
    with pytest.raises(ValueError, match="has no norms of class weights"):
        measure(runs=[bare.path])


# error_by_group


def test_bars_of_few_medium_and_many_in_a_loop(folder):
    measure = load_figure("error_by_group").measure
    numbers = round_trip(measure(runs=paths(folder), few_below=10, many_above=99))
    assert numbers["groups"] == ["many", "medium", "few"]
    sgd, adam = numbers["methods"]
    assert sgd["classes"] == [1, 1, 1]  # 1 has 150 images, 4 has 10, 0 has 5; the others have no test rows
    assert sgd["images"] == [150, 10, 5]
    for method in (sgd, adam):
        found = [errors_of(Run.open(Path(run)).scored("test")[0].numpy()) for run in method["runs"]]
        rows = np.array([[one[label] for label in (1, 4, 0)] for one in found])
        assert method["error"] == pytest.approx(rows.mean(0))
        if len(rows) > 1:
            assert (method["low"][0], method["high"][0]) == pytest.approx(interval(rows[:, 0]))


def test_groups_of_equally_many_classes_in_a_loop(folder):
    numbers = round_trip(load_figure("error_by_group").measure(runs=[folder / "adam"], groups=2, k=2))
    assert numbers["groups"] == ["1", "2"]
    found = errors_of(Run.open(folder / "adam").scored("test")[0].numpy(), 2)
    (method,) = numbers["methods"]
    assert method["classes"] == [1, 2]  # 3, 1, 2 and 5, 4, 0
    assert method["error"] == pytest.approx([found[1], (found[4] + found[0]) / 2])
    third = load_figure("error_by_group").measure(runs=[folder / "adam"], groups=3)["methods"][0]
    assert third["error"][1] is None and third["classes"] == [1, 0, 2]  # no test rows in the middle


def test_bars_are_drawn(folder):
    figure = load_figure("error_by_group")
    numbers = round_trip(figure.measure(runs=paths(folder), groups=3))
    drawing = figure.draw(numbers)
    drawing.draw_without_rendering()
    (axes,) = drawing.axes
    bars = [container for container in axes.containers if hasattr(container, "patches")]
    for container, method in zip(bars, numbers["methods"], strict=True):
        heights = [None if math.isnan(bar.get_height()) else bar.get_height() / 100 for bar in container]
        assert heights == pytest.approx(method["error"])
    assert axes.get_xticklabels()[0].get_text() == "1\n1\n150"


@pytest.mark.errors
def test_error_by_group_refuses(folder):
    measure = load_figure("error_by_group").measure
    with pytest.raises(ValueError, match="groups must be an integer >= 0, got -1"):
        measure(runs=paths(folder), groups=-1)
    with pytest.raises(ValueError, match=r"few_below must be in \[0, many_above \+ 1 = 6\], got 21"):
        measure(runs=[folder / "adam"], many_above=5)


# set_sizes


def test_sizes_in_a_loop(folder):
    numbers = round_trip(load_figure("set_sizes").measure(runs=paths(folder), predictor="two"))
    for method in numbers["methods"]:
        shares, groups = [], {"few": [], "medium": [], "many": []}
        for path in method["runs"]:
            run = Run.open(Path(path))
            sets = run.predictors["two"](run.scored("test")[0]).tolist()
            sizes = [sum(row) for row in sets]
            shares.append([sizes.count(size) / ROWS for size in range(len(numbers["bins"]))])
            for name, classes in (("few", (0, 4)), ("many", (1,))):
                own = [s for s, label in zip(sizes, TARGET.tolist(), strict=True) if label in classes]
                groups[name].append([own.count(size) / len(own) for size in range(len(numbers["bins"]))])
        assert numbers["bins"] == [[size, size] for size in range(len(shares[0]))]
        assert method["share"]["value"] == pytest.approx(np.mean(shares, 0))
        assert method["groups"].keys() == {"few", "many"}
        for name, found in method["groups"].items():
            assert found["value"] == pytest.approx(np.mean(groups[name], 0))
        mean = np.mean([sum(i * one for i, one in enumerate(share)) for share in shares])
        assert method["mean_size"]["value"] == pytest.approx(mean)


def test_sizes_are_drawn_side_by_side(folder):
    figure = load_figure("set_sizes")
    numbers = round_trip(figure.measure(runs=paths(folder), predictor="two"))
    drawing = figure.draw(numbers)
    drawing.draw_without_rendering()
    first, *others = drawing.axes
    assert len(others) == 2
    for container, method in zip(first.containers, numbers["methods"], strict=True):
        heights = [bar.get_height() / 100 for bar in container]
        assert heights == pytest.approx(method["share"]["value"])
    assert others[1].get_title() == "adam, by group of the true class"
    assert legend_texts(drawing)[2:] == ["few", "many"]


@pytest.mark.errors
def test_set_sizes_refuses(folder):
    with pytest.raises(ValueError, match="has no predictor average5, only two"):
        load_figure("set_sizes").measure(runs=paths(folder))


# scatter


def results_of(path: str) -> dict:
    return Results.load(Path(path) / "results.json").metrics()


def test_scatter_reads_two_metrics(folder, tmp_path):
    average_run(tmp_path / "third", seed=5, overrides=("name=third", "model=mlp"))
    measure = load_figure("scatter").measure
    numbers = round_trip(measure(runs=[*paths(folder), tmp_path / "third"], x="top3.macro", y="nll"))
    assert [point["label"] for point in numbers["points"]] == ["sgd", "adam", "third"]
    assert numbers["points"][2]["network"] == "mlp"
    pairs = []
    for point in numbers["points"]:
        values = [[results_of(run)[name].value for run in point["runs"]] for name in ("top3.macro", "nll")]
        assert [point[axis]["value"] for axis in "xy"] == pytest.approx([np.mean(one) for one in values])
        pairs.append([point["x"]["value"], point["y"]["value"]])
    assert numbers["correlation"] == pytest.approx(np.corrcoef(np.array(pairs).T)[0, 1])
    assert numbers["rank_correlation"] == pytest.approx(stats.spearmanr(*np.array(pairs).T).statistic)
    two = measure(runs=paths(folder))
    assert two["correlation"] is None and two["rank_correlation"] is None


@pytest.mark.parametrize("number", [2, 14])
def test_scatter_is_drawn_with_names_or_numbers(folder, number):
    figure = load_figure("scatter")
    numbers = round_trip(figure.measure(runs=paths(folder)))
    numbers["points"] = (numbers["points"] * 7)[:number]
    drawing = figure.draw(numbers)
    drawing.draw_without_rendering()
    (axes,) = drawing.axes
    assert len(axes.containers) == number
    point = numbers["points"][1]
    shown = axes.containers[1].lines[0].get_xydata()[0]
    assert list(shown) == pytest.approx([100 * point["x"]["value"], 100 * point["y"]["value"]])
    assert axes.texts[1].get_text() == ("adam" if number == 2 else "2")
    assert axes.get_xlabel() == "top1.micro (%)"


@pytest.mark.errors
def test_scatter_refuses(folder):
    with pytest.raises(ValueError, match=r"has no metric top7\.micro"):
        load_figure("scatter").measure(runs=paths(folder), x="top7.micro")


# sweep

RANKED = ("loss=ranked_topk", "loss.distribution=[0.5, 0.5]")


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    """Two steepnesses with two methods of ranking, one of them with two seeds; cross-entropy."""
    folder = tmp_path_factory.mktemp("swept")
    for method, lrs in (("splitter", (0.1, 0.3)), ("softsort", (0.1, 0.1))):
        for steepness, lr in zip((1, 10), lrs, strict=True):
            settings = (*RANKED, f"loss.method={method}", f"loss.steepness={steepness}", f"optimizer.lr={lr}")
            for seed in (0, 1) if method == "splitter" else (0,):
                average_run(folder / f"{method}-{steepness}-{seed}", seed=seed, overrides=settings)
    average_run(folder / "ce", overrides=("name=ce",))
    return folder


def test_sweep_lines_and_levels(swept):
    runs = sorted(swept.iterdir())
    numbers = round_trip(load_figure("sweep").measure(runs=runs, metrics=["top1.micro", "nll"]))
    found = {line["label"]: line["points"] for line in numbers["lines"]}
    assert found.keys() == {"method splitter", "method softsort"}
    for label, points in found.items():
        assert [point["value"] for point in points] == [1, 10]
        for point in points:
            name = f"{label.split()[1]}-{point['value']:g}"
            seeds = (0, 1) if "splitter" in label else (0,)
            for metric in ("top1.micro", "nll"):
                values = [results_of(str(swept / f"{name}-{seed}"))[metric].value for seed in seeds]
                assert point["metrics"][metric]["value"] == pytest.approx(np.mean(values))
    assert [point["chosen"] for point in found["method splitter"]] == [
        {"optimizer.lr": 0.1},
        {"optimizer.lr": 0.3},
    ]
    (level,) = numbers["levels"]
    assert level["line"] == level["label"] and level["label"].startswith("ce")
    assert level["metrics"]["nll"]["value"] == results_of(str(swept / "ce"))["nll"].value


def test_sweep_over_an_entry_of_a_list(tmp_path):
    for share in (0.25, 0.75):
        settings = ("loss=ranked_topk", f"loss.distribution=[{1 - share}, {share}]")
        average_run(tmp_path / str(share), overrides=settings)
    numbers = load_figure("sweep").measure(runs=sorted(tmp_path.iterdir()), key="loss.distribution.1")
    (line,) = numbers["lines"]
    assert line["label"] == "" and [point["value"] for point in line["points"]] == [0.25, 0.75]


def test_sweep_is_drawn(swept):
    figure = load_figure("sweep")
    numbers = round_trip(figure.measure(runs=sorted(swept.iterdir()), metrics=["top1.micro", "nll"]))
    drawing = figure.draw(numbers)
    drawing.draw_without_rendering()
    first, second = drawing.axes
    for axes, metric, factor in ((first, "top1.micro", 100), (second, "nll", 1)):
        for line, found in zip(axes.lines, numbers["lines"], strict=False):
            shown = [factor * point["metrics"][metric]["value"] for point in found["points"]]
            assert list(line.get_xdata()) == [1, 10] and list(line.get_ydata()) == pytest.approx(shown)
        assert axes.get_xscale() == "log"
    assert first.get_ylabel() == "top1.micro (%)" and second.get_ylabel() == "nll"


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "loss.candidats"}, "key must be an option of at least one run that is a number, got"),
        ({"key": "loss.name"}, "which is no number"),
        ({"metrics": ["nll2"]}, "has no metric nll2"),
        ({"metrics": []}, "metrics must have at least one entry"),
        ({"chosen": ["optimizer.lr", "loss.method"]}, "must have each loss.steepness once, got 1 twice"),
    ],
)
def test_sweep_refuses(swept, options, message):
    with pytest.raises(ValueError, match=message):
        load_figure("sweep").measure(runs=sorted(swept.iterdir()), **options)


@pytest.mark.parametrize("name", ["weight_norms", "ranked_candidates", "ranked_steepness"])
def test_the_suites_of_the_figures_can_be_planned(name):
    suite = load_suite(SUITES / f"{name}.yaml")
    assert plan_suite(suite)


@pytest.mark.parametrize(
    ("name", "options"),
    [("weight_norms", {}), ("error_by_group", {}), ("set_sizes", {"predictor": "two"}), ("scatter", {})],
)
def test_figures_of_runs_say_how_far_they_are(folder, name, options):
    told = []
    load_figure(name).measure(runs=paths(folder), progress=lambda *words: told.append(words), **options)
    assert told == [("reading runs", i, 4) for i in range(1, 5)]
