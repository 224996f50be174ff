"""Training throughput of the demonstration's network with each loss, beside cross-entropy.

Each loss is trained as ``shortlist train`` trains it, by the demonstration's recipe on its data and on one
thread, but in every second step with cross-entropy of the same scores: the machine's pace drifts by several
percent within seconds, so that whole epochs, one with each, tell less. A step counts from the end of the step
before, with its batch; those of the first epoch and the first ones of the others do not. The ratio is that of
the medians.
"""

import argparse
import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from shortlist.demo.run import BASE
from shortlist.models.heads import head_scores
from shortlist.recipes.recipe import Recipe, make_recipe
from shortlist.training import fit
from shortlist.training.module import SetClassifier

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


def make(name: str, epochs: int, *, k: int | None = None, settings: Sequence[str] = ()) -> Recipe:
    """Make the demonstration's recipe with a loss, for lists of k if the loss has a k and it is given.

    ``settings`` change it further, as ``shortlist train --set`` does.
    """
    loss = [f"loss={name.split(',')[0]}", *LOSSES[name]]
    if k is not None and name == "ranked_topk":
        half = [0.5, *[0.0] * (k - 2), 0.5] if k > 1 else [1.0]
        loss += [f"loss.distribution={half}", f"loss.candidates={max(16, 2 * k)}"]
    elif k is not None:
        loss.append(f"loss.k={k}")
    # small steps: all losses stay where they start, none diverges with the demonstration's learning rate
    base = [f"epochs={epochs}", f"validate_every={epochs}", "optimizer.lr=0.01"]
    return make_recipe(BASE, [*loss, *base, *settings])


class EverySecond(SetClassifier):
    """Uses its loss in steps 1, 3, ..., and cross-entropy in steps 0, 2, ..."""

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
        """The loss of a batch."""
        if self.global_step % 2:
            return super().training_step(batch, _)
        inputs, target, _rows = batch
        loss = cross_entropy(head_scores(self(inputs)), target)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(target), sync_dist=True)
        return loss


def step_seconds(recipe: Recipe) -> tuple[list[float], list[float]]:
    """How long the steps with cross-entropy took, and those with the recipe's loss."""
    ends: dict[int, float] = {}
    epoch_steps = 0

    def note_time(what: str, done: int, total: int, *_: object) -> None:
        nonlocal epoch_steps
        if what == "training":
            ends[done], epoch_steps = perf_counter(), total // recipe.epochs

    with tempfile.TemporaryDirectory() as folder, patch.object(fit, "SetClassifier", EverySecond):
        fit.train(recipe, Path(folder) / "run", progress=note_time)
    plain, with_loss = [], []
    for done, end in ends.items():
        step = done - 1
        if step > epoch_steps and step % epoch_steps:
            (with_loss if step % 2 else plain).append(end - ends[step])
    return plain, with_loss


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
    parser.add_argument(
        "--epochs", type=int, default=9, help="number of epochs for each loss; the first one is not counted"
    )
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    options = parser.parse_args()
    if options.epochs < 2:
        parser.error(f"argument --epochs: must be >= 2, got {options.epochs}")
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in options.losses:
        plain, with_loss = step_seconds(make(name, options.epochs))
        before, after = median(plain), median(with_loss)
        error = after / before * sum(spread(times) ** 2 for times in (plain, with_loss)) ** 0.5
        both = f"{1e3 * after:.1f} ms, with cross-entropy {1e3 * before:.1f} ms"
        print(
            f"{name:28} {after / before:.3f}x (standard error {error:.3f}), a step takes {both}", flush=True
        )


def spread(times: list[float]) -> float:
    """Relative standard error of a median, from the middle half of the times."""
    low, middle, high = quantiles(times, n=4)
    return 1.2533 * (high - low) / 1.349 / middle / len(times) ** 0.5


if __name__ == "__main__":
    main()
