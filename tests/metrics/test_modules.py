"""The metrics as torchmetrics: equal to the functions, small, and the same in two processes as in one."""

import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from shortlist.metrics import (
    calibration_error,
    coverage_shortfall,
    set_coverage,
    set_size,
    set_sums,
    size_quantiles,
    topk_accuracy,
    topk_curve_area,
    under_covered_share,
    worst_classes,
)
from tests.conftest import vision_library
from tests.processes import in_two_processes

N, C = 53, 7
GROUPS = torch.tensor([2, 2, 1, 1, 0, 0, 0])


def load(name="shortlist.metrics.modules"):
    """Import torchmetrics, or skip; it fails where torchvision does, which is mended on the way."""
    if importlib.util.find_spec("torchmetrics") is None:
        pytest.skip("torchmetrics is not installed")
    try:
        importlib.import_module("torchmetrics")
    except RuntimeError:
        vision_library("torchmetrics")
    return importlib.import_module(name)


def rows_of(n=N, c=C):
    generator = torch.Generator().manual_seed(4)
    scores = (2 * torch.randn(n, c, generator=generator)).round() / 2
    target = torch.randint(c - 1, (n,), generator=generator)  # the last class has no rows
    scores[3, 2] = scores[20, target[20]] = torch.nan
    target[[5, 30, 31]] = -100
    return scores, target


def metrics_of(modules, c=C, groups=GROUPS):
    return {
        "topk": modules.TopKAccuracy(num_classes=c, k=(1, 2, 5), groups=groups, per_class=True),
        "expected": modules.TopKAccuracy(num_classes=c, k=2, ties="expected"),
        "curve": modules.TopKCurve(num_classes=c, k_max=4),
        "expected_curve": modules.TopKCurve(num_classes=c, ties="expected"),
        "coverage": modules.SetCoverage(
            num_classes=c, coverage=0.9, num_worst=2, groups=groups, per_class=True
        ),
        "size": modules.SetSize(num_classes=c, groups=groups, per_class=True),
        "calibration": modules.CalibrationError(bins=5),
    }


def update(metrics, scores, target):
    for name, metric in metrics.items():
        metric.update(scores > 0.4 if name in ("coverage", "size") else scores, target)


def test_equal_the_functions():
    metrics = metrics_of(load())
    scores, target = rows_of()
    for rows in (slice(0, 20), slice(20, 21), slice(21, N)):
        update(metrics, scores[rows], target[rows])
    got = {name: metric.compute() for name, metric in metrics.items()}
    for k in (1, 2, 5):
        metrics = got["topk"]
        torch.testing.assert_close(metrics[f"top{k}"], topk_accuracy(scores, target, k=k))
        macro = topk_accuracy(scores, target, k=k, average="macro")
        torch.testing.assert_close(metrics[f"macro_top{k}"], macro)
        own = topk_accuracy(scores, target, k=k, average="none")
        torch.testing.assert_close(metrics[f"class_top{k}"], own, equal_nan=True)
        by_group = topk_accuracy(scores, target, k=k, average="group", groups=GROUPS)
        named = torch.stack([metrics[f"{group}_top{k}"] for group in ("few", "medium", "many")])
        torch.testing.assert_close(named, by_group)
    assert float(metrics["balanced_error"]) == pytest.approx(1 - float(metrics["macro_top1"]))
    assert int(metrics["absent_classes"]) == 1 and int(metrics["nan_rows"]) == 2
    assert "balanced_error" not in got["expected"]
    expected = topk_accuracy(scores, target, k=2, ties="expected")
    torch.testing.assert_close(got["expected"]["top2"], expected)
    area = topk_curve_area(scores, target, k_max=4)
    torch.testing.assert_close(got["curve"]["topk_area"], area)
    area = topk_curve_area(scores, target, ties="expected")
    torch.testing.assert_close(got["expected_curve"]["topk_area"], area)
    assert int(got["curve"]["curve_nan_rows"]) == 2
    error = calibration_error(scores, target, bins=5)
    torch.testing.assert_close(got["calibration"]["calibration_error"], error)


