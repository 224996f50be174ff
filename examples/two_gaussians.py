"""Balanced error of an affine classifier of two Gaussians, one of which is rare.

The rare class is a unit-variance Gaussian around (1, 1), the other one around (-1, -1). The best separator
for the balanced error goes through the origin, whatever the classes' frequencies: 7.86 %. An affine model
can represent it; which methods find it? (Menon et al., "Long-tail learning via logit adjustment", ICLR 2021,
section 6.1.)
"""

import argparse
import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from shortlist.adjust import adjust_logits, fit_tau, fit_temperature_and_tau, normalise_classifier
from shortlist.datasets.gaussians import TWO_GAUSSIANS_BALANCED_ERROR as BAYES
from shortlist.datasets.gaussians import draw_two_gaussians

FREQUENCIES = (0.01, 0.05, 0.10, 0.20, 0.40)
SHOWN = 0.05  # the frequency at which separators are drawn
ROWS = 10_000  # to train, to tune, and to test
BAYES_RULE = "Bayes rule"


class Numbers(NamedTuple):
    """Balanced errors (frequencies, trials) of each method, and its separators at one frequency."""

    test: dict[str, Tensor]  # on the test rows
    exact: dict[str, Tensor]  # of the learned separator, by the normal distribution
    separators: dict[str, Tensor]  # (w1, w2, b) of w x + b = 0 in the first trial


