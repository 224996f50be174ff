"""Train one small network with cross-entropy and with top-k losses, on classes that look alike.

100 classes stand in 20 groups of 5. A class is told apart from the rest of its group by little, and 40 % of
the training labels were redrawn within the group, as careless annotators would. A good list of 5 is still
possible.
"""

import argparse
import time

import torch
from torch import Tensor, nn

from shortlist.losses import NoisedTopKLoss, SmoothTopKLoss

NUM_GROUPS, PER_GROUP, FEATURES = 20, 5, 24
TRAIN_PER_CLASS, TEST_PER_CLASS = 40, 100
LABEL_NOISE, EPOCHS, BATCH, SEEDS = 0.4, 40, 100, 3
LISTS = range(1, 11)
PRINTED = (1, 3, 5)


def make_data(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gaussian classes around group centers; training labels with noise, test labels without."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randn(NUM_GROUPS, 1, FEATURES, generator=generator)
    centers = (groups + 0.5 * torch.randn(NUM_GROUPS, PER_GROUP, FEATURES, generator=generator)).flatten(0, 1)
    labels = torch.arange(NUM_GROUPS * PER_GROUP)

    def draw(per_class: int) -> tuple[Tensor, Tensor]:
        target = labels.repeat(per_class)
        return centers[target] + torch.randn(len(target), FEATURES, generator=generator), target

    train_x, train_y = draw(TRAIN_PER_CLASS)
    test_x, test_y = draw(TEST_PER_CLASS)
    redrawn = torch.rand(len(train_y), generator=generator) < LABEL_NOISE
    within = torch.randint(PER_GROUP, train_y.shape, generator=generator)
    train_y = torch.where(redrawn, train_y // PER_GROUP * PER_GROUP + within, train_y)
    return train_x, train_y, test_x, test_y


def train(loss: nn.Module, data: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> list[float]:
    """Top-k accuracies in percent on the test rows after a fixed number of epochs."""
    torch.manual_seed(seed)
    train_x, train_y, test_x, test_y = data
    model = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, NUM_GROUPS * PER_GROUP))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(train_y)).split(BATCH):
            optimizer.zero_grad()
            loss(model(train_x[rows]), train_y[rows]).backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        hits = model(test_x).topk(max(LISTS)).indices == test_y[:, None]
    return [100 * hits[:, :k].any(1).float().mean().item() for k in LISTS]


def draw(means: dict[str, list[float]], path: str) -> None:
    """Miss rate against the length of the list, one line per loss."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for name, accuracies in means.items():
        axes.plot(LISTS, [100 - accuracy for accuracy in accuracies], marker="o", markersize=3, label=name)
    axes.set(
        yscale="log", xlabel="classes in the list", ylabel="right class missing (%, log scale)", xticks=LISTS
    )
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print one line per loss: mean and range over seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figure", metavar="SVG", help="also draw the miss rates (needs matplotlib)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # enough for so small a network, and the same numbers on any machine
    losses = {
        "cross-entropy": nn.CrossEntropyLoss,
        "noised top-5, 5 draws": lambda: NoisedTopKLoss(k=5, noise_std=1.0),
        "noised top-5, exact": lambda: NoisedTopKLoss(k=5, noise_std=1.0, num_samples=None),
        "smooth top-5": lambda: SmoothTopKLoss(k=5, temperature=1.0),
    }
    print(__doc__)
    print(f"{'loss':<24}" + "".join(f"{f'top-{k} accuracy':>22}" for k in PRINTED) + f"{'seconds':>10}")
    means = {}
    for name, make_loss in losses.items():
        start = time.perf_counter()
        runs = [train(make_loss(), make_data(seed), seed) for seed in range(SEEDS)]
        columns = list(zip(*runs, strict=True))
        means[name] = [sum(column) / SEEDS for column in columns]
        cells = [
            f"{means[name][k - 1]:.1f} ({min(columns[k - 1]):.1f} to {max(columns[k - 1]):.1f})"
            for k in PRINTED
        ]
        seconds = time.perf_counter() - start
        print(f"{name:<24}" + "".join(f"{cell:>22}" for cell in cells) + f"{seconds:>10.1f}", flush=True)
    rows = NUM_GROUPS * PER_GROUP * TEST_PER_CLASS
    print(f"\nPercent of {rows:,} test rows, mean and range of {SEEDS} seeds.")
    if arguments.figure:
        draw(means, arguments.figure)


if __name__ == "__main__":
    main()
