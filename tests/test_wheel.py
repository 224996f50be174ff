"""What is built and installed: a wheel that works elsewhere, and extras that bring what the code uses."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
# the module of a package, where the names differ
MODULES = {
    "prometheus-client": "prometheus_client",
    "fonttools": "fontTools",
    "pillow": "PIL",
    "python-multipart": "python_multipart",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "huggingface-hub": "huggingface_hub",
}
SMOKE = """
import sys
from pathlib import Path
import torch
import shortlist
assert Path(shortlist.__file__).is_relative_to(sys.prefix), shortlist.__file__
from shortlist.sentences import promise_words
promise = shortlist.Model.load("run").promises["top2"]
assert promise_words(promise) in Path("run/model/README.md").read_text()
from fastapi.testclient import TestClient
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
classes = shortlist.ClassTable(names=["red", "green", "blue"])
prepare = shortlist.Preprocessing(height=16, width=16, resize=16, mean=(0.0,) * 3, std=(1.0,) * 3)
network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
from shortlist.scores import PriorRecord, ScoreMap
meaning = ScoreMap(3, contains=PriorRecord.training(torch.ones(3)))
model = shortlist.Model.from_parts(network, classes, preprocessing=prepare, score_map=meaning)
page = TestClient(make_app(Service(model)), base_url="http://127.0.0.1").get("/")
assert page.status_code == 200 and "<script" in page.text
"""
PAPERS = """
import csv, io, re, sys
from pathlib import Path
import shortlist
assert Path(shortlist.__file__).is_relative_to(sys.prefix), shortlist.__file__
from typer.testing import CliRunner
from shortlist.cli import app
from shortlist.papers import FIGURES, list_tables, load_figure
def output(*words):
    result = CliRunner().invoke(app, ["papers", *words])
    assert result.exit_code == 0, (words, result.output, result.exception)
    return result.stdout
NUMBER = re.compile(r"[0-9]+[.][0-9]+")
listed, documents, numbers = output(), set(), 0
for layout in list_tables():
    assert f"    {layout.name}: " in listed
    documents.add(layout.document)
    rows = list(csv.reader(io.StringIO(output("table", layout.name, "--csv").strip())))
    published = [number for place in layout.places() for number in place.numbers]
    wanted = sorted(f"{number.value:.{number.digits}f}" for number in published if number.digits)
    cells = [cell for row in rows[1:] for cell in row[len(layout.stubs):]] if layout.has_numbers else []
    said = [text for cell in cells for text in NUMBER.findall(re.sub("± [0-9.]+", "", cell))]
    assert sorted(said) == wanted, layout.name
    numbers += len(said)
    for form in ("--latex", "--markdown", "--html"):
        text = output("table", layout.name, form)
        assert all(number in text for number in said), (layout.name, form)
    assert output("table", layout.name).strip()
assert len(documents) == 5 and len(list_tables()) == 43 and numbers > 900, numbers
SMALL = {
    "level_sets": ["k=1", "resolution=4", "losses=topk_hinge"],
    "noise_landscape": ["k=1", "noise_std=0.3", "num_draws=3", "resolution=4"],
    "epoch_time": ["losses=topk_hinge", "k=2", "epochs=2"],
    "nonzero_gradients": ["noise_std=0.1", "num_draws=3", "num_rows=20", "num_classes=10"],
    "calibration_map": ["noise_std=[0.0, 1.0]", "cases=[[3, 1]]", "parts=2", "starts=1", "steps=5"],
    "splitter_network": [],
    "lorenz": ["data=gaussian_genera"],
    "two_gaussians": ["trials=2", "frequencies=[0.1, 0.2]", "rows=200"],
    "two_gaussians_tau": ["trials=2", "rows=200", "steps=3"],
    "binary_links": ["steps=5"],
    "ambiguity": ["max_rows=50", "pairs=1"],
}
assert set(SMALL) == {name for name in FIGURES if not load_figure(name).takes_runs}
for name, options in SMALL.items():
    output("figure", name, *[word for option in options for word in ("--set", option)])
    assert Path(f"{name}.svg").stat().st_size > 1000, name
"""
RECIPE = {
    "data": {"name": "gaussian_genera", "num_classes": 10, "num_genera": 3, "num_rows": 200},
    "model": {"name": "linear"},
    "epochs": 1,
    "predictors": {"top2": {"name": "topk", "k": 2}},
}


def project() -> dict:
    return pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_has_the_version_and_the_license():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project()["version"]
    assert citation["license"] == project()["license"]


# uvicorn takes these two if they are there, SQLAlchemy the third
TAKEN_BY_OTHERS = {"httptools", "uvloop", "psycopg"}


def test_every_package_that_is_installed_is_used():
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py") if path.name != "_extras.py"]
    extras = project()["optional-dependencies"]
    for extra in set(extras) - {"dev", "docs", "all"}:
        names = [re.match(r"[\w-]+", line)[0] for line in extras[extra]]
        for name in set(names) - {"shortlist", *TAKEN_BY_OTHERS}:
            module = MODULES.get(name, name)
            used = re.compile(rf"(?:import|from) {module}\b|[\"']{module}[\"']")
            assert any(used.search(text) for text in sources), f"{name} of [{extra}]"
    for line in project()["dependencies"]:
        name = re.match(r"[\w-]+", line)[0].replace("-", "_")
        assert any(re.search(rf"(?:import|from) {name}\b", text) for text in sources), name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_has_all_files_of_the_package(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    there = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert (
        "shortlist/serve/templates/page.html" in there and "shortlist/papers/layouts/thesis_4.5.yaml" in there
    )
    assert there <= packed
    assert not [name for name in packed if name.startswith(("tests/", "docs/"))]


@pytest.mark.slow
def test_the_wheel_works_in_another_place(wheel, tmp_path):
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    install = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", str(wheel)], check=True, capture_output=True)
    [packages] = place.glob("lib/*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")  # torch and the others

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "recipe.yaml").write_text(yaml.dump(RECIPE))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=elsewhere, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout

    command, python = str(place / "bin" / "shortlist"), str(place / "bin" / "python")
    assert run(command, "--version") == f"shortlist {project()['version']}\n"
    assert "predict" in run(python, "-m", "shortlist", "--help")
    run(command, "train", "recipe.yaml", "--out", "run")
    run(command, "report", "run", "-o", "report.html")
    assert "<html" in (elsewhere / "report.html").read_text()
    assert "papers:garcin2022_noise" in run(command, "papers")
    run(python, "-c", PAPERS)
    run(python, "-c", SMOKE)
