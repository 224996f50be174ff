"""Seconds of training steps with a loss, beside those with cross-entropy.

Each loss is trained as ``shortlist train`` trains it, by the demonstration's recipe on its data, but in every
second step with cross-entropy of the same scores: the machine's pace drifts by several percent in seconds,
so that whole epochs, one with each, tell less. A step counts from the end of the step before, with its batch;
those of the first epoch and the first ones of the others do not.
"""

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

from torch import Tensor
from torch.nn.functional import cross_entropy

from shortlist.demo import BASE
from shortlist.models import head_scores
from shortlist.recipes import Recipe, make_recipe
from shortlist.training import SetClassifier, fit

PLAIN = "cross_entropy"  # every second step
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


def timed_recipe(name: str, epochs: int, *, k: int | None = None, settings: Sequence[str] = ()) -> Recipe:
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


class _EverySecond(SetClassifier):
    """A module that learns by its loss in steps 1, 3, ..., and by cross-entropy in steps 0, 2, ..."""

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        if self.global_step % 2:
            return super().training_step(batch, _)
        inputs, target, _rows = batch
        loss = cross_entropy(head_scores(self(inputs)), target)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(target), sync_dist=True)
        return loss


def step_seconds(recipe: Recipe) -> tuple[list[float], list[float]]:
    """Train, and return the seconds of the steps with cross-entropy, and of those with the recipe's loss."""
    ends: dict[int, float] = {}
    epoch_steps = 0

    def note_time(what: str, done: int, total: int, *_: object) -> None:
        nonlocal epoch_steps
        if what == "training":
            ends[done], epoch_steps = perf_counter(), total // recipe.epochs

    with tempfile.TemporaryDirectory() as folder, patch.object(fit, "SetClassifier", _EverySecond):
        fit.train(recipe, Path(folder) / "run", progress=note_time)
    plain, with_loss = [], []
    for done, end in ends.items():
        step = done - 1
        if step > epoch_steps and step % epoch_steps:
            (with_loss if step % 2 else plain).append(end - ends[step])
    return plain, with_loss


def keep_freed_memory() -> None:
    """Let the process keep for the next step what a step frees.

    Otherwise whether glibc gives it back, to take it anew page by page, depends on what happens to lie at the
    end of the heap: for cross-entropy as for any loss, an epoch then takes up to a quarter longer.
    """
    trim_threshold, mmap_threshold = -1, -3
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library has another allocator
        mallopt(trim_threshold, 1 << 30)
        mallopt(mmap_threshold, 1 << 25)
