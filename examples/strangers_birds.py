"""How well strangers are told among photographs of birds, from the features of a frozen network.

Of 200 species, 50 are strangers. One linear layer learns the others from embeddings (``train.safetensors``
and ``test.safetensors`` with ``embeddings`` and ``targets``, as ``recipes/real/birds.yaml`` reads them). Rows
that it did not learn from calibrate detectors; the test rows of the known species count false alarms, those
of the strangers the power. Beside the detectors that can be named, two distances show what a function of
your own can do. About a minute for each draw on one core.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from shortlist.datasets.embeddings import load_tensors
from shortlist.metrics import novelty_auroc, novelty_power
from shortlist.predictors import FeatureMeans, NoveltyDetector

LEVEL, STRANGERS, CALIBRATION = 0.05, 50, 900


def train(features: Tensor, target: Tensor, num_classes: int, epochs: int = 40) -> nn.Linear:
    """Train a linear layer with cross-entropy."""
    head = nn.Linear(features.shape[1], num_classes)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(features)).split(128):
            loss = nn.functional.cross_entropy(head(features[rows]), target[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return head


def relative_to(means: Tensor) -> Callable[[Tensor | None, Tensor | None], Tensor]:
    """Return the distance to the nearest class mean, divided by that to the mean of all classes."""
    center = means.mean(0)

    def relative_distance(_: Tensor | None, features: Tensor | None) -> Tensor:
        assert features is not None
        return torch.cdist(features, means).amin(1) / (features - center).norm(dim=1)

    return relative_distance


def whitened_by(features: Tensor, target: Tensor, means: Tensor) -> Callable[..., Tensor]:
    """Return the Mahalanobis distance to the nearest class mean, by the covariance within the classes."""
    apart = (features - means[target]).double()
    covariance = apart.T @ apart / len(apart)
    covariance += 0.05 * covariance.diagonal().mean() * torch.eye(len(covariance))
    identity = torch.eye(len(covariance), dtype=torch.float64)
    whitening = torch.linalg.solve_triangular(
        torch.linalg.cholesky(covariance), identity, upper=False
    ).T.float()

    def mahalanobis_distance(_: Tensor | None, rows: Tensor | None) -> Tensor:
        assert rows is not None
        return torch.cdist(rows @ whitening, means @ whitening).amin(1)

    return mahalanobis_distance


def one_draw(train_rows: dict[str, Tensor], test_rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """Draw the strangers, train, and return AUROC, power and false alarms of each strangeness."""
    classes = int(train_rows["targets"].max()) + 1
    known = torch.randperm(classes)[: classes - STRANGERS].sort().values
    number = torch.full((classes,), -1).scatter(0, known, torch.arange(len(known)))
    features, target = train_rows["embeddings"].float(), number[train_rows["targets"]]
    features, target = features[target >= 0], target[target >= 0]
    order = torch.randperm(len(features))
    held_out, fitted = order[:CALIBRATION], order[CALIBRATION:]
    head = train(features[fitted], target[fitted], len(known)).requires_grad_(False)
    found = FeatureMeans(num_classes=len(known), dim=features.shape[1])
    found.update(features[fitted], target[fitted])
    means = found.means()
    new, labels = test_rows["embeddings"].float(), number[test_rows["targets"]]
    results = {}
    kinds = ("probability", "energy", "distance", relative_to(means))
    for kind in (*kinds, whitened_by(features[fitted], target[fitted], means)):
        detector = NoveltyDetector(
            strangeness=kind, level=LEVEL, means=means if kind == "distance" else None
        ).calibrate(scores=head(features[held_out]), features=features[held_out])
        rows = {"scores": head(new), "features": new}
        flags, strangeness = detector.flag(**rows), detector.strangeness_of(**rows)
        numbers = (
            100 * novelty_auroc(strangeness, labels),
            100 * novelty_power(flags, labels),
            100 * flags[labels >= 0].double().mean(),
        )
        results[detector.options()["strangeness"]] = torch.tensor([float(one) for one in numbers])
    return results


def main() -> None:
    """Print the means over some draws of the strangers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("embeddings", type=Path, help="folder with train.safetensors and test.safetensors")
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    parts = [load_tensors(options.embeddings / f"{part}.safetensors") for part in ("train", "test")]
    draws = [one_draw(*parts) for _ in range(options.draws)]
    for name in draws[0]:
        auroc, power, alarms = torch.stack([draw[name] for draw in draws]).mean(0).tolist()
        print(f"{name:22} AUROC {auroc / 100:.3f}, power {power:4.1f} %, false alarms {alarms:3.1f} %")


if __name__ == "__main__":
    main()
