"""Drift: the coverage of audited lists, what confirmations flatter, and scores that shift."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from shortlist.coverage_law import clopper_pearson
from shortlist.feedback import Event, Shown
from shortlist.feedback.drift import find_drift


def make_events(
    number: int, *, coverage: float, audit: float, top: float = 0.7, seed: int = 0
) -> list[Event]:
    """Answers: of audited lists the class is always named, of others mostly if it was listed."""
    rng = np.random.default_rng(seed)
    found = []
    for place in range(number):
        audited, hit = rng.random() < audit, rng.random() < coverage
        first = float(np.clip(rng.normal(top, 0.1), 0.05, 0.95))
        shown = (Shown("oak", first, True), Shown("ash", 1 - first, False))
        common = {"images": (hashlib.sha256(f"{seed} {place}".encode()).hexdigest(),), "shown": shown}
        common |= {"model": "m1", "choice": {"promised": 0.9}, "audit": audited, "person": "p"}
        if hit:
            found.append(Event("confirm", f"{seed}-{place}", label="oak", **common))
        elif audited:
            found.append(Event("other_class", f"{seed}-{place}", label="ash", **common))
        elif rng.random() < 0.2:  # most who do not see their class say nothing
            found.append(Event("none_of_these", f"{seed}-{place}", **common))
    return found


def test_the_audit_tells_what_confirmations_hide():
    events = make_events(2000, coverage=0.7, audit=0.1)
    (found,) = find_drift(events)
    audited = [event for event in events if event.audit]
    hits = sum(event.label == "oak" for event in audited)
    assert (found.audited, found.coverage) == (len(audited), hits / len(audited))
    assert (found.low, found.high) == clopper_pearson(hits, len(audited))
    assert found.promised == 0.9 and found.is_below and "promise is broken" in found.words()
    assert found.listed is not None and found.listed > 0.85  # and looks almost well
    (well,) = find_drift(make_events(2000, coverage=0.9, audit=0.1))
    assert not well.is_below and not well.has_shifted and "show no shift" in well.words()


def test_without_an_audit_the_coverage_is_not_known():
    (found,) = find_drift(make_events(200, coverage=0.9, audit=0.0))
    assert found.coverage is None and not found.is_below and "not known" in found.words()


def test_scores_that_shift_are_noticed_and_models_told_apart():
    events = make_events(600, coverage=0.9, audit=0.1)
    events += make_events(600, coverage=0.9, audit=0.1, top=0.5, seed=1)
    (found,) = find_drift(events, reference=400, recent=400)
    assert found.has_shifted and found.scores is not None and found.scores.p_value == pytest.approx(0.001)
    other = Event("confirm", "x", label="oak", images=("0" * 64,), shown=events[0].shown, model="m2")
    assert [one.model for one in find_drift([*events, other])] == ["m1", "m2"]
    assert find_drift([Event("do_not_know", "y", images=("0" * 64,))]) == []


def answer_to_audit(place: int, verb: str, *, person: str = "p", promised: float | None = 0.9) -> Event:
    shown = (Shown("oak", 0.7, True), Shown("ash", 0.3, False))
    label = {"confirm": "oak", "other_class": "ash"}.get(verb, "")
    choice = {} if promised is None else {"promised": promised}
    images = (hashlib.sha256(f"{place}".encode()).hexdigest(),)
    told = {"images": images, "shown": shown, "choice": choice, "person": person, "model": "m", "audit": True}
    return Event(verb, f"{place} {person} {verb}", label=label, **told)


def test_none_of_these_is_a_miss_of_the_audit():
    """Otherwise the audit would count only those lists whose class somebody could name."""
    events = [answer_to_audit(place, "none_of_these" if place < 4 else "confirm") for place in range(10)]
    (found,) = find_drift([*events, answer_to_audit(99, "do_not_know")])
    assert (found.audited, found.coverage) == (10, 0.6)


def test_one_list_is_one_trial_and_its_last_answer_counts():
    events = [answer_to_audit(0, "confirm", person=f"p{who}") for who in range(30)]
    events += [answer_to_audit(1, "confirm"), answer_to_audit(0, "other_class", person="expert")]
    (found,) = find_drift(events)
    assert (found.audited, found.coverage) == (2, 0.5)


def test_the_promise_is_the_mean_of_what_each_audited_list_promised():
    levels = (0.5, 0.9, 0.95, 0.8)
    events = [answer_to_audit(place, "confirm", promised=level) for place, level in enumerate(levels)]
    assert find_drift(events)[0].promised == pytest.approx(0.7875)
    without = answer_to_audit(7, "none_of_these", promised=None)
    (found,) = find_drift([*events, without])  # a list without a promise is left out
    assert (found.audited, found.coverage, found.promised) == (4, 1.0, pytest.approx(0.7875))
    (found,) = find_drift([*events, without], promised=0.6)  # unless it is said what it promised
    assert (found.audited, found.coverage, found.promised) == (5, 0.8, pytest.approx(0.75))
    (found,) = find_drift([without])
    assert (found.audited, found.coverage, found.promised) == (1, 0.0, None)


def test_one_answer_to_a_list_without_a_promise_does_not_silence_the_audit():
    misses = [answer_to_audit(place, "none_of_these") for place in range(25)]
    assert find_drift(misses)[0].is_below
    (found,) = find_drift([*misses, answer_to_audit(99, "confirm", promised=None)])
    assert found.is_below and (found.audited, found.promised) == (25, pytest.approx(0.9))


def test_one_receipt_is_one_trial_whatever_its_observation_is_called():
    """Of 40 answers with one receipt and 40 names of observations one counts, also for the scores."""
    well = [answer_to_audit(place, "confirm") for place in range(9)]
    forged = [
        replace(answer_to_audit(99, "none_of_these", person=f"p{name}"), observation=f"o-{name}")
        for name in range(40)
    ]
    (found,) = find_drift([*well, *forged])
    assert (found.audited, found.coverage, found.lists) == (10, 0.9, 10) and not found.is_below
    assert found.scores is None  # of ten lists nothing can be said
