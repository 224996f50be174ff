"""The commands of docs/guides/export.md about the app, as they are written there."""

import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from shortlist import Model, Preprocessing
from shortlist.feedback.store import read_events
from shortlist.model import keep_rows
from shortlist.models import NetworkSpec, build_network
from shortlist.scores import PriorRecord, ScoreMap
from tests.app.sites import runtime_or_skip
from tests.app.test_browser import opened, status, upload
from tests.serve.parts import TREES, png

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guides/export.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## The app")[1].split("\n## ")[0]
COMMANDS = [line for block in re.findall(r"```\n(.*?)```", SECTION, re.S) for line in block.splitlines()]


def words_of(command: str, **changes: str) -> list[str]:
    """The words of a command for a process here, with other ports and places."""
    words = [changes.get(word, word) for word in shlex.split(command)]
    program = {"shortlist": [sys.executable, "-m", "shortlist"], "python": [sys.executable]}[words[0]]
    return [*program, *words[1:]]


@contextmanager
def started(words, folder, port):
    """A server that runs until the block ends."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(words, cwd=folder, env=environment, **quiet)
    try:
        deadline = time.monotonic() + 120
        while not answers(port):
            assert process.poll() is None and time.monotonic() < deadline, words
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(60)


def answers(port: str) -> bool:
    import socket

    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", int(port))) == 0


def free_ports(number: int) -> list[str]:
    import socket

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def saved_model(folder):
    """A model that its files alone describe, with weights as they are made, calibrated on noise."""
    torch.manual_seed(3)
    spec = NetworkSpec(name="small_cnn", options={"width": 4}, num_classes=6, input_shape=(1, 16, 16))
    rule = Preprocessing(height=16, width=16, resize=None, mean=(0.5,), std=(0.2,), color="L")
    score_map = ScoreMap(6, contains=PriorRecord.training(TREES.class_counts))
    parts = {"spec": spec, "preprocessing": rule, "score_map": score_map}
    model = Model.from_parts(build_network(spec), TREES, **parts)
    scores = model.scores(torch.randn(300, 1, 16, 16)).clone()
    target = torch.multinomial(scores.softmax(1), 1).squeeze(1)
    rows = keep_rows(scores, target, score_map, TREES)
    Model.from_parts(model.network, TREES, calibration_rows=rows, **parts).save(folder)


def test_an_app_is_exported_used_and_its_answers_arrive(browser, tmp_path):
    runtime = runtime_or_skip(tmp_path / "runtime")
    saved_model(tmp_path / "RUN")
    (tmp_path / "alps.csv").write_text("id,weight\nq1,3\nb1,1\n")
    files, server = free_ports(2)
    origin = f"http://127.0.0.1:{files}"
    changes = {"8000": files, "8001": server, "http://127.0.0.1:8000": origin}
    export, host, serve, import_file = COMMANDS
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*words_of(export), "--runtime", str(runtime)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with (
        started(words_of(host, **changes), tmp_path, files),
        started(words_of(serve, **changes), tmp_path, server),
        opened(browser, origin) as page,
    ):
        assert page.locator("#place option").all_inner_texts() == ["Anywhere", "alps"]
        for content in (png(70), png(90)):
            upload(page, content)
            page.locator("li.candidate button.confirm").first.click()
            page.get_by_text("Thank you. Your answer is kept.").wait_for()
            page.locator("#again").click()
        with page.expect_download() as download:
            page.locator("#app-save").click()
        download.value.save_as(tmp_path / "answers.json")
        page.context.set_offline(False)
        page.locator("#app-server").fill(f"http://127.0.0.1:{server}")
        page.locator("#app-send").click()
        status(page, "Answers that were sent now: 2.")
        page.requests[:] = [url for url in page.requests if f":{server}/" not in url]
    done = subprocess.run(
        words_of(import_file), cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and re.search(r"known\W+2", done.stdout), done.stdout + done.stderr
    events = list(read_events(tmp_path / "answers"))
    assert len(events) == 2 and all(event.model.startswith("app:") for event in events)
