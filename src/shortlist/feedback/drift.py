"""Drift: whether lists still hold the true class, and whether photos are still like those of before.

Confirmations alone cannot say it: the true class is named mostly if it was listed. What can is the audit, a
share of requests that is drawn at random, and that somebody who knows answers.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum, nan
from typing import TYPE_CHECKING

import numpy as np

from shortlist._bounds import require_count
from shortlist.feedback._tables import Said
from shortlist.feedback.event import LABELED, NEW_NAME, OBSERVE

if TYPE_CHECKING:  # torch comes with it, for which those that only count answers need not wait
    from shortlist.metrics import ExchangeabilityTest

_FEWEST = 20  # lists of each side, below which nothing is compared


@dataclass(frozen=True)
class Drift:
    """What the answers to the lists of one model say.

    Args:
        model: Version of the model.
        lists: Number of lists with an answer; one for the same photos, whatever they are said to be of.
        replies: Number of answers that say whether the class was listed.
        listed: Share of these for which it was. It flatters: who does not see the class often says nothing.
        audited: Number of audited lists with an answer that says whether the class was listed; of several
            answers about the same photos the last counts, since one list is one trial. Lists without a
            promise are left out if others have one.
        coverage: Share of these whose list held the class; ``None`` without any.
        low: Lower end of its 95 % interval.
        high: Upper end.
        promised: Coverage that was promised: the mean over the audited lists; ``None`` if none had a promise.
        scores: Test whether the probabilities of the first classes of recent lists are like those of the
            first lists; ``None`` if there are too few.
    """

    model: str
    lists: int
    replies: int
    listed: float | None
    audited: int
    coverage: float | None
    low: float | None
    high: float | None
    promised: float | None
    scores: "ExchangeabilityTest | None"

    @property
    def is_below(self) -> bool:
        """Whether the coverage of the audit is below the promise beyond its interval."""
        return self.promised is not None and self.high is not None and self.high < self.promised

    @property
    def has_shifted(self) -> bool:
        """Whether chance hardly explains how scores have changed."""
        return self.scores is not None and self.scores.p_value < 0.01

    def words(self) -> str:
        """Say it in a line."""
        parts = [f"model {self.model or 'unknown'}: {self.lists:,} lists with answers"]
        if self.coverage is not None and self.low is not None and self.high is not None:
            share = f"{100 * self.coverage:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"
            promised = "" if self.promised is None else f", {100 * self.promised:g} % promised"
            parts.append(f"{share} of {self.audited:,} audited lists hold the class{promised}")
            if self.is_below:
                parts.append("the promise is broken: calibrate again on audited rows")
        else:
            parts.append("no audited list was answered, so that the coverage is not known")
        if self.scores is not None:
            what = "have shifted" if self.has_shifted else "show no shift"
            parts.append(f"scores {what} (p = {self.scores.p_value:.3f})")
        return "; ".join(parts) + "."


def find_drift(
    events: Iterable[Said], *, promised: float | None = None, reference: int = 500, recent: int = 500
) -> list[Drift]:
    """Look for drift among the answers to lists, for each model.

    Args:
        events: Events in their order.
        promised: Coverage that lists promise, if what made them does not say so.
        reference: Number of first lists of a model, with which others are compared.
        recent: Number of last lists that are compared.
    """
    require_count("reference", reference)
    require_count("recent", recent)
    by_model: dict[str, _Answers] = {}
    for event in events:
        if event.top is not None and event.verb != OBSERVE:
            by_model.setdefault(event.model, _Answers()).add(event)
    return [answers.drift(model, promised, reference, recent) for model, answers in by_model.items()]


class _Answers:
    """What is kept of the answers to the lists of one model: of many, a few numbers each."""

    def __init__(self) -> None:
        self._photos, self._tops, self._levels = array("Q"), array("d"), array("d")
        self._replies, self._hits, self._audited = array("b"), array("b"), array("b")

    def add(self, event: Said) -> None:
        assert event.top is not None
        # "none of these" and a new name are misses: without them, the audit would be as censored as
        # confirmations are
        is_reply = event.verb in (*LABELED, NEW_NAME, "none_of_these")
        self._photos.append(int(event.photos[:16], 16))
        self._tops.append(event.top)
        self._levels.append(nan if event.promised is None else event.promised)
        self._replies.append(is_reply)
        self._hits.append(is_reply and event.is_listed)
        self._audited.append(is_reply and event.audit)

    def drift(self, model: str, promised: float | None, reference: int, recent: int) -> Drift:
        from shortlist.metrics import clopper_pearson

        photos, tops = np.asarray(self._photos), np.asarray(self._tops)
        first = np.sort(np.unique(photos, return_index=True)[1])  # answer about each list
        trials = np.flatnonzero(self._audited)[::-1]
        trials = trials[np.unique(photos[trials], return_index=True)[1]]  # the last answer about each
        hits, levels = np.asarray(self._hits)[trials], np.asarray(self._levels)[trials]
        levels = levels if promised is None else np.where(np.isnan(levels), promised, levels)
        if (has_promise := ~np.isnan(levels)).any():
            hits, promised = hits[has_promise], fsum(levels[has_promise]) / int(has_promise.sum())
        replies, audited, hit = sum(self._replies), len(hits), int(hits.sum())
        low, high = clopper_pearson(hit, audited) if audited else (None, None)
        return Drift(
            model=model,
            lists=len(first),
            replies=replies,
            listed=sum(self._hits) / replies if replies else None,
            audited=audited,
            coverage=hit / audited if audited else None,
            low=low,
            high=high,
            promised=promised,
            scores=_compare_scores(tops[first].tolist(), reference, recent),
        )


def _compare_scores(values: list[float], reference: int, recent: int) -> "ExchangeabilityTest | None":
    first, rest = values[:reference], values[reference:]
    if len(rest) < _FEWEST:  # then of what there is, the halves
        first, rest = values[: len(values) // 2], values[len(values) // 2 :]
    if min(len(first), len(rest)) < _FEWEST:
        return None
    import torch

    from shortlist.metrics import exchangeability_test

    sides = [torch.tensor(side, dtype=torch.float64) for side in (first, rest[-recent:])]
    return exchangeability_test(*sides, generator=torch.Generator().manual_seed(0))
