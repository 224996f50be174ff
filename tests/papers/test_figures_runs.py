import itertools
import json
import math
import shutil
from dataclasses import astuple
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from shortlist.class_table import ClassTable
from shortlist.datasets.gaussians import gaussian_genera
from shortlist.metrics import Estimate, Results
from shortlist.papers.figures import FIGURES, load_figure
from shortlist.papers.figures._runs import seed_mean
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.folder import RunFolder
from shortlist.runs.run import Run
from shortlist.scores import normalize_classifier
from shortlist.suites.plan import plan_suite, resolve
from shortlist.suites.suite import load_suite
from shortlist.training.fit import train
from tests.papers.linear_runs import CLASSES, linear_layer, linear_run
from tests.run_factory import save_scores, scored_run, seal

ROWS = 180
COUNTS = (200, 150, 60, 30, 10, 0)
TARGET = torch.arange(ROWS) ** 2 % 5  # the last class has no rows; the others have 0: 72, 1: 72, 4: 36


plain_run = partial(linear_run, target=TARGET, counts=COUNTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three seeds of one method, one of another whose scores are adjusted, and a run that is not finished."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        plain_run(folder / f"plain-{seed}", seed=seed, overrides=("name=plain",))
    plain_run(
        folder / "one", seed=7, skill=2.0, overrides=("name=one", "adjust.tau=0.5", "adjust.temperature=2")
    )
    RunFolder(plain_run(folder / "torn", seed=8).path).set_state("trained")
    return folder


def paths(folder: Path) -> list[Path]:
    return [*(folder / f"plain-{seed}" for seed in range(3)), folder / "one", folder / "torn"]


def round_trip(numbers: dict) -> dict:
    assert json.loads(json.dumps(numbers)) == numbers
    return json.loads(json.dumps(numbers))


def scores_of(run: Path, part: str, *, adjusted: bool = True) -> np.ndarray:
    """Scores after the adjustment, written out."""
    scores = Run.open(run).load_scores(part)[0].double().numpy()
    if adjusted and run.name == "one":
        counts = np.maximum(COUNTS, 1)
        scores = scores / 2 - 0.5 * np.log(counts / counts.sum())
    return scores


def interval(values) -> tuple[float, float]:
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return float(low), float(high)


def line_data(axes, label: str) -> tuple[list[float], list[float]]:
    (line,) = [line for line in axes.get_lines() if line.get_label() == label]
    return [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]


def legend_texts(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_seed_mean_is_scipys():
    values = [0.2, 0.5, 0.9, 0.4]
    mean = seed_mean([*values, None])
    assert astuple(mean) == pytest.approx((0.5, *interval(values)))
    assert seed_mean([]) == Estimate(None)


# lorenz


def test_lorenz_by_hand(tmp_path):
    table = tmp_path / "table.json"
    ClassTable(names=("a", "b"), counts=(3, 1)).save(table)
    numbers = round_trip(load_figure("lorenz").measure(data=[str(table), "gaussian_genera"]))
    first, second = numbers["sets"]
    assert first["classes"] == [0, 0.5, 1] and first["images"] == [0, 0.25, 1]
    assert (first["num_classes"], first["num_images"], first["gini"]) == (2, 4, 0.25)
    # 80 % of the classes are the rare one and 0.6 of the other
    assert first["images_of_rarest"] == pytest.approx((1 + 0.6 * 3) / 4)
    counts = np.sort(gaussian_genera().class_table.class_counts.numpy())
    pairs = np.abs(counts[:, None] - counts[None]).sum()  # the other definition of the Gini figure
    assert second["gini"] == pytest.approx(pairs / (2 * len(counts) * counts.sum()))
    assert second["images_of_rarest"] == pytest.approx(counts[:160].sum() / counts.sum())


def test_lorenz_is_drawn(tmp_path):
    ClassTable(names=("a", "b"), counts=(3, 1)).save(tmp_path / "t.json")
    figure = load_figure("lorenz")
    axes = figure.draw(figure.measure(data=str(tmp_path / "t.json"))).axes[0]
    assert len(axes.get_lines()) == 2
    label = f"{tmp_path / 't.json'}, 2 classes: Gini 0.25"
    assert line_data(axes, label) == ([0, 50, 100], [0, 25, 100])


@pytest.mark.errors
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"data must be at least one name or path of a data set, got \[\]"),
        ([3], r"data must be at least one name or path"),
        ("cifar10", r"cifar10 is read from disk: name its folder"),
        ("nowhere", r"data must be names or paths that are there: nowhere is neither"),
    ],
)
def test_lorenz_refuses(data, message):
    with pytest.raises(ValueError, match=message):
        load_figure("lorenz").measure(data=data)