def test_sets_equal_the_functions():
    metrics = metrics_of(load())
    scores, target = rows_of()
    sets = scores > 0.4
    update(metrics, scores[:30], target[:30])
    update(metrics, scores[30:], target[30:])
    coverage, size = metrics["coverage"].compute(), metrics["size"].compute()
    for metrics, name, function in ((coverage, "coverage", set_coverage), (size, "size", set_size)):
        torch.testing.assert_close(metrics[name], function(sets, target))
        torch.testing.assert_close(metrics[f"macro_{name}"], function(sets, target, average="macro"))
        own = function(sets, target, average="none")
        torch.testing.assert_close(metrics[f"class_{name}"], own, equal_nan=True)
        by_group = function(sets, target, average="group", groups=GROUPS)
        torch.testing.assert_close(metrics[f"many_{name}"], by_group[2])
    sums = set_sums(sets, target)
    worst = worst_classes(sums.hits, sums.counts, num_worst=2)[1].mean()
    torch.testing.assert_close(coverage["worst_coverage"], worst)
    for name, share in (("under_covered", under_covered_share), ("coverage_shortfall", coverage_shortfall)):
        torch.testing.assert_close(coverage[name], share(sums.hits, sums.counts, coverage=0.9))
    assert torch.equal(size["size_histogram"], sums.histogram)
    assert torch.equal(size["size_quantiles"], size_quantiles(sums.histogram))
    by_group = set_sums(sets, target, groups=GROUPS).histogram
    assert torch.equal(size["medium_size_histogram"], by_group[1])
    assert torch.equal(size["many_size_quantiles"], size_quantiles(by_group[2]))
    empty = (~sets.any(1) & (target != -100)).sum() / 50
    assert float(size["empty_share"]) == pytest.approx(float(empty))


def test_collection_reset_pickle_and_batch_values():
    modules = load()
    torchmetrics = sys.modules["torchmetrics"]
    scores, target = rows_of()
    collection = torchmetrics.MetricCollection(
        {
            "topk": modules.TopKAccuracy(num_classes=C, k=(1, 3), groups=GROUPS),
            "curve": modules.TopKCurve(num_classes=C),
            "calibration": modules.CalibrationError(),
        }
    ).to("cpu")
    batch = collection(scores[:9], target[:9])
    assert float(batch["top3"]) == pytest.approx(float(topk_accuracy(scores[:9], target[:9], k=3)))
    collection = pickle.loads(pickle.dumps(collection))
    collection.update(scores[9:], target[9:])
    whole = collection.compute()
    torch.testing.assert_close(whole["top3"], topk_accuracy(scores, target, k=3))
    torch.testing.assert_close(whole["topk_area"], topk_curve_area(scores, target))
    torch.testing.assert_close(whole["calibration_error"], calibration_error(scores, target))
    collection.reset()
    collection.update(scores[:4], target[:4])
    torch.testing.assert_close(collection.compute()["top1"], topk_accuracy(scores[:4], target[:4]))
    moved = modules.TopKAccuracy(num_classes=C, groups=GROUPS).to("meta")
    assert moved.groups.device.type == moved.hits.device.type == "meta"


