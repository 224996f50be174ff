"""Balanced error after correction by tau, in runs: ``shortlist papers figure error_against_tau``."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_number
from shortlist.palette import PRINT
from shortlist.papers.figures._frame import Figure, Numbers, Progress
from shortlist.papers.figures._lines import add_legend, draw_band, figure_with_legend, percent, style_of
from shortlist.papers.figures._runs import MethodRuns, mean_columns, measure_runs, network_scores, seed_mean
from shortlist.runs import Run, RunError
from shortlist.scores import PriorRecord, TauFit, fit_normalization, fit_tau

TECHNIQUES = {
    "logit_adjustment": r"logit adjustment: $s_j - \tau\,\log\,\pi_j$",
    "weight_normalization": r"weight normalization: $s_j \,/\, \|w_j\|^\tau$",
}
PARTS = ("val", "test")
_KINDS = ("test rows", "validation rows", "chosen on validation rows")


class Curve(NamedTuple):
    """Balanced errors (g,) on validation and test rows, and where the validation rows have the least."""

    val: list[float]
    test: list[float]
    chosen: int


class Curves(NamedTuple):
    """Of a run, the curve of each technique; why there is none for the weights."""

    logit_adjustment: Curve
    weight_normalization: Curve | None
    why_none: str
    rows: int


def measure(
    *,
    runs: Sequence[str | Path],
    tau_max: float = 3.0,
    steps: int = 60,
    offset: str = "scaled",
    progress: Progress | None = None,
) -> Numbers:
    r"""Measure balanced error on validation and test rows against tau, for two corrections of models.

    Logit adjustment is :math:`s_j - \tau \log \pi_j`; weight normalization :math:`s_j / \lVert (w_j, b_j)
    \rVert^\tau` (equation 3 of Menon et al., 2021), for runs whose classifier is linear. Both start from the
    network's own scores, whatever adjustment the run has of its own; runs that share these scores are drawn
    once. If the loss says which priors its scores contain, logit adjustment starts from the training priors:
    tau is how often they are left out in all.

    Args:
        runs: Run folders.
        tau_max: Largest tau; the smallest is 0.
        steps: Number of steps between them.
        offset: Whether the offsets are ``"scaled"`` with the weights, or ``"kept"`` as they are.
        progress: Called after each run.
    """
    check_choice("offset", offset, ("scaled", "kept"))
    check_number("tau_max", tau_max, above=0.0)
    check_count("steps", steps)
    grid = torch.linspace(0.0, float(tau_max), steps + 1, dtype=torch.float64)
    grid = torch.tensor([round(tau, 10) for tau in grid.tolist()], dtype=torch.float64)  # 0.3, as one writes
    seen: dict[str, str] = {}
    methods, left_out = measure_runs(runs, lambda run: _curves(run, grid, seen, offset), progress)
    return {
        "tau": grid.tolist(),
        "offset": offset,
        "methods": [_of_method(method, grid.tolist()) for method in methods],
        "left_out": left_out,
    }


def _curves(run: Run, grid: Tensor, seen: dict[str, str], offset: Any) -> Curves:
    parts = [network_scores(run, part) for part in PARTS]
    content = hashlib.sha256(parts[1][0].contiguous().numpy().tobytes()).hexdigest()
    if content in seen:
        raise RunError(f"{run.path} has the same scores, before adjustment, as {seen[content]}")
    training, declared = PriorRecord.training(run.class_table.class_counts), run.declared["set"]
    start = declared if declared.contains is None else declared.under(training)
    fits = [fit_tau(start(rows), target, source_priors=training.priors, grid=grid) for rows, target in parts]
    adjusted, normalized, why_none = _curve(fits, grid), None, ""
    try:
        norms = run.load_norms()
        fits = [
            fit_normalization(rows.double(), target, *norms, grid=grid, offset=offset)
            for rows, target in parts
        ]
        normalized = _curve(fits, grid)
    except (ValueError, OSError) as error:
        why_none = " ".join(str(error).split())
    seen[content] = str(run.path)
    return Curves(adjusted, normalized, why_none, len(parts[1][1]))


def _curve(fits: Sequence[TauFit], grid: Tensor) -> Curve:
    val, test = fits
    return Curve(val.curve.tolist(), test.curve.tolist(), int((grid == val.tau).nonzero()[0]))


def _of_method(method: MethodRuns[Curves], grid: Sequence[float]) -> Numbers:
    numbers = method.about() | {"test_rows": [run.rows for run in method.by_run]}
    for name in TECHNIQUES:
        curves = [getattr(run, name) for run in method.by_run]
        if None in curves:
            why = next(run.why_none for run in method.by_run if run.weight_normalization is None)
            numbers |= {name: None, "no_weight_normalization": why}
        else:
            numbers[name] = _of_technique(curves, grid)
    return numbers


def _of_technique(curves: Sequence[Curve], grid: Sequence[float]) -> Numbers:
    """Average over seeds; list the tau that each seed's validation rows choose, and the test error there."""
    numbers: Numbers = {}
    for part in PARTS:
        numbers[part] = mean_columns(zip(*(getattr(curve, part) for curve in curves), strict=True))
    taus = [grid[curve.chosen] for curve in curves]
    errors = [curve.test[curve.chosen] for curve in curves]
    chosen = {"tau": taus, "mean_tau": sum(taus) / len(taus), "error": errors}
    return numbers | {"chosen": chosen | {"mean_error": asdict(seed_mean(errors))}}


def draw(numbers: Numbers) -> Figure:
    """Draw a panel for each technique: whole lines of test rows, thin ones of validation rows."""
    methods = numbers["methods"]
    shown = [name for name in TECHNIQUES if any(method[name] is not None for method in methods)]
    labels = [*(method["label"] for method in methods), *_KINDS]
    figure = figure_with_legend(1.0 + 3.7 * len(shown), 4.2, labels)
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, shown, strict=True):
        for number, method in enumerate(methods):
            if method[name] is not None:
                style = style_of(number, is_limit=method["is_limit"])
                _draw_method(axes, numbers["tau"], method[name], style, method["label"], len(methods))
        axes.set(xlabel="τ", title=TECHNIQUES[name])
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("balanced error (%)")
    add_legend(figure, _legend(panels[0]))
    return figure


def _draw_method(
    axes: Any, tau: Sequence[float], curves: Numbers, style: dict[str, Any], label: str, num_methods: int
) -> None:
    color, marker = style["color"], style["marker"]
    test = curves["test"]
    axes.plot(tau, percent(test["value"]), color=color, linewidth=1.8, label=label, markersize=4,
              marker=marker if num_methods > len(PRINT) else None,
              markevery=max(1, len(tau) // 8))  # fmt: skip
    axes.plot(tau, percent(curves["val"]["value"]), color=color, linewidth=0.9, linestyle=(0, (3, 2)))
    draw_band(axes, tau, test, color=color, num_lines=num_methods)
    chosen = curves["chosen"]
    place = [chosen["mean_tau"]], percent([chosen["mean_error"]["value"]])
    axes.plot(*place, marker="*", markersize=13, markeredgecolor="black", color=color, linestyle="none",
              zorder=5)  # fmt: skip


def _legend(axes: Any) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        *axes.get_legend_handles_labels()[0],
        Line2D([], [], color="0.3", linewidth=1.8, label=_KINDS[0]),
        Line2D([], [], color="0.3", linewidth=0.9, linestyle=(0, (3, 2)), label=_KINDS[1]),
        Line2D([], [], color="0.3", linestyle="none", marker="*", markersize=12, markeredgecolor="black",
               label=_KINDS[2]),
    ]  # fmt: skip
