"""Error against tau on two Gaussians, one of them rare: ``shortlist papers figure two_gaussians_tau``.

As in Menon et al. (ICLR 2021), section 6.1 and figure 2: an affine classifier learns by cross-entropy, and is
corrected after training by logit adjustment or weight normalization.
"""

from typing import Any

import torch
from torch import Tensor, nn

from shortlist._checks import check_count, check_number
from shortlist.datasets import TWO_GAUSSIANS_BALANCED_ERROR as BAYES, draw_two_gaussians
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure, with_progress
from shortlist.papers.figures._lines import draw_band, percent, style_of
from shortlist.papers.figures._runs import mean_columns
from shortlist.papers.figures.two_gaussians import (
    adjusted,
    exact_error,
    priors_of,
    scale_classifier,
    separator,
    train,
)
from shortlist.scores import normalize_classifier

TECHNIQUES = {
    "logit_adjustment": "logit adjustment",
    "weight_normalization": "weight normalization, offset scaled (equation 3)",
    "offset_kept": "weight normalization, offset kept",
}


def measure(
    *,
    trials: int = 100,
    frequency: float = 0.05,
    tau_max: float = 3.0,
    steps: int = 30,
    rows: int = 10_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Numbers:
    """Train an affine classifier in each trial, and measure its error after each correction.

    Args:
        trials: Repetitions with new rows, at least 2.
        frequency: Frequency of the rare class, in (0, 1).
        tau_max: Largest tau; the smallest is 0.
        steps: Number of steps between them.
        rows: Number of training rows.
        seed: Seed of the rows.
        progress: Called after each trial.
    """
    check_count("trials", trials, low=2)
    check_number("frequency", frequency, above=0.0, below=1.0)
    check_number("tau_max", tau_max, above=0.0)
    check_count("steps", steps)
    check_count("seed", seed, low=0)
    grid = [round(tau_max * step / steps, 10) for step in range(steps + 1)]
    errors: dict[str, list[list[float]]] = {name: [] for name in TECHNIQUES}
    for trial in with_progress(list(range(trials)), "trials", progress):
        generator = torch.Generator().manual_seed(10**6 * seed + trial)
        points, target = draw_two_gaussians(rows, rare_prior=frequency, generator=generator)
        priors = priors_of(target, frequency)
        model = train(points, target, torch.zeros(2, 2, dtype=torch.float64))
        for name, curve in errors.items():
            curve.append(
                [float(exact_error(separator(_corrected(model, name, tau, priors)))) for tau in grid]
            )
    curves = {name: mean_columns(zip(*rows_of, strict=True)) for name, rows_of in errors.items()}
    about = {"trials": trials, "frequency": frequency, "rows": rows, "seed": seed}
    return about | {"tau": grid, "bayes": BAYES, "techniques": curves}


def _corrected(model: nn.Linear, name: str, tau: float, priors: Tensor) -> nn.Linear:
    if name == "weight_normalization":
        return scale_classifier(model, tau=tau)
    if name == "offset_kept":
        return normalize_classifier(model, tau=tau)
    return adjusted(model, tau, priors)


def draw(numbers: Numbers) -> Figure:
    """Draw the mean error of each technique with its interval, and the least possible error."""
    figure = new_figure(6.5, 4.4)
    axes: Any = figure.subplots()
    for number, (name, label) in enumerate(TECHNIQUES.items()):
        curve, color = numbers["techniques"][name], style_of(number)["color"]
        axes.plot(numbers["tau"], percent(curve["value"]), color=color, linewidth=1.8, label=label)
        draw_band(axes, numbers["tau"], curve, color=color, num_lines=len(TECHNIQUES))
    bayes = 100 * numbers["bayes"]
    axes.axhline(bayes, color="black", linestyle=":", label=f"Bayes, {bayes:.2f} %")
    axes.set(xlabel="τ", ylabel="balanced error (%)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
    return figure
