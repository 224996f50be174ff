import importlib.metadata
import re
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest

import shortlist
from shortlist import datasets, losses, metrics, model, models, ops, predictors, priors, scores
from shortlist.datasets import sampling
from shortlist.losses import LOSSES
from shortlist.models import classifiers, heads

ROOT = Path(__file__).parents[1]
HEAVY = [
    "torchvision",
    "timm",
    "torchmetrics",
    "lightning",
    "matplotlib",
    "pydantic",
    "typer",
    "fastapi",
    "ray",
    "scipy",
]


def public_names(module: types.ModuleType) -> dict[str, object]:
    """What a room lists for users, or what a module defines without an underscore."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return {name: getattr(module, name) for name in names}
    values = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {
        name: value for name, value in values.items() if getattr(value, "__module__", "") == module.__name__
    }


def test_import_loads_torch_and_nothing_heavier():
    code = (
        "import sys, torch, jaxtyping; before = set(sys.modules); import shortlist; "
        "names = set(shortlist.__all__) - {'Recipe', 'Run', 'train'}; "
        "values = [getattr(shortlist, name) for name in names]; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before})); "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, heavy = run.stdout.splitlines()
    assert set(eval(loaded)) - set(sys.stdlib_module_names) == {"lazy_loader", "shortlist"}
    assert heavy == "[]"


def test_the_import_alone_waits_for_nothing():
    """``import shortlist`` takes some milliseconds: torch is imported with the first name that needs it."""
    code = "import sys, shortlist; print(sorted({'torch', 'numpy', 'jaxtyping', 'typer'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_version_is_the_distributions():
    assert shortlist.__version__ == importlib.metadata.version("shortlist")


@pytest.mark.slow
def test_python_of_the_readme_has_the_types_that_mypy_expects(tmp_path):
    """The package says that it is typed: a user's program is checked against it."""
    pytest.importorskip("mypy")
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    wrong = code + '\nAverageK("five")\n'
    for name, text, status in (("right.py", code, 0), ("wrong.py", wrong, 1)):
        (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", "mypy", "--follow-imports=silent", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr


def test_typed_and_extras_declared():
    assert (ROOT / "src/shortlist/py.typed").exists()
    extras = set(importlib.metadata.metadata("shortlist").get_all("Provides-Extra") or [])
    assert extras >= {"metrics", "train", "pretrained", "report", "serve", "cluster", "dev", "all"}


@pytest.mark.parametrize(
    "module",
    [classifiers, datasets, heads, losses, metrics, model, models, ops, predictors, priors, sampling, scores],
    ids=lambda module: module.__name__,
)
def test_every_public_name_is_documented(module):
    for name, value in public_names(module).items():
        if not isinstance(value, dict) and typing.get_origin(value) is not typing.Literal:
            assert (value.__doc__ or "").strip(), name


def test_docs_name_every_loss_and_operator():
    page = (ROOT / "docs/guides/losses.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.M)) == set(LOSSES)
    page = (ROOT / "docs/guides/operators.md").read_text()
    assert all(f"`{name}" in page for name in ops.__all__)
