"""A loss of one's own, trained on a paper's data by the paper's recipe, is a row of the paper's table."""

import csv
import io
import sys

import pytest

from shortlist.runs.run import Run
from tests.commands import output_of
from tests.datasets import trees

LOSS = """
from torch import nn
from torch.nn.functional import cross_entropy
class Doubled(nn.Module):
    def forward(self, logits, target):
        return cross_entropy(2 * logits, target)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning.*")
@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
def test_a_loss_of_ones_own_is_a_row_of_the_table(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "row_losses.py").write_text(LOSS)
    trees.cifar100(tmp_path / "data", per_class=30, classes=10)
    settings = ["data.root=data", "steps=2", "model=small_cnn", "workers=0", "loggers=[]", "accelerator=cpu"]
    changes = [word for setting in settings for word in ("--set", setting)]
    train = ("train", "papers:cifar100_lt_balanced", *changes, "--allow-code")
    output_of(*train, "--set", "loss=row_losses:Doubled", "--set", "name=doubled", "--out", "runs/doubled")
    output_of(*train, "--set", "loss=cross_entropy", "--out", "runs/ce")
    text = output_of("papers", "table", "menon2021:2", "runs/doubled", "runs/ce", "--csv")
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    errors = {
        name: Run.open(f"runs/{name}").results.metrics()["balanced_error"].value for name in ("doubled", "ce")
    }
    (heads,) = [row for row in rows if "CIFAR-100-LT" in row]
    place = heads.index("CIFAR-100-LT")
    (own,) = [row for row in rows if row[0] == "doubled"]
    assert own[1] == "ours" and own[place].startswith(f"{100 * errors['doubled']:.2f}")
    assert [cell for number, cell in enumerate(own) if number > 1 and number != place and cell] == []
    (published,) = [number for number, row in enumerate(rows) if "61.64" in row]
    assert rows[published + 1][1] == "ours" and rows[published + 1][place].startswith(
        f"{100 * errors['ce']:.2f}"
    )
