"""``shortlist serve --engine ray``: replicas that answer as one process does."""

import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
from fastapi.testclient import TestClient

from shortlist.serve.app import make_app
from shortlist.serve.source import ServiceSource
from tests.commands import run
from tests.serve.parts import files, png
from tests.serve.test_process import folder as folder

pytestmark = pytest.mark.slow


def test_replicas_answer_as_one_process_does(folder, tmp_path, ray_alone):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--engine", "ray", "--replicas", "2", "--port", str(port)]
    command = [sys.executable, "-m", "shortlist", "serve", str(folder), *options]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, cwd=tmp_path)
    try:
        address, until = f"http://127.0.0.1:{port}", time.monotonic() + 180
        while True:
            assert process.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()
            try:
                if httpx.get(f"{address}/ready").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        service = ServiceSource(str(folder), feedback=str(tmp_path / "own")).open()
        with TestClient(make_app(service)) as local:
            for number in range(6):
                here = local.post("/v1/identify", files=files(png(number))).json()
                there = httpx.post(f"{address}/v1/identify", files=files(png(number)), timeout=60).json()
                assert there["candidates"] == here["candidates"] and there["candidates"]
        assert httpx.post(f"{address}/v1/identify", files=files(b"no image")).status_code == 415
        # all replicas write to the store, and know each other's receipts
        kept = []
        for number in range(20):
            asked = {"files": files(png(number)), "params": {"receipt": True}, "timeout": 60}
            answer = httpx.post(f"{address}/v1/identify", **asked)
            said = {"verb": "none_of_these", "receipt": answer.json()["receipt"]}
            kept.append(httpx.post(f"{address}/v1/feedback", json=said, timeout=60).status_code)
            assert answer.status_code == 200 and said["receipt"]
        assert set(kept) == {201}
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 0, (tmp_path / "log").read_text()


def test_options_of_ray_need_ray(folder):
    code, _, err = run("serve", folder, "--replicas", 2)
    assert code == 2 and "--replicas and --address are for --engine ray" in err
    code, _, err = run("serve", folder, "--engine", "spark")
    assert code == 2 and "--engine must be one of local, ray" in err
