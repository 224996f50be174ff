"""Three changes of the two-head loss for long tails, beside the loss as it is and cross-entropy.

A proposal head learns by cross-entropy; the largest entries of its softmax over the batch become further
positives of the set head. Of 300 classes of glyphs most are rare, and are seldom among these. The changes:

- by ratio: the largest p / prior in place of the largest p;
- adjusted proposals: the proposal head learns with the logit-adjusted loss;
- running threshold: all entries above the running mean of the batches' thresholds.

Printed is the coverage over classes of sets of 5 on average, made with class priors, on test rows: of the set
head, of its classes with fewer than 20 training images, and of the proposal head.
"""

import argparse
from collections.abc import Sequence
from statistics import fmean, stdev

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from shortlist.datasets.loaders import evaluation_loader, training_loader
from shortlist.losses import logit_adjusted_loss
from shortlist.metrics import set_coverage
from shortlist.models.heads import TwoHeadScores
from shortlist.predictors import AverageK
from shortlist.priors import class_priors
from shortlist.recipes.build import build_optimizer, learning_rate_factor
from shortlist.recipes.parts import Parts, build_parts
from shortlist.recipes.recipe import Recipe, make_recipe
from shortlist.scores import fit_temperature_and_prior

K, ALPHA, KEPT, RARE = 5, 1.0, 0.99, 20
CHANGES = ("as it is", "by ratio", "adjusted proposals", "running threshold", "cross-entropy alone")
BASE = {
    "data": {"name": "glyphs", "max_classes": 300, "train_images": 6000},
    "model": {"name": "small_cnn"},
    "loss": {"name": "average_k", "k": K, "alpha": ALPHA},
    "optimizer": {"lr": 0.3},
    "batch_size": 64,
    "loggers": [],
}


class ChangedLoss:
    """The two-head loss, written out for all entries, with one of the changes."""

    def __init__(self, change: str, counts: Tensor) -> None:
        self.change, self.counts = change, counts
        self.threshold: float | None = None  # the running one

    def __call__(self, output: TwoHeadScores, target: Tensor) -> Tensor:
        """Compute the mean loss of a batch."""
        scores, proposals = output
        if self.change == "adjusted proposals":
            of_proposals = logit_adjusted_loss(proposals, target, class_counts=self.counts)
        else:
            of_proposals = cross_entropy(proposals, target)
        if self.change == "cross-entropy alone":
            return of_proposals
        true = torch.zeros_like(scores, dtype=torch.bool).scatter(1, target[:, None], True)
        chosen = self._pseudo_positives(proposals.detach().softmax(1), true)
        rest = ~(chosen | true)
        n, c = scores.shape
        of_true = logsigmoid(scores)[true].sum()
        of_chosen = ALPHA / (K - 1) * logsigmoid(scores)[chosen].sum()
        return of_proposals - (of_true + of_chosen + ALPHA / (c - K) * logsigmoid(-scores)[rest].sum()) / n

    def _pseudo_positives(self, chances: Tensor, true: Tensor) -> Tensor:
        if self.change == "by ratio":
            chances = chances / class_priors(self.counts)
        values = chances.masked_fill(true, -torch.inf)
        threshold = float(values.flatten().topk((K - 1) * len(values)).values[-1])
        if self.change == "running threshold":
            before = threshold if self.threshold is None else self.threshold
            threshold = self.threshold = KEPT * before + (1 - KEPT) * threshold
        return values >= threshold


def train(recipe: Recipe, parts: Parts, loss: ChangedLoss) -> None:
    """Train the network of the parts."""
    network = parts.network.train()
    steps = len(parts.data.train) // recipe.batch_size
    optimizer = build_optimizer(recipe, network, parts.loss)
    factor = learning_rate_factor(recipe, steps, steps * recipe.epochs)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for epoch in range(recipe.epochs):
        batches = training_loader(
            parts.data.train, batch_size=recipe.batch_size, seed=recipe.seed, first_epoch=epoch
        )
        for inputs, target, _ in batches:
            optimizer.zero_grad()
            loss(network(inputs), target).backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def scores_of(parts: Parts, part: str) -> dict[str, Tensor]:
    """Return the scores (n, c) of both heads for the rows of a part, and their classes."""
    network, rows = parts.network.eval(), []
    for inputs, target, _ in evaluation_loader(getattr(parts.data, part), batch_size=256):
        rows.append((*network(inputs), target))
    return dict(zip(("set", "proposal", "target"), map(torch.cat, zip(*rows, strict=True)), strict=True))


def coverages(parts: Parts, heads: Sequence[str]) -> dict[str, float]:
    """Return the coverage over classes of sets of 5 on average, of each head."""
    counts = parts.data.class_table.class_counts
    priors = class_priors(counts)
    val, test, found = scores_of(parts, "val"), scores_of(parts, "test"), {}
    for head in heads:
        fit = fit_temperature_and_prior(val[head], val["target"], priors=priors)
        mapped = [
            rows[head].double() / fit.temperature + fit.exponent * priors.double().log()
            for rows in (val, test)
        ]
        sets = AverageK(K, priors=priors).calibrate(mapped[0])(mapped[1])
        by_class = set_coverage(sets, test["target"], average="none")
        found[head] = float(by_class.nanmean())
        found[f"{head}, rare"] = float(by_class[counts < RARE].nanmean())
    return found


def measure(change: str, *, seed: int, epochs: int, overrides: list[str]) -> dict[str, float]:
    """Train with one of the changes; return the coverages. Cross-entropy alone has no set head."""
    recipe = make_recipe(BASE, [*overrides, f"seed={seed}", f"epochs={epochs}"])
    parts = build_parts(recipe)
    train(recipe, parts, ChangedLoss(change, parts.data.class_table.class_counts))
    return coverages(parts, ["proposal"] if change == "cross-entropy alone" else ["set", "proposal"])


def main() -> None:
    """Print a table, a line as soon as its trainings are done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, at least 2 (default 3)")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of each training (default 10)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe")
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error(f"--seeds must be >= 2, got {arguments.seeds}")
    print(__doc__)
    print("| | set head | its rare classes | proposal head |\n| --- | ---: | ---: | ---: |")
    for change in CHANGES:
        runs = [
            measure(change, seed=seed, epochs=arguments.epochs, overrides=arguments.set)
            for seed in range(arguments.seeds)
        ]
        cells = []
        for name in ("set", "set, rare", "proposal"):
            values = [100 * run[name] for run in runs if name in run]
            cells.append(f"{fmean(values):.1f} ± {stdev(values):.1f}" if values else "")
        print(f"| {change} | {' | '.join(cells)} |", flush=True)
    print(f"\nPercent; mean and standard deviation of {arguments.seeds} seeds, {arguments.epochs} epochs.")


if __name__ == "__main__":
    main()
