"""Birds, cars and things as one set of classes, and strangers from a domain that was never seen.

Takes folders of embeddings that one frozen network made (``shortlist embed``), writes them as one data set
with the domain as a level above the classes (``--out``, which ``recipes/real/three_domains.yaml`` reads), and
then leaves each domain out in turn: one linear layer learns the classes of the others, rows that it did not
learn from calibrate detectors, and the test rows of the domain that was left out are the strangers. A class
has at most 40 training and 30 test rows. About a minute on one core for 500 classes.
"""

import argparse
import warnings
from pathlib import Path

import torch
from strangers_birds import train
from torch import Tensor

from shortlist import ClassTable
from shortlist.datasets.embeddings import embeddings, save_embeddings
from shortlist.datasets.splits import TensorSplit
from shortlist.metrics import novelty_auroc, novelty_power
from shortlist.predictors import FeatureMeans, NoveltyDetector

LEVEL, TRAINING_ROWS, TEST_ROWS = 0.05, 40, 30
Rows = dict[str, tuple[Tensor, Tensor]]


def first_rows(inputs: Tensor, target: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Keep so many rows of each class at most, drawn at random."""
    order = torch.randperm(len(target))
    order = order[target[order].argsort(stable=True)]
    starts = target.bincount().cumsum(0) - target.bincount()
    place = torch.arange(len(target)) - starts[target[order]]
    kept = order[place < most]
    return inputs[kept].float(), target[kept]


def read_domain(folder: Path) -> tuple[Rows, ClassTable]:
    """Read the training, calibration and test rows of a folder of embeddings, and its classes."""
    splits = embeddings(folder, val_fraction=0.2)
    most = {"train": TRAINING_ROWS * 4 // 5, "val": TRAINING_ROWS // 5, "test": TEST_ROWS}
    rows = {}
    for part, found in {"train": splits.train, "val": splits.val, "test": splits.test}.items():
        assert isinstance(found, TensorSplit)
        rows[part] = first_rows(found.inputs, found.targets, most[part])
    return rows, splits.class_table


def joined(domains: list[Rows], sizes: list[int], part: str) -> tuple[Tensor, Tensor]:
    """Return the rows of several domains, their classes numbered through."""
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    inputs = torch.cat([domain[part][0] for domain in domains])
    return inputs, torch.cat([domain[part][1] + start for domain, start in zip(domains, starts, strict=True)])


def write_joined(out: Path, names: list[str], domains: list[Rows], tables: list[ClassTable]) -> None:
    """Write all domains as one data set, with the first level of parents of each and the domain."""
    out.mkdir(parents=True, exist_ok=True)
    sizes = [len(table) for table in tables]
    train_rows, val_rows = joined(domains, sizes, "train"), joined(domains, sizes, "val")
    both = [torch.cat(pair) for pair in zip(train_rows, val_rows, strict=True)]
    save_embeddings(out / "train.safetensors", both[0], both[1])
    save_embeddings(out / "test.safetensors", *joined(domains, sizes, "test"))
    groups = [next(iter(table.parents.values())) for table in tables]
    table = ClassTable(
        names=[name for table in tables for name in table.names],
        ids=[f"{name}/{one}" for name, table in zip(names, tables, strict=True) for one in table.ids],
        parents={
            "group": [f"{name}: {one}" for name, own in zip(names, groups, strict=True) for one in own],
            "domain": [name for name, size in zip(names, sizes, strict=True) for _ in range(size)],
        },
    )
    table.save(out / "class_table.json")


def strangers(domains: list[Rows], sizes: list[int], left_out: int) -> dict[str, list[float]]:
    """Learn all domains but one, and return accuracy, AUROC, power and false alarms of each strangeness."""
    known = [domain for place, domain in enumerate(domains) if place != left_out]
    sizes = [size for place, size in enumerate(sizes) if place != left_out]
    inputs, target = joined(known, sizes, "train")
    held_out, _ = joined(known, sizes, "val")
    new, labels = joined(known, sizes, "test")
    new = torch.cat([new, domains[left_out]["test"][0]])
    labels = torch.cat([labels, torch.full((len(new) - len(labels),), -1)])
    head = train(inputs, target, sum(sizes)).requires_grad_(False)
    right = (head(new).argmax(1) == labels)[labels >= 0].double().mean()
    means = FeatureMeans(num_classes=sum(sizes), dim=inputs.shape[1])
    means.update(inputs, target)
    results = {}
    for kind in ("probability", "energy", "distance"):
        detector = NoveltyDetector(
            strangeness=kind, level=LEVEL, means=means.means() if kind == "distance" else None
        ).calibrate(scores=head(held_out), features=held_out)
        rows = {"scores": head(new), "features": new}
        flags = detector.flag(**rows)
        numbers = (
            right,
            novelty_auroc(detector.strangeness_of(**rows), labels),
            novelty_power(flags, labels),
            flags[labels >= 0].double().mean(),
        )
        results[kind] = [100 * float(number) for number in numbers]
    return results


def main() -> None:
    """Write the joined data set, and print how well each domain is told from the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("embeddings", type=Path, nargs="+", help="folders of embeddings of one network")
    parser.add_argument("--out", type=Path, required=True, help="folder for the joined data set")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    names = [folder.name for folder in options.embeddings]
    domains, tables = zip(*(read_domain(folder) for folder in options.embeddings), strict=True)
    write_joined(options.out, names, list(domains), list(tables))
    for place, name in enumerate(names):
        found = strangers(list(domains), [len(table) for table in tables], place)
        for kind, (right, auroc, power, alarms) in found.items():
            print(
                f"{name} left out: {right:4.1f} % right, {kind:11} AUROC {auroc / 100:.3f}, "
                f"power {power:4.1f} %, false alarms {alarms:3.1f} %"
            )


if __name__ == "__main__":
    main()