# class_size


def class_accuracies(run: Path, k: int) -> dict[int, float]:
    scores = scores_of(run, "test")
    found: dict[int, list[bool]] = {}
    for row, label in zip(scores, TARGET.tolist(), strict=True):
        found.setdefault(label, []).append(sum(row >= row[label]) <= k)
    return {label: float(np.mean(hits)) for label, hits in found.items()}


def test_class_size_in_a_slow_loop(folder):
    numbers = round_trip(load_figure("class_size").measure(runs=paths(folder), k=2, bins=3))
    # from 10 to 200 in thirds of the logarithm: 10 * 20.1^(1/3) = 27.2, 10 * 20.1^(2/3) = 73.9
    assert [(one["low"], one["high"]) for one in numbers["bins"]] == [(10, 26), (27, 73), (74, 200)]
    assert numbers["bins"][0]["x"] == pytest.approx(math.sqrt(260))
    assert [one["classes"] for one in numbers["bins"]] == [1, 0, 2]  # classes 0, 1 and 4 have test rows
    plain, one = numbers["methods"]
    assert (plain["label"], plain["seeds"], plain["interval"]) == ("plain", [0, 1, 2], "over seeds")
    assert (one["label"], one["seeds"], one["interval"]) == ("one", [7], "over classes")
    seeds = [class_accuracies(folder / f"plain-{seed}", 2) for seed in range(3)]
    frequent = [(found[0] + found[1]) / 2 for found in seeds]
    assert plain["accuracy"] == pytest.approx([np.mean([f[4] for f in seeds]), None, np.mean(frequent)])
    assert (plain["low"][2], plain["high"][2]) == pytest.approx(interval(frequent))
    alone = class_accuracies(folder / "one", 2)
    assert one["accuracy"] == pytest.approx([alone[4], None, (alone[0] + alone[1]) / 2])
    assert (one["low"][2], one["high"][2]) == pytest.approx(interval([alone[0], alone[1]]))
    assert one["low"][0] is None  # of one class
    assert list(numbers["left_out"]) == [str(folder / "torn")]
    assert "is not finished: its state is 'trained'" in numbers["left_out"][str(folder / "torn")]


def test_class_size_is_drawn(folder):
    figure = load_figure("class_size")
    numbers = round_trip(figure.measure(runs=paths(folder), k=2, bins=3))
    drawn = figure.draw(numbers)
    upper, lower = drawn.axes
    assert legend_texts(drawn) == ["plain", "one"]
    assert [bar.get_height() for bar in lower.patches] == [1, 0, 2]
    assert [text.get_text() for text in lower.get_xticklabels()] == ["10–26", "27–73", "74–200"]
    lines = [container.lines[0] for container in upper.containers]
    for line, method in zip(lines, numbers["methods"], strict=True):
        shown = [None if math.isnan(y) else y / 100 for y in line.get_ydata()]
        assert shown == pytest.approx(method["accuracy"])


def test_classes_without_images_have_a_bin_of_their_own(folder, tmp_path):
    run = plain_run(tmp_path / "run")
    target = TARGET.clone()
    target[:9] = 5
    for part in ("val", "test"):
        save_scores(run, part, run.load_scores(part)[0], target)
    seal(run)
    figure = load_figure("class_size")
    numbers = figure.measure(runs=[run.path], k=1, bins=2)
    assert [(one["low"], one["high"]) for one in numbers["bins"]] == [(0, 0), (10, 44), (45, 200)]
    assert figure.draw(numbers).axes[1].get_xticklabels()[0].get_text() == "0"


