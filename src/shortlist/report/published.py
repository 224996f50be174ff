"""The metrics that papers report, as data, and which of them a run can be compared with."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from shortlist.predictors import AverageK
from shortlist.recipes.content import flatten

__all__ = ["PublishedExperiment", "PublishedRow", "PublishedValue", "find_published", "load_published"]

_FORMAT = "shortlist published results 1"
# what must be as it is by default unless a row says otherwise: each makes another method or other data
_PLAIN: dict[str, Any] = {
    "loss.class_balanced": None,
    "loss.label_smoothing": 0.0,
    "reweighting": None,
    "second_stage": None,
    "adjust.tau": None,
    "adjust.temperature": [None, 1.0],
    "adjust.weight_normalization": None,
    "sampler.name": "shuffle",
    "data.max_per_class": None,
    "data.long_tail": None,
    "data.noise": 0.0,
}


@dataclass(frozen=True)
class PublishedRow:
    """One method of a published table.

    Args:
        method: Name of the method, in our words.
        when: Values that a recipe must have, by dotted key; ``"*"`` for anything that is not empty, a list
            for any of its entries.
        values: Published numbers in percent, one for each metric of the experiment.
        setting: Settings of the paper's training; if a recipe differs, this is noted.
    """

    method: str
    when: Mapping[str, Any]
    values: tuple[float, ...]
    setting: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedExperiment:
    """A published table.

    Args:
        name: Name of the data set and of what was measured.
        source: Reference of the paper.
        data: Values that the data section of a recipe must have.
        setting: Settings of the paper's training.
        metrics: Names of metrics as in ``Results.metrics``; ``average5.micro`` is the coverage of sets of 5
            on average.
        runs: Number of runs whose mean is given, if the paper says it.
        note: Further remark.
        rows: The methods.
    """

    name: str
    source: str
    data: Mapping[str, Any]
    setting: Mapping[str, Any]
    metrics: tuple[str, ...]
    runs: int | None
    note: str
    rows: tuple[PublishedRow, ...]


@dataclass(frozen=True)
class PublishedValue:
    """A published metric that a run can be compared with.

    Args:
        experiment: Published table of the metric.
        method: Row of the table.
        metric: Name of the metric in ``PublishedExperiment.metrics``.
        name: Name of the metric in ``Results.metrics`` of the run.
        value: Published value as a share, not in percent.
        departures: Differences between the run's settings and the paper's, in words.
    """

    experiment: PublishedExperiment
    method: str
    metric: str
    name: str
    value: float
    departures: tuple[str, ...]


def load_published() -> tuple[PublishedExperiment, ...]:
    """Read all published metrics that come with the package."""
    content = json.loads(files("shortlist.report").joinpath("published.json").read_text(encoding="utf-8"))
    if content["format"] != _FORMAT:
        raise ValueError(f"published.json must be of the format {_FORMAT!r}, got {content['format']!r}")
    experiments = []
    for entry in content["experiments"]:
        rows = tuple(PublishedRow(**row | {"values": tuple(row["values"])}) for row in entry["rows"])
        more = {"rows": rows, "metrics": tuple(entry["metrics"])}
        experiments.append(
            PublishedExperiment(**entry | more | {"source": content["sources"][entry["source"]]})
        )
    return tuple(experiments)


def find_published(recipe: Mapping[str, Any]) -> list[PublishedValue]:
    """Find the published metrics of the data set and the method of a recipe.

    A metric is found only if data set, label noise, loss and all that changes the method (weights, second
    stage, adjustment) are those of the paper. Network, schedule and tuned options may differ: each such
    departure is listed, as the difference of the metrics may come from it. Where one paper used the recipe's
    network, metrics of others that did not are left away.

    Args:
        recipe: All values of a recipe, as from ``Recipe.model_dump()``.

    Example:
        >>> recipe = {"data": {"name": "cifar100_lt", "root": "."}, "loss": {"name": "ldam"}}
        >>> [(value.method, round(100 * value.value, 2)) for value in find_published(recipe)]
        [('adaptive margins', 60.4)]
    """
    flat = flatten(recipe)
    flat["data.noise"] = flat.pop("data.label_noise", None) or flat.get("data.noise", 0.0)
    found = []
    for experiment in load_published():
        data = {f"data.{key}": value for key, value in experiment.data.items()}
        for row in experiment.rows:
            asked = _PLAIN | data | dict(row.when)
            if not all(_agrees(_lookup(flat, key, _default(key)), value) for key, value in asked.items()):
                continue
            departures = _departures(flat, {**experiment.setting, **row.setting})
            for metric, value in zip(experiment.metrics, row.values, strict=True):
                name = _own_name(recipe, metric)
                if name is not None:
                    more = _other_k(flat, metric)
                    found.append(
                        PublishedValue(
                            experiment, row.method, metric, name, value / 100, (*departures, *more)
                        )
                    )
    same_model = {value.metric for value in found if not _other_model(value)}
    return [value for value in found if not _other_model(value) or value.metric not in same_model]


def _other_model(value: PublishedValue) -> bool:
    return any(departure.startswith("model.name ") for departure in value.departures)


def _lookup(flat: Mapping[str, Any], key: str, default: Any) -> Any:
    """Look up a value by dotted key; for a section, return the values in it."""
    if key in flat:
        return flat[key]
    inside = [value for name, value in flat.items() if name.startswith(f"{key}.")]
    return inside if inside else default


def _default(key: str) -> Any:
    """Return the value of an option of a data set that a recipe leaves out."""
    return {"data.profile": "exp", "data.rho": 100.0}.get(key, _PLAIN.get(key))


def _agrees(value: Any, wanted: Any) -> bool:
    if wanted == "*":
        return value is not None
    if isinstance(value, list | tuple):
        return isinstance(wanted, list | tuple) and list(value) == list(wanted)
    return value in wanted if isinstance(wanted, list) else value == wanted


def _departures(flat: Mapping[str, Any], setting: Mapping[str, Any]) -> list[str]:
    flat = {**flat, "pretrained": _pretrained(flat)}
    lines = []
    for key, wanted in setting.items():
        value = _lookup(flat, key, None)
        if not _agrees(value, wanted):
            published = (
                wanted[0].partition(":")[2] if key == "model.name" and isinstance(wanted, list) else wanted
            )
            lines.append(f"{key} {_shown(value)}, there {_shown(published)}")
    return lines


def _pretrained(flat: Mapping[str, Any]) -> bool:
    return any(flat.get(f"model.{key}") for key in ("weights", "pretrained", "weights_file"))


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def _own_name(recipe: Mapping[str, Any], metric: str) -> str | None:
    """Return the name of a published metric in the run's results, None if the run cannot have it."""
    average = re.fullmatch(r"average(\d+)\.(\w+)", metric)
    if average is None:
        return metric if re.fullmatch(r"top\d+\.\w+|balanced_error", metric) else None
    # as in the papers, which the defaults are: with any other option it is another method
    published = AverageK(int(average[1])).options() | {"macro": False, "priors": None}
    del published["tau"]  # of the priors, where there are some
    for key, section in (recipe.get("predictors") or {}).items():
        plain = all(section.get(option, value) == value for option, value in published.items())
        if section["name"] == "average_k" and "k" in section and plain:
            return f"sets.{key}.coverage.{average[2]}"
    return None


def _other_k(flat: Mapping[str, Any], metric: str) -> list[str]:
    """Note a loss made for another K than the metric's: the papers train one network for each."""
    k, own = re.match(r"(?:top|average)(\d+)\.", metric), flat.get("loss.k")
    return [f"loss.k {own}, there {k[1]}"] if k and own is not None and own != int(k[1]) else []
