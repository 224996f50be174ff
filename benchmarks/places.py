"""What a place costs: once, when it is first asked for, and beside lists without a place.

The network is small and the images are ready, so that the share of the place is larger than with a real one.
"""

import statistics
import time

import torch
from torch import nn

from shortlist import ClassTable, Model, Place, Preprocessing
from shortlist.model import Choice, keep_rows
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.serve.answerer import Answerer
from shortlist.serve.exchange import Query

CASES = ((150, 1_341, 40), (10_000, 20_000, 500))  # classes, calibration rows, classes of the place
TURNS = 40


def made(classes: int, rows: int) -> Model:
    """Return a model with random weights and calibration rows."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(5, 300, (classes,), generator=generator).tolist()
    table = ClassTable(names=tuple(f"class {number}" for number in range(classes)), counts=tuple(counts))
    priors = PriorRecord.training(table.class_counts)
    convolutions = nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU()
    network = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, classes))
    score_map = ScoreMap(classes, contains=priors)
    target = torch.multinomial(priors.priors.float(), rows, replacement=True, generator=generator)
    scores = torch.randn(rows, classes, generator=generator)
    scores[torch.arange(rows), target] += 5
    return Model.from_parts(
        network,
        table,
        score_map=score_map,
        calibration_rows=keep_rows(scores, target, score_map, table),
        preprocessing=Preprocessing(height=64, width=64, resize=64, mean=(0.0,) * 3, std=(1.0,) * 3),
    )


def main() -> None:
    """Print the times of a place."""
    torch.set_num_threads(1)
    for classes, rows, in_place in CASES:
        model = made(classes, rows)
        answerer = Answerer(model)
        names = model.classes.names[:: classes // in_place]
        place = Place({name: 1.0 + number % 3 for number, name in enumerate(names)}, "here")
        plain, here = Choice(coverage=0.9), Choice(coverage=0.9, place=place)
        start = time.perf_counter()
        answerer.answer([Query(torch.rand(1, 3, 64, 64), here)])
        first = time.perf_counter() - start
        print(
            f"{classes:,} classes, {rows:,} rows: first list at a place of {in_place}, {1e3 * first:.0f} ms"
        )
        for size in (1, 8):
            images = torch.rand(size, 1, 3, 64, 64)
            spent: dict[Choice, list[float]] = {plain: [], here: []}
            for turn in range(TURNS):
                for choice in (plain, here) if turn % 2 else (here, plain):
                    queries = [Query(image, choice) for image in images]
                    start = time.process_time()
                    answerer.answer(queries)
                    spent[choice].append((time.process_time() - start) / size)
            before, after = (1e6 * statistics.median(spent[choice]) for choice in (plain, here))
            share = after / before - 1
            print(f"  {size} at a time: {before:,.0f} us, at the place {after:,.0f} us ({share:+.1%})")


if __name__ == "__main__":
    main()