@pytest.mark.errors
def test_class_size_refuses(folder):
    measure = load_figure("class_size").measure
    with pytest.raises(ValueError, match="k must be an integer >= 1, got 0"):
        measure(runs=paths(folder), k=0)
    with pytest.raises(ValueError, match=r"bins must be an integer >= 1, got 2\.5"):
        measure(runs=paths(folder), bins=2.5)
    with pytest.raises(
        ValueError, match=r"at least one run that can be used, got .*k must be <= .*\(6\), got 7"
    ):
        measure(runs=[folder / "one"], k=7)
    with pytest.raises(ValueError, match="there is no such folder"):
        measure(runs=[folder / "nowhere"])


def test_a_damaged_run_is_left_out(folder, tmp_path):
    run = plain_run(tmp_path / "run")
    (run.path / "scores" / "test.safetensors").write_bytes(b"no tensors")
    numbers = load_figure("class_size").measure(runs=[folder / "one", run.path])
    assert list(numbers["left_out"]) == [str(run.path)] and len(numbers["methods"]) == 1


def test_a_run_file_of_another_kind_and_a_copy_are_left_out(folder, tmp_path):
    first = paths(folder)[0]
    for name in ("copy", "odd"):
        shutil.copytree(first, tmp_path / name)
    (tmp_path / "odd" / "run.json").write_text("[]")
    numbers = load_figure("class_size").measure(runs=[first, tmp_path / "copy", tmp_path / "odd"])
    assert [method["seeds"] for method in numbers["methods"]] == [[0]]
    assert numbers["left_out"][str(tmp_path / "copy")].endswith(f"has the recipe and the seed of {first}")
    assert "must hold a mapping of keys to values, got list" in numbers["left_out"][str(tmp_path / "odd")]


# topk_against_average_k


def softmax(scores: np.ndarray) -> np.ndarray:
    values = np.exp(scores - scores.max(1, keepdims=True))
    return values / values.sum(1, keepdims=True)


def average_k_sets(held_out: np.ndarray, scores: np.ndarray, k: int) -> np.ndarray:
    largest = np.sort(softmax(held_out).ravel())[::-1]
    threshold = (largest[k * len(held_out) - 1] + largest[k * len(held_out)]) / 2
    return softmax(scores) >= threshold


def test_coverages_in_a_slow_loop(folder):
    measure = load_figure("topk_against_average_k").measure
    numbers = round_trip(measure(runs=paths(folder), k=[3, 1]))
    macro = measure(runs=paths(folder), k=[1, 3], average="macro")
    assert numbers["k"] == [1, 3]
    for number, method in enumerate(numbers["methods"]):
        runs = [Path(path) for path in method["runs"]]
        for place, k in enumerate((1, 3)):
            fixed = [
                [
                    sum(row >= row[y]) <= k
                    for row, y in zip(scores_of(run, "test"), TARGET.tolist(), strict=True)
                ]
                for run in runs
            ]
            sets = [average_k_sets(scores_of(run, "val"), scores_of(run, "test"), k) for run in runs]
            hits = np.array([[one[i, y] for i, y in enumerate(TARGET.tolist())] for one in sets])
            assert method["topk"]["value"][place] == pytest.approx(np.mean(fixed))
            assert method["average_k"]["value"][place] == pytest.approx(hits.mean())
            assert method["size"]["value"][place] == pytest.approx(
                np.mean([one.sum(1).mean() for one in sets])
            )
            if len(runs) > 1:
                ends = method["average_k"]["low"][place], method["average_k"]["high"][place]
                assert ends == pytest.approx(interval(hits.mean(1)))
            by_class = [hits[:, TARGET.numpy() == y].mean() for y in (0, 1, 4)]
            assert macro["methods"][number]["average_k"]["value"][place] == pytest.approx(np.mean(by_class))
    assert numbers["methods"][1]["topk"]["low"] == [None, None]


def test_a_pair_of_lines_for_each_method(folder):
    figure = load_figure("topk_against_average_k")
    numbers = round_trip(figure.measure(runs=paths(folder), k=[1, 3]))
    drawn = figure.draw(numbers)
    (axes,) = drawn.axes
    assert legend_texts(drawn) == ["plain", "one"] and len(axes.get_lines()) == 4
    for method in numbers["methods"]:
        xs, ys = line_data(axes, method["label"])
        assert xs == pytest.approx(method["size"]["value"])
        assert ys == pytest.approx([100 * value for value in method["average_k"]["value"]])
    fixed = [line for line in axes.get_lines() if list(line.get_xdata()) == [1, 3]]
    assert list(fixed[0].get_ydata()) == pytest.approx(
        [100 * value for value in numbers["methods"][0]["topk"]["value"]]
    )


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": []}, "k must have at least one entry"),
        ({"k": [1, 0]}, "k must be an integer >= 1, got 0"),
        ({"average": "mean"}, "average must be one of micro, macro, got 'mean'"),
    ],
)
def test_topk_against_average_k_refuses(folder, options, message):
    with pytest.raises(ValueError, match=message):
        load_figure("topk_against_average_k").measure(runs=paths(folder), **options)


