"""Find which published numbers a run can be compared with, and what is not the same."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from shortlist._text import flatten
from shortlist.losses import LOSSES
from shortlist.papers.published import PublishedColumn, PublishedNumber, PublishedTable, load_published
from shortlist.predictors import AverageK

# what must be as it is by default unless a row says otherwise: each makes another method or other data
_PLAIN: dict[str, Any] = {
    "loss.class_balanced": None,
    "loss.label_smoothing": 0.0,
    "reweighting": None,
    "second_stage": None,
    "adjust.tau": None,
    "adjust.temperature": [None, 1.0],
    "adjust.weight_normalization": None,
    "adjust.normalized_by": [None, "norm"],
    "sampler.name": "shuffle",
    "data.max_per_class": None,
    "data.long_tail": None,
    "data.noise": 0.0,
}
# what a paper does unless its table says otherwise; anything else is a departure
_USUAL: dict[str, Any] = {
    "adjust.predict_from": ["set", None],
    "adjust.normalized_offset": ["scaled", None],
    "adjust.class_shifts": None,
    "anneal": [{}, None],
    "head.name": ["auto", None],
    "head.scale": [1.0, None],
    "head.learn_scale": [False, None],
    "head.bias": [True, None],
    "optimizer.clip_norm": None,
    "schedule.warm_up": [0.0, None],
    "steps": None,
}
# options of losses that change no method: what the run gives to the loss, what is done about classes without
# training rows, and the steepness, which papers tune where they name none; k has a rule of its own
_HARMLESS = frozenset(
    {"k", "class_counts", "estimates", "zero_counts", "generator", "noise", "margins", "steepness"}
)
# options of losses that count only where other options have these values
_NETWORKS = {"loss.method": ["splitter", "bitonic", "odd_even"]}
_COUNTS_WHERE: dict[tuple[str, str], Mapping[str, Any]] = {
    ("ranked_topk", "comparator"): _NETWORKS,
    ("ranked_topk", "wiring"): _NETWORKS,
    ("ranked_topk", "art_lambda"): {**_NETWORKS, "loss.comparator": "logistic_phi"},
}
# options of losses whose default is not that of the publication
_PUBLISHED_OPTIONS: dict[tuple[str, str], Any] = {("smooth_topk", "temperature"): 1.0}
# values that a recipe which leaves an option of its data set out has
_DEFAULTS = {"data.profile": "exp", "data.rho": 100.0}


@dataclass(frozen=True)
class PublishedValue:
    """A published number that a run can be compared with.

    Args:
        table: Published table of the number.
        method: Row of the table.
        column: Head of the column.
        number: The number as printed.
        name: Name of the metric in the run: as in ``Results.metrics``, or one of its epochs.
        departures: Differences between the run's settings and the paper's, in words.
    """

    table: PublishedTable
    method: str
    column: str
    number: PublishedNumber
    name: str
    departures: tuple[str, ...]

    @property
    def metric(self) -> str:
        """Name of the metric in the table."""
        return self.number.metric

    @property
    def key(self) -> tuple[str, str, str]:
        """Paper, method and metric."""
        return self.table.paper, self.method, self.metric

    @property
    def value(self) -> float:
        """The number as a share if it is printed in percent."""
        return self.number.value / 100 if self.table.unit == "%" else self.number.value


def find_published(recipe: Mapping[str, Any], *, every: bool = False) -> list[PublishedValue]:
    """Find the published metrics of the data set and the method of a recipe.

    A metric is found only if data set, label noise, loss and all that changes the method (weights, second
    stage, adjustment) are those of the paper. Network, schedule and tuned options may differ: each such
    departure is listed, as the difference of the metrics may come from it. Of the columns of a paper that
    differ in such settings alone, those with the fewest departures are taken; where a paper used the
    recipe's network, numbers of other networks are left away.

    Args:
        recipe: All values of a recipe, as from ``Recipe.model_dump()``.
        every: Whether to return also the numbers that are left away.

    Example:
        >>> recipe = {"data": {"name": "cifar100_lt", "root": "."}, "loss": {"name": "ldam"}}
        >>> [(value.method, round(100 * value.value, 2)) for value in find_published(recipe)]
        [('adaptive margins', 60.4)]
    """
    flat = _flat(recipe)
    values: list[PublishedValue] = []
    for table in load_published(flat.get("data.name")):
        if table.compared:
            values += _of_table(table, recipe, flat)
    if every:
        return values
    values = _nearest(values)
    same_model = [value for value in values if not _other_model(value)]
    return same_model or values


@dataclass(frozen=True)
class OwnValue:
    """A metric of a method that a publication does not have, which fits a column of one of its tables.

    Args:
        metric: Name of the metric in the table.
        name: Name of the metric in the run.
        departures: Differences between the run's settings and the paper's, in words.
    """

    metric: str
    name: str
    departures: tuple[str, ...]


def own_values(
    recipe: Mapping[str, Any], table: PublishedTable, column: PublishedColumn, metrics: Sequence[str]
) -> list[OwnValue]:
    """Find the metrics of a run of one's own method that fit a column; none if its data are others.

    Settings that are not of the loss and differ from those of the other methods are listed as departures.
    """
    flat = _flat(recipe)
    plain = {key: value for key, value in _PLAIN.items() if key.startswith("data.")}
    asked = plain | {**table.when, **column.when}
    if not table.compared or not all(_agrees(_lookup(flat, key), value) for key, value in asked.items()):
        return []
    usual = {key: value for key, value in {**_PLAIN, **_USUAL}.items() if key not in asked}
    setting = {**usual, **table.setting, **column.setting}
    departures = _departures(flat, {key: setting[key] for key in setting if not key.startswith("loss.")})
    values = []
    for metric in metrics:
        name = _own_name(recipe, metric)
        more = [] if "selection.metric" in setting else _other_selection(flat, metric)
        more += _other_k(flat, metric)
        if name is not None:
            values.append(OwnValue(metric, name, (*departures, *more)))
    return values


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a recipe by dotted keys, label noise and a pretrained network by one name each."""
    flat = flatten(recipe)
    flat["data.noise"] = flat.pop("data.label_noise", None) or flat.get("data.noise", 0.0)
    flat["pretrained"] = any(flat.get(f"model.{key}") for key in ("weights", "pretrained", "weights_file"))
    return flat


