"""The lists of the engine in JavaScript are those of ``Model.lists``, with the same promise in its words.

Only classes at a threshold may differ: one digit of half precision, which two ways to compute a logarithm can
round otherwise, decides whether they are in.
"""

import json
import random
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shortlist import ClassTable, Model
from shortlist._row_facts import RowFacts
from shortlist.model import Choice, NextPhotos, export_lists
from shortlist.place import Place
from shortlist.predictors import CalibrationRows
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.sentences import (
    LANGUAGES,
    next_photo_words,
    promise_words,
    scope_words,
    speaking,
    strings,
    why_not,
)
from tests.serve.parts import photographed_model

ENGINE = files("shortlist.app").joinpath("engine")
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def a_model(seed: int, classes: int, rows: int, max_bytes: int) -> Model:
    """A model of random scores, whose rows are photos of objects and show one of two organs."""
    random_numbers = torch.Generator().manual_seed(seed)
    counts = torch.randint(3, 300, (classes,), generator=random_numbers)
    names = [f"Kind {number}" for number in range(classes)]
    table = ClassTable(names=names, counts=tuple(counts.tolist()))
    training, priors = PriorRecord.training(counts), PriorRecord.balanced(classes)
    now = priors if seed % 2 else training
    target = torch.randint(classes, (rows,), generator=random_numbers)
    target[target == 1] = 0  # a class without rows
    scores = 1.5 * torch.randn(rows, classes, generator=random_numbers) + 2.5 * torch.eye(classes)[target]
    facts = RowFacts.of_columns(
        {
            "observation": [f"{target[i]}-{i // 7 % 9}" if i % 5 else "" for i in range(rows)],
            "organ": [("leaf", "flower", "leaf", "")[i % 4] for i in range(rows)],
        }
    )
    kept = CalibrationRows.of_rows(
        scores, target, priors=now.priors, frequencies=training.priors, facts=facts, max_bytes=max_bytes
    )
    score_map = ScoreMap(classes, contains=now)
    return Model.from_parts(nn.Identity(), table, score_map=score_map, calibration_rows=kept)


def description_of(model: Model, folder: Path) -> dict:
    """The part of lists.json that the engine's lists need."""
    save_file(model.calibration_rows.to_tensors(), folder / "rows.safetensors")
    now = model.score_map.now
    offset = PriorRecord.training(model.classes.class_counts).log_priors - now.log_priors
    return {
        "classes": {"names": list(model.classes.names)},
        "priors": now.priors.tolist(),
        "shown": offset.tolist(),
        "predictors": [],
        "default": None,
        "rows": {"file": "rows.safetensors"},
    }


def a_choice(rng: random.Random, classes: int) -> dict:
    """A choice that the model may be able to make."""
    kind = rng.choice(["coverage", "coverage", "average", "top"])
    value = {
        "coverage": rng.choice([0.5, 0.8, 0.9, 0.95, 0.99, round(rng.uniform(0.05, 0.999), 3)]),
        "average": rng.choice([1, 1.5, 2, 3, round(rng.uniform(1, min(50, classes - 1)), 2)]),
        "top": rng.randint(1, classes),
    }[kind]
    choice = {kind: value, "macro": rng.random() < 0.3, "photos": rng.choice([1, 1, 1, 2, 3])}
    if kind != "top" and rng.random() < 0.5:
        choice["at_least"] = rng.randint(0, 2)
        if rng.random() < 0.6:
            choice["at_most"] = rng.randint(max(1, choice["at_least"]), 6)
    if rng.random() < 0.25:
        choice["group"] = ("organ", rng.choice(["leaf", "flower"]))
    return choice


def a_place(rng: random.Random, table: ClassTable) -> tuple[Place | None, dict]:
    """A place with weights, a list of classes, or none; and what the engine is told of it."""
    kind = rng.choice(["none", "none", "weights", "classes"])
    if kind == "none":
        return None, {}
    names = rng.sample(list(table.names), rng.randint(2, len(table)))
    if kind == "classes":
        return Place.of(sorted(names)), {"classes": [table.names.index(name) for name in names]}
    name = f"garden {rng.random()}"  # no two of an app have one name
    place = Place({**{label: rng.randint(1, 9) for label in names}, "Yeti": 1}, name=name, title="A garden")
    match = place.match(table)
    weights = [[i, weight] for i, weight in enumerate(match.vector.tolist()) if weight]
    content = {"name": name, "shown": "A garden", "matched": match.matched, "unknown": 1}
    return place, {"place": content | {"weights": weights}}


