"""Training by torchrun: two agents on this machine, as if they were two machines, and lost processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from shortlist.recipes.recipe import load_recipe
from shortlist.runs.folder import RunFolder
from shortlist.runs.run import Run, RunError
from shortlist.training.fit import train
from tests.training.small import epochs_of, same_numbers, silent, small, write_recipe

# a loss whose choice is made over the batch of all processes, a sampler that they share, and two stages
CHANGES = {
    "model": {"name": "mlp", "hidden": [16]},
    "loss": {"name": "average_k", "k": 2},
    "sampler": {"name": "class_balanced"},
    "second_stage": {"name": "retrain_classifier", "epochs": 2},
    "epochs": 6,
    "accelerator": "cpu",
    "workers": 1,  # which holds the lock of a lost process for some seconds
    "num_nodes": 2,
}


class Agents:
    """Two agents of torchrun, each with one process of a training."""

    def __init__(self, *words, logs: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        agent += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1"]
        agent += ["--max-restarts=3", "--monitor-interval=0.1", "-m", "shortlist", *map(str, words)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self.logs = [logs / f"agent{number}.log" for number in (0, 1)]
        self.agents = []
        for log in self.logs:
            with log.open("w") as file:
                self.agents.append(subprocess.Popen(agent, stdout=file, stderr=file, env=environment))

    def worker(self, rank: int) -> int:
        """The process of a rank, which is the child of either agent."""
        for agent in self.agents:
            for child in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split():
                if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                    return int(child)
        raise LookupError(f"no process has rank {rank}")

    def wait(self) -> None:
        """Wait until both end well."""
        codes = [agent.wait(timeout=300) for agent in self.agents]
        assert codes == [0, 0], self.said()

    def said(self) -> str:
        return "\n".join(log.read_text() for log in self.logs)

    def stop(self) -> None:
        for agent in self.agents:
            if agent.poll() is None:
                agent.terminate()  # which ends its processes too
                agent.wait(timeout=60)


@pytest.fixture
def started(tmp_path):
    made = []

    def start(*words):
        made.append(Agents(*words, logs=tmp_path))
        return made[-1]

    yield start
    for agents in made:
        agents.stop()


def wait_for(reached, agents):
    deadline = time.monotonic() + 200
    while not reached():
        assert time.monotonic() < deadline, agents.said()
        assert all(agent.poll() is None for agent in agents.agents), agents.said()
        time.sleep(0.002)


def has_lines(file: Path, lines: int) -> bool:
    return file.is_file() and len(file.read_text().splitlines()) > lines


@pytest.mark.slow  # six starts of two processes with Lightning
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
def test_lost_processes_change_no_number(tmp_path, started):
    recipe = write_recipe(tmp_path, **CHANGES)
    started("train", recipe, "--out", tmp_path / "whole").wait()
    whole = Run.open(tmp_path / "whole")

    folder = tmp_path / "disturbed"
    agents = started("train", recipe, "--out", folder)
    moments = [
        (0, lambda: has_lines(folder / "epochs.csv", 2)),  # the one that writes
        (1, lambda: has_lines(folder / "epochs_second_stage.csv", 1)),
        (
            0,
            lambda: (folder / "run.json").is_file() and Run.open(folder).state == "trained",
        ),  # it scores, alone
    ]
    for rank, reached in moments:
        wait_for(reached, agents)
        os.kill(agents.worker(rank), signal.SIGKILL)
    agents.wait()
    disturbed = Run.open(folder)
    same_numbers(disturbed, whole)
    assert len(epochs_of(disturbed)) == 6
    second = [(run.path / "epochs_second_stage.csv").read_text() for run in (whole, disturbed)]
    assert second[0] == second[1]

    # given again, the command finds its run finished, and writes nothing
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    started("train", recipe, "--out", folder).wait()
    assert before == {path: path.stat().st_mtime_ns for path in before}

    one = train(load_recipe(recipe, ["num_nodes=1"]), tmp_path / "one", progress=silent)
    for a, b in zip(epochs_of(one), epochs_of(whole), strict=True):
        numbers = [{key: float(value) for key, value in line.items()} for line in (a, b)]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-4)
    assert torch.allclose(one.load_scores("test")[0], whole.load_scores("test")[0], atol=1e-4)


@pytest.fixture
def under_torchrun(monkeypatch):
    """The environment of the one process of a torchrun."""
    ones = dict.fromkeys(["WORLD_SIZE", "LOCAL_WORLD_SIZE"], "1")
    zeros = dict.fromkeys(["RANK", "LOCAL_RANK", "TORCHELASTIC_MAX_RESTARTS"], "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "some"}
    for name, value in (ones | zeros | place).items():
        monkeypatch.setenv(name, value)


@pytest.mark.errors
def test_the_counts_must_be_those_of_the_recipe(under_torchrun, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"1 processes here and 1 in all, .* has devices 1 and num_nodes 2"):
        train(small("num_nodes=2"), tmp_path / "run", progress=silent)
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with pytest.raises(ValueError, match=r"must be 0, got 3, unless .*TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        train(small(), tmp_path / "run", progress=silent)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    with pytest.raises(ValueError, match=r"num_nodes must be 1 without torchrun, got 2"):
        train(small("num_nodes=2"), tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()


@pytest.mark.errors
def test_a_command_given_again_goes_on_with_its_own_run_alone(under_torchrun, monkeypatch, tmp_path):
    run = RunFolder.create(tmp_path / "run", small("epochs=1", "predictors=null"))
    before = (run.path / "run.json").read_text()
    for change in ("epochs=2", "predictors.top3={name: topk, k: 3}"):
        with pytest.raises(RunError, match="run exists: choose another --out"):
            train(small("epochs=1", "predictors=null", change), run.path, progress=silent)
    assert (run.path / "run.json").read_text() == before
    for _ in range(2):  # the second time it is finished, and has its default predictors written out
        again = train(small("epochs=1", "predictors=null", "workers=0"), run.path, progress=silent)
        assert again.state == "finished" and len(epochs_of(again)) == 1
    assert not torch.distributed.is_initialized()
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    with pytest.raises(RunError, match="run exists: choose another --out"):
        train(small("epochs=1", "predictors=null"), run.path, progress=silent)
