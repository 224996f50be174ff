"""Time and memory of scoring many rows by many classes, beside the matrix product alone.

Embeddings and a linear head are made up and written to a folder that is removed afterwards. The product is
computed by the same number of processes, in the same blocks, from the same files. Then the rows are scored to
their 64 best classes, AverageK and Conformal are calibrated on them, and all is evaluated. Times are by the
clock and of the processor, over all processes; the peak of memory is the largest of any process, without
those of Ray. With several numbers of rows, the growth between the first and the last is shown, and what it
comes to for 10 million rows. ``--ray`` scores the rows once more on Ray: the first ones that take about a
minute without it, or the last ones.

    python benchmarks/score.py --rows 100000 300000 1000000 --ray   # 20 minutes on two cores
"""

import argparse
import itertools
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

FEATURES = 256
A_MINUTE = 45.0  # seconds by the clock from which on a job is long enough to tell the overhead of Ray

Times = dict[str, tuple[float, float]]
"""Seconds of each step, by the clock and of the processor."""


@dataclass(frozen=True)
class ProductWork:
    """The product of each block of rows with the weights, and nothing else."""

    model: Any

    def __call__(self) -> Callable[[Any], int]:
        """Load the weights, and return the function of a shard."""
        network = self.model.open().network

        def one(shard: Any) -> int:
            inputs = shard.open().inputs
            with torch.inference_mode():
                for block in inputs.split(256):
                    network(block)
            return len(inputs)

        return one


