import csv
import fcntl
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from pyarrow import parquet
from typer.testing import CliRunner

from shortlist.cli.suite import suite_app
from shortlist.compare.comparison import compare_runs
from shortlist.datasets import gaussian_genera
from shortlist.datasets.embeddings import save_embeddings
from shortlist.metrics import Results
from shortlist.model import Model
from shortlist.recipes.content import recipe_hash
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from shortlist.sentences import promise_words
from shortlist.suites.run import run_suite
from shortlist.suites.state import SuiteState
from shortlist.suites.suite import SuiteError, load_suite
from shortlist.suites.table import compare_suite
from shortlist.suites.worker import Task, do_task
from shortlist.training.fit import train
from tests.latex import check_latex

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.*"),
]
DATA = {"name": "gaussian_genera", "num_classes": 10, "num_genera": 3, "dim": 4, "num_rows": 200}
DATA |= {"num_val_rows": 100, "num_test_rows": 100}
BASE = {"data": DATA, "model": {"name": "linear"}, "epochs": 1, "batch_size": 50, "loggers": []}
BASE |= {
    "predictors": {
        "average2": {"name": "average_k", "k": 2},
        "lac": {"name": "conformal", "coverage": 0.8},
    }
}
SUITE = {
    "name": "tiny",
    "base": BASE,
    "tune": {"metric": "top1.micro", "seeds": [0]},
    "seeds": [0, 1],
    "grid": {"optimizer.lr": [0.001, 0.1]},
    "methods": {
        "ce": {},
        "ce_tau": {"from": "ce", "grid": {"adjust.tau": [0.5, 1.0]}},
        "noised": {"overrides": ["loss=noised_topk", "loss.k=2"], "grid": {"optimizer.lr": [0.1]}},
        "limit": {"posterior": True},
    },
    "metrics": ["top1.micro", "sets.average2.coverage.micro"],
    "baseline": "ce",
}


def write(path: Path, **changes) -> Path:
    file = path / "suite.yaml"
    file.write_text(yaml.safe_dump(SUITE | changes, sort_keys=False))
    return file


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file: a file that was written again has another inode."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Path]:
    """The file of a suite and the folder of its runs."""
    folder = tmp_path_factory.mktemp("suite")
    file = write(folder)
    state = run_suite(load_suite(file), folder / "out")
    assert not state.failed
    return file, folder / "out" / "tiny"


def test_runs_are_where_they_should_be(finished):
    found = sorted(str(path.parent.relative_to(finished[1])) for path in finished[1].rglob("run.json"))
    chosen = {row["method"]: row["grid_point"] for row in tuning(finished[1]) if row["chosen"] == "True"}
    assert found == sorted(
        [
            "ce/lr=0.001/seed-0",
            "ce/lr=0.1/seed-0",
            f"ce/{chosen['ce']}/seed-1",
            "ce_tau/tau=0.5/seed-0",
            "ce_tau/tau=1.0/seed-0",
            f"ce_tau/{chosen['ce_tau']}/seed-1",
            "noised/lr=0.1/seed-0",
            "noised/lr=0.1/seed-1",
            "limit/default/seed-0",
            "limit/default/seed-1",
        ]
    )