def asked_and_answered(model: Model, folder: Path, seed: int, number: int):
    """Random questions, with the answers of Python and of the engine."""
    rng, classes = random.Random(seed), len(model.classes)
    random_numbers, asked, wanted = torch.Generator().manual_seed(seed), [], []
    for i in range(number):
        choice, (place, told) = a_choice(rng, classes), a_place(rng, model.classes)
        photos = choice["photos"]
        scores = 2 * torch.randn(8 * photos, classes, generator=random_numbers)
        objects = scores.unflatten(0, (-1, photos)).tolist()
        plain = {name: value for name, value in choice.items() if name != "photos"}
        language, limit = LANGUAGES[i % len(LANGUAGES)], rng.choice([3, 10, 60])
        asked.append({"choice": plain, "scores": objects, "limit": limit, "language": language} | told)
        full = Choice(**choice, place=place)
        try:
            lists = model.lists(scores, full, at_least=limit, limit=limit)
            wanted.append((lists, model.resolve(full)[1], language))
        except ValueError as error:
            wanted.append(str(error))
    return asked, wanted, of_engine(folder, asked, description_of(model, folder))


def of_engine(folder: Path, asked: list, description: dict) -> list:
    """What the engine answers to questions, under node."""
    (folder / "asked.json").write_text(json.dumps(asked))
    (folder / "lists.json").write_text(json.dumps(description))
    words = {}
    for language in LANGUAGES:
        with speaking(language):
            words[language] = strings()
    (folder / "words.json").write_text(json.dumps(words))
    command = ["node", str(Path(__file__).with_name("lists.mjs")), str(ENGINE), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)


WHOLE = 10**9  # bytes
MODELS = [(1, 12, 300, WHOLE, 30), (3, 30, 600, 9_000, 30)]
MORE = [(2, 30, 700, WHOLE, 80), (4, 3, 40, WHOLE, 80), (5, 60, 900, 40_000, 80), (6, 200, 1_500, 90_000, 80)]


@pytest.mark.parametrize(
    ("seed", "classes", "rows", "max_bytes", "choices"),
    [*MODELS, *(pytest.param(*model, marks=pytest.mark.slow) for model in MORE)],
)
def test_lists_promises_and_words_are_those_of_python(tmp_path, seed, classes, rows, max_bytes, choices):
    model = a_model(seed, classes, rows, max_bytes)
    assert (model.calibration_rows.classes is None) == (max_bytes == WHOLE)
    asked, wanted, answers = asked_and_answered(model, tmp_path, seed, choices)
    compared = refused = differing = 0
    for question, expected, answer in zip(asked, wanted, answers, strict=True):
        if isinstance(expected, str):
            assert "error" in answer, (question["choice"], expected)
            refused += 1
            continue
        assert "error" not in answer, (question["choice"], answer)
        lists, promise, language = expected
        same_promise(promise, answer["promise"], language)
        for made, listed, margins in zip(lists, answer["lists"], answer["margins"], strict=True):
            compared += 1
            differing += not same_list(made, listed, margins)
    assert compared > 4 * choices and refused < choices / 2
    assert differing <= 0.005 * compared  # classes at a threshold, where one half-precision digit decides


def same_promise(promise, said, language):
    with speaking(language):
        assert said["words"] == promise_words(promise)
        assert said["why_not"] == why_not(promise)
        assert said["scope_words"] == scope_words(promise)
    for name in ("about", "level", "asked", "size", "rows", "left_out", "void", "lists_all", "at_most"):
        assert said[name] == getattr(promise, name), name
    if promise.share is not None:
        assert said["share"] == pytest.approx(promise.share, abs=1e-7)


def same_list(made, listed, margins) -> bool:
    """Whether two lists are equal; if not, only classes at the threshold may differ."""
    differing = set(made.members) ^ set(listed["members"])
    if differing:
        assert margins is not None
        assert all(abs(margins[index]) < 1e-3 for index in differing), (differing, margins)
        return False
    assert [c.index for c in made] == [c["index"] for c in listed["candidates"]]
    assert [c.in_set for c in made] == [c["in_set"] for c in listed["candidates"]]
    for ours, theirs in zip(made, listed["candidates"], strict=True):
        assert theirs["probability"] == pytest.approx(ours.probability, abs=1e-5)
        assert theirs["enters_at"]["top"] == ours.enters_at.top
        for name in ("coverage", "average"):
            here, there = getattr(ours.enters_at, name), theirs["enters_at"][name]
            assert (here is None) == (there is None) and (
                here is None or abs(here - there) <= 0.02 * max(1, here)
            )
    assert listed["mass"] == pytest.approx(made.mass, abs=1e-4)
    return True


