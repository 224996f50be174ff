"""Trackers get what is promised and measured: each number is compared with the run's own files."""

import importlib.util
import json
import struct
import sys
from pathlib import Path

import pytest

from shortlist.training import resume, train
from tests.training.small import Stop, silent, small

TRACKERS = Path(sys.prefix) / "trackers"  # where `make slow` puts MLflow and the client of W&B
pytestmark = pytest.mark.filterwarnings("ignore")  # of the trackers


@pytest.fixture
def packages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(TRACKERS)])
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("WANDB_MODE", raising=False)


def needs(name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")


def measured(run):
    """What results.json says, read without the code under test."""
    content = json.loads((run.path / "results.json").read_text())
    return {
        f"test/sets.{name}.{what}.micro": sets[what]["micro"]["value"]
        for name, sets in content["sets"].items()
        for what in ("coverage", "size")
    }


@pytest.mark.slow
def test_mlflow_gets_numbers_promises_and_the_figure_also_of_a_stopped_run(packages, tmp_path):
    needs("mlflow")
    from mlflow.tracking import MlflowClient

    def stop(label, done, total, metrics=None):
        if (metrics or {}).get("epoch", 0) > 2:
            raise Stop

    with pytest.raises(Stop):
        train(small("loggers=[mlflow]"), tmp_path / "run", progress=stop)
    run = resume(tmp_path / "run", progress=silent)
    client = MlflowClient()
    [experiment] = [e for e in client.search_experiments() if e.name == "small"]
    [tracked] = client.search_runs([experiment.experiment_id])  # one, although it was stopped
    assert tracked.info.status == "FINISHED" and tracked.info.run_name == "run"
    assert tracked.data.params["loss/name"] == "noised_topk"
    numbers = tracked.data.metrics
    expected = measured(run)
    assert len(expected) == 8 and {key: numbers[key] for key in expected} == pytest.approx(expected)
    assert numbers["promise/conformal"] == 0.8 and "promise/top2" not in numbers
    assert {point.step for point in client.get_metric_history(tracked.info.run_id, "val_top1")} != {0}
    assert "80 of 100" in tracked.data.tags["promise.conformal"]
    [figure] = [each.path for each in client.list_artifacts(tracked.info.run_id)]
    copied = Path(client.download_artifacts(tracked.info.run_id, figure, str(tmp_path)))
    assert copied.read_bytes() == (run.path / "model" / "coverage.svg").read_bytes()


def blocks(content):
    """The records of an offline run: a head of 7 bytes, then the log format of LevelDB."""
    place, block, record = 7, 32768, b""
    while place + 7 <= len(content):
        if block - place % block < 7:
            place += block - place % block
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@pytest.mark.slow
def test_wandb_keeps_all_of_it_offline(packages, tmp_path):
    needs("wandb")
    from wandb.proto import wandb_internal_pb2

    run = train(small("loggers=[wandb]"), tmp_path / "run", progress=silent)
    summary = {}
    files = sorted((run.path / "logs").rglob("*.wandb"))
    for file in files:
        for data in blocks(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            for item in [*record.history.item, *record.summary.update]:
                summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    assert len({file.stem for file in files}) == 1  # one run, of which the parts have one number
    expected = measured(run)
    assert {key: summary[key] for key in expected} == pytest.approx(expected)
    assert summary["promise/conformal"] == 0.8 and "80 of 100" in summary["promise.conformal"]
    assert (run.path / "model" / "coverage.svg").read_text() in {
        page.read_text() for page in (run.path / "logs").rglob("*.html")
    }


def test_tensorboard_gets_numbers_and_promises(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(small("loggers=[tensorboard]", "epochs=1"), tmp_path / "run", progress=silent)
    scalars = {}
    words = set()
    for file in (run.path / "logs").glob("events*"):
        events = EventAccumulator(str(file)).Reload()
        scalars |= {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}
        words |= set(events.Tags()["tensors"])
    expected = measured(run)
    assert {key: scalars[key] for key in expected} == pytest.approx(expected, rel=1e-6)
    assert scalars["promise/conformal"] == pytest.approx(0.8)
    assert "promise.conformal/text_summary" in words


def test_a_tracker_that_fails_at_the_end_spoils_no_run(tmp_path, monkeypatch):
    from lightning.pytorch.loggers import TensorBoardLogger

    def refuse(self, metrics, step=None):
        if "promise/conformal" in metrics:
            raise OSError("no answer")

    monkeypatch.setattr(TensorBoardLogger, "log_metrics", refuse)
    with pytest.warns(UserWarning, match="tensorboard has no results of .*no answer"):
        run = train(small("loggers=[tensorboard]", "epochs=1"), tmp_path / "run", progress=silent)
    assert run.state == "finished"


def test_a_missing_tracker_is_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)  # as if it were not installed
    with pytest.raises(ValueError, match="mlflow is not installed: pip install mlflow"):
        train(small("loggers=[mlflow]"), tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()
