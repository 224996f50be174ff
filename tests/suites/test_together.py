"""One suite by one process, by several at once, in parts, and by Ray: the same table to the last digit."""

import csv
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from shortlist._store import lease as leases
from shortlist._store.lease import Lease
from shortlist.cli.suite import suite_app
from shortlist.recipes import load_variant
from shortlist.runs.run import Run
from shortlist.suites import crew
from shortlist.suites.run import run_suite
from shortlist.suites.state import SuiteState
from shortlist.suites.suite import SuiteError, load_suite
from tests.suites.test_sharing import METHODS
from tests.suites.test_suite import BASE, COMMAND

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.*"),
]
SUITES = Path(__file__).parents[2] / "src/shortlist/papers"
NOISE = {
    "name": "noise",
    "base": BASE | {"epochs": 3, "data": BASE["data"] | {"num_rows": 400}},
    "seeds": [0, 1],
    "vary": {"data.label_noise": [0.0, 0.3]},
    "metrics": ["top5.micro", "top1.micro"],
    "baseline": "cross_entropy",
}


def noise_suite(folder: Path, **changes) -> Path:
    """The published suite of label noise, with 2 levels, 2 seeds and a small network."""
    recipe = SUITES / "recipes/cifar100_top5_noise.yaml"
    methods = {
        name: {"overrides": [*load_variant(recipe, name), "selection.metric=top5"]}
        for name in ("cross_entropy", "smooth", "noised")
    }
    methods["by_top1"] = {"overrides": [*methods["noised"]["overrides"], "selection.metric=top1"]}
    file = folder / "suite.yaml"
    file.write_text(yaml.safe_dump(NOISE | {"methods": methods} | changes, sort_keys=False))
    return file


def table(folder: Path) -> tuple[str, dict[str, str]]:
    """The table, and the results of each run, to the last digit."""
    runs = {str(path.parent.relative_to(folder)): path.read_text() for path in folder.rglob("results.json")}
    return (folder / "results.csv").read_text(), runs


def no_locks(folder: Path) -> bool:
    return not [path for path in folder.rglob("*.lock*") if path.name != ".lock"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Path]:
    """The file, and the folder that one process has made."""
    folder = tmp_path_factory.mktemp("whole")
    file = noise_suite(folder)
    assert not run_suite(load_suite(file), folder).failed
    return file, folder / "noise"


def start(file: Path, out: Path, *words: str) -> subprocess.Popen:
    command = [sys.executable, "-c", COMMAND, "run", str(file), "--out", str(out), "--json", *words]
    with (out / f"log-{time.monotonic_ns()}").open("w") as log:
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=log, stderr=log, env=env, preexec_fn=hear_ctrl_c)


