"""Training throughput of the demonstration's network with each loss, beside cross-entropy.

Steps are timed by ``shortlist.papers.figures.step_times``, on one thread. The ratio is that of the medians.
"""

import argparse
from statistics import median, quantiles

import torch

from shortlist.papers.figures.step_times import LOSSES, keep_freed_memory, step_seconds, timed_recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--epochs", type=int, default=9, help="number of epochs for each loss; the first one is not counted"
    )
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    options = parser.parse_args()
    if options.epochs < 2:
        parser.error(f"argument --epochs: must be >= 2, got {options.epochs}")
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in options.losses:
        plain, with_loss = step_seconds(timed_recipe(name, options.epochs))
        before, after = median(plain), median(with_loss)
        error = after / before * sum(spread(times) ** 2 for times in (plain, with_loss)) ** 0.5
        both = f"{1e3 * after:.1f} ms, with cross-entropy {1e3 * before:.1f} ms"
        print(
            f"{name:28} {after / before:.3f}x (standard error {error:.3f}), a step takes {both}", flush=True
        )


def spread(times: list[float]) -> float:
    """Relative standard error of a median, from the middle half of the times."""
    low, middle, high = quantiles(times, n=4)
    return 1.2533 * (high - low) / 1.349 / middle / len(times) ** 0.5


if __name__ == "__main__":
    main()
