"""The promises of groups of runs, in a sentence for each predictor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from shortlist.promise import Promise
from shortlist.runs import Group
from shortlist.sentences import promise_words


def promises_of(group: Group) -> dict[str, list[Promise]]:
    """Return, by predictor, the promise of each run of a group; of those that were asked for coverage."""
    promises: dict[str, list[Promise]] = {}
    for run in group.runs:
        for key, sets in run.results.sets.items():
            if sets.promise is not None and sets.promise.asked is not None:
                promises.setdefault(key, []).append(sets.promise)
    return promises


def shared_promise(promises: Sequence[Promise]) -> Promise:
    """Return what several promises have in common: one of them without what was measured.

    If they differ, it promises as much as the lowest, and says as much about the calibration rows as the one
    with the fewest.
    """
    plain = [replace(promise, measured=None) for promise in promises]
    return min(plain, key=lambda promise: (promise.level or 0, promise.rows or 0))


def kept_words(by_label: Mapping[str, Sequence[Promise]]) -> str:
    """Say which methods are below their promise, and nothing where none has promised.

    A method is named only if chance among calibration and test rows together does not explain one of its
    runs.
    """
    if not any(promise.level is not None for promises in by_label.values() for promise in promises):
        return ""
    below = {label: sum(promise.is_below for promise in promises) for label, promises in by_label.items()}
    named = [
        label if len(by_label[label]) == 1 else f"{label} ({number} of {len(by_label[label])} runs)"
        for label, number in below.items()
        if number
    ]
    if named:
        return f"Below the promise, by more than chance explains: {', '.join(named)}."
    measured = any(promise.measured and promise.measured.p_value is not None for promise in _all(by_label))
    if not measured:
        return "No law is known that would tell chance from a broken promise."
    level = max(promise.level or 0.0 for promise in _all(by_label))
    if all(promise.measured and promise.measured.coverage >= level for promise in _all(by_label)):
        return "All reach the promise." if len(by_label) > 1 else "The promise was reached."
    return "Where the promise is missed, chance among calibration and test rows explains it."


def promise_notes(
    rows: Mapping[str, Mapping[str, Sequence[Promise]]], predictors: Iterable[str]
) -> list[str]:
    """Return a note about the promise of each predictor, over the rows of a table by their labels."""
    notes = []
    for key in predictors:
        by_label = {label: promises[key] for label, promises in rows.items() if key in promises}
        if by_label:
            shared = shared_promise(list(_all(by_label)))
            notes.append(f"{key}: {promise_words(shared)} {kept_words(by_label)}".rstrip())
    return notes


def _all(by_label: Mapping[str, Sequence[Promise]]) -> Iterable[Promise]:
    return (promise for promises in by_label.values() for promise in promises)
