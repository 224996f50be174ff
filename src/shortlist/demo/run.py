"""The demo: trainings on the embedded glyphs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from shortlist._progress import Progress
from shortlist.recipes import Recipe, make_recipe
from shortlist.runs import Run
from shortlist.training import resume, train

K = 5
BASE: dict[str, Any] = {
    "name": "demo",
    "data": {"name": "glyphs", "max_classes": 150, "train_images": 6000, "photos": 4},
    "model": {"name": "small_cnn"},
    "optimizer": {"lr": 0.2},
    "schedule": {"name": "cosine", "warm_up": 0.5},
    "epochs": 15,
    "batch_size": 128,
    "selection": {"metric": "top5"},
    "predictors": {
        "top5": {"name": "topk", "k": K},
        "top5_macro": {"name": "topk", "k": K, "macro": True},
        "average5": {"name": "average_k", "k": K},
        "average5_macro": {"name": "average_k", "k": K, "macro": True},
        "conformal90": {"name": "conformal", "coverage": 0.9},
    },
    "novelty": {"strangeness": "distance", "level": 0.05},
    "loggers": [],
}
NOISE = "data.label_noise=0.4"
# folder, name in the table, what is changed
METHODS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("cross_entropy", "cross-entropy", ()),
    ("average_k", f"average-{K} loss", ("loss=average_k", f"loss.k={K}")),
    ("cross_entropy_noise", "cross-entropy, noisy", (NOISE,)),
    (
        "noised_topk_noise",
        f"noised top-{K}, noisy",
        (NOISE, "loss=noised_topk", f"loss.k={K}", "loss.noise_std=1.0"),
    ),
)


def demo_recipe(changes: tuple[str, ...], seed: int) -> Recipe:
    """Return the recipe of one of the trainings."""
    return make_recipe(BASE, [*changes, f"seed={seed}"])


def run_demo(
    out: Path,
    *,
    seed: int = 0,
    progress: Callable[[str], Progress],
    methods: Sequence[tuple[str, str, tuple[str, ...]]] = METHODS[:1],
) -> dict[str, Run]:
    """Train the models that are missing; ``progress(name)`` makes the progress callback of each training.

    On one thread, which for so small a network is as fast as two and gives the same numbers each time.
    """
    torch.set_num_threads(1)
    runs = {}
    for folder, name, changes in methods:
        path = out / folder
        if path.exists():
            runs[name] = resume(path, progress=progress(name))
        else:
            runs[name] = train(demo_recipe(changes, seed), path, progress=progress(name))
    return runs
