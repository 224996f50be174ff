"""Scored rows at a place: lists as by loops, measured as from all scores, with observations and groups."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from shortlist import ClassTable, Model
from shortlist._row_facts import RowFacts
from shortlist.metrics import measure_place, measure_populations
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import CalibrationRows, TopK
from shortlist.scores import PriorRecord, ScoreMap
from tests.cli.test_predict import place_sets
from tests.commands import run
from tests.passes.test_score import table_of

NAMES = ("oak", "elm", "birch", "ash", "yew", "fir")
COUNTS = (60, 30, 10, 20, 5, 15)
WEIGHTS = torch.tensor([0, 0, 3, 1, 1, 0], dtype=torch.float64) / 5


def rows_of(number, seed):
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(number) % 6
    return 2.0 * torch.nn.functional.one_hot(target, 6) + torch.randn(number, 6, generator=generator), target


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A model whose scores are its inputs, with calibration rows in float64, and 120 rows of 60 objects."""
    folder = tmp_path_factory.mktemp("place")
    table = ClassTable(names=NAMES, counts=COUNTS)
    priors = PriorRecord.training(table.class_counts)
    spec = NetworkSpec(name="linear", num_classes=6, input_shape=(6,))
    network = build_network(spec).eval()
    for parameter in network.parameters():
        parameter.data = torch.eye(6) if parameter.ndim == 2 else torch.zeros(6)
    scores, target = rows_of(240, 1)
    rows = CalibrationRows.of_rows(scores.double(), target, priors=priors.priors, dtype=torch.float64)
    parts = {"score_map": ScoreMap(6, contains=priors), "predictors": {"top2": TopK(2)}, "spec": spec}
    Model.from_parts(network, table, calibration_rows=rows, **parts).save(folder / "model")
    (folder / "garden.csv").write_text("id,weight\nbirch,3\nash,1\nyew,1\nyeti,2\n")
    inputs, labels = rows_of(120, 2)
    texts = {"observation": [f"o{i % 60}" for i in range(120)], "organ": ["leaf", "bark", ""] * 40}
    facts = RowFacts.of_columns(texts)
    tensors, groups = facts.to_tensors()
    about = {"shortlist": json.dumps({"groups": groups})}
    tensors |= {"embeddings": inputs, "targets": labels}
    save_file(tensors, folder / "rows.safetensors", metadata=about)
    return folder, (scores, target), (inputs, labels, facts)


def score(folder, out, *words):
    return run("score", folder / "model", folder / "rows.safetensors", "-o", out, "--workers", 1, *words)


