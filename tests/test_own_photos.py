"""The tutorial about one's own photos: its commands, its code and its notebook, on drawn photos."""

import math
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFilter

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/tutorials/own_photos.md"
RUN = "runs/my_photos-cross_entropy-seed0"
CORNERS = {"triangle": 3, "square": 4, "hexagon": 6, "circle": 60}
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    "OMP_NUM_THREADS": "1",
}


def draw_photo(path: Path, corners: int, chance: random.Random) -> None:
    """Write a blurred shape of a random size, color and place, in the size of a small photo."""
    width, height = chance.randint(60, 90), chance.randint(60, 90)
    picture = Image.new("RGB", (width, height), tuple(chance.randint(150, 255) for _ in range(3)))
    radius, turn = chance.uniform(15, 25), chance.uniform(0, 0.3)
    angles = [turn + 2 * math.pi * corner / corners for corner in range(corners)]
    points = [(width / 2 + radius * math.cos(a), height / 2 + radius * math.sin(a)) for a in angles]
    ImageDraw.Draw(picture).polygon(points, fill=tuple(chance.randint(0, 120) for _ in range(3)))
    picture.filter(ImageFilter.GaussianBlur(chance.uniform(0, 1))).save(path, quality=85)


@pytest.fixture
def folder(tmp_path):
    """A folder with ``my_photos`` and ``new_photos``."""
    chance = random.Random(0)
    for name, corners in CORNERS.items():
        place = tmp_path / "my_photos" / name
        place.mkdir(parents=True)
        for number in range(30):
            draw_photo(place / f"{number}.jpg", corners, chance)
    (tmp_path / "new_photos").mkdir()
    draw_photo(tmp_path / "new_photos" / "bird.jpg", 3, chance)
    return tmp_path


def commands() -> list[list[str]]:
    """The commands of the page in their order, but for the one that never ends."""
    lines = re.findall(r"^(shortlist .*?)(?:\s+#.*)?$", PAGE.read_text(), flags=re.M)
    words = [shlex.split(line) for line in lines]
    return [one for one in words if one[1] != "serve"]


@pytest.mark.slow
def test_the_commands_and_the_code_of_the_page_run(folder):
    verbs = [words[1] for words in commands()]
    assert verbs == ["data", "init", "train", "predict", "predict", "report", "index"]
    for words in commands():
        short = ["--set", "epochs=2", "--set", "data.image_size=32"] if words[1] == "train" else []
        command = [sys.executable, "-m", "shortlist", *words[1:], *short]
        done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
        finds_things = words[1:3] == ["data", "check"]  # drawings look alike; it says so by its exit code
        assert done.returncode == 0 or finds_things, f"{words}: {done.stdout} {done.stderr}"
    lists = (folder / "lists.csv").read_text().splitlines()
    columns = set(lists[0].split(","))
    told = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE.read_text(), flags=re.M)
    assert columns == {name for cell in told for name in re.findall(r"`(\w+)`", cell)}
    assert "bird.jpg" in lists[1]
    assert (folder / "report.html").stat().st_size > 10_000
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert set(CORNERS) & set(done.stdout.split())
    assert re.search(r"9[0589] of 100", done.stdout)  # what the calibration photos chose


@pytest.mark.slow
def test_the_notebook_runs(folder, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    for key in ("PYTHONPATH", "OMP_NUM_THREADS"):
        monkeypatch.setenv(key, ENVIRONMENT[key])
    notebook = nbformat.read(ROOT / "examples/own_photos.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    cell = next(cell for cell in notebook.cells if "EPOCHS = 10" in cell.source)
    cell.source = cell.source.replace("EPOCHS = 10", "EPOCHS = 2")
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    last = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    assert re.findall(r"^(\w+): right class in", last, flags=re.M) == ["average2", "conformal90", "top2"]
