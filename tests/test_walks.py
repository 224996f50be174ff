"""How many pairs of rooms a command goes through, traced by ``tools/walk.py``."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shortlist.recipes.recipe import make_recipe, save_recipe
from tests.training.small import RECIPE

WALK = Path(__file__).parents[1] / "tools" / "walk.py"


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