# error_against_tau


def balanced_error(scores: np.ndarray) -> float:
    wrong: dict[int, list[bool]] = {}
    for row, label in zip(scores, TARGET.tolist(), strict=True):
        wrong.setdefault(label, []).append(any(row[j] >= row[label] for j in range(CLASSES) if j != label))
    return float(np.mean([np.mean(rows) for rows in wrong.values()]))


def test_errors_in_a_slow_loop(folder):
    figure = load_figure("error_against_tau")
    numbers = round_trip(figure.measure(runs=paths(folder), tau_max=1.5, steps=3))
    assert numbers["tau"] == [0, 0.5, 1, 1.5]
    log_prior = np.log(np.maximum(COUNTS, 1) / np.maximum(COUNTS, 1).sum())
    for method in numbers["methods"]:
        for part in ("val", "test"):
            raw = [scores_of(Path(run), part, adjusted=False) for run in method["runs"]]
            expected = [np.mean([balanced_error(s - tau * log_prior) for s in raw]) for tau in numbers["tau"]]
            assert method["logit_adjustment"][part]["value"] == pytest.approx(expected)


@pytest.mark.parametrize("offset", ["scaled", "kept"])
def test_weight_normalization_is_that_of_the_layer(folder, offset):
    """The slow way: the features of each row through the normalized layer; scaled as equation 3 says."""
    figure = load_figure("error_against_tau")
    options = {} if offset == "scaled" else {"offset": offset}
    numbers = figure.measure(runs=[folder / "one"], tau_max=2, steps=2, **options)
    assert numbers["offset"] == offset
    layer = linear_layer(7).double()
    for part in ("val", "test"):
        logits = Run.open(folder / "one").load_scores(part)[0].double()
        features = (logits - layer.bias) @ torch.linalg.pinv(layer.weight).T
        curve = []
        for tau in (0.0, 1.0, 2.0):
            kept = normalize_classifier(layer, tau=tau)(features).detach()
            whole = torch.cat([layer.weight, layer.bias[:, None]], 1).detach()
            scaled = logits / whole.norm(dim=1) ** tau
            curve.append(balanced_error((kept if offset == "kept" else scaled).numpy()))
        assert numbers["methods"][0]["weight_normalization"][part]["value"] == pytest.approx(curve)


def test_tau_is_chosen_on_validation_rows(folder):
    figure = load_figure("error_against_tau")
    numbers = figure.measure(runs=[folder / "one"], tau_max=2, steps=8)
    for name in ("logit_adjustment", "weight_normalization"):
        found = numbers["methods"][0][name]
        place = numbers["tau"].index(found["chosen"]["tau"][0])
        assert found["val"]["value"][place] == min(found["val"]["value"])
        assert found["chosen"]["error"] == [found["test"]["value"][place]]


def test_error_against_tau_is_drawn(folder):
    figure = load_figure("error_against_tau")
    numbers = round_trip(figure.measure(runs=paths(folder), steps=4))
    drawn = figure.draw(numbers)
    assert legend_texts(drawn)[:2] == ["plain", "one"]
    for axes, name in zip(drawn.axes, ("logit_adjustment", "weight_normalization"), strict=True):
        assert len(axes.get_lines()) == 6  # of each method: test, validation, the choice
        for method in numbers["methods"]:
            xs, ys = line_data(axes, method["label"])
            assert xs == numbers["tau"]
            assert ys == pytest.approx([100 * value for value in method[name]["test"]["value"]])