def tuning(folder: Path) -> list[dict[str, str]]:
    with (folder / "tuning.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_grid_point_with_the_best_validation_metric_is_chosen(finished):
    rows = tuning(finished[1])
    assert [row["method"] for row in rows] == ["ce", "ce", "ce_tau", "ce_tau"]
    for row in rows:
        run = Run.open(finished[1] / row["method"] / row["grid_point"] / "seed-0")
        scores, target = run.load_scores("val")
        tau = run.recipe.adjust.tau or 0
        counts = run.class_table.class_counts.clamp_min(1).double()
        adjusted = scores.double() - tau * (counts / counts.sum()).log()
        assert float(row["val"]) == pytest.approx(float((adjusted.argmax(1) == target).double().mean()))
    for method in ("ce", "ce_tau"):
        own = [row for row in rows if row["method"] == method]
        best = max(own, key=lambda row: float(row["val"]))
        assert [row["chosen"] for row in own] == [str(row is best) for row in own]


def test_promises_say_that_the_rows_chose_the_options(finished):
    """Those of a method with a grid, or of the scores of one; not if there was nothing to choose."""
    told = {}
    for path in sorted(finished[1].rglob("results.json")):
        run = Run.open(path.parent)
        promise = run.results.sets["lac"].promise
        if "ce" in run.path.parts:
            assert Model.load(run.path).promises["lac"] == promise
        chose = promise_words(promise).find("chose the options, so the promise is not exact.") > 0
        told.setdefault(path.parent.parent.parent.name, set()).add(chose)
    assert told == {"ce": {True}, "ce_tau": {True}, "noised": {False}, "limit": {False}}


def test_table_has_the_chosen_runs_with_recipe_and_test_metrics(finished):
    rows = parquet.read_table(finished[1] / "results.parquet").to_pylist()
    assert [(row["method"], row["seed"]) for row in rows] == [
        (method, seed) for method in SUITE["methods"] for seed in (0, 1)
    ]
    for row in rows:
        run = Run.open(finished[1] / row["run"])
        assert json.loads(row["recipe"]) == run.recipe.model_dump(mode="json")
        assert row["recipe_hash"] == recipe_hash(run.recipe)
        assert run.recipe.seed == row["seed"]
        metrics = Results.load(run.path / "results.json").metrics()
        assert row["top5.macro"] == metrics["top5.macro"].value
        assert row["sets.average2.size.micro"] == metrics["sets.average2.size.micro"].value
    with (finished[1] / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["run"] for line in lines] == [row["run"] for row in rows]
    assert [float(line["top1.micro"]) for line in lines] == [row["top1.micro"] for row in rows]


def test_methods_of_other_scores_share_them(finished):
    chosen = {row["method"]: row["grid_point"] for row in tuning(finished[1]) if row["chosen"] == "True"}
    for seed in (0, 1):
        source = Run.open(finished[1] / "ce" / chosen["ce"] / f"seed-{seed}")
        run = Run.open(finished[1] / "ce_tau" / chosen["ce_tau"] / f"seed-{seed}")
        for part in ("val", "test"):
            name = f"scores/{part}.safetensors"
            assert os.path.samefile(source.path / name, run.path / name)
        assert not (run.path / "checkpoints").exists()
        assert (run.path / run.info["scores_from"]).resolve() == source.path.resolve()
        assert run.recipe.optimizer == source.recipe.optimizer
        assert Results.load(run.path / "results.json") != Results.load(source.path / "results.json")


def test_limit_has_the_exact_probabilities(finished):
    run = Run.open(finished[1] / "limit" / "default" / "seed-0")
    data = gaussian_genera(**{key: value for key, value in DATA.items() if key != "name"})
    scores, target = run.load_scores("test")
    # by the density itself: -|x - mean|^2 / 2 + log prior, up to a constant of each row
    distance = (data.test.inputs.double()[:, None] - data.means).square().sum(-1)
    expected = (-distance / 2 + data.priors.log()).softmax(1)
    torch.testing.assert_close(scores.double().softmax(1), expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(target, data.test.targets)


def test_limit_is_no_competitor(finished):
    found = compare_runs([finished[1]], ["top1.micro"])
    assert "limit" in [row.label for row in found.rows]
    assert "limit" not in (found.best["top1.micro"].row, found.best["top1.micro"].second)


def test_a_finished_suite_is_not_run_again(finished):
    before = files_of(finished[1])
    run_suite(load_suite(finished[0]), finished[1].parent)
    after = files_of(finished[1])
    tables = {
        str(finished[1] / name) for name in ("results.csv", "results.parquet", "tuning.csv", "suite.yaml")
    }
    assert {path: when for path, when in after.items() if path not in tables} == {
        path: when for path, when in before.items() if path not in tables
    }


@pytest.mark.parametrize("asked", [1, 2])
def test_a_suite_takes_no_more_threads_than_were_asked_for(finished, monkeypatch, asked):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2), raising=False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(asked)
        run_suite(load_suite(finished[0]), finished[1].parent)
        assert torch.get_num_threads() == asked
    finally:
        torch.set_num_threads(before)


def test_status_and_its_json(finished):
    words = ["status", str(finished[0]), "--out", str(finished[1].parent)]
    content = json.loads(CliRunner().invoke(suite_app, [*words, "--json"]).stdout)
    assert (content["runs"], content["finished"], content["failed"]) == (10, 10, [])
    assert [row["label"] for row in content["tables"][0]["rows"]] == list(SUITE["methods"])
    assert content["tables"][0]["axes"] == {}
    text = CliRunner().invoke(suite_app, words).stdout
    assert "tiny: 10 of 10 runs finished" in text
    assert (
        f"chosen: ce: {next(r['grid_point'] for r in tuning(finished[1]) if r['chosen'] == 'True')}" in text
    )
    markdown = CliRunner().invoke(suite_app, [*words, "--markdown"]).stdout
    assert [line.split(" | ")[0] for line in markdown.splitlines() if line.startswith("| ")] == [
        "| method", "| ---", *(f"| {name}" for name in SUITE["methods"]),
        *(f"| {name} - ce" for name in SUITE["methods"] if name != "ce"),
    ]  # fmt: skip
    rows = check_latex(CliRunner().invoke(suite_app, [*words, "--latex"]).stdout)
    assert len(rows) == 1 + 2 * len(SUITE["methods"]) - 1
    lines = list(csv.DictReader(io.StringIO(CliRunner().invoke(suite_app, [*words, "--csv"]).stdout)))
    assert [line["method"] for line in lines] == list(SUITE["methods"])
    words[-1] = str(finished[1] / "elsewhere")
    content = json.loads(CliRunner().invoke(suite_app, [*words, "--json"]).stdout)
    assert (content["runs"], content["finished"], content["tables"]) == (10, 0, [])


def test_another_choice_of_the_source_makes_its_methods_again(finished, tmp_path):
    """A learning rate that is added and chosen: the runs made of the scores follow."""
    one = SUITE | {"methods": {"ce": {}, "ce_t": {"from": "ce", "overrides": ["adjust.temperature=fit"]}}}
    one |= {"grid": {"optimizer.lr": [0.0001]}, "seeds": [0]}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(one))
    run_suite(load_suite(tmp_path / "a.yaml"), tmp_path)
    path = tmp_path / "tiny" / "ce_t" / "default" / "seed-0"
    assert Run.open(path).recipe.optimizer.lr == 0.0001
    one["grid"] = {"optimizer.lr": [0.0001, 0.1]}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(one))
    run_suite(load_suite(tmp_path / "a.yaml"), tmp_path)
    assert Run.open(path).recipe.optimizer.lr == 0.1
    assert Run.open(path).info["scores_from"] == "../../../ce/lr=0.1/seed-0"


