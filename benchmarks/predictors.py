"""Time and memory of calibrating and using predictors, beside sorting and beside a peer.

Each number is the median of runs on one thread; memory is the growth of the process's peak in a run of its
own.
"""

import argparse
import importlib
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import torch
from torch import Tensor

from shortlist import ClassTable, Taxonomy
from shortlist.predictors import (
    AverageK,
    CalibrationWarning,
    Conformal,
    FeatureMeans,
    NoveltyDetector,
    SetPredictor,
    TaxonomyNodes,
)
from shortlist.predictors.novelty import NoveltyRule

VALIDATION, WIDE, APS_SHAPE, BY_CLASS = (31118, 1081), (20000, 10450), (10000, 1000), (1000, 10000)
TREE_SHAPE, ROUNDS = (10000, 10000), 10
STRANGERS = (100_000, 10_000, 256)  # calibration rows, classes, features


def probabilities(shape: tuple[int, int]) -> Tensor:
    """Softmax of normal scores with standard deviation 3: about five classes matter."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator).mul_(3).softmax(1)


def at_once(values: Tensor) -> Tensor:
    return AverageK(5, activation="none").calibrate(values).threshold


def streaming(values: Tensor) -> Tensor:
    predictor = AverageK(5, activation="none")
    for batch in values.split(256):
        predictor.update(batch)
    return predictor.finish().threshold


def one_topk(values: Tensor) -> Tensor:
    top = values.flatten().topk(5 * len(values) + 1).values
    return (top[-1] + top[-2]) / 2


def by_sorting(values: Tensor) -> Tensor:
    ranked = values.flatten().sort(descending=True).values
    return (ranked[5 * len(values) - 1] + ranked[5 * len(values)]) / 2


THRESHOLDS: dict[str, Callable[[Tensor], Tensor]] = {
    "AverageK.calibrate": at_once,
    "AverageK in batches of 256": streaming,
    "one topk of everything": one_topk,
    "sorting, as published": by_sorting,
}


def milliseconds(
    call: Callable[[], object], repeats: int, clock: Callable[[], float] = perf_counter
) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return 1e3 * median(times)


def extra_megabytes(name: str, shape: tuple[int, int]) -> float:
    """Peak memory of one call beyond that of its input, in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, "--shape", *map(str, shape)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak_megabytes() -> float:
    """Peak resident memory since it was last reset (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure_memory(name: str, shape: tuple[int, int]) -> None:
    torch.set_num_threads(1)
    THRESHOLDS[name](torch.rand(100, 50))  # what the first call alone brings in
    values = torch.empty(shape)
    for rows in values.split(256):
        rows.copy_(torch.randn(rows.shape).mul_(3).softmax(1))
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_megabytes()
    THRESHOLDS[name](values)
    print(peak_megabytes() - before)


def thresholds(shape: tuple[int, int], repeats: int, names: list[str]) -> dict[str, dict[str, float]]:
    values = probabilities(shape)
    results = {}
    reference = one_topk(values)
    for name in names:
        call = THRESHOLDS[name]
        assert torch.isclose(call(values), reference, rtol=1e-6)
        slow = call is by_sorting
        ms = milliseconds(lambda call=call: call(values), 1 if slow else repeats)
        results[name] = {"ms": ms, "extra MB": extra_megabytes(name, shape)}
        print(f"{shape!s:16} {name:28} {ms:8.0f} ms {results[name]['extra MB']:7.0f} MB", flush=True)
    return results


def aps(repeats: int) -> dict[str, dict[str, float]]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(APS_SHAPE, generator=generator)
    target = torch.multinomial((2 * logits).softmax(1), 1, generator=generator).squeeze(1)
    predictor = Conformal(coverage=0.9, score="aps")
    results = {
        "Conformal, aps": _two_times(
            lambda: predictor.calibrate(logits, target), lambda: predictor(logits), repeats
        )
    }
    peer = _peer_aps(logits, target)
    if peer:
        results["torchcp, aps"] = _two_times(*peer, repeats)
    for name, times in results.items():
        calibrate, predict = times.values()
        print(f"{APS_SHAPE!s:16} {name:28} calibrate {calibrate:6.0f} ms, predict {predict:6.0f} ms")
    return results


def by_class(repeats: int) -> dict[str, float]:
    """Sets of thresholds by class, for which the scores of all classes are needed, beside ``AverageK``'s."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(BY_CLASS, generator=generator).mul_(3)
    target = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    warnings.simplefilter("ignore", CalibrationWarning)  # most classes have too few rows of their own
    predictors = {
        "AverageK": AverageK(5).calibrate(logits),
        "Conformal, aps by class": Conformal(score="aps", rule="class_conditional").calibrate(logits, target),
    }
    results = {}
    for name, predictor in predictors.items():
        results[name] = milliseconds(lambda predictor=predictor: predictor(logits), repeats)
        print(f"{BY_CLASS!s:16} {name:28} predict {results[name]:6.0f} ms")
    return results