def _of_table(
    table: PublishedTable, recipe: Mapping[str, Any], flat: Mapping[str, Any]
) -> list[PublishedValue]:
    values = []
    for row in table.rows:
        for column, numbers in zip(table.columns, row.cells, strict=True):
            asked = _PLAIN | {**table.when, **column.when, **row.when}
            if not all(_agrees(_lookup(flat, key), value) for key, value in asked.items()):
                continue
            setting = {**table.setting, **column.setting, **row.setting}
            unsaid = {key: value for key, value in _unsaid(flat).items() if key not in {*asked, *setting}}
            departures = _departures(flat, setting | unsaid)
            for number in numbers:
                name = _own_name(recipe, number.metric)
                if name is None:
                    continue
                more = [] if "loss.k" in asked or "loss.k" in setting else _other_k(flat, number.metric)
                more += [] if "selection.metric" in setting else _other_selection(flat, number.metric)
                remarks = [number.remark] if number.remark else []
                every = (*departures, *more, *remarks)
                values.append(PublishedValue(table, row.method, column.name, number, name, every))
    return values


def _unsaid(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a publication did where its table says nothing: usual settings, options of its loss."""
    name = flat.get("loss.name")
    if name not in LOSSES:
        return _USUAL
    options = {}
    for option, parameter in signature(LOSSES[name]).parameters.items():
        where = _COUNTS_WHERE.get((name, option), {})
        counts = all(_agrees(flat.get(key), value) for key, value in where.items())
        if counts and option not in _HARMLESS and f"loss.{option}" in flat:
            default = parameter.default
            published = list(default) if isinstance(default, tuple) else default
            options[f"loss.{option}"] = _PUBLISHED_OPTIONS.get((name, option), published)
    return _USUAL | options


def _nearest(values: Sequence[PublishedValue]) -> list[PublishedValue]:
    """Keep, of the numbers of a paper for the same method and metric, those with the fewest departures.

    A number that stands in two tables is kept once, also where one of them has fewer digits.
    """
    least: dict[tuple[str, str, str], int] = {}
    for value in values:
        least[value.key] = min(least.get(value.key, 1000), len(value.departures))
    kept: list[PublishedValue] = []
    for value in values:
        if len(value.departures) == least[value.key] and not any(_is_same(value, other) for other in kept):
            kept.append(value)
    return kept


def _is_same(first: PublishedValue, second: PublishedValue) -> bool:
    digits = min(first.number.digits, second.number.digits)
    return first.key == second.key and abs(first.number.value - second.number.value) <= 0.5001 * 10**-digits


def _other_model(value: PublishedValue) -> bool:
    return any(departure.startswith("model.name ") for departure in value.departures)


def _lookup(flat: Mapping[str, Any], key: str) -> Any:
    """Look up a value by dotted key; for a section, return the values in it."""
    if key in flat:
        return flat[key]
    inside = [value for name, value in flat.items() if name.startswith(f"{key}.")]
    return inside if inside else _DEFAULTS.get(key, _plain(key))


def _plain(key: str) -> Any:
    """Return the value of an option that a recipe leaves out."""
    value = _PLAIN.get(key)
    return value[0] if isinstance(value, list) else value


def _agrees(value: Any, wanted: Any) -> bool:
    if wanted == "*":
        return value is not None
    if isinstance(value, list | tuple):
        return isinstance(wanted, list | tuple) and list(value) == list(wanted)
    return value in wanted if isinstance(wanted, list) else value == wanted


def _departures(flat: Mapping[str, Any], setting: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, wanted in setting.items():
        value = _lookup(flat, key)
        if not _agrees(value, wanted):
            lines.append(f"{key} {_shown(value)}, there {_shown(_one_of(key, wanted))}")
    return lines


def _one_of(key: str, wanted: Any) -> Any:
    """Return the first of several values that are the same for the paper, a network without its library."""
    if key == "model.name" and isinstance(wanted, list):
        return wanted[0].partition(":")[2]
    is_choice = isinstance(wanted, list) and None in wanted
    return wanted[0] if is_choice else wanted


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    return "a value that is not stated" if value == "*" else str(value)


def _own_name(recipe: Mapping[str, Any], metric: str) -> str | None:
    """Return the name of a published metric in the run's results, None if the run cannot have it."""
    average = re.fullmatch(r"average(\d+)\.(\w+)", metric)
    if average is None:
        return metric
    # as in the papers, which the defaults are: with any other option it is another method
    published = AverageK(int(average[1])).options() | {"macro": False, "priors": None}
    del published["tau"]  # of the priors, where there are some
    for key, section in (recipe.get("predictors") or {}).items():
        plain = all(section.get(option, value) == value for option, value in published.items())
        if section["name"] == "average_k" and "k" in section and plain:
            return f"sets.{key}.coverage.{average[2]}"
    return None


def _other_selection(flat: Mapping[str, Any], metric: str) -> list[str]:
    """Note an epoch that was chosen by another metric: papers choose the best for the printed number."""
    selected = flat.get("selection.metric")
    printed = re.match(r"((?:top|average)\d+)\.", metric)
    if selected is None or printed is None or selected.removeprefix("macro_") == printed[1]:
        return []
    return [f"selection.metric {selected}, there {printed[1]}"]


def _other_k(flat: Mapping[str, Any], metric: str) -> list[str]:
    """Note a loss made for another K than the metric's: the papers train one network for each."""
    k, trained_k = re.match(r"(?:top|average)(\d+)\.", metric), flat.get("loss.k")
    return (
        [f"loss.k {trained_k}, there {k[1]}"]
        if k and trained_k is not None and trained_k != int(k[1])
        else []
    )
