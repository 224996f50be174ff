"""The examples that join other libraries run, and their sets are what is claimed of them."""

import importlib.util
import os
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAINER = Path(sys.prefix) / "trainer"  # where `make slow` puts the Trainer of Hugging Face


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_probabilities_of_scikit_learn_make_sets(capsys):
    pytest.importorskip("sklearn")
    results = load("scikit_learn").main()
    assert capsys.readouterr().out.endswith("classes in a set on average\n")
    sets = results.sets
    assert results.rows == 540 and sets["top2"].size.micro.value == 2
    assert abs(sets["average2"].size.micro.value - 2) < 0.15
    assert abs(sets["conformal90"].coverage.micro.value - 0.9) < 0.04  # 3 deviations of 540 rows


@pytest.mark.slow
def test_the_trainer_of_hugging_face_takes_a_loss_and_gives_scores():
    """In a process of its own: libraries that others change with are not on this one's path."""
    if PathFinder.find_spec("transformers", [str(TRAINER), *sys.path]) is None:
        pytest.skip("transformers is not installed")
    code = (
        "from hugging_face_trainer import main\n"
        "results = main()\n"
        "print(results.scores.topk[3].micro.value, results.sets['conformal90'].coverage.micro.value)"
    )
    paths = [str(EXAMPLES), *([str(TRAINER)] if TRAINER.is_dir() else []), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    top3, coverage = map(float, run.stdout.splitlines()[-1].split())
    assert top3 > 0.95  # of 20 classes; by chance 0.15
    assert abs(coverage - 0.9) < 0.03  # 3 deviations of 2,000 rows and as many that calibrate
