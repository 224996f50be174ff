"""Seconds of training for an epoch against k, for each loss (Garcin et al., ICML 2022, figure 3).

The times are those of :mod:`shortlist.papers.figures.step_times`, which trains as ``shortlist train`` does.
"""

import platform
from collections.abc import Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import torch

from shortlist._checks import check_count
from shortlist.papers.figures import step_times
from shortlist.papers.figures._frame import Figure, Numbers, Progress, with_progress
from shortlist.papers.figures._lines import add_legend, figure_with_legend, style_of
from shortlist.papers.figures._lists import check_integers, check_names, check_texts
from shortlist.papers.figures._loss_cases import takes_k

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_DRAWN = ("noised_topk", "imbalanced_noised_topk")
EPOCH_STEPS = 47  # of the demonstration: 6,000 images in batches of 128


def measure(
    *,
    k: int | Sequence[int] = (1, 5, 20),
    losses: str | Sequence[str] | None = None,
    num_draws: int | Sequence[int] = (3,),
    networks: str | Sequence[str] = ("small_cnn",),
    epochs: int = 3,
    progress: Progress | None = None,
) -> Numbers:
    """Train a network on the demonstration's data with each loss and k, every second step cross-entropy.

    Args:
        k: Numbers of guesses.
        losses: Names of ``step_times.LOSSES``; all if ``None``.
        num_draws: Numbers of draws of the noised losses, a line each; the exact one has none.
        networks: Names of networks, as in recipes; the demonstration's is ``small_cnn``.
        epochs: Epochs of each training; the first does not count.
        progress: Called after each training.

    Returns:
        ``cases``: for each network, loss, k and number of draws (``null`` where it has none) the seconds of
        an epoch, with quartiles over its steps, and those of cross-entropy in the steps between. They depend
        on the machine, unlike the other figures' numbers.
    """
    ks = check_integers("k", k, below=150)
    names = [
        name for name in check_names("losses", losses, list(step_times.LOSSES)) if name != step_times.PLAIN
    ]
    check_count("epochs", epochs, low=2)  # the first does not count
    step_times.keep_freed_memory()
    wanted = [
        (network, name, draws, each_k)
        for network in check_texts("networks", networks)
        for name in names
        for draws in (check_integers("num_draws", num_draws) if name in _DRAWN else [None])
        for each_k in (ks if takes_k(name.partition(",")[0]) else [None])
    ]
    cases = []
    for network, name, draws, guesses in with_progress(wanted, "trainings", progress):
        settings = [f"model={network}", *([] if draws is None else [f"loss.num_samples={draws}"])]
        plain, with_loss = step_times.step_seconds(
            step_times.timed_recipe(name, epochs, k=guesses, settings=settings)
        )
        about = {"network": network, "loss": name, "num_draws": draws, "k": guesses}
        cases.append(about | _describe(plain, with_loss))
    about = {"k": ks, "epochs": epochs, "steps_per_epoch": EPOCH_STEPS, "threads": torch.get_num_threads()}
    return about | {"torch": torch.__version__, "machine": platform.machine(), "cases": cases}


def _describe(plain: Sequence[float], with_loss: Sequence[float]) -> Numbers:
    low, _, high = quantiles(with_loss, n=4)
    return {
        "epoch_seconds": EPOCH_STEPS * median(with_loss),
        "epoch_quartiles": [EPOCH_STEPS * low, EPOCH_STEPS * high],
        "cross_entropy_seconds": EPOCH_STEPS * median(plain),
        "over_cross_entropy": median(with_loss) / median(plain) - 1,
    }


def draw(numbers: Numbers) -> Figure:
    """Draw what an epoch takes beyond cross-entropy against k; a band holds the losses without k."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for case in numbers["cases"]:
        lines.setdefault(_label(case, numbers["cases"]), []).append(case)
    figure = figure_with_legend(7.0, 4.2, list(lines))
    axes = figure.subplots()
    axes.axhline(0, color="black", linewidth=1.0, linestyle="--", label="cross-entropy")
    for number, (name, cases) in enumerate(lines.items()):
        _draw_line(axes, number, name, cases)
    axes.set(xlabel="k", ylabel="time of an epoch beyond cross-entropy (%)")
    axes.set_xticks(numbers["k"])
    axes.grid(alpha=0.3)
    add_legend(figure, axes.get_legend_handles_labels()[0])
    return figure


def _label(case: Numbers, cases: Sequence[Numbers]) -> str:
    """Name a line by the loss, and by draws and network where there are several."""
    name = case["loss"] if case["k"] is not None else "losses without k"
    if len({each["num_draws"] for each in cases if each["num_draws"] is not None}) > 1 and case["num_draws"]:
        name += f", {case['num_draws']} draw{'s' if case['num_draws'] > 1 else ''}"
    return name if len({each["network"] for each in cases}) == 1 else f"{name}, {case['network']}"


def _draw_line(axes: "Axes", number: int, name: str, cases: Sequence[Numbers]) -> None:
    values = [100 * case["over_cross_entropy"] for case in cases]
    if cases[0]["k"] is None:
        axes.axhspan(min(values), max(values), color="0.5", alpha=0.25, linewidth=0, label=name)
    else:
        axes.plot([case["k"] for case in cases], values, **style_of(number), markersize=4, label=name)
