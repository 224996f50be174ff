"""The Python of README and of the pages runs.

A block that the tests cannot run is opened by ```` ```python title="..." ````: its title says what it needs,
for readers too.
"""

import importlib.util
import re
import shlex
from operator import attrgetter
from pathlib import Path

import pytest
import torch
from PIL import Image

import shortlist
from shortlist import ClassTable, Model, Preprocessing
from shortlist.index import build_index, source_of_images
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.recipes.recipe import make_recipe
from tests.run_factory import finished_run

ROOT = Path(__file__).parents[1]
WITH_PHOTOS = "docs/tutorials/own_photos.md"  # its code needs a run: tests/test_own_photos.py
GO_ON = {"docs/guides/scikit_learn.md"}  # whose blocks use what those before made
SLOW = {"docs/explanations/glyphs.md"}  # renders the glyphs, if they are not in the cache
CODE = re.compile(r"^```python\n(.*?)^```", flags=re.S | re.M)
PAGES = [
    page
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if (page := str(path.relative_to(ROOT))) != WITH_PHOTOS and CODE.search(path.read_text())
]


def two_runs() -> None:
    """The runs of docs/guides/report.md."""
    table = ClassTable(names=("oak", "ash", "elm", "fir"), counts=(40, 30, 20, 5))
    for seed, name in enumerate(("cross_entropy", "noised_topk")):
        generator = torch.Generator().manual_seed(seed)
        target = torch.arange(60) % 4
        scores = torch.randn(60, 4, generator=generator)
        predictors = {"top2": {"name": "topk", "k": 2}}
        recipe = make_recipe({"loss": {"name": name}, "predictors": predictors})
        finished_run(
            Path(f"runs/{name}-0"), recipe, {"val": (scores, target), "test": (scores, target)}, table
        )


def plants_and_their_index() -> None:
    """The model, the index and the photos of docs/guides/similar_images.md."""
    names = [f"species {i}" for i in range(21)]
    prepare = Preprocessing(height=32, width=32, resize=None, mean=(0.5,) * 3, std=(0.5,) * 3)
    spec = NetworkSpec(name="small_cnn", options={"width": 4}, num_classes=21, input_shape=(3, 32, 32))
    model = Model.from_parts(build_network(spec), ClassTable(names), preprocessing=prepare, spec=spec)
    model.save("runs/plants")
    for number, name in enumerate(names):
        folder = Path("known") / name
        folder.mkdir(parents=True)
        Image.new("RGB", (40, 40), (10 * number, 99, 0)).save(folder / "a.jpg")
    build_index(model, source_of_images("known", model), "runs/plants/index")
    for number, name in enumerate(("leaf", "flower", "new")):
        Image.new("RGB", (50, 40), (0, 80 * number, 200)).save(f"{name}.jpg")


def module_of(example: str):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(example, ROOT / f"examples/{example}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NEEDS = {"docs/guides/report.md": two_runs, "docs/guides/similar_images.md": plants_and_their_index}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in PAGES]
)
def test_python_of_the_pages_runs(page, tmp_path, monkeypatch):
    """In a folder that has what the page speaks of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    if page in NEEDS:
        NEEDS[page]()
    names: dict = {}
    for code in CODE.findall((ROOT / page).read_text()):
        exec(compile(code, page, "exec"), names if page in GO_ON else {})


def test_calls_in_sentences_can_be_written_as_they_are():
    """`shortlist.a.b(...)` after `import shortlist`; a function can hide the module of the same name."""
    calls = set()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        calls |= set(re.findall(r"\bshortlist((?:\.\w+)+)\(", path.read_text()))
    assert {".Model.load", ".datasets.embeddings"} <= calls
    for call in calls:
        assert callable(attrgetter(call[1:])(shortlist)), call


def test_blocks_that_are_not_run_say_what_they_need():
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for opening in re.findall(r"^ *```(python|py)\b(.*)$", path.read_text(), flags=re.M):
            assert opening == ("python", "") or re.fullmatch(r' title=".+"', opening[1]), (path, opening)


def test_options_of_the_decision_table_are_options_of_recipes():
    """Each ``--set`` of docs/guides/choosing.md, as the command takes it."""
    lines = re.findall(r"`(--set .*?)`", (ROOT / "docs/guides/choosing.md").read_text())
    assert len(lines) >= 6
    for line in lines:
        changes = [word for word in shlex.split(line) if word != "--set"]
        assert make_recipe({}, changes) != make_recipe({}), line


def test_the_figure_of_gains_reads_the_tables():
    """Two numbers that the pages say in words, too."""
    figure = module_of("choosing_figure")
    assert figure.gains("label_noise", "data.label_noise 0.4", "top5.micro (%)")["smooth_top5"].points == 7.4
    assert figure.gains("photos_long_tail", "Birds", "top5.macro (%)")["class_balanced"].points == -5.2
    for column, rows, tables in figure.QUESTIONS.values():
        measured = [set(figure.gains(page, heading, column)) for _, page, heading in tables]
        assert all(any(name in names for names in measured) for name in rows)
