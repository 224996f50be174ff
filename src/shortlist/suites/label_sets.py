"""A suite of losses for rows with several labels: its file, its runs and its table.

It stands apart from the other suites, since a run of label sets has no predictors and no single class.
"""

import hashlib
import itertools
import json
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shortlist._checks import check_count
from shortlist._files import lock_folder, write_text
from shortlist._json import read_json, strict_json
from shortlist._yaml import read_mapping
from shortlist.compare.significance import holm, paired_t_test
from shortlist.datasets.registry import LABEL_SET_DATASETS
from shortlist.losses.label_sets import LABEL_SET_LOSSES
from shortlist.metrics.label_sets import measure_label_sets
from shortlist.models import MODELS
from shortlist.models.classifiers import replace_classifier
from shortlist.models.label_set_head import LabelSetHead
from shortlist.suites.state import is_best
from shortlist.suites.suite import SuiteError, Tuning
from shortlist.suites.worker import start_worker
from shortlist.training.label_sets import predict_label_sets, train_label_sets

__all__ = ["LabelSetSuite", "is_label_set_suite", "load_label_set_suite", "run_label_set_suite", "table_of"]

_KNOWN = measure_label_sets(
    torch.zeros(1, 1), torch.ones(1, 1), sizes=torch.ones(1, dtype=torch.int64), threshold=0.0
).keys()
_METRICS = ["at_true.f1", "at_true.macro_f1", "at_predicted.f1", "at_predicted.exact", "size.exact"]