def test_runs_without_a_linear_classifier_are_adjusted_only(folder, tmp_path):
    figure = load_figure("error_against_tau")
    run = plain_run(tmp_path / "cosine")
    for part in ("val", "test"):
        save_scores(run, part, *run.load_scores(part))  # without norms
    seal(run)
    numbers = round_trip(figure.measure(runs=[run.path], steps=2))
    assert numbers["methods"][0]["weight_normalization"] is None
    assert "needs the scores of a linear classifier" in numbers["methods"][0]["no_weight_normalization"]
    assert len(figure.draw(numbers).axes) == 1


def test_runs_that_share_their_scores_are_drawn_once(folder, tmp_path):
    again = plain_run(tmp_path / "again", seed=7, skill=2.0, overrides=("name=again", "adjust.tau=1"))
    numbers = load_figure("error_against_tau").measure(runs=[folder / "one", again.path], steps=2)
    assert [method["label"] for method in numbers["methods"]] == ["one"]
    assert numbers["left_out"] == {
        str(again.path): f"{again.path} has the same scores, before adjustment, as {folder / 'one'}"
    }


@pytest.mark.errors
def test_error_against_tau_refuses(folder):
    measure = load_figure("error_against_tau").measure
    with pytest.raises(ValueError, match="tau_max must be > 0, got 0"):
        measure(runs=paths(folder), tau_max=0)
    with pytest.raises(ValueError, match="steps must be an integer >= 1, got 0"):
        measure(runs=paths(folder), steps=0)


# two_gaussians: its numbers are tested in tests/test_two_gaussians.py


def test_separators_and_errors_are_drawn():
    figure = load_figure("two_gaussians")
    numbers = round_trip(figure.measure(trials=2, frequencies=[0.1, 0.3], rows=400))
    assert numbers["shown"] == 0.1 and sum(map(len, numbers["points"].values())) == 400
    left, right = figure.draw(numbers).axes
    assert len(left.containers) == 8
    name = "equalized margin"
    errors = numbers["methods"][name]["exact"]
    (drawn,) = [container.lines[0] for container in left.containers if container.get_label() == name]
    assert list(drawn.get_xdata()) == [10, 30]
    assert list(drawn.get_ydata()) == pytest.approx([50 * sum(pair) for pair in errors])
    learned = [method for key, method in numbers["methods"].items() if key != "Bayes rule"]
    for line, method in zip(right.get_lines(), learned, strict=False):
        w1, w2, b = method["separator"]
        assert [w1 * x + w2 * y + b for x, y in line.get_xydata()] == pytest.approx([0, 0], abs=1e-9)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 1}, "trials must be an integer >= 2, got 1"),
        ({"frequencies": [0.5, 1.0]}, "frequencies must be < 1, got 1.0"),
        ({"frequencies": [0.1], "shown": 0.2}, r"shown must be one of frequencies \(0.1\), got 0.2"),
        ({"frequencies": [1e-6], "rows": 50}, "rows must be enough to have both classes"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
    ],
)
def test_two_gaussians_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        load_figure("two_gaussians").measure(**options)


# average_k_sensitivity


def sensitivity_run(path: Path, *settings: str, seed: int = 0, **info) -> Run:
    """A finished run with sets of 2 classes on average."""
    content = {"predictors": {"two": {"name": "average_k", "k": 2}}, "seed": seed}
    draw = 1000 * seed + sum(map(ord, "".join(settings)))
    targets, table = dict.fromkeys(("val", "test"), TARGET), ClassTable(names=tuple("abcdef"), counts=COUNTS)
    return scored_run(path, table, targets, content, overrides=settings, draw=draw, **info)


@pytest.fixture(scope="module")
def sensitivity_runs(tmp_path_factory) -> Path:
    """Two alphas at two batch sizes, two seeds each; cross-entropy, also with temperature; the limit."""
    folder = tmp_path_factory.mktemp("sensitivity")
    ours = ("loss=average_k", "loss.k=2")
    for seed in (0, 1):
        for size in (32, 64):
            for alpha in (2.0, 0.5):
                settings = (*ours, f"loss.alpha={alpha}", f"batch_size={size}", f"name=a{alpha}")
                sensitivity_run(folder / f"{alpha}-{size}-{seed}", *settings, seed=seed)
            sensitivity_run(folder / f"ce-{size}-{seed}", f"batch_size={size}", "name=ce", seed=seed)
    sensitivity_run(folder / "fitted", "batch_size=64", "name=fitted", "adjust.temperature=fit")
    sensitivity_run(folder / "limit", "batch_size=64", "name=limit", scores_from="posterior")
    return folder


