"""What the score map costs, and how long a fresh process takes from nothing to the short list of one image.

On one thread. Times are the best of many rounds, since memory that is new to the process costs more than the
arithmetic; a ratio is of two things that take turns in one run.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
from PIL import Image
from torch import Tensor

from shortlist import ClassTable, Model, Preprocessing
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import AverageK, SetPredictor, TopK
from shortlist.scores import PriorRecord, ScoreMap

ROWS, CLASSES, FEATURES = 256, 10_000, 256
LIST_ONE = """
import shortlist, sys
print(shortlist.Model.load(sys.argv[1]).short_lists([sys.argv[2]], "top5")[0][0].name)
"""


def take_turns(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Milliseconds of each call, the best of rounds in which each is called once."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(repeats + 3):
        for name, call in calls.items():
            start = perf_counter()
            call()
            if number >= 3:
                times[name].append(1e3 * (perf_counter() - start))
    return {name: min(found) for name, found in times.items()}


@torch.inference_mode()
def mapping(repeats: int = 100) -> None:
    """Scores of a linear head to sets, with a map that scales and converts priors, and without."""
    generator = torch.Generator().manual_seed(0)
    head, features = torch.nn.Linear(FEATURES, CLASSES), torch.randn(ROWS, FEATURES, generator=generator)
    training = PriorRecord.training(torch.arange(1, CLASSES + 1))
    score_map = ScoreMap(CLASSES, scale=2.0, contains=training).under("balanced")
    scores = head(features)
    for predictor in (TopK(5), AverageK(5).calibrate(scores)):
        report(predictor, scores, score_map, head, features, repeats)


def report(
    predictor: SetPredictor,
    scores: Tensor,
    score_map: ScoreMap,
    head: torch.nn.Module,
    features: Tensor,
    repeats: int,
) -> None:
    times = take_turns(
        {
            "sets": lambda: predictor(scores),
            "map and sets": lambda: predictor(score_map(scores)),
            "head and sets": lambda: predictor(head(features)),
            "head, map and sets": lambda: predictor(score_map(head(features))),
        },
        repeats,
    )
    name = type(predictor).__name__
    alone, whole = times["map and sets"] / times["sets"], times["head, map and sets"] / times["head and sets"]
    print(f"{name:10} ({ROWS}, {CLASSES}): {', '.join(f'{k} {v:.2f} ms' for k, v in times.items())}")
    print(f"{name:10} with the map: {whole:.2f}x from features on, {alone:.2f}x from scores on", flush=True)


def first_list(repeats: int = 3) -> None:
    """Seconds of a fresh process: import torch alone, and a saved model's list of one image."""
    table = ClassTable(names=[f"class {i}" for i in range(150)], counts=range(1, 151))
    spec = NetworkSpec(name="small_cnn", num_classes=150, input_shape=(3, 64, 64))
    model = Model.from_parts(
        build_network(spec),
        table,
        preprocessing=Preprocessing(height=64, width=64, resize=72, mean=(0.5,) * 3, std=(0.25,) * 3),
        score_map=ScoreMap(150, contains=PriorRecord.training(table.class_counts)),
        predictors={"top5": TopK(5)},
        spec=spec,
    )
    with tempfile.TemporaryDirectory() as folder:
        path, image = Path(folder) / "model", Path(folder) / "image.png"
        model.save(path)
        Image.new("RGB", (300, 200), "green").save(image)
        torch_alone = [seconds("import torch") for _ in range(repeats)]
        whole = [seconds(LIST_ONE, str(path), str(image)) for _ in range(repeats)]
    print(f"fresh process: import torch {min(torch_alone):.2f} s, a list of one image {min(whole):.2f} s")


def seconds(code: str, *words: str) -> float:
    start = perf_counter()
    subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True)
    return perf_counter() - start


if __name__ == "__main__":
    torch.set_num_threads(1)
    mapping()
    first_list()