class LabelSetSuite(BaseModel):
    """A suite of losses for label sets; see ``docs/suites.md``. ``grid`` is of ``lr`` and ``size_weight``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Literal["label_sets"]
    name: Annotated[str, Field(pattern=r"^[\w\-][\w.\-]*$")]
    about: str = ""
    data: dict[str, Any] = Field(default_factory=lambda: {"name": "several_glyphs"})
    model: dict[str, Any] = Field(default_factory=lambda: {"name": "small_cnn"})
    epochs: Annotated[int, Field(ge=1)] = 10
    batch_size: Annotated[int, Field(ge=1)] = 64
    tune: Tuning = Tuning(metric="at_true.f1")
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2)] = [0, 1, 2]
    grid: dict[Literal["lr", "size_weight"], Annotated[list[float], Field(min_length=1)]] = {"lr": [0.1]}
    methods: Annotated[dict[str, str], Field(min_length=1, description="the loss of each method")]
    baseline: str
    metrics: Annotated[list[str], Field(min_length=1)] = _METRICS

    @model_validator(mode="after")
    def _check(self) -> "LabelSetSuite":
        for place, name, known in (
            ("data.name", self.data.get("name"), LABEL_SET_DATASETS),
            ("model.name", self.model.get("name"), MODELS),
            ("baseline", self.baseline, self.methods),
            *((f"methods.{key}", loss, LABEL_SET_LOSSES) for key, loss in self.methods.items()),
            *(("metrics", metric, _KNOWN) for metric in self.metrics),
            ("tune.metric", self.tune.metric, _KNOWN),
        ):
            if name not in known:
                raise ValueError(f"{place} must be one of {', '.join(known)}, got {name!r}")
        return self


@dataclass(frozen=True)
class _Run:
    """A training: a method with the values of the grid and a seed."""

    method: str
    values: Mapping[str, float]
    seed: int

    @property
    def point(self) -> str:
        return ",".join(f"{key}={value:g}" for key, value in self.values.items())

    def file(self, folder: Path) -> Path:
        return folder / self.method / self.point / f"seed-{self.seed}.json"


def is_label_set_suite(path: str | Path) -> bool:
    """Return whether a suite file is of label sets: its ``task`` says so."""
    return read_mapping(path).get("task") == "label_sets"


def load_label_set_suite(path: str | Path) -> LabelSetSuite:
    """Read a suite of label sets from YAML.

    Raises:
        SuiteError: With one line for each fault.
    """
    try:
        return LabelSetSuite.model_validate(read_mapping(path))
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise SuiteError(f"{path}: " + "\n".join(lines)) from error


def run_label_set_suite(
    suite: LabelSetSuite, out: str | Path, *, jobs: int = 1, watch: Callable[[str], None] | None = None
) -> Path:
    """Run what is missing, and return the folder of the suite, with a file for each finished run.

    All grid points are trained with the seeds of ``tune``; the best of each method on the validation rows is
    trained with all ``seeds``. Every run also measures the test rows; the choice does not look at them, and
    the table shows those of chosen points alone.

    Args:
        suite: Suite to run.
        out: Folder for the runs, which are in ``out/<name of the suite>``.
        jobs: Number of runs at the same time, each in a process of its own with one thread.
        watch: Called with a line for each run that ends.
    """
    check_count("jobs", jobs)
    folder = Path(out).absolute() / suite.name
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, SuiteError(f"{folder} is in use: another process is running this suite")):
        _do_all(suite, folder, _tuning_runs(suite), jobs, watch)
        chosen = choices(suite, folder)
        last = [_Run(method, chosen[method], seed) for method in suite.methods for seed in suite.seeds]
        _do_all(suite, folder, last, jobs, watch)
    return folder


def _points(suite: LabelSetSuite) -> list[dict[str, float]]:
    return [dict(zip(suite.grid, values, strict=True)) for values in itertools.product(*suite.grid.values())]


def _tuning_runs(suite: LabelSetSuite) -> list[_Run]:
    points = _points(suite)
    if len(points) == 1:
        return []
    return [_Run(m, point, seed) for m in suite.methods for point in points for seed in suite.tune.seeds]


def _settings(suite: LabelSetSuite) -> str:
    """Return digits that differ for suites whose runs do."""
    content = suite.model_dump(mode="json", include={"data", "model", "epochs", "batch_size", "methods"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _read(suite: LabelSetSuite, path: Path) -> dict[str, Any] | None:
    """Return the metrics of a run by part; None if it was not made."""
    if not path.is_file():
        return None
    content = read_json(path)
    if content.get("settings") != _settings(suite):
        raise SuiteError(f"{path} was made with other settings than the suite has now: choose another --out")
    return content


def choices(suite: LabelSetSuite, folder: Path) -> dict[str, dict[str, float]]:
    """Return the grid point of each method with the best mean metric of the validation rows."""
    points = _points(suite)
    chosen = {}
    for method in suite.methods:
        means = []
        for point in points if len(points) > 1 else []:
            files = [_Run(method, point, seed).file(folder) for seed in suite.tune.seeds]
            found = [_metric(suite, file, "val", suite.tune.metric) for file in files]
            means.append(fmean(-1.0 if value is None else value for value in found))
        best = next((place for place, mean in enumerate(means) if is_best(mean, means)), 0)
        chosen[method] = points[best]
    return chosen


def _metric(suite: LabelSetSuite, path: Path, part: str, name: str) -> float | None:
    """Return a metric of a run; None if its loss does not have it, as the sets above a threshold."""
    content = _read(suite, path)
    if content is None:
        raise SuiteError(f"{path} is missing: run the suite again")
    return content[part].get(name)


def _do_all(suite: LabelSetSuite, folder: Path, runs: list[_Run], jobs: int, watch: Any) -> None:
    """Make the runs that are missing."""
    missing = [run for run in runs if _read(suite, run.file(folder)) is None]
    tell = watch or (lambda line: None)
    if jobs == 1:
        for run in missing:
            tell(_do(suite, folder, run))
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    with ProcessPoolExecutor(jobs, context, start_worker, (_say_nothing, 1)) as pool:
        for future in [pool.submit(_do, suite, folder, run) for run in missing]:
            tell(future.result())


def _say_nothing(_: tuple[str, float]) -> None:
    pass


def _do(suite: LabelSetSuite, folder: Path, run: _Run) -> str:
    """Train and measure a run, and write its file; a run repeats itself to the bit."""
    torch.set_num_threads(1)
    options = dict(suite.data)
    data = LABEL_SET_DATASETS[options.pop("name")](**options)
    classes, loss = len(data.class_table), suite.methods[run.method]
    options = {"in_channels": data.train.batch(torch.tensor([0]))[0].shape[1], **suite.model}
    torch.manual_seed(run.seed)
    network = MODELS[options.pop("name")](classes, **options)
    replace_classifier(network, lambda length: LabelSetHead(length, classes))
    how: Any = {"epochs": suite.epochs, "batch_size": suite.batch_size, "seed": run.seed, **run.values}
    train_label_sets(network, LABEL_SET_LOSSES[loss](), data.train, **how)
    content: dict[str, Any] = {"settings": _settings(suite)}
    threshold = 0.0 if loss == "binary_ce" else None
    for part in ("val", "test"):
        found = predict_label_sets(network, getattr(data, part))
        content[part] = measure_label_sets(found.scores, found.labels, sizes=found.sizes, threshold=threshold)
    path = run.file(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, strict_json(content, indent=1) + "\n")
    return f"{path.relative_to(folder)}: {suite.tune.metric} {content['val'][suite.tune.metric]:.3f}"


def table_of(suite: LabelSetSuite, folder: Path) -> str:
    """Return the chosen points and the tables of a finished suite in Markdown, in percent.

    Differences to the baseline are of the same seeds, with Holm's correction of the paired t-test for all
    methods of a column; those below 0.05 are bold.
    """
    chosen, metrics = choices(suite, folder), suite.metrics
    values = {
        method: {
            name: [
                _metric(suite, _Run(method, chosen[method], seed).file(folder), "test", name)
                for seed in suite.seeds
            ]
            for name in metrics
        }
        for method in suite.methods
    }
    lines = [f"- chosen: {method}: {_Run(method, point, 0).point}" for method, point in chosen.items()]
    lines += ["", f"| method | {' | '.join(metrics)} |", "| --- |" + " ---: |" * len(metrics)]
    for method, found in values.items():
        lines.append(f"| {method} | " + " | ".join(_percent(found[name]) for name in metrics) + " |")
    lines += [
        "",
        f"| method - {suite.baseline} | {' | '.join(metrics)} |",
        "| --- |" + " ---: |" * len(metrics),
    ]
    others = [method for method in values if method != suite.baseline]
    columns = [_differences(values, others, suite.baseline, name) for name in metrics]
    lines += [f"| {method} | {' | '.join(row)} |" for method, *row in zip(others, *columns, strict=True)]
    return "\n".join(lines)


def _percent(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * fmean(known):.1f}" if known else "-"


def _differences(
    values: Mapping[str, Mapping[str, list[Any]]], others: list[str], baseline: str, name: str
) -> list[str]:
    """Return a column of differences; a method without the metric has none."""
    pairs = {m: (values[m][name], values[baseline][name]) for m in others}
    known = {m: paired_t_test(*pair) for m, pair in pairs.items() if None not in (*pair[0], *pair[1])}
    p_values = dict(zip(known, holm([test.p_value for test in known.values()]), strict=True))
    texts = []
    for method in others:
        text = f"{100 * known[method].difference:+.1f}" if method in known else "-"
        texts.append(f"**{text}**" if p_values.get(method, 1.0) < 0.05 else text)
    return texts
