"""Training throughput of the demonstration's network with each loss, beside cross-entropy.

Each loss is trained as ``shortlist train`` trains it, by the demonstration's recipe on its data, for a few
epochs at a time, on one thread, with cross-entropy right before it; an epoch counts with its batches, steps
and checkpoint but without validation, except for the first of each turn. The ratio is the median over turns
of the ratios of the median epochs.
"""

import argparse
import ctypes
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from shortlist.train.demo import BASE
from shortlist.train.fit import train
from shortlist.train.recipe import Recipe, make_recipe

PLAIN = "cross_entropy"
LOSSES = {
    PLAIN: [],
    "topk_hinge": [],
    "convex_topk_hinge": [],
    "calibrated_topk_hinge": [],
    "smooth_topk": [],
    "noised_topk": [],
    "noised_topk, exact": ["loss.num_samples=null"],
    "imbalanced_noised_topk": [],
    "ranked_topk": ["loss.distribution=[0.5, 0, 0, 0, 0.5]", "loss.candidates=16"],
    "focal": [],
    "balanced_ce": [],
    "ldam": [],
    "logit_adjusted": [],
    "average_k": [],
    "assume_negative": [],
    "expected_positive": [],
    "role": [],
}


def make(name: str, epochs: int) -> Recipe:
    loss = [f"loss={name.split(',')[0]}", *LOSSES[name]]
    # small steps: all losses stay where they start, none diverges with the demonstration's learning rate
    return make_recipe(BASE, [*loss, f"epochs={epochs}", f"validate_every={epochs}", "optimiser.lr=0.01"])


def epoch_seconds(recipe: Recipe) -> list[float]:
    """How long each epoch of a run took, from last step to last step, but for the first."""
    ends: list[float] = []

    def note_time(what: str, done: int, total: int, figures: dict[str, float]) -> None:
        if what == "training" and done % (total // recipe.epochs) == 0:
            ends.append(perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        train(recipe, Path(folder) / "run", report=note_time)
    return [later - earlier for earlier, later in pairwise(ends)]


def keep_freed_memory() -> None:
    """Let the process keep what a step frees for the next one.

    Otherwise whether glibc gives it back, to take it anew page by page, depends on what happens to lie at the
    end of the heap: for cross-entropy as for any loss, an epoch then takes up to a quarter longer.
    """
    trim_threshold, mmap_threshold = -1, -3
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library has another allocator
        mallopt(trim_threshold, 1 << 30)
        mallopt(mmap_threshold, 1 << 25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3, help="of each loss")
    parser.add_argument("--epochs", type=int, default=4, help="of a turn, the first of which is not counted")
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    images = BASE["data"]["train_images"]
    for name in options.losses:
        plain, ratios = [], []
        for _ in range(options.turns):  # the machine's pace drifts: what is compared is measured together
            before, with_loss = (median(epoch_seconds(make(n, options.epochs))) for n in (PLAIN, name))
            plain.append(before)
            ratios.append(with_loss / before)
        seconds, ratio = median(plain), median(ratios)
        print(
            f"{name:28} {ratio:.3f}x ({min(ratios):.3f} to {max(ratios):.3f}), "
            f"{images / (seconds * ratio):5.0f} images/s, cross-entropy {images / seconds:5.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
