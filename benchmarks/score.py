"""Time and memory of scoring many rows by many classes, beside the matrix product alone.

Embeddings and a linear head are made up and written to a folder that is removed afterwards. The product is
computed by the same number of processes, in the same blocks, from the same files. Then the rows are scored to
their 64 best classes, AverageK and Conformal are calibrated on them, and all is evaluated. Times are by the
clock and of the processor, over all processes; the peak of memory is the largest of any process.

    python benchmarks/score.py --rows 1000000 --classes 50000   # as in docs/cluster.md; half an hour
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

FEATURES = 256


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
    """A linear head whose classes have unit vectors, rows near the vectors of their classes, predictors."""
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
    weight.data, bias.data = 12 * centers, torch.zeros(classes)
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


def run(rows: int, classes: int, workers: int, with_ray: bool) -> dict[str, tuple[float, float]]:
    from shortlist.engine.inputs import find_shards
    from shortlist.engine.local import run_local
    from shortlist.engine.on_ray import run_on_ray
    from shortlist.engine.reading import calibrate_from_scores, evaluate_scores
    from shortlist.engine.score import ModelSource, score_shards
    from shortlist.predictors import AverageK, Conformal

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_world(folder, rows, classes)
        source = ModelSource(str(folder / "model"))
        table, shards = source.open().classes, []
        for file in sorted((folder / "rows").iterdir()):
            shards += find_shards(file, table.ids)
        again = {"average5": AverageK(5), "conformal90": Conformal(coverage=0.9)}
        work = ProductWork(source)
        steps: dict[str, Callable[[], Any]] = {
            "product": lambda: list(run_local(work, shards, workers=workers)),
            "score": lambda: score_shards(source, shards, folder / "scores", workers=workers),
            "calibrate": lambda: calibrate_from_scores(folder / "scores", again),
            "evaluate": lambda: evaluate_scores(folder / "scores", again, table),
        }
        if with_ray:
            steps["score, ray"] = lambda: score_shards(
                source, shards, folder / "ray", workers=workers, engine=run_on_ray
            )
        return {step: measure(function)[:2] for step, function in steps.items()}


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
    for rows in given.rows:
        times = run(rows, given.classes, given.workers, given.ray)
        print(f"{rows:,} rows x {given.classes:,} classes, {given.workers} workers")
        for step, (clock, used) in times.items():
            print(f"  {step:11} {clock:8.1f} s  {used:8.1f} s of the processor")
        ours = [sum(times[step][i] for step in ("score", "calibrate", "evaluate")) for i in (0, 1)]
        ratios = [own / alone for own, alone in zip(ours, times["product"], strict=True)]
        print(f"  all of it / product: {ratios[0]:.2f} by the clock, {ratios[1]:.2f} of the processor")
        if given.ray:
            print(f"  ray / local: {times['score, ray'][0] / times['score'][0]:.2f} by the clock")
        peaks = [
            resource.getrusage(who).ru_maxrss / 1e6
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        print(f"  peak memory: {peaks[0]:.2f} GB here, {peaks[1]:.2f} GB in a worker", flush=True)


if __name__ == "__main__":
    main()