def draw_rows(frequency: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points (n, 2) and classes (n,); class 1 is the rare one."""
    return draw_two_gaussians(ROWS, rare_prior=frequency, generator=generator)


def train(points: Tensor, target: Tensor, offsets: Tensor) -> nn.Linear:
    """Minimise the cross-entropy of scores plus ``offsets[y]`` (2, 2), to convergence."""
    model = nn.Linear(2, 2, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimiser = torch.optim.LBFGS(
        model.parameters(),
        max_iter=200,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(points) + offsets[target], target)
        loss.backward()
        return loss

    optimiser.step(closure)
    return model.requires_grad_(False)


def learn(frequency: float, generator: torch.Generator) -> dict[str, nn.Linear]:
    """One affine classifier per method, from the same training rows."""
    points, target = draw_rows(frequency, generator)
    held_out, held_out_target = draw_rows(frequency, generator)
    priors = target.bincount(minlength=2).double() / ROWS
    log_prior, none = priors.log(), torch.zeros(2, 2, dtype=torch.float64)

    # pairwise margins: offsets[y, j] is added to score j of a row of class y
    erm = train(points, target, none)
    adaptive = train(points, target, -priors.pow(-0.25).diag())
    equalised = train(points, target, log_prior.repeat(2, 1).fill_diagonal_(0.0))
    logit_adjusted = train(points, target, none + log_prior)

    def adjusted(tau: float) -> nn.Linear:  # to adjust all scores is to adjust the bias
        model = copy.deepcopy(erm)
        model.bias.copy_(adjust_logits(erm.bias[None], source_priors=priors, tau=tau)[0])
        return model

    scores = erm(held_out)
    tuned = fit_tau(scores, held_out_target, source_priors=priors)
    likely = fit_temperature_and_tau(scores, held_out_target, source_priors=priors)
    # Scores of two classes can be shifted together: trained from zero, the rows of weights are w and -w, of
    # equal norm. Normalised, they weigh less beside the bias, which says how rare the class is.
    normalised = normalise_classifier(erm)
    bayes = copy.deepcopy(erm)
    bayes.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    bayes.bias.zero_()
    return {
        "cross-entropy": erm,
        "weight normalisation, tau = 1": normalised,
        "adaptive margin (LDAM)": adaptive,
        "equalised margin": equalised,
        "post-hoc adjustment, tau = 1": adjusted(1.0),
        "post-hoc, tau of least held-out error": adjusted(tuned.tau),
        "post-hoc, likeliest tau and temperature": adjusted(likely.tau * likely.temperature),
        "logit-adjusted loss": logit_adjusted,
        BAYES_RULE: bayes,
    }


def balanced_error(model: nn.Linear, points: Tensor, target: Tensor) -> Tensor:
    """Mean over the two classes of the error on the rows."""
    wrong = (model(points).argmax(1) != target).double()
    return (wrong[target == 0].mean() + wrong[target == 1].mean()) / 2


def separator(model: nn.Linear) -> Tensor:
    """(w1, w2, b): the rare class is predicted where w x + b > 0."""
    return torch.cat([model.weight[1] - model.weight[0], model.bias[1:] - model.bias[:1]])


def exact_error(line: Tensor) -> Tensor:
    """Balanced error of a separator over all points: each class is normal along its direction."""
    weight, bias = line[:2], line[2]
    return torch.special.ndtr(torch.stack([bias - weight.sum(), -bias - weight.sum()]) / weight.norm()).mean()


def compute(*, trials: int, frequencies: tuple[float, ...] = FREQUENCIES) -> Numbers:
    """All numbers of the table and the figure."""
    test: dict[str, Tensor] = {}
    exact: dict[str, Tensor] = {}
    separators: dict[str, Tensor] = {}
    for i, frequency in enumerate(frequencies):
        for trial in range(trials):
            generator = torch.Generator().manual_seed(1000 * trial + i)
            models = learn(frequency, generator)
            points, target = draw_rows(frequency, generator)
            for name, model in models.items():
                for errors in (test, exact):
                    errors.setdefault(name, torch.zeros(len(frequencies), trials, dtype=torch.float64))
                test[name][i, trial] = balanced_error(model, points, target)
                exact[name][i, trial] = exact_error(separator(model))
                if frequency == SHOWN and trial == 0:
                    separators[name] = separator(model)
    return Numbers(test, exact, separators)


def half_width(errors: Tensor) -> Tensor:
    """Half of the 95 % interval of the mean over trials (the last axis)."""
    return 1.96 * errors.std(-1) / errors.shape[-1] ** 0.5


def print_table(title: str, errors: dict[str, Tensor]) -> None:
    """One line per method, one column per frequency, in percent."""
    print(f"{title:<40}" + "".join(f"{f'{frequency:.0%}':>15}" for frequency in FREQUENCIES))
    for name, values in errors.items():
        cells = zip(100 * values.mean(-1), 100 * half_width(values), strict=True)
        print(f"{name:<40}" + "".join(f"{f'{mean:.2f} ± {half:.2f}':>15}" for mean, half in cells))


def draw(numbers: Numbers, path: str) -> None:
    """Left: error against frequency. Right: separators of the first trial over some of its points."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    percent = [100 * frequency for frequency in FREQUENCIES]
    points, target = draw_rows(SHOWN, torch.Generator().manual_seed(FREQUENCIES.index(SHOWN)))
    for label, colour in ((0, "0.75"), (1, "0.35")):
        some = points[:2000][target[:2000] == label]
        right.scatter(some[:, 0], some[:, 1], s=3, color=colour, linewidths=0)
    across = torch.tensor([-5.0, 5.0], dtype=torch.float64)
    learned = [name for name in numbers.exact if name != BAYES_RULE]
    sizes = range(9, 1, -1)  # smaller and smaller: some methods lie on top of each other
    for name, marker, size in zip(learned, "osv^DPXo", sizes, strict=True):
        means, halves = 100 * numbers.exact[name].mean(-1), 100 * half_width(numbers.exact[name])
        line = left.errorbar(
            percent, means, halves, marker=marker, markersize=size, linewidth=1.2, label=name
        )
        w1, w2, b = numbers.separators[name]
        right.plot(across, -(w1 * across + b) / w2, color=line.lines[0].get_color(), linewidth=1.2)
    left.axhline(100 * BAYES, color="black", linestyle=":", label=f"Bayes, {100 * BAYES:.2f} %")
    right.plot(across, -across, color="black", linestyle=":")
    left.set(xscale="log", xlabel="frequency of the rare class (%)")
    left.set(yscale="log", ylabel="balanced error of the separator (%)")
    left.set_xticks(percent, [f"{value:g}" for value in percent])
    left.set_yticks(ticks := [8, 10, 15, 20, 30, 40], [str(tick) for tick in ticks])
    left.minorticks_off()
    left.grid(alpha=0.3)
    right.set(xlim=(-4, 4), ylim=(-4, 4), aspect="equal", title=f"separators at {SHOWN:.0%}, first trial")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20, help="repetitions, at least 2 (default 20)")
    parser.add_argument("--figure", metavar="SVG", help="also draw errors and separators (needs matplotlib)")
    arguments = parser.parse_args()
    if arguments.trials < 2:
        parser.error(f"--trials must be >= 2, got {arguments.trials}")
    print(__doc__)
    numbers = compute(trials=arguments.trials)
    print_table(f"on {ROWS:,} test rows", numbers.test)
    print()
    print_table("of the learned separator, exactly", numbers.exact)
    print(
        f"\nBalanced error in percent at each frequency of the rare class: mean of {arguments.trials} trials"
    )
    print("and its 95 % interval. Post-hoc adjustment with tau = 1 and the logit-adjusted loss find the same")
    print(f"separator. The two methods that tune tau were given {ROWS:,} more rows of the same kind.")
    if arguments.figure:
        draw(numbers, arguments.figure)


if __name__ == "__main__":
    main()