def promises(repeats: int) -> dict[str, dict[str, float]]:
    """Calibrate on 10,000 classes and 100,000 rows, a tenth of them ten times, and predict 1,000 rows.

    Processor time, since other programs on the machine change the time by the clock many times over.
    """
    scores, target, tree = _rows_of_a_tree()
    votes = torch.zeros_like(scores).scatter_(1, target[:, None], 3.0)
    votes[:, ::5000] += 1  # five people, three of whom agree
    warnings.simplefilter("ignore", CalibrationWarning)  # some classes have no row
    cases: dict[str, tuple[SetPredictor, Tensor]] = {
        "Conformal, lac": (Conformal(), target),
        "Conformal, macro": (Conformal(priors=torch.full((len(tree.order),), 1 / len(tree.order))), target),
        "Conformal, votes": (Conformal(), votes),
        "TaxonomyNodes, one": (TaxonomyNodes(tree), target),
        "TaxonomyNodes, two": (TaxonomyNodes(tree, nodes=2), target),
        "TaxonomyNodes, five": (TaxonomyNodes(tree, nodes=5), target),
    }
    results = {}
    for name, (predictor, known) in cases.items():
        times = {}
        for rows in (len(scores), 1000, 26):

            def calibrate(
                rows: int = rows, predictor: SetPredictor = predictor, known: Tensor = known
            ) -> None:
                for _ in range(ROUNDS):
                    for batch in zip(scores.split(rows), known.split(rows), strict=True):
                        predictor.update(*batch)
                predictor.finish()

            times[f"in batches of {rows}"] = milliseconds(calibrate, repeats, process_time)
        times["predict"] = milliseconds(lambda it=predictor: it(scores[:1000]), repeats, process_time)
        results[name] = times
        told = ", ".join(f"{what} {ms:.0f} ms" for what, ms in times.items())
        print(f"{(ROUNDS * len(scores), scores.shape[1])!s:16} {name:28} {told}", flush=True)
    return results


def _rows_of_a_tree() -> tuple[Tensor, Tensor, Taxonomy]:
    """Scores whose first guess is right in four of five rows, in 2,000 genera and 200 families."""
    generator = torch.Generator().manual_seed(0)
    rows, c = TREE_SHAPE
    genus = torch.randint(2000, (c,), generator=generator)
    family = torch.randint(200, (2000,), generator=generator)[genus]
    parents = {"genus": list(map(str, genus.tolist())), "family": list(map(str, family.tolist()))}
    tree = Taxonomy.from_class_table(ClassTable(list(map(str, range(c))), parents=parents))
    scores = torch.randn(rows, c, generator=generator).mul_(2)
    target = torch.randint(c, (rows,), generator=generator)
    for some, true in zip(scores.split(256), target.split(256), strict=True):
        some += 3 * (genus == genus[true][:, None]) + 2.5 * (family == family[true][:, None])
        some[torch.arange(len(true)), true] += 5
    return scores, target, tree


def _given(_: Tensor | None, values: Tensor | None) -> Tensor:
    """Take the strangeness itself where features are expected."""
    assert values is not None
    return values


def novelty(repeats: int) -> dict[str, dict[str, float]]:
    """Time of a detector by its parts: class means, distances, and what a rule does with strangeness."""
    n, c, d = STRANGERS
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(c, (n,), generator=generator)
    features = torch.randn(n, d, generator=generator)
    found = FeatureMeans(num_classes=c, dim=d)
    results = {"class means": {"ms": milliseconds(lambda: found.update(features, target), repeats)}}
    means = found.means()
    strangeness = torch.rand(n, generator=generator)
    rules: tuple[NoveltyRule, ...] = ("pooled", "macro", "class")
    for rule in rules:
        level = 0.5 if rule == "class" else 0.05  # a class has 10 rows on average, and some have 1
        detector = NoveltyDetector(strangeness=_given, rule=rule, level=level, num_classes=c)
        call = lambda detector=detector: detector.calibrate(target, features=strangeness)  # noqa: E731
        results[f"calibrate, {rule}"] = {"ms": milliseconds(call, repeats)}
    by_distance = NoveltyDetector(strangeness="distance", means=means).calibrate(features=features[:2000])
    results["1,000 rows by distance"] = {
        "ms": milliseconds(lambda: by_distance.p_values(features=features[:1000]), repeats)
    }
    columns = means.T.contiguous()
    results["1,000 rows, the product with all means alone"] = {
        "ms": milliseconds(lambda: features[:1000] @ columns, repeats)
    }
    for name, times in results.items():
        print(f"{STRANGERS!s:20} NoveltyDetector, {name:24} {times['ms']:6.0f} ms", flush=True)
    return results


def _two_times(
    calibrate: Callable[[], object], predict: Callable[[], object], repeats: int
) -> dict[str, float]:
    return {"calibrate ms": milliseconds(calibrate, repeats), "predict ms": milliseconds(predict, repeats)}


def _peer_aps(logits: Tensor, target: Tensor) -> tuple[Callable[[], object], Callable[[], object]] | None:
    try:
        predictors = importlib.import_module("torchcp.classification.predictor")
        scores = importlib.import_module("torchcp.classification.score")
    except (ImportError, RuntimeError):
        return None
    score = scores.APS(randomized=False)
    peer = predictors.SplitPredictor(score_function=score, model=None, alpha=0.1, device="cpu")
    return (
        lambda: peer.calculate_threshold(logits, target, 0.1),
        lambda: peer.predict_with_logits(logits),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="parts to run, such as promises or novelty; all by default")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        measure_memory(options.memory_of, tuple(options.shape))
        return
    torch.set_num_threads(1)
    parts: dict[str, Callable[[int], object]] = {
        "validation": lambda repeats: thresholds(VALIDATION, repeats, list(THRESHOLDS)),
        "wide": lambda repeats: thresholds(WIDE, repeats, list(THRESHOLDS)[:3]),
        "aps": aps,
        "by class": by_class,
        "promises": promises,
        "novelty": novelty,
    }
    results = {name: parts[name](options.repeats) for name in options.only or parts}
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
