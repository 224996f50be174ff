"""What losses of lists give untuned: a linear head on features of 30 classes, at a usual learning rate.

The features come from a small network that was trained on 100 other characters, and never on these 30. The
head is trained with SGD (learning rate 0.1, momentum 0.9) for 20 epochs, as in a first trial. Some seconds
for each loss and seed::

    python examples/untuned_losses.py
"""

import argparse
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from shortlist.datasets.glyphs import glyphs
from shortlist.losses import NoisedTopKLoss, create
from shortlist.models import small_cnn

CLASSES, BATCH, EPOCHS = 30, 128, 20
Loss = Callable[[Tensor, Tensor], Tensor]


def train(
    network: nn.Module, rows: Tensor, target: Tensor, losses: list[Loss], lr: float, batch: int
) -> None:
    """Train for as many epochs as there are losses, each with its own."""
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9)
    for loss in losses:
        for some in torch.randperm(len(rows)).split(batch):
            optimizer.zero_grad()
            loss(network(rows[some]), target[some]).backward()
            optimizer.step()


def features_of_unseen_classes() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return training and test features and classes of characters that the network has not seen."""
    data = glyphs(max_classes=100 + CLASSES, train_images=8000)
    seen = len(data.class_table) - CLASSES
    torch.manual_seed(0)
    network = small_cnn(seen, in_channels=1, width=24)
    rows, target = data.train.batch((data.train.targets < seen).nonzero().squeeze(1))
    train(network, rows, target, [cross_entropy] * 6, lr=0.05, batch=64)
    features: list[Tensor] = []
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    last.register_forward_hook(lambda _module, inputs, _output: features.append(inputs[0]))
    found = []
    for split in (data.train, data.test):
        rows, target = split.batch((split.targets >= seen).nonzero().squeeze(1))
        features.clear()
        with torch.no_grad():
            network.eval()(rows)
        found.append((features[0], target - seen))
    return found[0], found[1]


def hits(head: nn.Module, rows: Tensor, target: Tensor) -> tuple[float, float]:
    """Return top-1 and top-5 in percent."""
    with torch.no_grad():
        is_true = head(rows).topk(5).indices == target[:, None]
    return 100 * float(is_true[:, 0].float().mean()), 100 * float(is_true.any(1).float().mean())


def main(seeds: int = 5, epochs: int = EPOCHS) -> dict[str, list[tuple[float, float]]]:
    """Train each way with each seed, and print the results."""
    warnings.filterwarnings("ignore", message=".*leaves the order.*")  # that is what is measured
    torch.set_num_threads(1)
    training, test = features_of_unseen_classes()
    noised = NoisedTopKLoss(k=5)

    def with_cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
        return noised(scores, target) + 0.2 * cross_entropy(scores, target)

    warm = epochs // 4
    ways: dict[str, tuple[list[Loss], float]] = {
        "cross_entropy": ([cross_entropy] * epochs, 0.1),
        "noised_topk": ([noised] * epochs, 0.1),
        "noised_topk, a tenth of the learning rate": ([noised] * epochs, 0.01),
        "noised_topk after 5 epochs of cross_entropy": (
            [cross_entropy] * warm + [noised] * (epochs - warm),
            0.1,
        ),
        "noised_topk + 0.2 cross_entropy": ([with_cross_entropy] * epochs, 0.1),
    }
    for name in ("topk_hinge", "convex_topk_hinge", "smooth_topk"):
        ways[name] = ([create(name, k=5)] * epochs, 0.1)
    ways["ranked_topk"] = ([create("ranked_topk")] * epochs, 0.1)
    results: dict[str, list[tuple[float, float]]] = {}
    for way, (losses, lr) in ways.items():
        for seed in range(seeds):
            torch.manual_seed(seed)
            head = nn.Linear(training[0].shape[1], CLASSES)
            train(head, *training, losses, lr, BATCH)
            results.setdefault(way, []).append(hits(head, *test))
        firsts, lists = zip(*results[way], strict=True)
        shown = ", ".join(f"{first:.0f}" for first in firsts)
        print(f"| {way} | {shown} | {sum(lists) / len(lists):.1f} |", flush=True)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    main(parser.parse_args().seeds)
