"""Sets of classes beside answers at the level that is sure, of a run whose classes have genera.

    shortlist demo --out DEMO
    python examples/taxonomy_answers.py DEMO/cross_entropy

All are calibrated on the validation rows for the same coverage, and measured on the test rows.
"""

import argparse

import torch
from torch import Tensor

from shortlist import Run, Taxonomy
from shortlist.metrics import node_shares, node_sums, set_coverage, set_size
from shortlist.predictors import Conformal, TaxonomyNodes


def common_node(sets: Tensor, tree: Taxonomy) -> Tensor:
    """Return the classes (n, c) of the lowest node that holds all of each set (n, c)."""
    start, end = tree.bounds
    place = start[: tree.num_classes]
    low, high = place.where(sets, tree.num_classes).amin(1), place.where(sets, -1).amax(1)
    chains = tree.chains[tree.order[low.clamp_max(tree.num_classes - 1)]]
    lacking = (end[chains] <= high[:, None]).sum(1, keepdim=True)
    node = chains.gather(1, lacking)
    return (place >= start[node]) & (place < end[node]) & sets.any(1, keepdim=True)


def main() -> None:
    """Print the metrics of each kind of answers as a table."""
    parser = argparse.ArgumentParser(description="Sets of classes beside answers of a taxonomy.")
    parser.add_argument("run", help="folder of a finished run")
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--levels", nargs="+", default=["genus"], help="levels of the class table to use")
    options = parser.parse_args()
    run = Run.open(options.run)
    tree = Taxonomy.from_class_table(run.class_table, levels=options.levels)
    (scores, target), (new_scores, new_target) = run.scored("val"), run.scored("test")
    sets = {"classes (lac)": Conformal(coverage=options.coverage).calibrate(scores, target)(new_scores)}
    sets["lowest node above these"] = common_node(sets["classes (lac)"], tree)
    for nodes in (1, 2, 3):
        predictor = TaxonomyNodes(tree, coverage=options.coverage, nodes=nodes).calibrate(scores, target)
        sets[f"at most {nodes} nodes" if nodes > 1 else "one node"] = predictor(new_scores)
    print(f"{len(target)} calibration rows, {len(new_target)} test rows, {tree.num_classes} classes")
    levels = " | ".join(f"nodes: {level}" for level in tree.level_names)
    print(f"| answers | coverage | macro coverage | classes | nodes | {levels} |")
    for name, some in sets.items():
        print(f"| {name} | " + " | ".join(_numbers(some, new_target, tree)) + " |")


def _numbers(sets: Tensor, target: Tensor, tree: Taxonomy) -> list[str]:
    """Return coverage, macro coverage, mean size, nodes, and nodes by level, as text."""
    shares = node_shares(node_sums(sets, target, tree))
    coverages = (set_coverage(sets, target), set_coverage(sets, target, average="macro"))
    numbers = [f"{100 * float(coverage):.1f} %" for coverage in coverages]
    sizes = (set_size(sets, target), shares.sum(), *shares)
    return numbers + [f"{float(number):.2f}" for number in sizes]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