def hear_ctrl_c() -> None:
    """What a shell starts in the background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def said(out: Path) -> str:
    return "\n".join(path.read_text() for path in out.glob("log-*"))


def wait_for(condition: Callable[[], object], processes: list[subprocess.Popen], out: Path) -> None:
    while not condition():
        assert any(process.poll() is None for process in processes), said(out)
        time.sleep(0.02)


def training_now(folder: Path) -> list[dict]:
    """What is written of runs that are in the middle of their training, after its first epoch."""
    held = []
    places = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    for path in [path for path in places if path.match("seed-*.lock")]:
        holder = leases.read_lease(path)
        if holder is not None and (path.with_suffix("") / "checkpoints/last.ckpt").exists():
            held.append(holder)
    return held


@pytest.mark.slow
def test_parts_make_the_same_table(whole, tmp_path):
    file = whole[0]
    for part in ((1, 2), (2, 2)):
        shutil.rmtree(tmp_path / str(part[0]), ignore_errors=True)
        assert not run_suite(load_suite(file), tmp_path / f"{part[0]}", part=part).failed
    names = [
        {str(path.parent.relative_to(tmp_path / n)) for path in (tmp_path / n).rglob("run.json")}
        for n in "12"
    ]
    assert not names[0] & names[1] and len(names[0]) == len(names[1]) == 8
    # other folders, put together afterwards
    shutil.copytree(tmp_path / "2" / "noise", tmp_path / "1" / "noise", dirs_exist_ok=True)
    state = run_suite(load_suite(file), tmp_path / "1", part=(1, 2))
    assert table(state.folder) == table(whole[1])


def test_parts_hold_all_runs_once_and_what_belongs_together(tmp_path):
    file = noise_suite(
        tmp_path, grid={"optimizer.lr": [0.1, 0.2]}, tune={"metric": "top5.micro", "seeds": [0]}
    )
    suite = load_suite(file)
    whole = SuiteState(suite, tmp_path)
    every = {(cell.place, cell.name, *run) for cell in whole.cells for run in whole.all_runs(cell)}
    for parts in (1, 2, 3, 7, 40):
        states = [SuiteState(suite, tmp_path, part=(part, parts)) for part in range(1, parts + 1)]
        runs = [{(c.place, c.name, *run) for c in s.cells for run in s.all_runs(c)} for s in states]
        assert sum(map(len, runs)) == len(every) and set().union(*runs) == every
        for cell in whole.cells:  # the grid points that are compared
            assert sum(any(run[:2] == (cell.place, cell.name) for run in part) for part in runs) == 1


@pytest.mark.errors
@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_parts_that_there_are_not(tmp_path, part):
    result = CliRunner().invoke(suite_app, ["run", str(noise_suite(tmp_path)), "--part", part])
    assert result.exit_code != 0 and "--part must be" in str(result.exception)


@pytest.mark.slow
def test_three_commands_at_once_with_one_killed(whole, tmp_path):
    """Each run is trained once; what the killed one had begun goes on elsewhere."""
    file = noise_suite(tmp_path)
    processes = [start(file, tmp_path), start(file, tmp_path), start(file, tmp_path, "--jobs", "2")]
    folder = tmp_path / "noise"
    wait_for(lambda: training_now(folder), processes, tmp_path)
    victims = {process.pid for process in processes}
    wait_for(lambda: victims & {one["process"] for one in training_now(folder)}, processes, tmp_path)
    victim = next(iter(victims & {one["process"] for one in training_now(folder)}), processes[0].pid)
    os.kill(victim, signal.SIGKILL)
    codes = [process.wait() for process in processes]
    assert sorted(codes) == [-9, 0, 0], said(tmp_path)
    assert table(folder) == table(whole[1])
    assert no_locks(folder) and not list(folder.rglob("*.failure.txt"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_ray_with_a_worker_killed_in_the_middle_of_a_training(whole, tmp_path):
    file = noise_suite(tmp_path)
    process = start(file, tmp_path, "--engine", "ray", "--jobs", "2")
    folder = tmp_path / "noise"
    wait_for(lambda: training_now(folder), [process], tmp_path)
    victim = training_now(folder)[0]
    os.kill(victim["process"], signal.SIGKILL)
    assert victim["process"] != process.pid
    assert process.wait() == 0, said(tmp_path)
    assert table(folder) == table(whole[1])
    assert no_locks(folder) and not list(folder.rglob("*.failure.txt"))


def test_the_lease_of_a_killed_process_is_removed_also_of_a_finished_run(tmp_path):
    """The process was killed after its run was finished, before it let go."""
    file = noise_suite(tmp_path, methods={"cross_entropy": {}}, vary={}, seeds=[0])
    state = run_suite(load_suite(file), tmp_path)
    path = state.folder / "cross_entropy/default/seed-0.lock"
    assert Lease(path, {"run": "cross_entropy/default/seed-0", "started": "1"})._take(())
    run_suite(load_suite(file), tmp_path)
    assert not path.exists()


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_at_once(tmp_path):
    """Given to the first process alone; the same command goes on afterwards."""
    base = NOISE["base"] | {"epochs": 2000}
    file = noise_suite(tmp_path, base=base)
    process = start(file, tmp_path, "--jobs", "2")
    folder = tmp_path / "noise"
    wait_for(lambda: len(training_now(folder)) == 2, [process], tmp_path)
    workers = [one["process"] for one in training_now(folder)]
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) != 0
    for worker in workers:
        while (Path("/proc") / str(worker) / "cmdline").exists():
            time.sleep(0.02)


def test_each_process_has_its_gpu_and_its_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6), raising=False)
    monkeypatch.setattr(crew.torch, "get_num_threads", lambda: 6)
    started = []

    class Processes:
        def __init__(self, shares):
            started.extend(shares)

        def close(self):
            pass

    monkeypatch.setattr(crew, "_Processes", Processes)
    with crew.local_crew(3, lambda message: None):
        assert started == [(2, "3"), (2, "5"), (2, "3")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert crew.visible_gpus() == []


def test_what_another_machine_has_is_left_to_it(whole, tmp_path, monkeypatch):
    """Its lease is waited for; when it is let go, the run is made here."""
    file = noise_suite(tmp_path, methods={"cross_entropy": {}}, vary={})
    name = "cross_entropy/default/seed-0"
    path = tmp_path / "noise" / f"{name}.lock"
    path.parent.mkdir(parents=True)
    here = leases.this_machine()
    monkeypatch.setattr(leases, "this_machine", lambda: "far")
    far = Lease(path, {"run": name, "gpu": "0", "share": 0.25})
    assert far._take(())
    monkeypatch.setattr(leases, "this_machine", lambda: here)
    monkeypatch.setattr("shortlist.suites.run._LOOK", 0.01)
    waited, sleep = [], time.sleep

    def let_go_at_the_end(seconds: float) -> None:
        waited.append(sorted(str(p.parent.name) for p in path.parent.glob("seed-*/run.json")))
        status = CliRunner().invoke(suite_app, ["status", str(file), "--out", str(tmp_path), "--json"])
        now = json.loads(status.stdout)
        assert [run["run"] for run in now["current"]] == [name]
        assert (now["current"][0]["gpu"], now["current"][0]["share"]) == ("0", 0.25)
        assert now["cost"]["left"] == pytest.approx(0.75 * Run.open(path.parent / "seed-1").info["seconds"])
        words = CliRunner().invoke(suite_app, ["status", str(file), "--out", str(tmp_path)]).stdout
        assert f"now: {name} on {far.about['host']} (process {os.getpid()}, GPU 0): 25 % after" in words
        path.unlink(missing_ok=True)
        sleep(seconds)

    monkeypatch.setattr("shortlist.suites.run.time.sleep", let_go_at_the_end)
    state = run_suite(load_suite(file), tmp_path)
    assert waited[0] == ["seed-1"] and not state.failed
    assert sorted(p.parent.name for p in path.parent.glob("seed-*/results.json")) == ["seed-0", "seed-1"]


def test_a_suite_that_changes_while_it_runs_leaves_the_tables_to_the_later(tmp_path, monkeypatch):
    file = noise_suite(tmp_path, methods={"cross_entropy": {}}, vary={}, seeds=[0])
    suite, told = load_suite(file), []
    later = load_suite(noise_suite(tmp_path, methods={"cross_entropy": {}, "hot": METHODS["other"]}, vary={}))

    def change(progress) -> None:
        told.append(progress)
        if progress.event is not None and len(told) < 100:
            told.extend([None] * 100)
            run_suite(later, tmp_path)

    run_suite(suite, tmp_path, watch=change)
    with (tmp_path / "noise/results.csv").open(newline="") as lines:
        assert [row["method"] for row in csv.DictReader(lines)] == ["cross_entropy"] * 2 + ["hot"] * 2


@pytest.mark.errors
def test_an_unknown_engine_is_refused(tmp_path):
    with pytest.raises(ValueError, match="engine must be"):
        run_suite(load_suite(noise_suite(tmp_path)), tmp_path, engine="slurm")
    with pytest.raises(SuiteError, match="in use: a process of an earlier version"):
        import fcntl

        (tmp_path / "noise").mkdir()
        with (tmp_path / "noise/.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            run_suite(load_suite(noise_suite(tmp_path)), tmp_path)
