"""How often the commands read the files of a run, counted by an audit hook in a process of its own."""

import json
import subprocess
import sys

import pytest

from shortlist.recipes.recipe import make_recipe, save_recipe
from tests.training.small import RECIPE

COUNTING = """
import json, os, sys
from collections import Counter
from pathlib import Path
from shortlist._store.files import is_temporary

reads, parsed = Counter(), Counter()

def count(event, arguments):
    name, mode, flags = arguments if event == "open" else ("", "", 0)
    reading = mode in (None, "r", "rb") and not flags & (os.O_WRONLY | os.O_RDWR)
    if str(name).endswith(".json") and reading and not is_temporary(Path(str(name))):  # which fsync opens
        reads[Path(str(arguments[0])).name] += 1

sys.addaudithook(count)
import shortlist.recipes.recipe as recipes

validate = recipes.Recipe.model_validate

def counted(*arguments, **options):
    parsed["recipe"] += 1
    return validate(*arguments, **options)

recipes.Recipe.model_validate = counted
from shortlist.losses._contract import ClassLoss

keep = ClassLoss._keep

def built(*arguments):
    parsed["loss"] += 1
    keep(*arguments)

ClassLoss._keep = built
from shortlist.cli import app
app(sys.argv[2:], standalone_mode=False)
counts = {"reads": reads, "parsed": parsed["recipe"], "losses": parsed["loss"]}
Path(sys.argv[1]).write_text(json.dumps(counts))
"""


def counts_of(folder, *arguments):
    counted = folder / "counted.json"
    command = [sys.executable, "-c", COUNTING, str(counted), *map(str, arguments)]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)
    return json.loads(counted.read_text())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reads")
    save_recipe(make_recipe(RECIPE), folder / "small.yaml")
    return folder, counts_of(folder, "train", folder / "small.yaml", "--out", folder / "run")


def test_training_reads_each_file_few_times(trained):
    _, counts = trained
    assert counts["reads"].get("run.json", 0) <= 5
    assert counts["parsed"] <= 3  # from the file, with absolute paths, with default predictors
    assert counts["losses"] == 1  # the one that trains: none is built to ask what its scores mean


def test_a_report_reads_each_file_few_times(trained):
    folder, _ = trained
    counts = counts_of(folder, "report", folder / "run", "-o", folder / "report.html")
    assert sum(counts["reads"].values()) <= 40
    assert counts["parsed"] <= 1
    assert counts["losses"] == 0