@pytest.fixture(scope="module")
def scored(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("scores") / "out"
    words = ("--place", world[0] / "garden.csv", "--coverage", 0.8, "--keep", 2, "--shard-rows", 50)
    assert score(world[0], out, *words)[0] == 0
    return out


def test_the_parts_hold_the_lists_of_the_place(world, scored):
    _, (scores, target), (inputs, labels, _) = world
    table, priors = table_of(scored), np.array(COUNTS) / sum(COUNTS)
    log_p, new = scores.double().log_softmax(1).numpy(), inputs.double().numpy()
    wanted = place_sets(log_p, target.numpy(), new - new.max(), priors, WEIGHTS.numpy(), 0.8)
    assert table["place.size"] == wanted.sum(1).tolist() and len(set(table["place.size"])) > 1
    assert table["place.hit"] == wanted[np.arange(120), labels.numpy()].tolist()
    there = np.exp(new) * WEIGHTS.numpy() / priors
    there /= there.sum(1, keepdims=True)
    order = np.argsort(-there, axis=1)[:, :2]  # classes that occur, though only two are kept
    assert table["place.classes"] == order.tolist()
    np.testing.assert_allclose(table["place.probabilities"], np.take_along_axis(there, order, 1), atol=1e-6)
    for listed, best, inside in zip(table["place.set"], order.tolist(), wanted, strict=True):
        members = [index for index in best if inside[index]]
        assert listed == (members if len(members) == inside.sum() else None)


@pytest.mark.slow
def test_two_workers_and_other_shards_give_the_same_bits(world, scored, tmp_path):
    words = ("--place", world[0] / "garden.csv", "--coverage", 0.8, "--keep", 2, "--shard-rows", 7)
    assert score(world[0], tmp_path / "out", *words, "--workers", 2)[0] == 0  # the last number counts
    assert table_of(tmp_path / "out") == table_of(scored)


def test_lists_of_scored_rows_measure_as_those_of_all_scores(world, scored):
    folder, _, (inputs, labels, facts) = world
    model = Model.load(folder / "model")
    wanted = measure_place(
        model.calibration_rows, model.scores(inputs), labels, WEIGHTS, facts=facts, coverage=0.8
    )
    words = ("evaluate", folder / "model", "--scores", scored, "--place", folder / "garden.csv")
    code, out, _ = run(*words, "--json")
    found = json.loads(out)
    assert code == 0 and found["unknown"] == ["yeti"] and found["classes"] == 3 and found["coverage"] == 0.8
    lists = found["lists"]
    assert lists["objects"] == wanted.objects == 30 and lists["calibration"] == wanted.calibration == 120
    for name, numbers in (("own", wanted.own), ("common", wanted.common)):
        # in another order the sums are others in their last bit
        assert lists[name]["size"] == pytest.approx(numbers.size, rel=1e-12)
        assert lists[name]["coverage"]["value"] == pytest.approx(numbers.coverage.value, rel=1e-12)
        assert lists[name]["coverage"]["low"] == pytest.approx(numbers.coverage.low, rel=1e-9)
    said = " ".join(run(*words)[1].split())
    assert "at garden (3 classes)" in said and "1 name is no class of the model: yeti" in said


def test_scoring_says_how_long_the_lists_of_the_place_are(world, scored):
    words = ("--place", world[0] / "garden.csv", "--coverage", 0.8, "--keep", 2, "--shard-rows", 50)
    code, out, _ = score(world[0], scored, *words)  # all parts are there
    mean = np.mean(table_of(scored)["place.size"])
    assert code == 0 and f"lists for 80 % at garden have {mean:.2f} classes on average" in out
    found = json.loads(score(world[0], scored, *words, "--json")[1])
    assert found["place"] == {"name": "garden", "coverage": 0.8, "size": mean}


def test_scored_rows_of_all_classes_are_measured_by_photos_and_organs(world, tmp_path):
    folder, _, (inputs, labels, facts) = world
    assert score(folder, tmp_path / "scores", "--shard-rows", 50)[0] == 0
    code, out, _ = run("evaluate", folder / "model", "--scores", tmp_path / "scores", "--json")
    model = Model.load(folder / "model")
    wanted = measure_populations(model.calibration_rows, model.scores(inputs), labels, facts=facts)
    found = json.loads(out)["populations"]
    assert (
        code == 0
        and list(found["photos"]) == ["1", "2"]
        and list(found["groups"]["organ"]) == ["bark", "leaf"]
    )
    for photos, numbers in wanted.photos.items():
        assert found["photos"][photos]["common"]["size"] == pytest.approx(numbers.common.size)
        assert found["photos"][photos]["objects"] == numbers.objects == 60
    assert score(folder, tmp_path / "few", "--keep", 2)[0] == 0  # of two classes such lists are not known
    code, out, _ = run("evaluate", folder / "model", "--scores", tmp_path / "few", "--json")
    assert code == 0 and json.loads(out)["populations"] is None


def test_calibration_rows_are_those_of_whole_scored_rows_with_their_facts(world, tmp_path):
    folder, _, (inputs, labels, facts) = world
    assert score(folder, tmp_path / "scores", "--shard-rows", 50)[0] == 0
    words = ("--scores", tmp_path / "scores", "-o", tmp_path / "new")
    assert run("calibrate", folder / "model", *words)[0] == 0
    rows, old = Model.load(tmp_path / "new").calibration_rows, Model.load(folder / "model").calibration_rows
    wanted = CalibrationRows.of_rows(inputs, labels, priors=old.priors, facts=facts)
    assert rows.target.tolist() == wanted.target.tolist()
    torch.testing.assert_close(rows.log_p, wanted.log_p, atol=2e-3, rtol=2e-3)
    assert rows.facts.names_of("organ") == wanted.facts.names_of("organ")
    assert rows.objects(2).tolist() == wanted.objects(2).tolist() and len(rows.objects(2)) == 60
    place = ("--place", folder / "garden.csv")
    code, _, err = run("evaluate", tmp_path / "new", "--scores", tmp_path / "scores", *place)
    assert code == 2 and "rows that calibrated the predictors cannot check a promise" in err


@pytest.mark.errors
def test_lists_of_something_else_are_refused(world, scored, tmp_path):
    folder = world[0]
    (tmp_path / "park.csv").write_text("oak\nash\n")
    (tmp_path / "yeti.csv").write_text("yeti\n")
    evaluated = ("evaluate", folder / "model", "--scores", scored, "--place")
    for words in ((tmp_path / "park.csv",), (folder / "garden.csv", "--coverage", 0.9)):
        code, _, err = run(*evaluated, *words)
        assert code == 2 and "has no lists of" in err
    again = ("--keep", 2, "--shard-rows", 50)
    for words in ((), ("--place", tmp_path / "park.csv"), ("--place", folder / "garden.csv")):
        code, _, err = score(folder, scored, *again, *words)
        assert code == 2 and "for another place, or with another coverage or other calibration rows" in err
    code, _, err = score(folder, tmp_path / "out", "--coverage", 0.9)
    assert code == 2 and "--coverage is for --place" in err
    code, _, err = score(folder, tmp_path / "out", "--place", tmp_path / "yeti.csv")
    assert code == 2 and "yeti" in err


@pytest.mark.errors
def test_rows_without_classes_and_rows_of_other_classes_are_told_apart(world, tmp_path):
    folder, _, (inputs, labels, _) = world
    place = ("--place", folder / "garden.csv")
    kinds = {
        "bare": ({}, "must have classes to measure lists by"),
        "oaks": ({"targets": 0 * labels}, "a class of the place"),
    }
    for name, (classes, words) in kinds.items():
        save_file({"embeddings": inputs, **classes}, tmp_path / f"{name}.safetensors")
        scored = run(
            "score", folder / "model", tmp_path / f"{name}.safetensors", "-o", tmp_path / name, *place
        )
        assert scored[0] == 0
        code, _, err = run("evaluate", folder / "model", "--scores", tmp_path / name, *place)
        assert code == 2 and words in err and len(err.strip().splitlines()) == 1


def test_facts_come_back_from_plain_columns():
    facts = RowFacts.of_columns({"observation": ["a", "", "a"], "organ": ["leaf", "", "bark"]})
    found = RowFacts.of_plain(facts.plain() | {"rank": [1, 2, 3]})
    assert found.plain() == facts.plain() and RowFacts.of_plain({"rank": [1]}) is None
