r"""Links and Bayes risk of the binary margin losses: ``shortlist papers figure binary_links``.

For two classes and one score f, the pairwise margin loss is

.. math:: \ell(\pm 1, f) = \frac{\omega_\pm}{\gamma} \log(1 + e^{\gamma (\delta_\pm \mp f)}).

Its minimizer at a probability p of the class +1 is the link; where the link is 0, the decision changes (Menon
et al., "Long-tail learning via logit adjustment", ICLR 2021, appendix B, figures 5, 6 and 7).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from shortlist._checks import check_count, check_number
from shortlist.losses import pairwise_margin_loss
from shortlist.papers.figures._frame import Figure, Numbers, Progress, with_progress
from shortlist.papers.figures._lines import add_legend, figure_with_legend, style_of
from shortlist.papers.figures._lists import check_numbers

_HALVINGS = 200  # of an interval of scores: as exact as numbers can be
TENT = "balanced error"


class BinaryLoss(NamedTuple):
    """Factors and margins of the classes +1 and -1, and the inverse temperature gamma."""

    factors: tuple[float, float]
    margins: tuple[float, float]
    gamma: float

    def __call__(self, scores: Tensor, positive: bool) -> Tensor:
        """Compute the loss of each score (m,), by the library's loss of two classes."""
        (of_positive, of_negative), (margin, other) = self.factors, self.margins
        return pairwise_margin_loss(
            torch.stack([scores / 2, -scores / 2], dim=1),
            torch.full((len(scores),), 0 if positive else 1),
            margins=torch.tensor([[0.0, margin], [other, 0.0]], dtype=scores.dtype),
            factors=torch.tensor([of_positive, of_negative], dtype=scores.dtype),
            temperature=1 / self.gamma,
            reduction="none",
        )


def binary_losses(prior: float, gamma: float) -> dict[str, BinaryLoss]:
    """Make the losses of the paper's figures, and the logistic loss, for a prior of the class +1."""
    rare, odds = 1 / prior, (1 - prior) / prior
    balanced = (rare, 1 / (1 - prior))
    margin = math.log(odds) / gamma
    made = {
        "logistic": ((1.0, 1.0), (0.0, 0.0)),
        "balanced": (balanced, (1.0, 1.0)),
        "unequal margin": ((1.0, 1.0), (margin, -margin)),
        "balanced + margin": (balanced, (1.0, 1 / odds)),
        "balanced + margin 1/π": (balanced, (1.0, rare)),
    }
    return {name: BinaryLoss(factors, margins, gamma) for name, (factors, margins) in made.items()}


def probability_at(loss: BinaryLoss, scores: Tensor) -> Tensor:
    """Return the probability of +1 at which each score (m,) is the best one: the inverse of the link."""
    return _log_odds_at(loss, scores).sigmoid()


def _log_odds_at(loss: BinaryLoss, scores: Tensor) -> Tensor:
    """At the minimum p l'(+1, f) = -(1 - p) l'(-1, f): the odds are the ratio of the two slopes."""
    (of_positive, of_negative), (margin, other) = loss.factors, loss.margins
    slopes = logsigmoid(loss.gamma * (other + scores)) - logsigmoid(loss.gamma * (margin - scores))
    return math.log(of_negative / of_positive) + slopes


def link(loss: BinaryLoss, probability: Tensor) -> Tensor:
    """Return the score that minimizes the expected loss at each probability (m,) of +1, in (0, 1)."""
    wanted = probability.logit()
    # beyond the margins, the log-odds grow by gamma for each unit of the score
    reach = (wanted.abs().max() + abs(math.log(loss.factors[1] / loss.factors[0])) + 1) / loss.gamma
    reach = float(reach) + max(map(abs, loss.margins)) + 1
    low, high = torch.full_like(wanted, -2 * reach), torch.full_like(wanted, 2 * reach)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _log_odds_at(loss, middle) > wanted
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2