METRIC = "sets.two.coverage.micro"


def test_sensitivity_is_the_coverage_of_the_runs(sensitivity_runs):
    runs = sorted(sensitivity_runs.iterdir())
    numbers = round_trip(load_figure("average_k_sensitivity").measure(runs=runs, metric=METRIC))
    assert numbers["left_out"] == {} and len(numbers["points"]) == 4 + 2 + 1
    for point in numbers["points"]:
        seeds = (0, 1) if point["label"] != "fitted" else (0,)
        name = "ce" if point["loss"] == "cross_entropy" else point["alpha"]
        paths = [sensitivity_runs / f"{name}-{point['batch_size']}-{seed}" for seed in seeds]
        paths = paths if point["label"] != "fitted" else [sensitivity_runs / "fitted"]
        values = [Results.load(path / "results.json").sets["two"].coverage.micro.value for path in paths]
        assert point["value"] == pytest.approx(np.mean(values))
        if len(values) > 1:
            assert (point["low"], point["high"]) == pytest.approx(interval(values))
        assert point["lr"] == 0.1 and point["seeds"] == list(seeds)
    limit = Results.load(sensitivity_runs / "limit" / "results.json").sets["two"].coverage.micro.value
    assert numbers["limit"] == pytest.approx(limit)


def test_sensitivity_of_the_best_epoch_on_validation_rows(sensitivity_runs, tmp_path):
    """Figures 5.5 and 5.6 of the thesis: the best of all epochs, and no test row is read."""
    for seed, best in ((0, 0.7), (1, 0.9)):
        place = tmp_path / f"run-{seed}"
        shutil.copytree(sensitivity_runs / f"2.0-32-{seed}", place)
        (place / "epochs.csv").write_text(f"epoch,val_average2\n0,0.5\n1,{best}\n2,0.6\n")
        seal(Run.open(place))
    runs = [*sorted(tmp_path.iterdir()), sensitivity_runs / "limit"]
    numbers = load_figure("average_k_sensitivity").measure(runs=runs, metric="validation.average2")
    (point,) = numbers["points"]
    assert point["value"] == pytest.approx(0.8)
    assert "has no metric validation.average2" in numbers["left_out"][str(sensitivity_runs / "limit")]


def test_one_metric_on_two_data_sets(tmp_path):
    """Of each network a point; one that was trained on one of the sets alone is left out."""
    accuracies: dict[tuple[str, str], list[float]] = {}
    targets, table = dict.fromkeys(("val", "test"), TARGET), ClassTable(names=tuple("abcdef"), counts=COUNTS)
    for data, network in itertools.product(("glyphs", "gaussian_genera"), ("linear", "mlp", "other")):
        for seed in (0, 1):
            if (data, network) == ("glyphs", "other"):
                continue
            settings = [f"data={data}", f"model={network}" if network != "other" else "model=small_cnn"]
            settings += [f"optimizer.lr={0.1 if data == 'glyphs' else 0.2}", f"seed={seed}"]
            place = tmp_path / f"{data}-{network}-{seed}"
            run = scored_run(place, table, targets, {}, overrides=settings, draw=len(accuracies) + 10 * seed)
            accuracies.setdefault((data, network), []).append(run.results.metrics()["top1.micro"].value)
    figure, runs = load_figure("scatter"), sorted(tmp_path.iterdir())
    numbers = round_trip(figure.measure(runs=runs, y="top1.micro", x_data="glyphs", y_data="gaussian_genera"))
    assert [point["label"] for point in numbers["points"]] == ["linear", "mlp"]
    for point in numbers["points"]:
        assert point["x"]["value"] == pytest.approx(np.mean(accuracies["glyphs", point["label"]]))
        assert point["y"]["value"] == pytest.approx(np.mean(accuracies["gaussian_genera", point["label"]]))
    assert {Path(path).name for path in numbers["left_out"]} == {
        "gaussian_genera-other-0",
        "gaussian_genera-other-1",
    }
    (axes,) = figure.draw(numbers).axes
    assert axes.get_xlabel() == "top1.micro on glyphs (%)"
    with pytest.raises(
        ValueError, match="x_data and y_data must be two data sets or none, got 'glyphs' and ''"
    ):
        figure.measure(runs=runs, x_data="glyphs")
    with pytest.raises(ValueError, match="runs must have a network on both data sets, got none"):
        figure.measure(runs=runs, x_data="glyphs", y_data="cifar100")


