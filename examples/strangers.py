"""How well strangers are told on the glyph set, and who pays for it; draws docs/strangers.svg.

A small network learns the glyphs without four scripts. Its validation rows calibrate detectors of strangers;
the test rows of the known scripts count false alarms, those of the four scripts the power. About two minutes
on one core.
"""

import argparse
from pathlib import Path

import matplotlib
import torch
from torch import Tensor, nn

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from shortlist.datasets import TensorSplit
from shortlist.datasets.glyphs import glyphs
from shortlist.datasets.glyphs.dataset import standardize
from shortlist.metrics import false_alarm_rate, novelty_auroc, novelty_power
from shortlist.models import ConvNet, small_cnn
from shortlist.predictors import FeatureMeans, NoveltyDetector
from shortlist.predictors.novelty import NoveltyRule

STRANGE = ("Armenian", "Canadian Aboriginal", "Georgian", "Lao")
LEVEL = 0.05


def train(inputs: Tensor, target: Tensor, num_classes: int, epochs: int) -> ConvNet:
    """Train the network with cross-entropy."""
    network = small_cnn(num_classes, in_channels=1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = epochs * (len(inputs) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(128)[: len(inputs) // 128]:
            loss = nn.functional.cross_entropy(network(standardize(inputs[rows])), target[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


@torch.inference_mode()
def outputs(network: ConvNet, inputs: Tensor) -> dict[str, Tensor]:
    """Return the scores and features of rows."""
    features = torch.cat([network.features(standardize(part)) for part in inputs.split(1000)])
    return {"scores": network.head(features), "features": features}


def main() -> None:
    """Print power and false alarms of each strangeness and rule, and draw who pays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="also draw false alarms by class size to this file (SVG)")
    options = parser.parse_args()
    torch.manual_seed(0)
    data = glyphs()
    known = torch.tensor([script not in STRANGE for script in data.class_table.parents["superclass"]])
    number = torch.where(known, known.cumsum(0) - 1, -1)  # strangers are -1
    c, counts = int(known.sum()), data.class_table.class_counts[known]

    def rows(part: TensorSplit, *, with_strangers: bool = False) -> tuple[Tensor, Tensor]:
        target = number[part.targets]
        keep = torch.ones_like(target, dtype=torch.bool) if with_strangers else target >= 0
        return part.inputs[keep], target[keep]

    train_rows, train_target = rows(data.train)
    network = train(train_rows, train_target, c, options.epochs)
    of_train, test = outputs(network, train_rows), rows(data.test, with_strangers=True)
    val_rows, val_target = rows(data.val)
    of_val, of_test = outputs(network, val_rows), outputs(network, test[0])
    target = test[1]
    right = of_test["scores"].argmax(1) == target
    print(
        f"{c} known classes, {len(val_target)} calibration rows, {int((target < 0).sum())} strangers, "
        f"accuracy {100 * float(right[target >= 0].double().mean()):.1f} %"
    )
    means = FeatureMeans(num_classes=c, dim=of_train["features"].shape[1])
    means.update(of_train["features"], train_target)
    order = counts.argsort()
    fifths = torch.empty_like(order).scatter(0, order, torch.arange(c) * 5 // c)
    lines = {}
    rules: tuple[NoveltyRule, ...] = ("pooled", "macro")
    for strangeness in ("distance", "energy", "probability"):
        for rule in rules:
            found = means.means() if strangeness == "distance" else None
            detector = NoveltyDetector(strangeness=strangeness, rule=rule, level=LEVEL, means=found)
            detector.calibrate(val_target, **of_val)
            flags = detector.flag(**of_test)
            micro, macro = (
                100 * float(false_alarm_rate(flags, target, num_classes=c, average=average))
                for average in ("micro", "macro")
            )
            by_fifth = 100 * false_alarm_rate(flags, target, num_classes=c, average="group", groups=fifths)
            area = float(novelty_auroc(detector.strangeness_of(**of_test), target))
            power = 100 * float(novelty_power(flags, target))
            shown = " ".join(f"{share:4.1f}" for share in by_fifth.tolist())
            print(
                f"{strangeness:11} {rule:6} AUROC {area:.3f}, power {power:4.1f} %, false alarms "
                f"{micro:4.1f} %, macro {macro:4.1f} %, rarest to most common fifth of classes {shown}"
            )
            lines[strangeness, rule] = by_fifth
    try:
        NoveltyDetector(strangeness="energy", rule="class", level=LEVEL).calibrate(
            val_target, scores=of_val["scores"]
        )
    except ValueError as error:
        print(error)
    if options.figure:
        draw(options.figure, lines)


def draw(path: Path, lines: dict[tuple[str, str], Tensor]) -> None:
    """Draw the false alarms of each fifth of the classes."""
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
    for place, strangeness in zip(axes, ("distance", "energy", "probability"), strict=True):
        for rule in ("pooled", "macro"):
            place.plot(range(1, 6), lines[strangeness, rule], marker="o", label=rule)
        place.axhline(100 * LEVEL, color="0.6", linewidth=1)
        place.set_title(strangeness, fontsize=9)
        place.set_xlabel("fifth of the classes, rarest first")
    axes[0].set_ylabel("percent of false alarms")
    axes[0].set_ylim(bottom=0)
    axes[0].legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
