"""Predictors take little memory beside their scores and sets, however many classes there are."""

import subprocess
import sys

import pytest

ROWS, CLASSES = 800, 20_000
SCRIPT = """
import resource, sys, warnings
import torch
from shortlist.predictors import AverageError, Conformal

torch.set_num_threads(1)
warnings.simplefilter("ignore")
name, action, n, c = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
generator = torch.Generator().manual_seed(0)
scores = torch.empty(n, c).normal_(0.0, 2.0, generator=generator)
target = torch.randint(c, (n,), generator=generator)
predictor = AverageError(coverage=0.9) if name == "average_error" else Conformal(coverage=0.9, score="aps")
predictor.calibrate(scores[:100], target[:100])
predictor(scores[:2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
predictor.calibrate(scores, target) if action == "calibrate" else predictor(scores)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss has another unit")
@pytest.mark.parametrize("action", ["calibrate", "predict"])
@pytest.mark.parametrize("name", ["average_error", "aps"])
def test_no_copy_of_all_scores_is_made(name, action):
    """The scores have 64 MB and the sets 16: sorting all of them at once took some 300."""
    words = [name, action, str(ROWS), str(CLASSES)]
    said = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True)
    sets = ROWS * CLASSES / 2**20 if action == "predict" else 0.0
    assert int(said.stdout) / 2**10 < sets + 24
