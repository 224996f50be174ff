"""Separators of two Gaussians, one of them rare: ``shortlist papers figure two_gaussians``.

The rare class is a unit-variance Gaussian around (1, 1), the other one around (-1, -1). The best separator
for the balanced error goes through the origin, whatever the classes' frequencies: 7.86 %. An affine model
can represent it; which methods find it? (Menon et al., "Long-tail learning via logit adjustment", ICLR 2021,
section 6.1, figures 2 and 10.)
"""

import copy
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from shortlist._checks import check_count, check_number
from shortlist.datasets import TWO_GAUSSIANS_BALANCED_ERROR as BAYES, draw_two_gaussians
from shortlist.palette import PRINT
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure, with_progress
from shortlist.papers.figures._lists import check_numbers
from shortlist.scores import fit_tau, fit_temperature_and_tau

BAYES_RULE = "Bayes rule"
NUM_POINTS = 2000  # shown behind the separators


def measure(
    *,
    trials: int = 20,
    frequencies: float | Sequence[float] = (0.01, 0.05, 0.10, 0.20, 0.40),
    shown: float | None = None,
    rows: int = 10_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Numbers:
    """Train affine classifiers by frequency of the rare class; measure their errors and separators.

    Args:
        trials: Repetitions with new rows, at least 2.
        frequencies: Frequencies of the rare class, each in (0, 1).
        shown: The frequency at which separators are drawn; 5 % if it is among them, or else the first.
        rows: Number of rows to train, to tune, and to test, each.
        seed: Seed of the rows.
        progress: Called after each trial.
    """
    check_count("trials", trials, low=2)
    check_count("rows", rows)
    check_count("seed", seed, low=0)
    listed, shown = _check_frequencies(frequencies, shown)
    methods: dict[str, Numbers] = {}
    points: Numbers = {}
    cases = [(i, frequency, trial) for i, frequency in enumerate(listed) for trial in range(trials)]
    for i, frequency, trial in with_progress(cases, "trials", progress):
        generator = torch.Generator().manual_seed(10**6 * seed + 1000 * trial + i)
        models = learn(frequency, rows=rows, generator=generator)
        test = draw_two_gaussians(rows, rare_prior=frequency, generator=generator)
        for name, model in models.items():
            method = methods.setdefault(name, {key: [[] for _ in listed] for key in ("test", "exact")})
            method["test"][i].append(float(balanced_error(model, *test)))
            method["exact"][i].append(float(exact_error(separator(model))))
            if frequency == shown and trial == 0:
                method["separator"] = separator(model).tolist()
                points = _some_points(*test)
    about = {"rows": rows, "trials": trials, "seed": seed, "frequencies": listed, "shown": shown}
    return about | {"bayes": BAYES, "methods": methods, "points": points}


def _check_frequencies(
    frequencies: float | Sequence[float], shown: float | None
) -> tuple[list[float], float]:
    """Check the frequencies and choose the one that is shown."""
    listed = check_numbers("frequencies", frequencies, above=0.0)
    for frequency in listed:
        check_number("frequencies", frequency, above=0.0, below=1.0)
    if shown is None:
        shown = 0.05 if 0.05 in listed else listed[0]
    if shown not in listed:
        raise ValueError(f"shown must be one of frequencies ({', '.join(map(str, listed))}), got {shown}")
    return listed, shown


def _some_points(points: Tensor, target: Tensor) -> Numbers:
    """Choose test points of each class, rounded to what can be seen."""
    points, target = points[:NUM_POINTS], target[:NUM_POINTS]
    names = {"frequent": 0, "rare": 1}
    chosen = {name: points[target == label].tolist() for name, label in names.items()}
    return {name: [[round(x, 3) for x in point] for point in some] for name, some in chosen.items()}


def train(points: Tensor, target: Tensor, offsets: Tensor) -> nn.Linear:
    """Minimize the cross-entropy of scores plus ``offsets[y]`` (2, 2), to convergence."""
    model = nn.Linear(2, 2, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.LBFGS(
        model.parameters(),
        max_iter=200,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(points) + offsets[target], target)
        loss.backward()
        return loss

    optimizer.step(closure)
    return model.requires_grad_(False)


def learn(frequency: float, *, rows: int, generator: torch.Generator) -> dict[str, nn.Linear]:
    """Train an affine classifier by each method, from the same training rows."""
    points, target = draw_two_gaussians(rows, rare_prior=frequency, generator=generator)
    held_out, held_out_target = draw_two_gaussians(rows, rare_prior=frequency, generator=generator)
    priors = priors_of(target, frequency)
    log_prior, none = priors.log(), torch.zeros(2, 2, dtype=torch.float64)

    # pairwise margins: offsets[y, j] is added to score j of a row of class y
    erm = train(points, target, none)
    adaptive = train(points, target, -priors.pow(-0.25).diag())
    equalized = train(points, target, log_prior.repeat(2, 1).fill_diagonal_(0.0))
    logit_adjusted = train(points, target, none + log_prior)

    scores = erm(held_out)
    tuned = fit_tau(scores, held_out_target, source_priors=priors)
    likely = fit_temperature_and_tau(scores, held_out_target, source_priors=priors)
    return {
        "cross-entropy": erm,
        "weight normalization, tau = 1": scale_classifier(erm),
        "adaptive margin (LDAM)": adaptive,
        "equalized margin": equalized,
        "post-hoc adjustment, tau = 1": adjusted(erm, 1.0, priors),
        "post-hoc, tau by held-out error": adjusted(erm, tuned.tau, priors),
        "post-hoc, likeliest tau and temperature": adjusted(erm, likely.tau * likely.temperature, priors),
        "logit-adjusted loss": logit_adjusted,
        BAYES_RULE: _bayes_rule(erm),
    }


def priors_of(target: Tensor, frequency: float) -> Tensor:
    """Return the frequencies of both classes in rows, which must be there."""
    priors = target.bincount(minlength=2).double() / len(target)
    if float(priors.min()) == 0:
        raise ValueError(
            f"rows must be enough to have both classes at a frequency of {frequency}, got {len(target)}"
        )
    return priors


def adjusted(model: nn.Linear, tau: float, priors: Tensor) -> nn.Linear:
    """Adjust all scores by the priors, which is to adjust the bias."""
    model = copy.deepcopy(model)
    model.bias.sub_(tau * priors.log())
    return model


def scale_classifier(layer: nn.Linear, *, tau: float = 1.0) -> nn.Linear:
    r"""Divide the score of each class by :math:`\lVert (w_j, b_j) \rVert^\tau`, as equation 3 of Menon et al.

    Scores of two classes can be shifted together: trained from zero, the rows of weights are w and -w, of
    equal norm, and no decision changes. With the bias kept, it weighs more, and the rare class is lost.
    """
    scaled = copy.deepcopy(layer)
    factors = torch.hypot(layer.weight.norm(dim=1), layer.bias).pow(-tau)
    scaled.weight.mul_(factors[:, None])
    scaled.bias.mul_(factors)
    return scaled


def _bayes_rule(model: nn.Linear) -> nn.Linear:
    bayes = copy.deepcopy(model)
    bayes.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    bayes.bias.zero_()
    return bayes


def balanced_error(model: nn.Linear, points: Tensor, target: Tensor) -> Tensor:
    """Average the error on the rows over the two classes."""
    wrong = (model(points).argmax(1) != target).double()
    return (wrong[target == 0].mean() + wrong[target == 1].mean()) / 2


def separator(model: nn.Linear) -> Tensor:
    """Return (w1, w2, b): the rare class is predicted where w x + b > 0."""
    return torch.cat([model.weight[1] - model.weight[0], model.bias[1:] - model.bias[:1]])


def exact_error(line: Tensor) -> Tensor:
    """Compute the balanced error over all points: each class is normal along the separator's direction."""
    weight, bias = line[:2], line[2]
    return torch.special.ndtr(torch.stack([bias - weight.sum(), -bias - weight.sum()]) / weight.norm()).mean()


def half_width(errors: Sequence[float]) -> float:
    """Compute half of the 95 % interval of the mean over trials."""
    return 1.96 * stdev(errors) / len(errors) ** 0.5


def draw(numbers: Numbers) -> Figure:
    """Draw error against frequency, and separators of the first trial over some of its points."""
    figure = new_figure(10, 4.9)
    left, right = figure.subplots(1, 2)
    percent = [100 * frequency for frequency in numbers["frequencies"]]
    for name, color in (("frequent", "0.82"), ("rare", "0.45")):
        some = numbers["points"][name]
        right.scatter([x for x, _ in some], [y for _, y in some], s=4, color=color, linewidths=0, label=name)
    learned = {name: method for name, method in numbers["methods"].items() if name != BAYES_RULE}
    for number, (name, method) in enumerate(learned.items()):
        _draw_method(left, right, percent, name, method, number)
    bayes = 100 * numbers["bayes"]
    left.axhline(bayes, color="black", linestyle=":", label=f"Bayes, {bayes:.2f} %")
    right.plot([-5, 5], [5, -5], color="black", linestyle=":")
    left.set(xscale="log", xlabel="frequency of the rare class (%)")
    left.set(yscale="log", ylabel="balanced error of the separator (%)")
    left.set_xticks(percent, [f"{value:g}" for value in percent])
    left.set_yticks(ticks := [8, 10, 15, 20, 30, 40], [str(tick) for tick in ticks])
    left.minorticks_off()
    left.grid(alpha=0.3)
    right.set(xlim=(-4, 4), ylim=(-4, 4), aspect="equal", xlabel="test points, the rare class in dark gray")
    right.set(title=f"separators with {100 * numbers['shown']:g} % rare, first trial")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw_method(
    left: Any, right: Any, percent: list[float], name: str, method: Numbers, number: int
) -> None:
    means = [100 * fmean(errors) for errors in method["exact"]]
    halves = [100 * half_width(errors) for errors in method["exact"]]
    color = PRINT[number % len(PRINT)]
    size = max(2, 9 - number)  # smaller and smaller: some methods lie on top of each other
    left.errorbar(percent, means, halves, marker="osv^DPXo"[number % 8], markersize=size, linewidth=1.2,
                  color=color, label=name)  # fmt: skip
    w1, w2, b = method["separator"]
    # two points of the line w x + b = 0, beyond the axes, whatever its direction
    norm = (w1 * w1 + w2 * w2) ** 0.5
    x, y = -b * w1 / norm**2, -b * w2 / norm**2
    ends = [(x - t * w2 / norm, y + t * w1 / norm) for t in (-20, 20)]
    right.plot([end[0] for end in ends], [end[1] for end in ends], color=color, linewidth=1.4)
