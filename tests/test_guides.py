"""The guides for extending work as written: their files and commands, in a fresh folder."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from shortlist import Run
from tests.commands import command

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ("loss", "predictor", "dataset", "report_section")


def write_files(page: Path, folder: Path) -> list[str]:
    """Write the files of a page, and return its commands."""
    lines = []
    for head, content in re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), flags=re.S | re.M):
        name = re.search(r'title="([\w.]+)"', head)
        if name is not None:
            (folder / name[1]).write_text(content)
        elif not head:
            lines += content.splitlines()
    return [line for line in lines if line.startswith("shortlist ")]


def call(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would, with nothing of this repository but the package to import."""
    words = shlex.split(line, comments=True)[1:]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    environment |= {"XDG_CONFIG_HOME": str(folder / "settings")}
    environment.pop("SHORTLIST_ALLOW_CODE", None)
    return subprocess.run(command(*words), cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_guide_works_as_written(name, tmp_path):
    page = DOCS / "guides/extending" / f"{name}.md"
    assert len(page.read_text().splitlines()) <= 80  # two screens
    commands = write_files(page, tmp_path)
    assert len(commands) == 2
    for line in commands:
        done = call(line, tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    if name == "report_section":
        text = (tmp_path / "page.html").read_text()
        assert "best epochs</h3>" in text and "Epochs of each run, and the one that was kept" in text
    else:
        assert Run.open(tmp_path / "run").state == "finished"


@pytest.mark.slow
def test_a_loss_is_compared_with_all_others_by_the_commands_of_the_page(tmp_path):
    init, run, status, report = write_files(DOCS / "guides/compare_your_loss.md", tmp_path)
    done = call(init, tmp_path)
    assert done.returncode == 0, done.stderr
    suite = yaml.safe_load((tmp_path / "suite.yaml").read_text())
    assert len(suite["methods"]) == 20 and suite["methods"]["MarginLoss"]["grid"] == {
        "loss.margin": [0.5, 1.0]
    }
    assert f"{20} methods" in done.stdout and run in done.stdout
    refused = call(run.replace(" --allow-code", ""), tmp_path)
    assert refused.returncode == 2 and "--allow-code" in refused.stderr and not (tmp_path / "runs").exists()
    # all losses, with fewer seeds and epochs: the numbers are of nobody's interest here
    suite |= {"seeds": [0], "tune": suite["tune"] | {"seeds": [0]}}
    suite["base"]["epochs"] = 1
    for method in suite["methods"].values():
        method["grid"] = {key: values[:2] for key, values in list(method.get("grid", {}).items())[:1]}
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    for line in (run, status, report):
        done = call(line, tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    assert "MarginLoss" in call(status, tmp_path).stdout
    page = (tmp_path / "page.html").read_text()
    assert all(name in page for name in ("MarginLoss", "average_k", "role"))


PACKAGE = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from shortlist import ClassTable
from shortlist.datasets import Splits, TensorSplit
from shortlist.predictors import CalibrationReport, Finished, Rows, SetPredictor


class MarginLoss(nn.Module):
    grid = {"margin": [0.5, 1.0]}

    def __init__(self, margin: float = 1.0):
        super().__init__()
        self.margin = margin

    def forward(self, logits, target):
        return cross_entropy(logits - self.margin * one_hot(target, logits.shape[1]), target)


def blobs(rows: int = 120):
    generator = torch.Generator().manual_seed(0)
    centers = 2 * torch.randn(6, 4, generator=generator)
    target = torch.arange(rows) % 6
    noise = [torch.randn(rows, 4, generator=generator) for _ in range(3)]
    parts = [TensorSplit(centers[target] + each, target) for each in noise]
    return Splits(*parts, ClassTable([f"class {c}" for c in range(6)], counts=[rows // 6] * 6))


class Above(SetPredictor):
    needs_target = True

    def __init__(self, share: float = 0.1):
        super().__init__(activation="softmax")
        self.share = share

    def measure(self, scores, target):
        return {"true": self.values(scores).gather(1, target[:, None])[:, 0]}

    def accumulator(self, max_rows=None):
        return Rows(self._finished)

    def _finished(self, rows):
        return Finished({"threshold": rows["true"].quantile(self.share)}, CalibrationReport(len(rows)))

    def forward(self, scores):
        return self.values(self.checked(scores)) >= self.threshold
"""


@pytest.mark.slow
def test_a_package_outside_the_repository_goes_all_the_way(tmp_path):
    """Of 40 lines: a loss, a data set and a predictor, through a suite in two processes and a report."""
    assert sum(bool(line.strip()) for line in PACKAGE.splitlines()) <= 40
    (tmp_path / "forty.py").write_text(PACKAGE)
    recipe = {
        "data": {"name": "forty:blobs"},
        "model": {"name": "mlp", "hidden": [8]},
        "predictors": {"above": {"name": "forty:Above", "share": 0.2}, "top2": {"name": "topk", "k": 2}},
        "epochs": 1,
        "loggers": [],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    init = "shortlist suite init recipe.yaml --mine forty:MarginLoss --losses focal --k 2 -o mine.yaml"
    done = call(init, tmp_path)
    assert done.returncode == 0, done.stderr
    suite = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert list(suite["methods"]) == ["MarginLoss", "focal"] and suite["tune"]["metric"] == "top2.micro"
    suite |= {"seeds": [0], "tune": suite["tune"] | {"seeds": [0]}}
    suite["methods"]["focal"].pop("grid")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(suite))
    lines = ["suite run mine.yaml --jobs 2", "report runs/mine -o page.html"]
    for line in (*lines, "papers table garcin2022:5 runs/mine --markdown"):
        refused = call(f"shortlist {line}", tmp_path)
        assert refused.returncode == 2 and "--allow-code" in refused.stderr, refused.stderr
        done = call(f"shortlist {line} --allow-code", tmp_path)
        assert done.returncode == 0, done.stderr
    assert "MarginLoss" in done.stdout, done.stdout
    page = (tmp_path / "page.html").read_text()
    assert "MarginLoss" in page and "above" in page
    assert sys.modules.get("forty") is None
