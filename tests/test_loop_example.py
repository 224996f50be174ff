"""The whole loop in short: answers over HTTP, votes, data, models, the gate, releases."""

import json

import pytest

from shortlist.feedback.doctor import examine_store
from shortlist.feedback.store import stats_of
from shortlist.releases import Releases
from tests.test_examples import load

pytestmark = pytest.mark.slow


def test_answers_become_models(tmp_path):
    loop = load("loop")
    found = loop.main(["--short", "--out", str(tmp_path), "--figure", str(tmp_path / "loop.svg")])
    size = loop.SHORT
    for rule, rounds in zip(("confirmed", "adaptive", "majority"), found["rounds"].values(), strict=True):
        assert [one["round"] for one in rounds] == list(range(size.rounds + 1))
        assert rounds[-1]["items"] <= size.rounds * size.observations and rounds[-1]["valid"] > 10
        assert rounds[-1]["right"] > 0.5
        stats = stats_of(tmp_path / rule / "feedback")
        assert stats["events"] == size.rounds * size.observations * size.votes
        assert stats["copies"] == size.rounds * size.observations
        assert examine_store(tmp_path / rule / "feedback") == []
        releases = Releases(tmp_path / rule / "releases").all()
        assert len(releases) == sum(one["released"] for one in rounds)
        # what the loop asserts in each round, once more: by hash, no frozen image is learned from
        frozen = loop.hashes(tmp_path / "first" / "test")
        assert frozen and not frozen & loop.hashes(
            tmp_path / rule / f"round-{size.rounds}" / "data" / "train"
        )
    curves = found["thresholds"]
    assert curves["naive"][-1][1] < 0.75 < curves["semi-bandit"][-1][1]
    assert (tmp_path / "loop.svg").read_text().startswith("<?xml") and json.dumps(found)
