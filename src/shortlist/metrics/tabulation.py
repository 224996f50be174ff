"""Average the numbers of rows over rows, classes, groups and parents of classes, with intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from shortlist.class_table import GROUPS
from shortlist.coverage_law import clopper_pearson
from shortlist.metrics.bootstrap import Columns, Resamples, interval, parent_weights, resample_each
from shortlist.metrics.class_means import average_classes
from shortlist.metrics.results import Averages, Estimate, GroupRows
from shortlist.metrics.shares import effective_rows

LEVEL = 0.95
"""Level of all intervals."""

_SHARES = ("top", "area", "hit", "empty", "single")  # first words of the columns with values in [0, 1]


@dataclass(frozen=True)
class Classes:
    """The number of classes c, the group of each (c,) if there are any, and by level the parent of each."""

    number: int
    groups: Tensor | None
    parents: Mapping[str, Tensor]
    group_names: Sequence[str] = GROUPS


@dataclass(frozen=True)
class Table:
    """Sums by class (c,), averages with intervals, those by parents, and resampled means over rows (b,)."""

    counts: Tensor
    sums: Mapping[str, Tensor]
    averages: Mapping[str, Averages]
    by_parent: Mapping[str, Mapping[str, Estimate]]
    draws: Mapping[str, Tensor]


def tabulate(
    columns: Mapping[str, Tensor],
    target: Tensor,
    classes: Classes,
    *,
    num_resamples: int,
    generator: torch.Generator,
) -> Table:
    """Compute the averages of all columns (n,), and their intervals.

    A share of rows has the exact interval of Clopper and Pearson, wherever it is told. Means over classes and
    means of other numbers have percentiles over resamples of the rows.
    """
    values = torch.stack([column.double() for column in columns.values()], dim=1)
    sums = values.new_zeros(classes.number, values.shape[1]).index_add_(0, target, values).T
    counts = torch.bincount(target, minlength=classes.number)
    names = () if classes.groups is None else classes.group_names
    groups = torch.full((classes.number,), len(GROUPS)) if classes.groups is None else classes.groups
    parents = list(classes.parents.values())
    means, draws = [_means(sums, counts, groups, parents, len(names))], {}
    if num_resamples:
        asked = [Columns(values, groups, len(names), parents)]
        options = {"num_classes": classes.number, "num_resamples": num_resamples}
        (resamples,) = resample_each(asked, target, **options, generator=generator)
        ends = [interval(part, LEVEL) for part in resamples]
        means += [Resamples(*(end[side] for end in ends)) for side in (0, 1)]
        draws = dict(zip(columns, resamples.micro.T, strict=True))
    averages = {name: _averages(means, i, name, counts, groups, names) for i, name in enumerate(columns)}
    if num_resamples:
        for i, (name, column) in enumerate(columns.items()):
            if column.dtype == torch.bool and _is_share(name):
                averages[name] = replace(averages[name], micro=_share_of_rows(sums[i], counts))
    hits = [(i, name) for i, name in enumerate(columns) if name.startswith("hit ")]
    by_parent = {name: _by_parent(means, i, counts, classes.parents) for i, name in hits}
    return Table(counts, dict(zip(columns, sums, strict=True)), averages, by_parent, draws)


def group_rows(classes: Classes, counts: Tensor) -> dict[str, GroupRows]:
    """Count the classes, the classes with rows, and the rows of each group."""
    if classes.groups is None:
        return {}
    members = {name: counts[classes.groups == number] for number, name in enumerate(classes.group_names)}
    return {
        name: GroupRows(len(rows), int((rows > 0).sum()), int(rows.sum())) for name, rows in members.items()
    }


def _means(
    sums: Tensor, counts: Tensor, groups: Tensor, parents: Sequence[Tensor], num_groups: int
) -> Resamples:
    """Return the means of the rows as they are, in the form of a resample."""
    by_group = average_classes(sums, counts, average="group", groups=groups)
    without_classes = max(0, num_groups - by_group.shape[-1])
    by_group = torch.nn.functional.pad(by_group, (0, without_classes), value=math.nan)
    class_means, present = sums / counts.clamp_min(1), (counts > 0).double()
    by_level = [class_means @ parent_weights(present, parent) for parent in parents]
    return Resamples(
        average_classes(sums, counts),
        average_classes(sums, counts, average="macro"),
        by_group.T,
        torch.stack(by_level) if by_level else sums.new_empty(0, len(sums)),
    )


def _averages(
    means: Sequence[Resamples], i: int, name: str, counts: Tensor, groups: Tensor, names: Sequence[str]
) -> Averages:
    present = (counts > 0).double()
    weights = [counts.double(), present, *(present * (groups == number) for number in range(len(names)))]
    rows = [(counts, weight) if _is_share(name) else None for weight in weights]
    return Averages(
        estimate(*(part.micro[i] for part in means), rows=rows[0]),
        estimate(*(part.macro[i] for part in means), rows=rows[1]),
        {
            group: estimate(*(part.groups[g, i] for part in means), rows=rows[2 + g])
            for g, group in enumerate(names)
        },
    )


def _is_share(name: str) -> bool:
    return name.split()[0] in _SHARES


def _share_of_rows(hits: Tensor, counts: Tensor) -> Estimate:
    """Return the share of rows that are hits, with its exact interval, the same as promises have."""
    number, rows = float(hits.sum()), int(counts.sum())
    return Estimate(number / rows, *clopper_pearson(number, rows, level=LEVEL))


def _by_parent(
    means: Sequence[Resamples], i: int, counts: Tensor, parents: Mapping[str, Tensor]
) -> dict[str, Estimate]:
    present = (counts > 0).double()
    return {
        level: estimate(
            *(part.parents[place, i] for part in means), rows=(counts, parent_weights(present, parent))
        )
        for place, (level, parent) in enumerate(parents.items())
    }


def estimate(
    value: Tensor | float,
    low: Tensor | float = math.nan,
    high: Tensor | float = math.nan,
    *,
    rows: tuple[Tensor, Tensor] | None = None,
) -> Estimate:
    """Return plain numbers, ``None`` for NaN.

    ``rows`` are those of each class (c,), and the weights of the classes (c,), if the value is a share. If
    all its resamples are the same, it has the interval of Clopper and Pearson.
    """
    if rows is not None and float(high) - float(low) < 1e-12:
        number = effective_rows(rows[0].tolist(), rows[1].tolist())
        low, high = clopper_pearson(min(1.0, float(value)) * number, number, level=LEVEL)
    return Estimate(*(None if math.isnan(end) else float(end) for end in (value, low, high)))
