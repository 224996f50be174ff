"""What works on the base install, and what is said where an extra is missing."""

import importlib.metadata
import re
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

import shortlist
from shortlist.class_table import ClassTable
from shortlist.cli._extras import EXTRA_OF
from shortlist.model import Model
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import TopK
from shortlist.scores import PriorRecord, ScoreMap

# hides what the extras bring, but for pydantic: newer versions of typer need it
HIDDEN = sorted(set(EXTRA_OF) - {"pydantic"})
BASE_INSTALL = f"""
import sys
from importlib.machinery import PathFinder
class BaseInstall(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {HIDDEN} else super().find_spec(name, path, target)
sys.meta_path = [BaseInstall if finder is PathFinder else finder for finder in sys.meta_path]
from shortlist.cli import main
sys.argv[0] = "shortlist"
main()
"""


def base_install(*words):
    command = [sys.executable, "-c", BASE_INSTALL, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def test_help_and_version_need_no_extra_and_no_torch():
    assert base_install("--version").stdout == f"shortlist {shortlist.__version__}\n"
    for words in ((), ("train",), ("predict",), ("suite",), ("data", "build")):
        run = base_install(*words, "--help")
        assert run.returncode == 0 and "Usage" in run.stdout and run.stderr == "", words
    code = "import sys, shortlist.cli; print(sorted({'torch', 'numpy', 'lightning'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.errors
@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        (("train",), "yaml|lightning", "train"),
        (("demo",), "yaml|lightning", "train"),
        (("compare", "a", "b"), "yaml", "train"),
        (("data", "votes", "votes.csv", "-o", "out.csv"), "pyarrow", "photos"),
    ],
)
def test_a_verb_names_the_extra_that_is_missing(words, module, extra, tmp_path):
    run = base_install(*words)
    said = (
        rf"shortlist: [a-z ]+ needs ({module}), which is not installed: pip install 'shortlist\[{extra}\]'\n"
    )
    assert run.returncode == 2 and re.fullmatch(said, run.stderr), run.stderr


def test_predict_from_scores_needs_no_extra(tmp_path):
    """The short lists of saved scores are made by the base install."""
    table = ClassTable(names=("oak", "beech", "birch"), counts=(6, 3, 1))
    known = ScoreMap(3, contains=PriorRecord.training(table.class_counts))
    spec = NetworkSpec(name="linear", num_classes=3, input_shape=(4,))
    parts = {"spec": spec, "score_map": known, "predictors": {"top2": TopK(2)}}
    Model.from_parts(build_network(spec), table, **parts).save(tmp_path / "model")
    save_file({"scores": torch.tensor([[0.1, 0.2, 0.7]]).log()}, tmp_path / "scores.safetensors")
    words = ("predict", tmp_path / "model", tmp_path / "scores.safetensors", "-o", tmp_path / "a.csv")
    run = base_install(*words)
    assert run.returncode == 0, run.stderr
    lines = (tmp_path / "a.csv").read_text().split()[1:]
    assert [line.split(",")[4] for line in lines] == ["birch", "beech", "oak"]


def test_every_extra_is_named_for_the_modules_that_it_brings():
    """The table of modules agrees with what the package declares."""
    names = importlib.metadata.packages_distributions()
    required = importlib.metadata.requires("shortlist") or []
    for module, extra in EXTRA_OF.items():
        brought = {
            re.split(r"[\s<>=\[;]", line)[0].lower() for line in required if f"extra == '{extra}'" in line
        }
        dists = {name.lower().replace("_", "-") for name in names.get(module, [])}
        if dists:  # else it is not installed here
            assert dists & brought, f"{module} is not brought by shortlist[{extra}]: {sorted(brought)}"
