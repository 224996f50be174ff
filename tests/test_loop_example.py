"""The whole loop in short: answers and reviews over HTTP, votes, data, models, the gate, releases."""

import json

import pytest

from shortlist.feedback.doctor import examine_store
from shortlist.feedback.store import read_events, stats_of
from shortlist.releases import Releases
from tests.test_examples import load

pytestmark = pytest.mark.slow


def test_answers_become_models(tmp_path):
    loop = load("loop")
    found = loop.main(["--short", "--out", str(tmp_path), "--figure", str(tmp_path / "loop.svg")])
    size = loop.SHORT
    for number, rounds in enumerate(found["rounds"].values()):
        folder = tmp_path / str(number)
        assert [one["round"] for one in rounds] == list(range(size.rounds + 1))
        assert all(one["wrong"] + one["new valid"] <= one["valid"] <= one["items"] for one in rounds)
        assert rounds[-1]["items"] <= size.rounds * size.observations
        stats = stats_of(folder / "feedback")
        given, reviewed = size.rounds * size.observations, (size.votes - 1) * size.observations
        assert given + reviewed / 2 < stats["events"] <= given + size.rounds * reviewed
        assert stats["copies"] == given and examine_store(folder / "feedback") == []
        releases = Releases(folder / "releases").all()
        assert len(releases) == sum(one["released"] for one in rounds)
        # what the loop asserts in each round, once more: by hash, no frozen image is learned from
        frozen = loop.hashes(tmp_path / "first" / "test")
        assert frozen and not frozen & loop.hashes(folder / f"round-{size.rounds}" / "data" / "train")
    last = rounds[-1]  # of invited people alone: none of the attacker's names has answered
    assert last["valid"] > 20 and last["wrong"] < 0.2 * last["valid"] and last["new valid"] > 0
    people = {event.person: event.key for event in read_events(folder / "feedback")}
    assert len(people) <= size.invited and set(people.values()) == {"invited"}
    curves = found["thresholds"]
    assert curves["naive"][-1][1] < 0.75 < curves["semi-bandit"][-1][1]
    assert (tmp_path / "loop.svg").read_text().startswith("<?xml") and json.dumps(found)
