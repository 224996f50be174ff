"""Put methods on the same data together, each data set under a title of its own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shortlist.recipes import differing_keys, flat_content
from shortlist.runs.groups import Group
from shortlist.runs.run import Run


@dataclass(frozen=True)
class Experiment:
    """Methods whose metrics may be compared: same data, same classes, same number of test rows."""

    title: str
    methods: Sequence[Group]

    @property
    def first(self) -> Run:
        """The first run of the experiment, for facts that all its runs share."""
        return self.methods[0].runs[0]


def group_by_data(groups: Sequence[Group]) -> list[Experiment]:
    """Put the methods of the same data together, in the given order."""
    by_data: dict[str, list[Group]] = {}
    for group in groups:
        run = group.runs[0]
        data = run.recipe.data.model_dump(mode="json")
        by_data.setdefault(json.dumps([data, run.class_table.ids, run.results.rows]), []).append(group)
    titles = _titles([methods[0].runs[0] for methods in by_data.values()])
    return [Experiment(title, methods) for title, methods in zip(titles, by_data.values(), strict=True)]


def _titles(runs: Sequence[Run]) -> list[str]:
    """Name each experiment by data set and number of classes, and by what differs if these are the same."""
    plain = [f"{run.recipe.data.name}, {len(run.class_table):,} classes" for run in runs]
    titles = []
    for run, title in zip(runs, plain, strict=True):
        alike = [other.recipe for other, same in zip(runs, plain, strict=True) if same == title]
        flat = flat_content(run.recipe)
        keys = [key for key in differing_keys(alike) if key.startswith("data.")]
        parts = [f"{key.removeprefix('data.')} {flat.get(key, 'not set')}" for key in keys]
        titles.append(", ".join([title, *parts]))
    return titles