def measure(
    *,
    prior: float = 0.2,
    gamma: float | Sequence[float] = (1.0, 8.0),
    steps: int = 200,
    score_max: float = 4.0,
    progress: Progress | None = None,
) -> Numbers:
    """Compute the link, its inverse and the Bayes risk of binary margin losses.

    Args:
        prior: Probability of the class +1 among all rows, in (0, 1).
        gamma: Inverse temperatures, > 0.
        steps: Steps of the grids over probabilities and over scores.
        score_max: Largest score at which the inverse of the link is shown; the smallest is its negative.
        progress: Called after each gamma.

    Returns:
        ``panels``, one for each gamma, each with the losses: factors, margins, ``link`` (g,) at the
        probabilities, ``inverse`` (g,) at the scores, ``risk`` (g,) divided by its largest value,
        ``risk_max``, and ``threshold``, the probability at which the best score is 0: the prior, if the loss
        is consistent for the balanced error.
    """
    check_number("prior", prior, above=0.0, below=1.0)
    gammas = check_numbers("gamma", gamma, above=0.0)
    check_count("steps", steps, low=2)
    check_number("score_max", score_max, above=0.0)
    chances = torch.arange(1, steps, dtype=torch.float64) / steps
    scores = torch.linspace(-score_max, score_max, steps + 1, dtype=torch.float64)
    panels = []
    for gamma in with_progress(gammas, "temperatures", progress):
        made = binary_losses(prior, gamma)
        losses = {name: _describe(loss, chances, scores) for name, loss in made.items()}
        panels.append({"gamma": gamma, "losses": losses})
    tent = torch.minimum(chances / prior, (1 - chances) / (1 - prior))
    grids = {"probabilities": chances.tolist(), "scores": scores.tolist()}
    return {"prior": prior, **grids, "tent": tent.tolist(), "panels": panels}


def _describe(loss: BinaryLoss, chances: Tensor, scores: Tensor) -> Numbers:
    best = link(loss, chances)
    risk = chances * loss(best, True) + (1 - chances) * loss(best, False)
    return {
        "factors": list(loss.factors),
        "margins": list(loss.margins),
        "threshold": float(probability_at(loss, torch.zeros(1, dtype=torch.float64))),
        "link": best.tolist(),
        "inverse": probability_at(loss, scores).tolist(),
        "risk": (risk / risk.max()).tolist(),
        "risk_max": float(risk.max()),
    }


def draw(numbers: Numbers) -> Figure:
    """Draw a row of panels for each gamma: the link, its inverse, and the Bayes risk."""
    panels, prior = numbers["panels"], numbers["prior"]
    names = [*panels[0]["losses"], TENT]
    figure = figure_with_legend(10.0, 3.1 * len(panels), names)
    rows = figure.subplots(len(panels), 3, squeeze=False)
    for axes, panel in zip(rows, panels, strict=True):
        for number, (name, curves) in enumerate(panel["losses"].items()):
            _draw_loss(axes, numbers, curves, name, style_of(number)["color"])
        axes[2].plot(numbers["probabilities"], numbers["tent"], color="black", linestyle=":", label=TENT)
        for place, x, y in ((0, "p", "link: best score"), (1, "score", "p of this score"),
                            (2, "p", "Bayes risk, largest = 1")):  # fmt: skip
            axes[place].set(xlabel=x, ylabel=y)
            axes[place].grid(alpha=0.3)
        axes[0].set(title=f"γ = {panel['gamma']:g}", ylim=(min(numbers["scores"]), max(numbers["scores"])))
        axes[0].plot([prior], [0.0], marker="o", color="black", markersize=4, linestyle="none")
        axes[1].plot([0.0], [prior], marker="o", color="black", markersize=4, linestyle="none")
    add_legend(figure, rows[0][2].get_legend_handles_labels()[0])
    return figure


def _draw_loss(axes: Any, numbers: Numbers, curves: Numbers, name: str, color: str) -> None:
    chances = numbers["probabilities"]
    axes[0].plot(chances, curves["link"], color=color, linewidth=1.5)
    axes[1].plot(numbers["scores"], curves["inverse"], color=color, linewidth=1.5)
    axes[2].plot(chances, curves["risk"], color=color, linewidth=1.5, label=name)