def make_world(folder: Path, rows: int, classes: int) -> None:
    """A linear head whose classes have unit vectors, rows near the vectors of their classes, predictors.

    The vectors are 10 times as long in the head: sets of 5 classes on average then have up to about 20. With
    12, one row of some 100,000 has more than the 64 that are kept, and the calibration refuses these parts.
    """
    from shortlist import ClassTable, Model
    from shortlist.datasets.embeddings import save_embeddings
    from shortlist.models.spec import NetworkSpec, build_network
    from shortlist.predictors import AverageK, Conformal
    from shortlist.scores import PriorRecord, ScoreMap

    generator = torch.Generator().manual_seed(0)
    centers = torch.nn.functional.normalize(torch.randn(classes, FEATURES, generator=generator), dim=1)
    spec = NetworkSpec(name="linear", num_classes=classes, input_shape=(FEATURES,))
    network = build_network(spec).eval()
    weight, bias = (p for _, p in sorted(network.named_parameters(), key=lambda one: -one[1].ndim))
    weight.data, bias.data = 10 * centers, torch.zeros(classes)
    counts = 1 + 200 * torch.arange(classes) // classes
    table = ClassTable([f"class {i}" for i in range(classes)], counts=counts.tolist())

    def draw(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        target = torch.randint(classes, (number,), generator=generator)
        return centers[target] + 0.06 * torch.randn(number, FEATURES, generator=generator), target

    inputs, target = draw(1000)
    with torch.no_grad():
        scores = network(inputs)
    made = {
        "average5": AverageK(5).calibrate(scores),
        "conformal90": Conformal(coverage=0.9).calibrate(scores, target),
    }
    score_map = ScoreMap(classes, contains=PriorRecord.training(counts))
    Model.from_parts(network, table, score_map=score_map, predictors=made, spec=spec).save(folder / "model")
    (folder / "rows").mkdir()
    for start in range(0, rows, 2**17):  # a file at a time, so that this is not the peak of memory
        inputs, target = draw(min(2**17, rows - start))
        save_embeddings(folder / "rows" / f"{start:09d}.safetensors", inputs.half(), target)


def measure(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds by the clock, and of the processor in this process and its children; and the result."""
    clock, used = time.perf_counter(), _processor()
    result = function()
    return time.perf_counter() - clock, _processor() - used, result


def _processor() -> float:
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in usage)


def run(rows: int, classes: int, workers: int, on_ray: Callable[[float], bool]) -> Times:
    """Measure each step; Ray too, if it is wanted where the local score takes so many seconds."""
    from shortlist.passes.local import run_local
    from shortlist.passes.on_ray import run_on_ray
    from shortlist.passes.planning import find_shards
    from shortlist.passes.reading import calibrate_from_scores, evaluate_scores
    from shortlist.passes.score import ModelSource, score_shards
    from shortlist.predictors import AverageK, Conformal

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_world(folder, rows, classes)
        source = ModelSource(str(folder / "model"))
        table, shards = source.open().classes, []
        for file in sorted((folder / "rows").iterdir()):
            shards += find_shards(file, table)
        again = {"average5": AverageK(5), "conformal90": Conformal(coverage=0.9)}
        work = ProductWork(source)

        def score(place: str, engine: Any) -> Any:
            return score_shards(source, shards, folder / place, workers=workers, engine=engine)

        steps: dict[str, Callable[[], Any]] = {
            "product": lambda: list(run_local(work, shards, workers=workers)),
            "score": lambda: score("scores", run_local),
            "calibrate": lambda: calibrate_from_scores(folder / "scores", again),
            "evaluate": lambda: evaluate_scores(folder / "scores", again, table),
        }
        times = {step: measure(function)[:2] for step, function in steps.items()}
        if on_ray(times["score"][0]):
            print_peaks()  # before Ray's own processes
            times["score, ray"] = measure(lambda: score("ray", run_on_ray))[:2]
        return times


def all_of_it(times: Times) -> tuple[float, float]:
    """Seconds of score, calibrate and evaluate: by the clock, and of the processor."""
    clock, used = (sum(times[step][i] for step in ("score", "calibrate", "evaluate")) for i in (0, 1))
    return clock, used


def print_times(rows: int, given: argparse.Namespace, times: Times) -> None:
    """Print one number of rows."""
    print(f"{rows:,} rows x {given.classes:,} classes, {given.workers} workers")
    for step, (clock, used) in times.items():
        own = f"  {used:8.1f} s of the processor" if step != "score, ray" else ""  # in others' processes
        print(f"  {step:11} {clock:8.1f} s{own}")
    ratios = [own / alone for own, alone in zip(all_of_it(times), times["product"], strict=True)]
    print(f"  all of it / product: {ratios[0]:.2f} by the clock, {ratios[1]:.2f} of the processor")
    if "score, ray" in times:
        ratio = times["score, ray"][0] / times["score"][0]
        print(f"  ray / local: {ratio:.2f} by the clock, on a job of {times['score'][0]:.0f} s")
    print_peaks()


def print_peaks() -> None:
    """Print the largest memory so far, of this process and of its children."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peaks = [resource.getrusage(one).ru_maxrss / 1e6 for one in who]
    print(f"  peak memory so far: {peaks[0]:.2f} GB here, {peaks[1]:.2f} GB in a worker", flush=True)


def print_growth(found: dict[int, Times]) -> None:
    """Print the cost of more rows: linear if it is the same from line to line."""
    rows = sorted(found)
    print("growth: seconds of the processor for 100,000 more rows")
    for less, more in itertools.pairwise(rows):
        both = [(all_of_it(found[n])[1], found[n]["product"][1]) for n in (less, more)]
        own, alone = (1e5 * (after - before) / (more - less) for before, after in zip(*both, strict=True))
        words = f"product {alone:.1f}, all of it {own:.1f}, ratio {own / alone:.2f}"
        print(f"  {less:>9,} to {more:>9,}: {words}")
    first, last = found[rows[0]], found[rows[-1]]
    step = (10_000_000 - rows[-1]) / (rows[-1] - rows[0])
    hours = [
        (after + step * (after - before)) / 3600
        for before, after in zip(all_of_it(first), all_of_it(last), strict=True)
    ]
    words = f"{hours[0]:.2f} h by the clock, {hours[1]:.2f} h of the processor"
    print(f"  10 million rows, extrapolated: {words}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[4096, 12288])
    parser.add_argument("--classes", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", action="store_true", help="also on Ray, for its overhead")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[int, Times] = {}
    for rows in sorted(given.rows):

        def on_ray(seconds: float, rows: int = rows) -> bool:
            known = any("score, ray" in times for times in found.values())
            return given.ray and not known and (seconds > A_MINUTE or rows == max(given.rows))

        found[rows] = run(rows, given.classes, given.workers, on_ray)
        print_times(rows, given, found[rows])
    if len(found) > 1:
        print_growth(found)


if __name__ == "__main__":
    main()