@pytest.mark.slow
def test_named_predictors_make_their_own_lists_or_those_of_their_rows(tmp_path):
    model = photographed_model()
    export_lists(model, tmp_path / "bundle", version="0123456789ab")
    description = json.loads((tmp_path / "bundle" / "lists.json").read_text())
    (tmp_path / "bundle" / "rows.safetensors").rename(tmp_path / "rows.safetensors")
    place = Place({"q1": 3, "q2": 1, "b1": 2}, name="garden", title="A garden")
    match = place.match(model.classes)
    weights = [[i, weight] for i, weight in enumerate(match.vector.tolist()) if weight]
    told = {"name": "garden", "shown": "A garden", "matched": 3, "unknown": 0, "weights": weights}
    asked, wanted = [], []
    for name in (None, *model.predictors):
        for photos, here in ((1, None), (2, None), (1, place)):
            scores = 2 * torch.randn(12 * photos, 6, generator=torch.Generator().manual_seed(7))
            choice = Choice(predictor=name, photos=photos, place=here)
            wanted.append((model.lists(scores, choice, at_least=6, limit=6), model.resolve(choice)[1]))
            sets = [
                {key: model.sets(row[:1], key)[0].tolist() for key in model.predictors}
                for row in scores.unflatten(0, (-1, photos))
            ]
            question = {"choice": {"predictor": name}, "limit": 6, "language": "en", "sets": sets}
            question["scores"] = scores.unflatten(0, (-1, photos)).tolist()
            asked.append(question | ({} if here is None else {"place": told}))
    answers = of_engine(tmp_path, asked, description)
    for question, (lists, promise), answer in zip(asked, wanted, answers, strict=True):
        assert "error" not in answer, (question["choice"], answer)
        same_promise(promise, answer["promise"], "en")
        for made, listed, margins in zip(lists, answer["lists"], answer["margins"], strict=True):
            same_list(made, listed, margins)


@pytest.mark.parametrize("max_bytes", [WHOLE, 9_000])
def test_the_photo_to_take_next_is_that_of_python(tmp_path, max_bytes):
    """Leaves say little, flowers much, bark something; half of the objects have two photos."""
    random_numbers, organs = torch.Generator().manual_seed(8), ("leaf", "flower", "bark")
    classes, rows = 6, 900
    target = torch.randint(classes, (rows,), generator=random_numbers)
    shown = torch.randint(len(organs), (rows,), generator=random_numbers)
    noise = torch.tensor([3.0, 0.6, 1.8])[shown, None] * torch.randn(rows, classes, generator=random_numbers)
    facts = {
        "observation": [f"{i // 2}-{target[i]}" if i % 3 else "" for i in range(rows)],
        "organ": [organs[number] for number in shown],
    }
    priors = PriorRecord.balanced(classes)
    kept = CalibrationRows.of_rows(
        2.5 * torch.eye(classes)[target] + noise,
        target,
        priors=priors.priors,
        frequencies=priors.priors,
        facts=RowFacts.of_columns(facts),
        max_bytes=max_bytes,
    )
    table = ClassTable(names=[f"Kind {number}" for number in range(classes)], counts=(9,) * classes)
    model = Model.from_parts(
        nn.Identity(), table, score_map=ScoreMap(classes, contains=priors), calibration_rows=kept
    )
    pairs = [(i, j, organ) for j in range(classes) for i in range(j) for organ in (*organs, None, "root")]
    asked = [
        {"pair": [i, j], "organ": organ, "language": LANGUAGES[number % len(LANGUAGES)]}
        for number, (i, j, organ) in enumerate(pairs)
    ]
    answers, advised = of_engine(tmp_path, asked, description_of(model, tmp_path)), 0
    for (i, j, organ), question, answer in zip(pairs, asked, answers, strict=True):
        photo = NextPhotos(kept).find(i, j, organ)
        assert (photo is None) == (answer is None), question
        if photo is not None:
            advised += 1
            with speaking(question["language"]):
                assert answer["words"] == next_photo_words(photo, table.names[i], table.names[j])
            assert (answer["organ"], answer["objects"]) == (photo.organ, photo.objects)
            assert answer["told_apart"] == pytest.approx(photo.told_apart, abs=1e-12)
            assert answer["told_apart_now"] == pytest.approx(photo.told_apart_now, abs=1e-12)
    assert len(pairs) / 5 < advised < len(pairs)


def test_names_of_all_scripts_are_found():
    names = ["Πρίνος", "नीम", "नाम", "น้ำเต้า", "Chêne pédonculé", "Weißdorn", "ᏣᎳᎩ", "Mentha ×piperita"]
    texts = [*names, *map(str.upper, names), "πρινος", "chene", "weiss", "Mentha piperita"]
    asked = json.dumps({"names": names, "texts": texts})
    command = ["node", str(Path(__file__).with_name("search.mjs")), str(ENGINE), asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = [*names, *names, names[0], names[4], names[5], names[7]]
    assert json.loads(done.stdout) == [[name] for name in found]
