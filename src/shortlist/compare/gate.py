"""The gate before a release: no metric worse beyond its interval on frozen test images, and promises kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from shortlist._checks import check_number
from shortlist._text import composed, format_percent
from shortlist.compare.frozen import FrozenRows, class_numbers, look_at, read_frozen_images
from shortlist.compare.significance import Pair, mean_over, resample_differences
from shortlist.inputs import Rows
from shortlist.model import Model

METRICS = ("top1.micro", "top5.micro", "top5.macro", "top5.rare")
_RESAMPLES = 2000
_LEVEL = 0.95
_RARE_SHARE = 0.25


@dataclass(frozen=True)
class Check:
    """One thing that must hold.

    Args:
        name: What it is, such as ``top5.rare``, ``sets.c90.size.micro`` or ``promise of c90``.
        passed: Whether it holds.
        words: The numbers, in words.
        new: Value of the new model; ``None`` for promises.
        old: Value of the old model.
        low: Lower end of the 95 % interval of the difference, paired over rows.
        high: Upper end.
    """

    name: str
    passed: bool
    words: str
    new: float | None = None
    old: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Verdict:
    """All checks of a new model; it may be released if all of them hold."""

    checks: tuple[Check, ...]
    rows: int

    @property
    def passed(self) -> bool:
        """Whether all checks hold."""
        return all(check.passed for check in self.checks)

    @property
    def failed(self) -> list[Check]:
        """The checks that do not hold."""
        return [check for check in self.checks if not check.passed]


def judge_release(
    new: Model,
    old: Model | None,
    data: str | Path | Rows,
    *,
    metrics: Sequence[str] | None = None,
    tolerance: float = 0.0,
    size_tolerance: float = 0.25,
) -> Verdict:
    """Judge whether a new model may take the place of an old one.

    A metric fails if it is worse beyond its interval: if the 95 % interval of the difference, by resampling
    rows with both models' answers, lies below ``-tolerance`` as a whole. The mean size of sets fails if that
    interval lies above a share ``size_tolerance`` of the old size. A promise fails if chance among
    calibration and test rows does not explain that fewer sets hold the true class. A promise of the old
    model fails if no predictor of the new one promises as much. A predictor whose sets all hold every class
    fails.

    Args:
        new: New model.
        old: Model that is served so far; ``None`` if there is none: then only promises and full sets are
            checked.
        data: Frozen test images; see :func:`~shortlist.compare.frozen.read_frozen_images`.
        metrics: What must not get worse: ``top1`` or ``top5``, or ``sets.NAME.coverage`` or
            ``sets.NAME.size`` of a predictor that both have, each with ``.micro`` (rows), ``.macro``
            (classes) or ``.rare`` (classes with fewer than 20 training examples in the old model or, if
            there are none among the test images, the quarter with the fewest). By default :data:`METRICS`,
            as far as both models have that many classes, and the size over rows of every predictor that
            both have.
        tolerance: How much worse a metric may be, as a share.
        size_tolerance: How much larger sets may be on average, as a share of the old size. The calibration
            rows of two models are others, and with a few hundred of them chance alone makes sets larger or
            smaller by a quarter.
    """
    check_number("tolerance", tolerance, low=0.0, below=1.0)
    check_number("size_tolerance", size_tolerance, low=0.0)
    images = data if isinstance(data, Rows) else read_frozen_images(data)
    rows = look_at(new, images)
    checks = [_promise(name, sets.promise) for name, sets in rows.results.sets.items() if sets.promise]
    checks += [_not_full(name, rows, len(new.classes)) for name in new.predictors]
    if rows.unknown:
        words = f"the new model does not know the classes of {rows.unknown} of {len(images)} images"
        checks.append(
            Check("images of known classes", old is None or rows.unknown <= _unknown(old, images), words)
        )
    if old is not None:
        checks += [_same_classes(new, old), *_kept_promises(new, old)]
        compared = _compare(rows, look_at(old, images), old, images, metrics)
        checks += [_check(*pair, tolerance=tolerance, size_tolerance=size_tolerance) for pair in compared]
    return Verdict(tuple(check for check in checks if check is not None), len(images))


def _unknown(model: Model, images: Rows) -> int:
    return int((class_numbers(model, images) < 0).sum())


def _same_classes(new: Model, old: Model) -> Check:
    """Check that the new model knows all classes of the old one, by their ids."""
    new_ids = set(new.classes.ids)
    lost = [name for name in old.classes.ids if name not in new_ids]
    some = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
    words = f"{len(lost)} of the old model are missing: {some}" if lost else "all of the old model are known"
    return Check("classes", not lost, words)


def _kept_promises(new: Model, old: Model) -> Iterator[Check]:
    """Check that some predictor of the new model promises what each one of the old model does."""
    levels: dict[str, float] = {}
    for promise in new.promises.values():
        levels[promise.about] = max(levels.get(promise.about, 0.0), promise.level or 0.0)
    for name, promise in old.promises.items():
        if promise.level is not None and levels.get(promise.about, 0.0) < promise.level:
            words = f"the new model has no promise of {format_percent(promise.level)} % like it"
            yield Check(f"promise of {name} of the old model", False, words)


def _promise(name: str, promise: object) -> Check | None:
    level, measured = getattr(promise, "level", None), getattr(promise, "measured", None)
    if level is None or measured is None:
        return None
    covered, promised = format_percent(measured.coverage), format_percent(level)
    words = f"{covered} % of {measured.rows} sets hold the class, {promised} % are promised"
    return Check(f"promise of {name}", not getattr(promise, "is_below", False), words)


def _not_full(predictor: str, rows: FrozenRows, num_classes: int) -> Check:
    """Check that a predictor leaves some class out of some set: sets of all classes hold the true one too."""
    size = float(rows.values[f"sets.{predictor}.size"].mean())
    words = f"{size:.2f} of {num_classes} classes on average"
    return Check(f"size of {predictor}", size < num_classes, words)


def _compare(
    new: FrozenRows, old: FrozenRows, table_of: Model, images: Rows, metrics: Sequence[str] | None
) -> Iterator[tuple[str, list[float], Tensor]]:
    """Yield each metric, its values of both models, and resampled differences of them."""
    if metrics is None:
        sizes = [f"{name}.micro" for name in new.values if name.endswith(".size")]
        metrics = [
            metric
            for metric in (*METRICS, *sizes)
            if all(metric.rpartition(".")[0] in side.values for side in (new, old))
        ]
    # by the class of the old model, or by the label where it does not know the class
    classes = [
        (number, "") if number >= 0 else (len(table_of.classes), composed(str(label)))
        for number, label in zip(class_numbers(table_of, images).tolist(), images.labels, strict=True)
    ]
    names = sorted(set(classes))
    number_of = {name: number for number, name in enumerate(names)}
    target = torch.tensor([number_of[name] for name in classes])
    rare = _rare(table_of, [number for number, _ in names])
    averages = {"micro": None, "macro": torch.ones_like(rare), "rare": rare}
    pairs = [_pair(metric, new, old, averages) for metric in metrics]
    drawn = resample_differences(pairs, target, num_classes=len(names), num_resamples=_RESAMPLES)
    for metric, pair, spread in zip(metrics, pairs, drawn, strict=True):
        yield metric, [mean_over(side, target, pair.classes) for side in (pair.first, pair.second)], spread


def _check(
    metric: str, values: list[float], spread: Tensor, *, tolerance: float, size_tolerance: float
) -> Check:
    tail = (1 - _LEVEL) / 2
    low, high = (float(torch.quantile(spread, share)) for share in (tail, 1 - tail))
    new, old = values
    if metric.rpartition(".")[0].endswith(".size"):
        words = f"{new:.2f} against {old:.2f} classes, {new - old:+.2f} ({low:+.2f} to {high:+.2f})"
        return Check(metric, low <= size_tolerance * old, words, new, old, low, high)
    words = (
        f"{format_percent(new)} against {format_percent(old)}, difference {100 * (new - old):+.1f} "
        f"({100 * low:+.1f} to {100 * high:+.1f})"
    )
    return Check(metric, high >= -tolerance, words, new, old, low, high)


def _pair(metric: str, new: FrozenRows, old: FrozenRows, averages: Mapping[str, Tensor | None]) -> Pair:
    """Return the values of both models, and the classes that the average of the metric is over."""
    name, _, average = metric.rpartition(".")
    if average not in averages:
        raise ValueError(f"metrics must end in .micro, .macro or .rare, got {metric!r}")
    for side in (new, old):
        if name not in side.values:
            raise ValueError(
                f"metrics must be of what both models have ({', '.join(side.values)}), got {metric!r}"
            )
    return Pair(new.values[name], old.values[name], averages[average])


def _rare(model: Model, numbers: Sequence[int]) -> Tensor:
    """Return whether each class is rare; classes that the model does not know have no training rows."""
    counts = torch.tensor([*(model.classes.counts or [0] * len(model.classes)), 0])
    examples = counts[numbers]
    few = examples < 20
    if not few.any() or few.all():
        few = torch.zeros(len(numbers), dtype=torch.bool)
        few[examples.argsort(stable=True)[: max(1, round(_RARE_SHARE * len(numbers)))]] = True
    return few
