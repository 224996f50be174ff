"""Seconds of training for an epoch against k, for each loss (Garcin et al., ICML 2022, figure 3)."""

import platform
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import torch

from papers.figures._frame import Numbers, PaperFigure, Progress, new_figure
from papers.figures._lists import check_integers, check_names
from papers.figures._loss_cases import options_for, takes_k
from papers.figures._training_case import TrainingCase, random_images
from shortlist._checks import check_choice, check_k
from shortlist.losses import LOSSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURE", "draw", "measure"]

_CE, _EXACT = "cross_entropy", "noised_topk, exact"
NAMES = (_CE, *LOSSES, _EXACT)
CLOCKS: dict[str, Callable[[], float]] = {"processor": process_time, "wall": perf_counter}
_IMAGES = 1024  # to draw batches from
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKS = "os^Dv"


def measure(
    *,
    k: int | Sequence[int] = (1, 5, 10, 20),
    losses: str | Sequence[str] | None = None,
    num_classes: int = 150,
    batch_size: int = 128,
    epoch_images: int = 6000,
    repetitions: int = 15,
    steps: int = 1,
    threads: int = 1,
    clock: str = "processor",
    progress: Progress | None = None,
) -> Numbers:
    """Train the demonstration's network on random grey images of 32 x 32 with each loss, all in turns.

    In a repetition, each loss and k makes some steps (batch, forward, backward, optimiser), then it is the
    next one's turn, in an order drawn anew: whatever slows the machine for a while slows them alike. The loss
    by itself is timed within the same steps, from scores to their gradient. The first turns do not count.

    Args:
        k: Numbers of guesses; of ``sparse_top`` the number of labels of a row.
        losses: Names of :data:`shortlist.losses.LOSSES`, ``cross_entropy`` or ``noised_topk, exact``; all if
            ``None``. Cross-entropy, the reference, is always measured.
        num_classes: Classes.
        batch_size: Images in a step.
        epoch_images: Images in an epoch: of the demonstration's training part.
        repetitions: Turns of each loss and k.
        steps: Steps in a turn.
        threads: Of PyTorch, while this lasts.
        clock: ``"processor"`` counts the time spent on this process alone, not what others take of a busy
            machine; ``"wall"`` counts all, and is the one for several threads.
        progress: Called after each repetition.

    Returns:
        ``cases``: for each loss and k (``null`` where it has none) the options, and the median and quartiles
        over the repetitions of the seconds of an epoch and of the loss's milliseconds in a step. They depend
        on the machine, unlike the other figures' numbers.
    """
    ks = check_integers("k", k, below=num_classes)
    names = check_names("losses", losses, NAMES)
    sizes = {"num_classes": num_classes, "batch_size": batch_size, "epoch_images": epoch_images}
    for name, value in {**sizes, "repetitions": repetitions, "steps": steps, "threads": threads}.items():
        check_k(value, name=name)
    check_choice("clock", clock, tuple(CLOCKS))
    if clock == "processor" and threads > 1:
        raise ValueError(f"clock must be wall for threads > 1, whose times add up, got {clock!r}")
    names = [_CE, *(name for name in names if name != _CE)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        data = random_images(_IMAGES, num_classes)
        cases = [
            TrainingCase(name, guesses, _options(name, guesses or 1, num_classes), num_classes, data)
            for name in names
            for guesses in (ks if _has_k(name) else [None])
        ]
        times = _take_turns(cases, CLOCKS[clock], batch_size, repetitions, steps, progress)
    finally:
        torch.set_num_threads(before)
    per_epoch = -(-epoch_images // batch_size)
    found = [case.describe(taken, per_epoch) for case, taken in zip(cases, times, strict=True)]
    reference = found[0]["epoch_seconds"]
    return {
        "k": ks,
        **sizes,
        "steps_per_epoch": per_epoch,
        "repetitions": repetitions,
        "steps": steps,
        "threads": threads,
        "clock": clock,
        "network": "small_cnn",
        "image_shape": [1, 32, 32],
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cases": [case | {"over_cross_entropy": case["epoch_seconds"] / reference - 1} for case in found],
    }


def _has_k(name: str) -> bool:
    return takes_k(name.partition(",")[0])


def _options(name: str, k: int, num_classes: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"num_samples": None} if name == _EXACT else {}
    if name == "ranked_topk":
        half = [0.5, *[0.0] * (k - 2), 0.5] if k > 1 else [1.0]
        settings = {"distribution": half, "candidates": min(max(16, 2 * k), num_classes)}
    if name == "pairwise_margin":
        settings = {"margins": 0.0}  # of all pairs
    return options_for(name.partition(",")[0], k=k, settings=settings)


def _take_turns(
    cases: list[TrainingCase],
    clock: Callable[[], float],
    batch_size: int,
    repetitions: int,
    steps: int,
    progress: Progress | None,
) -> list[list[tuple[float, float]]]:
    """For each case and repetition the mean seconds of a step, and those of the loss in it."""
    generator = torch.Generator().manual_seed(0)
    times: list[list[tuple[float, float]]] = [[] for _ in cases]
    for done in range(-1, repetitions):  # the first turn is not counted
        for index in torch.randperm(len(cases), generator=generator).tolist():
            batches = torch.randint(_IMAGES, (steps, batch_size), generator=generator)
            found = [cases[index].step(rows, clock) for rows in batches]
            if done >= 0:
                whole, loss = (sum(part) / steps for part in zip(*found, strict=True))
                times[index].append((whole, loss))
        if progress is not None:
            progress("repetitions", max(done + 1, 0), repetitions)
    return times


def draw(numbers: Numbers) -> "Figure":
    """Seconds of an epoch, and milliseconds of the loss alone in a step, against k; quartiles as bars."""
    figure = new_figure(7.4, 4.6)
    left, right = figure.subplots(1, 2)
    _draw_panel(left, numbers, "epoch")
    words = {"processor": "processor seconds", "wall": "seconds"}[numbers["clock"]]
    left.set_ylabel(f"training, {words} for {numbers['epoch_images']:,} images", fontsize=9)
    _draw_panel(right, numbers, "loss")
    right.set_yscale("log")
    right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    right.set_ylabel(f"the loss alone, milliseconds for {numbers['batch_size']} images", fontsize=9)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    words = "thread" if numbers["threads"] == 1 else "threads"
    about = f"{numbers['network']}, {numbers['num_classes']} classes, {numbers['threads']} {words}"
    figure.suptitle(f"{about}; medians and quartiles of {numbers['repetitions']} turns", fontsize=8)
    return figure


def _draw_panel(axes: "Axes", numbers: Numbers, part: str) -> None:
    key = {"epoch": "epoch_seconds", "loss": "loss_milliseconds"}[part]
    free = [case for case in numbers["cases"] if case["k"] is None]
    lines: dict[str, list[dict[str, Any]]] = {}
    for case in numbers["cases"]:
        if case["k"] is not None:
            lines.setdefault(case["loss"], []).append(case)
    axes.axhline(free[0][key], color="black", linewidth=1.0, linestyle="--", label=_CE)
    if len(free) > 1:
        values = [case[key] for case in free[1:]]
        label = f"{len(values)} losses without k" if len(values) > 1 else free[1]["loss"]
        axes.axhspan(min(values), max(values), color="0.5", alpha=0.25, linewidth=0, label=label)
    for number, (name, cases) in enumerate(lines.items()):
        values = [case[key] for case in cases]
        off = [
            [max(case[key] - case[f"{part}_quartiles"][0], 0.0) for case in cases],
            [max(case[f"{part}_quartiles"][1] - case[key], 0.0) for case in cases],
        ]
        style = {"color": _COLOURS[number % 6], "marker": _MARKS[number // 6 % 5], "markersize": 3.5}
        style |= {"linewidth": 1.1, "linestyle": ("-", ":")[number // 6 % 2], "elinewidth": 0.6}
        axes.errorbar([case["k"] for case in cases], values, yerr=off, label=name, **style)
    axes.set_xlabel("k")
    axes.set_xticks(numbers["k"])
    axes.spines[["top", "right"]].set_visible(False)


FIGURE = PaperFigure(measure, draw)
