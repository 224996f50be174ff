"""What the score map costs, and how long a fresh process takes from nothing to the short list of one image.

On one thread. Each thing is called ten times in a row, as a program does, since memory that is new to the
process costs more than the arithmetic; a ratio is of two things that take turns in one run.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
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


def take_turns(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Milliseconds of each call, the median of rounds of twelve; the first two of a round warm up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats // 10):
        for name, call in calls.items():
            for number in range(12):
                start = perf_counter()
                call()
                if number >= 2:
                    times[name].append(1e3 * (perf_counter() - start))
    return {name: median(found) for name, found in times.items()}


@torch.inference_mode()
def mapping(repeats: int = 100) -> None:
    """Scores and sets of a linear network, with a map that scales and converts priors, and without."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, FEATURES, generator=generator)
    table = ClassTable(names=[f"class {i}" for i in range(CLASSES)], counts=range(1, CLASSES + 1))
    training = PriorRecord.training(table.class_counts)
    spec = NetworkSpec(name="linear", num_classes=CLASSES, input_shape=(FEATURES,))
    network = build_network(spec)
    maps = {
        "without": ScoreMap(CLASSES, contains=training),
        "with": ScoreMap(CLASSES, scale=2.0, contains=training).under("balanced"),
    }
    scores = network(features)
    predictors: dict[str, SetPredictor] = {"TopK": TopK(5), "AverageK": AverageK(5).calibrate(scores)}
    models = {
        name: Model.from_parts(network, table, score_map=made, predictors=predictors, spec=spec)
        for name, made in maps.items()
    }
    compare(
        "Model.scores", {name: partial(model.scores, features) for name, model in models.items()}, repeats
    )
    for key in predictors:
        calls = {name: partial(scores_and_sets, model, features, key) for name, model in models.items()}
        compare(f"Model.scores and .sets, {key}", calls, repeats)
    for key, predictor in predictors.items():
        calls = {name: partial(mapped_sets, made, predictor, scores) for name, made in maps.items()}
        compare(f"sets of finished scores, {key}", calls, repeats)


def scores_and_sets(model: Model, features: Tensor, predictor: str) -> Tensor:
    return model.sets(model.scores(features), predictor)


def mapped_sets(score_map: ScoreMap, predictor: SetPredictor, scores: Tensor) -> Tensor:
    return predictor(score_map(scores))


def compare(title: str, calls: Mapping[str, Callable[[], object]], repeats: int) -> None:
    times = take_turns(calls, repeats)
    shown = ", ".join(f"{name} the map {value:.2f} ms" for name, value in times.items())
    print(f"({ROWS}, {CLASSES}) {title}: {shown}: {times['with'] / times['without']:.2f}x", flush=True)


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
