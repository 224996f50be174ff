"""Majority, agreement and Dawid-Skene against crowd-kit and peerannot; the machine; odd votes."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pytest

from shortlist.curation.votes import MACHINE, RULES, aggregate_votes, read_votes, save_users
from tests.golden.make_vote_rules import make_votes

GOLDEN = Path(__file__).parents[1] / "golden" / "vote_rules.json"
VOTES = make_votes()


def found_by(rule: str, votes=VOTES, **options):
    return aggregate_votes(*zip(*votes, strict=True), rule=rule, **options)


def labels_of(found) -> dict[str, str]:
    return dict(zip(found.items.tolist(), found.labels.tolist(), strict=True))


@pytest.mark.parametrize("rule", ["majority", "agreement", "dawid_skene"])
def test_labels_are_those_of_crowd_kit(rule):
    golden = json.loads(GOLDEN.read_text())
    found = found_by(rule, max_iterations=20)
    assert labels_of(found) == golden[rule]
    if rule == "agreement":
        weights = dict(zip(found.users.tolist(), found.user_weights.tolist(), strict=True))
        assert weights == pytest.approx(golden["agreement_weights"], abs=1e-12)
    if rule == "dawid_skene":
        weights = dict(zip(found.items.tolist(), found.weights.tolist(), strict=True))
        assert weights == pytest.approx(golden["dawid_skene_probability"], abs=1e-6)


@pytest.mark.filterwarnings("ignore")  # of its own calls of pandas
@pytest.mark.parametrize("seed", [1, 2])
def test_labels_are_those_of_crowd_kit_run_here(seed):
    pytest.importorskip("crowdkit", reason="pip install crowd-kit")
    import pandas as pd

    aggregation = pytest.importorskip("crowdkit.aggregation", reason="crowd-kit lacks a package of its own")
    votes = make_votes(seed)
    data = pd.DataFrame(votes, columns=["task", "worker", "label"])
    majority = aggregation.MajorityVote().fit_predict(data).to_dict()
    assert labels_of(found_by("majority", votes)) == majority
    skills = aggregation.Wawa().fit(data).skills_
    weighted = aggregation.MajorityVote().fit_predict(data, skills=skills).to_dict()
    assert labels_of(found_by("agreement", votes)) == weighted
    theirs = aggregation.DawidSkene(n_iter=20, tol=-np.inf).fit(data).probas_
    ours = found_by("dawid_skene", votes, max_iterations=20)
    assert dict(zip(ours.items.tolist(), ours.weights.tolist(), strict=True)) == pytest.approx(
        theirs.max(axis=1).to_dict(), abs=1e-6
    )


@pytest.mark.filterwarnings("ignore")
def test_weights_agreement_and_validity_are_those_of_peerannot():
    """Its rule counts species in another way; given our users' weights, all else must be the same."""
    pytest.importorskip("peerannot", reason="pip install peerannot")
    plantnet = pytest.importorskip("peerannot.models.aggregation.plantnet", reason="it lacks a package")
    found = found_by("adaptive", min_agreement=0.7, alpha=0.6, beta=0.3)
    label = {name: number for number, name in enumerate(sorted({vote[2] for vote in VOTES}))}
    user = {name: number for number, name in enumerate(found.users.tolist())}
    answers: dict = {number: {} for number in range(len(found.items))}
    for item, who, said in VOTES:
        answers[found.items.tolist().index(item)][user[who]] = label[said]
    theirs = plantnet.PlantNet(answers, len(label), alpha=0.6, beta=0.3, n_workers=len(user))
    theirs.n_task, theirs.n_j = len(answers), found.user_counts.astype(float)
    weights = theirs.get_weights()
    assert weights == pytest.approx(found.user_weights)
    winners = theirs.get_wmv(weights)
    assert [sorted(label)[int(winner)] for winner in winners] == found.labels.tolist()
    agreement, weight = theirs.get_conf_acc(winners, weights)
    assert weight == pytest.approx(found.weights) and agreement == pytest.approx(found.agreement)
    assert theirs.get_valid_tasks(agreement, weight).astype(bool).tolist() == found.valid.tolist()