def test_seconds_of_epochs_against_draws(tmp_path):
    """The table of epoch times by draws, made of runs."""
    for draws, seconds in ((3, [9.0, 2.0, 2.5]), (10, [4.0, 4.0])):
        settings = ("loss=noised_topk", "loss.k=2", f"loss.num_samples={draws}")
        sensitivity_run(tmp_path / str(draws), *settings, epoch_seconds=seconds)
    options = {"key": "loss.num_samples", "metrics": ["epoch_seconds"]}
    numbers = load_figure("sweep").measure(runs=sorted(tmp_path.iterdir()), **options)
    (line,) = numbers["lines"]
    times = {point["value"]: point["metrics"]["epoch_seconds"]["value"] for point in line["points"]}
    assert times == {3: 2.5, 10: 4.0}
    (axes,) = load_figure("sweep").draw(numbers).axes
    assert axes.get_ylabel() == "epoch_seconds" and list(axes.get_lines()[0].get_ydata()) == [2.5, 4.0]


def test_sensitivity_is_drawn(sensitivity_runs):
    figure = load_figure("average_k_sensitivity")
    numbers = round_trip(figure.measure(runs=sorted(sensitivity_runs.iterdir()), metric=METRIC))
    left, right = figure.draw(numbers).axes
    found = {(p["alpha"], p["batch_size"]): 100 * p["value"] for p in numbers["points"] if p["alpha"]}
    assert line_data(left, "batches of 32") == ([0.5, 2], pytest.approx([found[0.5, 32], found[2, 32]]))
    assert line_data(right, "α = 2") == ([32, 64], pytest.approx([found[2, 32], found[2, 64]]))
    names = ["α = 0.5", "α = 2", "cross_entropy", "cross_entropy with temperature", "best possible"]
    assert sorted(line.get_label() for line in right.get_lines()) == sorted(names)
    plain = {p["batch_size"]: 100 * p["value"] for p in numbers["points"] if p["label"].startswith("ce")}
    assert line_data(right, "cross_entropy") == ([32, 64], pytest.approx([plain[32], plain[64]]))


@pytest.mark.errors
def test_average_k_sensitivity_refuses(sensitivity_runs):
    measure = load_figure("average_k_sensitivity").measure
    with pytest.raises(ValueError, match=r"at least one run that can be used, got .*has no metric nll2"):
        measure(runs=[sensitivity_runs / "fitted"], metric="nll2")
    with pytest.raises(ValueError, match="at least one with the loss average_k, got none"):
        measure(runs=[sensitivity_runs / "fitted"], metric=METRIC)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.*")
@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
def test_the_suite_of_the_figure_has_its_metric(tmp_path):
    """A run of the suite is read at its best epoch by the figure's default."""
    suite = load_suite(Path(__file__).parents[2] / "recipes" / "cpu" / "average_k_sensitivity.yaml")
    cells = plan_suite(suite)
    assert len(cells) == 3 * len(suite.methods)
    cell = next(cell for cell in cells if cell.name == "alpha_1")
    recipe = make_recipe(
        resolve(suite, cell, cell.points[-1], 0).model_dump(), ["epochs=4", "data.num_rows=1000"]
    )
    run = train(recipe, tmp_path / "run", progress=lambda *_: None)
    numbers = load_figure("average_k_sensitivity").measure(runs=[run.path])
    (point,) = numbers["points"]
    lines = (run.path / "epochs.csv").read_text().splitlines()
    place = lines[0].split(",").index("val_average5")
    assert point["value"] == max(float(line.split(",")[place]) for line in lines[1:])


@pytest.mark.parametrize(
    ("name", "options"),
    [("class_size", {}), ("topk_against_average_k", {"k": 2}), ("error_against_tau", {"steps": 2})],
)
def test_figures_of_runs_say_how_far_they_are(folder, name, options):
    told = []
    figure = load_figure(name)
    assert name in FIGURES and figure.takes_runs
    figure.measure(runs=paths(folder), progress=lambda *words: told.append(words), **options)
    assert told == [("reading runs", i, 5) for i in range(1, 6)]
