"""The sizes of sets of six kinds on data with a known posterior; draws docs/set_sizes.svg.

Two hundred Gaussian classes in genera with Zipf priors; sets are made from the true probabilities, so that
what differs is the rule alone.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from shortlist.datasets.gaussians import gaussian_genera
from shortlist.metrics import set_coverage, set_size, size_histogram
from shortlist.predictors import AverageError, AverageK, Conformal, PointwiseError, SetPredictor, TopK


def main() -> None:
    """Print the metrics of each rule and draw the sizes of its sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path, help="also draw the set sizes to this file (SVG)")
    options = parser.parse_args()
    data = gaussian_genera(num_val_rows=20_000, num_test_rows=20_000)
    val, test = (data.log_posterior(part.inputs) for part in (data.val, data.test))
    target = data.test.targets
    rules: dict[str, SetPredictor] = {
        "top-2": TopK(2),
        "average-2": AverageK(2).calibrate(val),
        "average-2, macro": AverageK(2, priors=data.priors.to(val.dtype)).calibrate(val),
        "point-wise error 10 %": PointwiseError(coverage=0.9),
        "average error 10 %": AverageError(coverage=0.9).calibrate(val),
        "conformal 90 % (LAC)": Conformal(coverage=0.9).calibrate(val, data.val.targets),
    }
    figure, axes = plt.subplots(2, 3, figsize=(9, 4.6), sharex=True, sharey=True, layout="constrained")
    for (name, rule), place in zip(rules.items(), axes.flat, strict=True):
        sets = rule(test)
        micro, macro = (100 * float(set_coverage(sets, target, average=a)) for a in ("micro", "macro"))
        size = float(set_size(sets, target))
        print(f"{name:24} holds the class {micro:5.1f} %, macro {macro:5.1f} %, mean size {size:.2f}")
        shares = 100 * size_histogram(sets).double() / len(target)
        place.bar(range(9), shares[:9], width=0.8)
        place.set_title(f"{name}\nsize {size:.2f}, holds {micro:.1f} %", fontsize=9)
    for place in axes[1]:
        place.set_xlabel("classes in the set")
    for place in axes[:, 0]:
        place.set_ylabel("percent of rows")
    if options.figure:
        figure.savefig(options.figure, metadata={"Date": None})


if __name__ == "__main__":
    main()