def test_agreement_and_thresholds_by_hand():
    votes = [("x", "a", "oak"), ("x", "b", "oak"), ("x", "c", "ash"), ("y", "a", "elm"), ("y", "b", "elm")]
    found = found_by("majority", votes, min_agreement=0.7)
    assert found.weights.tolist() == [2, 2] and found.votes.tolist() == [3, 2]
    assert found.agreement.tolist() == pytest.approx([2 / 3, 1]) and found.valid.tolist() == [False, True]
    assert found_by("majority", votes).valid.tolist() == [True, True]
    assert found_by("majority", votes, theta=2).valid.tolist() == [False, False]
    assert found.user_votes.tolist() == [2, 2, 1]
    flat = found_by("adaptive", votes, alpha=0.3, beta=0.3, b0=1.0)
    assert flat.user_weights.tolist() == [1, 1, 1]  # equal exponents leave b0


def test_an_item_is_valid_only_above_the_agreement_in_each_round():
    """Without the agreement, author a of x gets a species for it, and y becomes valid by a's weight."""
    votes = [("x", u, "oak", "a") for u in "bcd"] + [("x", u, "ash", "a") for u in "efg"[:2]]
    votes += [("y", "a", "elm", None)]
    first, second = math.log(2.1), 2**0.5 - 2**0.2 + math.log(2.1)
    theta = (first + second) / 2
    columns = [list(column) for column in zip(*votes, strict=True)]
    published = {"rule": "adaptive", "theta": theta}
    assert aggregate_votes(*columns, **published).valid.tolist() == [True, True]
    strict = aggregate_votes(*columns, **published, min_agreement=0.7)
    assert strict.valid.tolist() == [False, False] and strict.agreement[0] == pytest.approx(0.6)


def test_the_machine_is_left_out_unless_it_gets_a_weight():
    votes = [("x", "a", "oak"), ("x", MACHINE, "ash"), ("y", MACHINE, "elm")]
    found = found_by("adaptive", votes)
    assert found.items.tolist() == ["x"] and found.labels.tolist() == ["oak"] and found.machine_votes == 2
    counted = found_by("adaptive", votes, machine_weight=2.5)
    assert labels_of(counted) == {"x": "ash", "y": "elm"} and counted.weights.tolist() == [2.5, 2.5]
    assert counted.machine_votes == 0
    named = found_by("adaptive", votes, machine="a", machine_weight=0.1)
    assert named.user_weights[named.users.tolist().index("a")] == 0.1
    other = found_by("majority", votes, machine="a")
    assert labels_of(other) == {"x": "ash", "y": "elm"}


@pytest.mark.errors
def test_bad_options_are_refused_by_name():
    for options, words in [
        ({"rule": "best"}, "rule must be"),
        ({"min_agreement": 1.0}, "min_agreement must be"),
        ({"alpha": 0.1, "beta": 0.2}, "beta must be from 0 to alpha"),
        ({"theta": -1.0}, "theta must be"),
        ({"rule": "majority", "machine_weight": 1.0}, "machine_weight must be left out"),
        ({"machine_weight": -1.0}, "machine_weight must be"),
    ]:
        with pytest.raises(ValueError, match=words):
            aggregate_votes(*zip(*VOTES, strict=True), **options)
    with pytest.raises(ValueError, match="in every row"):
        aggregate_votes(["x"], [MACHINE], ["oak"])
    with pytest.raises(ValueError, match="at most 200,000,000"):
        many = np.arange(1000)
        aggregate_votes(many, many, many, rule="dawid_skene")
    assert aggregate_votes(["x", "y"], ["u", "v"], ["oak", ""]).empty_votes == 1


@pytest.mark.parametrize("rule", RULES)
def test_odd_names_repeats_and_a_single_vote(rule):
    votes = [("☘ näh", "Zoë", "élm"), ("☘ näh", "Zoë", "!bad_image"), ("☘ näh", "李", "!bad_image")]
    found = found_by(rule, votes)
    assert found.labels.tolist() == ["!bad_image"] and found.votes.tolist() == [2]
    assert found_by(rule, votes[:1]).labels.tolist() == ["élm"]


def test_tables_of_crowd_kit_are_read_and_users_written(tmp_path):
    columns = dict(zip(("task", "worker", "label"), map(list, zip(*VOTES, strict=True)), strict=True))
    pyarrow.csv.write_csv(pyarrow.table(columns), tmp_path / "votes.csv")
    found = aggregate_votes(**read_votes(tmp_path / "votes.csv"))
    assert labels_of(found) == labels_of(found_by("confirmed"))
    save_users(tmp_path / "users.csv", found)
    lines = (tmp_path / "users.csv").read_text().splitlines()
    assert lines[0] == '"user","weight","species","votes"' and len(lines) == 15