def test_a_collection_keeps_metrics_apart_that_agree_on_the_first_batch():
    modules = load()
    collection = sys.modules["torchmetrics"].MetricCollection(
        {
            "against": modules.TopKAccuracy(num_classes=3, k=(1, 2)),
            "favor": modules.TopKAccuracy(num_classes=3, k=(1, 2), ties="favor"),
            "more": modules.TopKAccuracy(num_classes=3, k=(1, 3)),
        }
    )
    collection.update(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    collection.update(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([0]))
    metrics = {name: float(value) for name, value in collection.compute().items()}
    assert [metrics[f"{name}_top1"] for name in ("against", "favor", "more")] == [0.5, 1, 0.5]
    assert metrics["against_top2"] == 0.5 and metrics["more_top3"] == 1


def test_state_is_sums_of_order_c_and_counts_stay_whole():
    c = 50_000
    metrics = metrics_of(load(), c, torch.zeros(c, dtype=torch.int64))
    scores, target = torch.randn(8, c), torch.arange(8) * 6000
    update(metrics, scores, target)
    before = {name: held(metric) for name, metric in metrics.items()}
    update(metrics, scores, target)
    for name, metric in metrics.items():
        assert held(metric) == before[name] <= 8 * (5 * c + 4), name  # most: sizes, counts, 3 histograms
        assert {reduce.__name__ for reduce in metric._reductions.values()} == {"dim_zero_sum"}
        floats = {key for key in metric._defaults if getattr(metric, key).is_floating_point()}
        assert floats <= {"hits", "histogram", "correct", "confidence"}
        assert all(getattr(metric, key).dtype == torch.float64 for key in floats)
    assert not metrics["topk"].hits.is_floating_point()
    assert int(metrics["topk"].compute()["absent_classes"]) == c - 8


def held(metric):
    return sum(getattr(metric, name).nbytes for name in metric._defaults)


def on_part(rank: int) -> dict:
    metrics = metrics_of(load())
    scores, target = rows_of()
    mine = slice(0, 40) if rank == 0 else slice(40, N)
    batches = zip(scores[mine].split(16), target[mine].split(16), strict=True)  # of 16, 16, 8 and of 13 rows
    for batch in batches:
        update(metrics, *batch)
    return {name: metric.compute() for name, metric in metrics.items()}


def test_two_processes_equal_one(tmp_path):
    metrics = metrics_of(load())
    update(metrics, *rows_of())
    for result in in_two_processes(on_part, tmp_path):
        for name, metric in metrics.items():
            torch.testing.assert_close(result[name], metric.compute(), equal_nan=True)


def test_the_page_runs():
    load()
    page = (Path(__file__).parents[2] / "docs/guides/metrics.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, flags=re.S) if "modules" in code)
    names: dict = {}
    exec(code, names)
    assert {"top1", "macro_top10", "balanced_error", "topk_area"} <= set(names["metrics"].compute())


def test_import_of_the_metrics_does_not_load_torchmetrics():
    code = "import sys, shortlist.metrics; print([m for m in ('torchmetrics', 'scipy') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.errors
def test_bad_input():
    modules = load()
    with pytest.raises(ValueError, match="num_classes must be an integer >= 1, got 0"):
        modules.TopKAccuracy(num_classes=0)
    with pytest.raises(ValueError, match=r"k must be <= the number of classes \(4\), got 5"):
        modules.TopKAccuracy(num_classes=4)
    with pytest.raises(ValueError, match=r"groups must be int64 with one entry per class \(4,\)"):
        modules.SetSize(num_classes=4, groups=GROUPS)
    with pytest.raises(ValueError, match="num_classes is 7, got rows of 6 classes"):
        modules.TopKAccuracy(num_classes=7).update(torch.zeros(2, 6), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="num_classes is 7, got rows of 6 classes"):
        modules.SetCoverage(num_classes=7).update(torch.zeros(2, 6).bool(), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="ties must be one of"):
        modules.TopKCurve(num_classes=7, ties="any")
    with pytest.raises(ValueError, match="activation must be one of"):
        modules.CalibrationError(activation="exp")
    with pytest.raises(ValueError, match="coverage must be <= 1, got 90"):
        modules.SetCoverage(num_classes=7, coverage=90)
    with pytest.raises(ValueError, match=r"q must be in \[0, 1\], got 2"):
        modules.SetSize(num_classes=7, q=[2])
