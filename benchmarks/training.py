"""Time of a training step of the demonstration's network with each loss, beside cross-entropy.

Steps (forward, backward, optimiser) are made in turns, on one thread; the ratio is of medians.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from shortlist.class_table import ClassTable
from shortlist.datasets import Splits, TensorSplit
from shortlist.train.build import build_loss, build_model, build_optimiser
from shortlist.train.demo import BASE
from shortlist.train.recipe import make_recipe

CLASSES, BATCH = 150, 128
LOSSES = {
    "cross_entropy": [],
    "topk_hinge": [],
    "calibrated_topk_hinge": [],
    "smooth_topk": [],
    "noised_topk": [],
    "noised_topk, exact": ["loss.num_samples=null"],
    "ranked_topk": ["loss.distribution=[0.5, 0, 0, 0, 0.5]", "loss.candidates=16"],
    "imbalanced_noised_topk": [],
    "focal": [],
    "ldam": [],
    "logit_adjusted": [],
    "average_k": [],
    "assume_negative": [],
    "expected_positive": [],
    "role": [],
}


def make_step(name: str, data: Splits) -> Callable[[], None]:
    """One training step with a loss, on a batch of its own choosing."""
    loss_name = name.split(",")[0]
    recipe = make_recipe(BASE, [f"loss={loss_name}", *LOSSES[name], "optimiser.lr=0.001"])
    torch.manual_seed(0)
    loss = build_loss(recipe, data)
    model = build_model(recipe, CLASSES, data.train[0][0])
    optimiser = build_optimiser(recipe, model, loss)
    needs = getattr(loss, "needs", frozenset())

    def step() -> None:
        rows = torch.randint(len(data.train), (BATCH,))
        images, target = data.train.batch(rows)  # type: ignore[attr-defined]
        output = model(images.contiguous(memory_format=torch.channels_last))
        arguments = (output, target, rows) if "sample_ids" in needs else (output, target)
        optimiser.zero_grad()
        loss(*arguments).backward()
        optimiser.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150, help="of each loss")
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2048, 1, 32, 32, generator=generator)
    target = torch.randint(CLASSES, (2048,), generator=generator)
    part = TensorSplit(images, target)
    counts = target.bincount(minlength=CLASSES)
    table = ClassTable([str(c) for c in range(CLASSES)], counts=counts.tolist())
    data = Splits(part, part, part, table)
    steps = {name: make_step(name, data) for name in LOSSES}
    times: dict[str, list[float]] = {name: [] for name in LOSSES}
    for step in steps.values():
        step()
    for _ in range(options.steps):
        for name, step in steps.items():
            start = perf_counter()
            step()
            times[name].append(perf_counter() - start)
    plain = median(times["cross_entropy"])
    for name, taken in times.items():
        middle = median(taken)
        print(f"{name:28} {1e3 * middle:6.2f} ms, {BATCH / middle:6.0f} images/s, {middle / plain:.3f}x")


if __name__ == "__main__":
    main()
