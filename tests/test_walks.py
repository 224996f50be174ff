"""How many pairs of rooms a command goes through, traced by ``tools/walk.py``."""

import importlib.util
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from shortlist.recipes.recipe import make_recipe, save_recipe
from shortlist.serve.app import make_app
from tests.serve.parts import files, png
from tests.training.small import RECIPE

ROOT = Path(__file__).parents[1]
WALK = ROOT / "tools" / "walk.py"


def pairs_of(*words):
    """The pairs of rooms (caller, called) of a command."""
    command = [sys.executable, str(WALK), *map(str, words)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    pairs = re.findall(r"^ *(\w+) -> (\w+) +[\d,]+$", said, flags=re.MULTILINE)
    assert f"{len(pairs)} pairs of rooms" in said
    return pairs


@pytest.mark.slow
def test_commands_go_through_few_rooms(tmp_path):
    save_recipe(make_recipe(RECIPE, ["loss=cross_entropy", "epochs=1"]), tmp_path / "small.yaml")
    run, rows = tmp_path / "run", tmp_path / "rows.npy"
    np.save(rows, np.zeros((2, 5), dtype=np.float32))
    assert len(pairs_of("train", tmp_path / "small.yaml", "--out", run)) <= 24
    assert len(pairs_of("report", run, "--out", tmp_path / "report.html")) <= 18
    assert len(pairs_of("predict", run, rows)) <= 6


def module_of(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_request_goes_through_few_rooms(tmp_path, monkeypatch):
    """``POST /v1/identify``: the server asks the model, which asks network, score map and predictor."""
    monkeypatch.chdir(tmp_path)
    example, walk = module_of(ROOT / "examples" / "serve_own_model.py"), module_of(WALK).Walk()
    example.make_images(tmp_path / "images")
    threading.setprofile(walk)  # of the threads that start from now on: all that answer do
    try:
        with TestClient(make_app(example.my_service(tmp_path / "images", tmp_path / "index"))) as client:

            def pairs(**options):
                walk.pairs.clear()
                assert client.post("/v1/identify", params=options, files=files(png(1))).status_code == 200
                return set(walk.pairs)

            plain = pairs()
            assert ("serve", "model") in plain and len(plain) <= 5
            assert pairs(related_images=3) - plain == {("serve", "index")}
            assert pairs(receipt=True) - plain == {("serve", "feedback")}
    finally:
        threading.setprofile(None)
