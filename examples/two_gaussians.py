"""Balanced error of an affine classifier of two Gaussians, one of which is rare.

The rare class is a unit-variance Gaussian around (1, 1), the other one around (-1, -1). The best separator
for the balanced error goes through the origin, whatever the classes' frequencies: 7.86 %. An affine model
can represent it; which methods find it? (Menon et al., "Long-tail learning via logit adjustment", ICLR 2021,
section 6.1.) The figure is the one of ``shortlist papers figure two_gaussians``.
"""

import argparse
from statistics import fmean

from shortlist.papers.figures import Numbers, load_figure, write_figure
from shortlist.papers.figures.two_gaussians import half_width


def print_table(title: str, numbers: Numbers, kind: str) -> None:
    """One line per method, one column per frequency, in percent."""
    print(f"{title:<40}" + "".join(f"{f'{frequency:.0%}':>15}" for frequency in numbers["frequencies"]))
    for name, method in numbers["methods"].items():
        cells = [f"{100 * fmean(errors):.2f} ± {100 * half_width(errors):.2f}" for errors in method[kind]]
        print(f"{name:<40}" + "".join(f"{cell:>15}" for cell in cells))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20, help="repetitions, at least 2 (default 20)")
    parser.add_argument(
        "--figure", metavar="SVG", help="also draw errors and separators, with their numbers beside as .json"
    )
    arguments = parser.parse_args()
    if arguments.trials < 2:
        parser.error(f"--trials must be >= 2, got {arguments.trials}")
    print(__doc__)
    figure = load_figure("two_gaussians")
    numbers = figure.measure(trials=arguments.trials)
    print_table(f"on {numbers['rows']:,} test rows", numbers, "test")
    print()
    print_table("of the learned separator, exactly", numbers, "exact")
    print(
        f"\nBalanced error in percent at each frequency of the rare class: mean of {arguments.trials} trials"
    )
    print("and its 95 % interval. Post-hoc adjustment with tau = 1 and the logit-adjusted loss find the same")
    print(
        f"separator. The two methods that tune tau were given {numbers['rows']:,} more rows of the same kind."
    )
    if arguments.figure:
        write_figure(figure, numbers, arguments.figure)


if __name__ == "__main__":
    main()