@pytest.mark.errors
def test_runs_of_another_recipe_are_not_taken(finished):
    suite = load_suite(finished[0])
    changed = suite.model_copy(update={"base": BASE | {"epochs": 2}})
    with pytest.raises(SuiteError, match="was made with another recipe than the suite has now"):
        run_suite(changed, finished[1].parent)


def test_a_failed_run_does_not_stop_the_others(tmp_path):
    """LDAM on classes without rows fails; its grid point is passed over."""
    methods = {
        "ce": {"grid": {"optimizer.lr": [0.1]}},
        "ldam": {
            "overrides": ["loss=ldam", "data.num_rows=50"],
            "grid": {"optimizer.lr": [0.1], "loss.zero_counts": ["error", "floor"]},
        },
        "never": {
            "overrides": ["loss=ldam", "data.num_rows=50"],
            "grid": {"optimizer.lr": [0.1], "loss.zero_counts": ["error"]},
        },
    }
    file = write(tmp_path, methods=methods, seeds=[0])
    told = []
    state = run_suite(load_suite(file), tmp_path, watch=told.append)
    assert state.failed == {"ldam/lr=0.1,zero_counts=error/seed-0", "never/lr=0.1,zero_counts=error/seed-0"}
    assert sorted(
        row["method"] for row in parquet.read_table(tmp_path / "tiny" / "results.parquet").to_pylist()
    ) == [
        "ce",
        "ldam",
    ]
    failures = [progress.event.failure for progress in told if progress.event and progress.event.failure]
    assert len(failures) == 2
    assert "class_counts" in failures[0]
    note = tmp_path / "tiny" / "never" / "lr=0.1,zero_counts=error" / "seed-0.failure.txt"
    assert "Traceback" in note.read_text()
    last = told[-1]
    assert (last.done, last.total, last.share) == (2, 4, pytest.approx(1.0))
    result = CliRunner().invoke(suite_app, ["run", str(file), "--out", str(tmp_path), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["failed"] == sorted(state.failed)


def test_a_started_run_is_resumed(tmp_path):
    """From its last whole epoch, to the numbers of a run without a stop."""
    recipe = make_recipe(BASE, ["epochs=3"]).model_dump(mode="json")
    whole = Task("whole", str(tmp_path / "whole"), recipe)
    assert do_task(whole).failure is None
    stopped = Task("stopped", str(tmp_path / "stopped"), recipe)

    def stop(what: str, done: int, total: int, *_: object) -> None:
        if what == "training" and done > total // 2:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        train(make_recipe(recipe), stopped.folder, progress=stop)
    run = Run.open(tmp_path / "stopped")
    assert run.state == "started"
    started = run.info["created"], (run.path / "recipe.yaml").stat().st_ino
    assert do_task(stopped).failure is None
    run = Run.open(run.path)
    assert (run.info["created"], (run.path / "recipe.yaml").stat().st_ino) == started
    torch.testing.assert_close(run.load_scores("test"), Run.open(tmp_path / "whole").load_scores("test"))


def test_a_folder_without_a_start_is_begun_anew(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("half a reci")
    left = tmp_path / f".tmp-{2**22 + 1}-0123abcd-{socket.gethostname()}"  # of no process: above the largest
    left.mkdir()
    (left / "recipe.yaml").touch()
    assert (
        do_task(Task("run", str(tmp_path / "run"), make_recipe(BASE).model_dump(mode="json"))).failure is None
    )
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").touch()
    task = Task("other", str(tmp_path / "other"), make_recipe(BASE).model_dump(mode="json"))
    assert "it has no run.json" in (do_task(task).failure or "")
    assert (tmp_path / "other" / "precious").exists()


COMMAND = "from shortlist.cli.suite import suite_app; suite_app()"


def children_of(process: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(path.parent.name))
    return found


def listed(run: Path) -> set[str]:
    """Names in the manifest of a finished run: a kill may come between a file and its entry there."""
    content = json.loads((run / "run.json").read_text())
    return set(content["files"]) if content["state"] == "finished" else set()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_a_killed_suite_goes_on_without_repeating_finished_runs(tmp_path):
    file = write(tmp_path, base=BASE | {"epochs": 8}, seeds=[0, 1, 2])
    command = [sys.executable, "-c", COMMAND, "run", str(file), "--out", str(tmp_path), "--jobs", "2"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    folder = tmp_path / "tiny"

    def done() -> list[Path]:
        found = [Path(place) for place, _, files in os.walk(folder) if "results_val.json" in files]
        # runs of other runs' scores are made under a temporary name, in whose folder they are seed-N too
        found = [path for path in found if path.name.startswith("seed-") and ".tmp-" not in str(path)]
        return [path for path in found if "results_val.json" in listed(path)]

    while len(done()) < 4 and process.poll() is None:
        time.sleep(0.02)
    assert process.poll() is None, (tmp_path / "log").read_text()
    workers = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any((Path("/proc") / str(worker) / "cmdline").exists() for worker in workers):
        time.sleep(0.02)  # they end with the process that started them
    finished = done()
    assert 4 <= len(finished) < 14
    tested = [path for path in finished if "results.json" in listed(path)]
    before = {path: files_of(path) for path in finished}
    result = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for path, files in before.items():  # test results may be added to what is chosen now
        after = files_of(path)
        changing = {"run.json", "model.json"}  # they list all results, and what came of the promises
        # results that are not in the manifest are made again, and the card tells what came of the promises
        changing |= set() if path in tested else {"results.json", "README.md", "coverage.svg"}
        swept = [name for name in files if ".tmp-" in name]  # what the kill left behind is taken away
        kept = [name for name in files if Path(name).name not in changing and name not in swept]
        assert {name: after[name] for name in kept} == {name: files[name] for name in kept}
    content = json.loads(result.stdout)
    assert (content["runs"], content["finished"], content["failed"]) == (14, 14, [])
    told = [line.split(": ")[1] for line in result.stderr.splitlines() if "/seed-" in line]
    untested = {str(path.relative_to(folder)) for path in finished if path not in tested}
    tested_now = [name for name in told if name in untested]  # the kill came between the two evaluations
    assert len(told) - len(tested_now) == 14 - len(finished)
    assert not {str(path.relative_to(folder)) for path in tested} & set(told)


def chosen_run(folder: Path, seed: int = 1) -> Path:
    """A run that counts of a copy of the finished suite."""
    points = {row["method"]: row["grid_point"] for row in tuning(folder) if row["chosen"] == "True"}
    return folder / "ce" / points["ce"] / f"seed-{seed}"


@pytest.mark.parametrize("file", ["results.json", "results_val.json"])
@pytest.mark.parametrize("content", [None, "{"])
def test_lost_results_are_made_again(finished, tmp_path, file, content):
    shutil.copytree(finished[1], tmp_path / "tiny")
    run = chosen_run(tmp_path / "tiny")
    before = Results.load(run / file)
    (run / file).unlink()
    if content is not None:
        (run / file).write_text(content)
    told = []
    state = run_suite(load_suite(finished[0]), tmp_path, watch=told.append)
    assert not state.failed
    assert Results.load(run / file) == before
    assert [(progress.done, progress.event and progress.event.name) for progress in told][-1][0] == 10
    assert len(compare_suite(state)[()].rows) == 4


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("run.json", "[]", "must hold a mapping of keys to values, got list"),
        ("run.json", '{"format": "shortlist run 0", "state": "finished"}', "another version"),
        ("recipe.yaml", None, "no run.json and recipe.yaml"),
    ],
)
def test_a_damaged_run_is_left_out_and_not_fatal(finished, tmp_path, file, content, reason):
    shutil.copytree(finished[1], tmp_path / "tiny")
    run = chosen_run(tmp_path / "tiny")
    (run / file).unlink()
    if content is not None:
        (run / file).write_text(content)
    words = [str(finished[0]), "--out", str(tmp_path)]
    status = CliRunner().invoke(suite_app, ["status", *words])
    assert status.exit_code == 0
    assert "tiny: 9 of 10 runs finished" in status.stdout
    assert f"left out: {run}" in status.stderr
    assert reason in status.stderr
    result = CliRunner().invoke(suite_app, ["run", *words, "--json"])
    assert result.exit_code == 1
    content = json.loads(result.stdout)
    name = str(run.relative_to(tmp_path / "tiny"))
    assert (content["failed"], list(content["unreadable"])) == ([name], [name])
    assert {row["label"]: len(row["runs"]) for row in content["tables"][0]["rows"]}["ce"] == 1
    later = CliRunner().invoke(suite_app, ["status", *words])
    assert f"failed: {name}" in later.stderr


def test_status_knows_what_failed(tmp_path):
    """The choice and the table are those that the run printed, not empty for want of a failed grid point."""
    methods = {
        "ldam": {
            "overrides": ["loss=ldam", "data.num_rows=50"],
            "grid": {"optimizer.lr": [0.1], "loss.zero_counts": ["error", "floor"]},
        }
    }
    file = write(tmp_path, methods=methods, seeds=[0], baseline=None)
    run_suite(load_suite(file), tmp_path)
    content = json.loads(
        CliRunner().invoke(suite_app, ["status", str(file), "--out", str(tmp_path), "--json"]).stdout
    )
    assert content["failed"] == ["ldam/lr=0.1,zero_counts=error/seed-0"]
    assert [row["label"] for row in content["tables"][0]["rows"]] == ["ldam"]


@pytest.mark.parametrize("method", ["ce", "ce_tau"])
def test_only_what_is_chosen_is_tested(finished, method):
    chosen = {row["method"]: row["grid_point"] for row in tuning(finished[1]) if row["chosen"] == "True"}
    for path in (finished[1] / method).glob("*/seed-*"):
        assert (path / "results_val.json").is_file()
        assert (path / "results.json").is_file() == (path.parent.name == chosen[method])


def test_metrics_that_are_not_there_yet_or_never(tmp_path):
    """Four classes have no top-5; that is known when all is trained."""
    data = DATA | {"num_classes": 4, "num_genera": 2}
    content = SUITE | {"base": BASE | {"data": data}, "methods": {"ce": {}}, "seeds": [0]}
    del content["metrics"]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(content))
    result = CliRunner().invoke(
        suite_app, ["run", str(tmp_path / "a.yaml"), "--out", str(tmp_path), "--json"]
    )
    assert result.exit_code == 0, result.exception
    assert json.loads(result.stdout)["tables"][0]["metrics"] == ["top1.micro"]


def test_a_method_without_a_metric_to_choose_by_is_named(tmp_path):
    """All classes have fewer than 20 training rows: there is no accuracy of those with many."""
    file = write(tmp_path, methods={"ce": {}}, seeds=[0], tune={"metric": "top1.many", "seeds": [0]})
    words = ["run", str(file), "--out", str(tmp_path)]
    result = CliRunner().invoke(suite_app, words)
    assert result.exit_code == 1
    assert "left out: ce: nothing to choose by: no grid point has a finite top1.many" in result.stderr
    assert "another tune.metric" in result.stderr
    content = json.loads(CliRunner().invoke(suite_app, [*words, "--json"]).stdout)
    assert (list(content["undecided"]), content["finished"], content["tables"]) == (["ce"], 2, [])


def test_of_grid_points_that_tie_but_for_rounding_the_first_is_chosen(finished, monkeypatch):
    state = SuiteState(load_suite(finished[0]), finished[1])
    cell = next(one for one in state.cells if one.name == "ce")
    first, second = cell.points
    for values, best in [((0.1 + 0.2, 0.3), first), ((0.3, 0.1 + 0.2), first), ((0.3, 0.3 + 1e-6), second)]:
        by_label = {point.label: value for point, value in zip(cell.points, values, strict=True)}
        monkeypatch.setattr(
            SuiteState, "validation_metric", lambda self, cell, name, of=by_label: of[name.split("/")[-2]]
        )
        assert SuiteState(state.suite, state.folder).choice(cell).point.label == best.label


def test_a_chosen_run_without_scores_is_left_out_of_the_table(finished, tmp_path):
    shutil.copytree(finished[1], tmp_path / "tiny", ignore=shutil.ignore_patterns(".lock"))
    lost = next((tmp_path / "tiny" / "noised").rglob("seed-1/scores/test.safetensors"))
    lost.unlink()
    (found,) = compare_suite(SuiteState(load_suite(finished[0]), tmp_path / "tiny")).values()
    assert [len(row.runs) for row in found.rows if row.label == "noised"] == [1]
    assert "lacks scores/test.safetensors" in next(iter(found.left_out.values()))


def test_a_run_of_scores_that_fails_leaves_nothing(finished, tmp_path):
    source = next(finished[1].rglob("ce/*/seed-0"))
    recipe = make_recipe(Run.open(source).recipe.model_dump(mode="json"), ["predictors.average2.k=99"])
    task = Task("x", str(tmp_path / "x"), recipe.model_dump(mode="json"), source=str(source))
    assert "k must be" in (do_task(task).failure or "")
    assert [path.name for path in tmp_path.iterdir()] == ["x.failure.txt"]


def test_a_trained_run_is_not_lost_to_one_made_of_scores(tmp_path):
    grid = {"optimizer.lr": [0.1]}
    trained = {"ce": {"grid": grid}, "other": {"grid": grid, "overrides": ["loss=focal"]}}
    run_suite(load_suite(write(tmp_path, methods=trained, seeds=[0], grid={})), tmp_path)
    before = files_of(tmp_path / "tiny" / "other")
    for other in ({"from": "ce", "grid": grid}, {"posterior": True, "grid": grid}):
        suite = load_suite(
            write(tmp_path, methods={"ce": {"grid": grid}, "other": other}, seeds=[0], grid={})
        )
        with pytest.raises(SuiteError, match=r"other.* was made with another recipe than the suite has now"):
            run_suite(suite, tmp_path)
    task = Task("x", str(tmp_path / "tiny/other/lr=0.1/seed-0"), make_recipe(BASE).model_dump(mode="json"))
    assert "holds a network" in (do_task(replace(task, posterior=True)).failure or "")
    after = files_of(tmp_path / "tiny" / "other")
    assert {path: after[path] for path in before} == before


def test_the_limit_is_not_taken_for_a_trained_run(tmp_path):
    run_suite(
        load_suite(write(tmp_path, methods={"a": {"posterior": True}}, seeds=[0], grid={}, baseline=None)),
        tmp_path,
    )
    suite = load_suite(write(tmp_path, methods={"a": {}}, seeds=[0], grid={}, baseline=None))
    with pytest.raises(SuiteError, match="made with another recipe"):
        run_suite(suite, tmp_path)


@pytest.mark.errors
def test_bad_jobs_and_two_at_once(tmp_path):
    suite = load_suite(write(tmp_path))
    with pytest.raises(ValueError, match="jobs must be an integer >= 1, got 0"):
        run_suite(suite, tmp_path, jobs=0)
    (tmp_path / "tiny").mkdir()
    with (tmp_path / "tiny" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SuiteError, match="tiny is in use"):
            run_suite(suite, tmp_path)


def test_status_from_another_folder_than_the_run(tmp_path, monkeypatch):
    """Relative places of the data are those that the run saw, wherever status is asked."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    for part, seed in (("train", 0), ("test", 1)):
        generator = torch.Generator().manual_seed(seed)
        targets = torch.arange(60) % 3
        rows = torch.randn(60, 4, generator=generator) + targets[:, None]
        save_embeddings(tmp_path / "here" / "rows" / f"{part}.safetensors", rows, targets)
    base = BASE | {"data": {"name": "embeddings", "root": "rows"}}
    small = {"grid": {}, "seeds": [0], "methods": {"ce": {}}, "metrics": ["top1.micro"], "baseline": None}
    file = write(tmp_path, base=base, **small)
    words = [str(file), "--out", str(tmp_path / "out")]
    monkeypatch.chdir(tmp_path / "here")
    first = CliRunner().invoke(suite_app, ["run", *words, "--json"])
    assert first.exit_code == 0, first.output
    told = {}
    for folder in ("here", "there"):
        monkeypatch.chdir(tmp_path / folder)
        found = CliRunner().invoke(suite_app, ["status", *words, "--json"])
        assert found.exit_code == 0, found.output
        told[folder] = json.loads(found.stdout)
    assert told["there"] == told["here"] and told["there"]["finished"] == told["there"]["runs"] == 1
    with pytest.raises(SuiteError, match=r"\(data.root was .*/here/rows, and is .*/there/rows\)"):
        run_suite(load_suite(file), tmp_path / "out")  # which would train on what is there
    monkeypatch.chdir(tmp_path / "here")
    assert not run_suite(load_suite(file), tmp_path / "out").failed
