"""How well a method does on photos of each organ or view, such as leaf and flower, where the data say it."""

from collections import Counter
from dataclasses import dataclass

import torch

from shortlist._text import format_percent
from shortlist.metrics import clopper_pearson
from shortlist.report.parts import Cell, Table
from shortlist.report.views import MethodView

_MOST = 12  # organs with a line of their own
_OTHERS, _UNKNOWN = "others", "not known"


@dataclass(frozen=True)
class Organs:
    """The table, the id of its place on the page, and the run that it is of."""

    name: str
    run: str
    table: Table


def measure_organs(view: MethodView) -> Organs | None:
    """Count hits of the first run by organ; None if the data say of no two rows that they differ."""
    if view.pictures is None:
        return None
    rows = view.rows.counted.tolist()
    said = [view.pictures.about("test", row).get("organ", "") for row in rows]
    counts = Counter(name for name in said if name)
    if len(counts) < 2:
        return None
    order = sorted(counts, key=lambda name: (-counts[name], name))
    kept = set(order[:_MOST])
    named = [name if name in kept else _OTHERS if name else _UNKNOWN for name in said]
    heads = [name for name in (*order[:_MOST], _OTHERS, _UNKNOWN) if name in set(named)]
    body = []
    for head in heads:
        of_organ = torch.tensor([name == head for name in named])
        number = int(of_organ.sum())
        body.append(
            [head, number, *(_share(int(hits[of_organ].sum()), number) for hits in view.rows.hits.values())]
        )
    table = Table("Percent of rows", ["organ or view", "test rows", *view.rows.hits], body)
    return Organs(f"organs-{view.name}", view.method.runs[0].name, table)


def _share(hits: int, number: int) -> Cell:
    low, high = clopper_pearson(hits, number)
    return Cell(format_percent(hits / number), f"{format_percent(low)} to {format_percent(high)}")
