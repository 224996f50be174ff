"""The closest images of two classes and the farthest of one, against loops over all pairs."""

import itertools
import json
import math

import pytest
import torch

from shortlist.class_table import ClassTable
from shortlist.datasets import Splits, TensorSplit
from shortlist.papers.figures import _distances, ambiguity, load_figure
from shortlist.papers.figures._distances import closest_pairs, farthest_pairs, nearest_rows
from shortlist.recipes.recipe import make_recipe
from shortlist.training.fit import train

ROWS, CLASSES = 60, 8


def made(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, 3, generator=generator, dtype=torch.float64), torch.arange(ROWS) ** 2 % CLASSES


def distance(features: torch.Tensor, i: int, j: int) -> float:
    return math.dist(features[i].tolist(), features[j].tolist())


def slow_closest(features, target, number: int) -> list[tuple[int, int, float]]:
    pairs = itertools.combinations(range(len(target)), 2)
    others = [(distance(features, i, j), i, j) for i, j in pairs if target[i] != target[j]]
    found, used = [], set()
    for length, i, j in sorted(others):
        classes = {int(target[i]), int(target[j])}
        if not classes & used and len(found) < number:
            used |= classes
            found.append((*sorted((i, j), key=lambda row: int(target[row])), length))
    return found


@pytest.mark.parametrize("block", [1, 200, 2**22])
def test_pairs_in_a_slow_loop(monkeypatch, block):
    monkeypatch.setattr(_distances, "_BLOCK", block)
    features, target = made()
    own = closest_pairs(features, target, num_classes=CLASSES, number=3)
    expected = slow_closest(features, target, 3)
    assert [pair[:2] for pair in own] == [pair[:2] for pair in expected]
    assert [pair[2] for pair in own] == pytest.approx([pair[2] for pair in expected])
    far = farthest_pairs(features, target, num_classes=CLASSES, number=2)
    lengths = {}
    for i, j in itertools.combinations(range(ROWS), 2):
        if target[i] == target[j]:
            label = int(target[i])
            lengths[label] = max(lengths.get(label, (0.0, 0, 0)), (distance(features, i, j), i, j))
    best = sorted(lengths.values(), reverse=True)[:2]
    assert [(*sorted(pair[:2]), pytest.approx(pair[2])) for pair in far] == [(i, j, d) for d, i, j in best]
    nearest = nearest_rows(features).tolist()
    for i in range(ROWS):
        others = [j for j in range(ROWS) if j != i]
        assert nearest[i] == min(others, key=lambda j: distance(features, i, j))


def test_as_many_pairs_as_there_are():
    features, target = made()
    few = target.clamp_max(2)
    assert len(closest_pairs(features, few, num_classes=3, number=9)) == 1  # the third class has no partner
    alone = torch.arange(ROWS)
    assert farthest_pairs(features, alone, num_classes=ROWS, number=2) == []
    one = torch.zeros(ROWS, dtype=torch.int64)
    assert closest_pairs(features, one, num_classes=1, number=2) == []


@pytest.fixture
def pictures(monkeypatch) -> Splits:
    """A data set of small pictures; two classes of a genus share a picture."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(256, (24, 1, 5, 5), generator=generator, dtype=torch.uint8)
    inputs[7] = inputs[2]
    targets = torch.arange(24) % 4
    targets[7] = 1
    part = TensorSplit(inputs, targets)
    table = ClassTable(names=("a", "b", "c", "$d"), parents={"genus": ("G", "H", "H", "I")})
    splits = Splits(part, part, part, table)
    monkeypatch.setattr(ambiguity, "open_dataset", lambda name: splits)
    return splits


def test_pairs_of_pictures(pictures):
    told = []
    numbers = ambiguity.measure(data="any", pairs=2, progress=lambda *words: told.append(words))
    closest = numbers["closest"][0]
    assert (closest["rows"], closest["names"], closest["distance"]) == ([7, 2], ["b", "c"], 0)
    assert closest["parents"] == {"genus": ["H", "H"]}
    assert closest["pictures"][0] == closest["pictures"][1] and closest["pictures"][0].startswith(
        "data:image"
    )
    flat = pictures.test.inputs.flatten(1).double() / 255
    for kind in ("closest", "farthest"):
        for pair in numbers[kind]:
            i, j = pair["rows"]
            assert pair["distance"] == pytest.approx(float((flat[i] - flat[j]).square().mean().sqrt()))
    nearest = [min((j for j in range(24) if j != i), key=lambda j: distance(flat, i, j)) for i in range(24)]
    names = [pictures.class_table.names[index] for index in pictures.test.targets.tolist()]
    wrong = [(names[i], names[j]) for i, j in enumerate(nearest) if names[i] != names[j]]
    assert numbers["nearest_is_other"] == pytest.approx(len(wrong) / 24)
    genus = dict(zip(pictures.class_table.names, "GHHI", strict=True))
    inside = sum(genus[first] == genus[second] for first, second in wrong)
    assert numbers["nearest_within"]["genus"] == pytest.approx(inside / len(wrong))
    assert told == [("opening the data", 1, 3), ("distances", 2, 3), ("pairs", 3, 3)]
    fewer = ambiguity.measure(data="any", max_rows=10)
    assert (fewer["rows"], max(row for pair in fewer["closest"] for row in pair["rows"]) < 10) == (10, True)


def test_large_pictures_are_compared_at_32_pixels(monkeypatch):
    inputs = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    part = TensorSplit(inputs, torch.tensor([0, 1, 0, 1]))
    splits = Splits(part, part, part, ClassTable(names=("a", "b")))
    monkeypatch.setattr(ambiguity, "open_dataset", lambda name: splits)
    pair = ambiguity.measure(data="any")["closest"][0]
    small = inputs.double().unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))  # means of 2 x 2 pixels
    i, j = pair["rows"]
    assert pair["distance"] == pytest.approx(float((small[i] - small[j]).square().mean().sqrt()))


def test_pairs_are_drawn(pictures):
    numbers = json.loads(json.dumps(ambiguity.measure(data="any", pairs=2)))
    drawing = load_figure("ambiguity").draw(numbers)
    drawing.draw_without_rendering()
    shown = [axes for axes in drawing.axes if axes.images]
    assert len(shown) == 2 * 2 + 2 * 2
    titles = [axes.get_title() for axes in drawing.axes]
    assert titles[:2] == numbers["closest"][0]["names"]
    assert tuple(shown[0].images[0].get_array().shape) == (5, 5, 3)


def test_rows_that_are_no_pictures_have_no_pictures():
    numbers = ambiguity.measure(data="gaussian_genera", max_rows=300, pairs=1)
    assert numbers["closest"][0]["pictures"] == [None, None]
    load_figure("ambiguity").draw(numbers).draw_without_rendering()


@pytest.mark.slow
def test_features_of_a_run(tmp_path):
    recipe = make_recipe(
        {"data": {"name": "gaussian_genera", "num_rows": 400}, "model": {"name": "mlp", "hidden": [8]}},
        ["epochs=1", "loggers=[]"],
    )
    run = train(recipe, tmp_path / "run")
    numbers = ambiguity.measure(run=str(run.path), max_rows=500, pairs=2)
    assert numbers["rows"] == 500 and "features" in numbers["distance"]
    assert all(0 <= pair["distance"] <= 2 for pair in [*numbers["closest"], *numbers["farthest"]])


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "nowhere"}, "data must be the name or path of a data set: nowhere is neither"),
        ({"part": "tests"}, "part must be one of train, val, test, got 'tests'"),
        ({"pairs": 0}, "pairs must be an integer >= 1, got 0"),
        ({"max_rows": 1}, "max_rows must be an integer >= 2, got 1"),
        ({"run": "nowhere"}, "nowhere is not a run folder"),
    ],
)
def test_ambiguity_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        ambiguity.measure(**options)
