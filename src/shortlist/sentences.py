"""What the tool says to people about promises, and on its page, in the language that is spoken."""

import re
from typing import Any, Protocol, runtime_checkable

from shortlist._spoken import (
    LANGUAGE,
    LANGUAGES,
    as_count,
    as_lower_end,
    as_number,
    as_percent,
    as_share,
    as_upper_end,
    is_singular,
    language_for,
    speaking,
    strings,
)
from shortlist.coverage_law import conformal_rank
from shortlist.promise import Promise

__all__ = [
    "LANGUAGE",
    "LANGUAGES",
    "ladder_words",
    "language_for",
    "next_photo_words",
    "not_about_words",
    "novelty_words",
    "promise_brief",
    "promise_in_short",
    "promise_numbers",
    "promise_words",
    "scope_words",
    "speaking",
    "strings",
    "why_not",
]


@runtime_checkable
class _Detector(Protocol):
    """What is said of a :class:`~shortlist.predictors.NoveltyDetector`."""

    delta: float | None
    level: float
    values: Any

    @property
    def rule(self) -> str: ...


@runtime_checkable
class _NextPhoto(Protocol):
    """What is said of a :class:`~shortlist.model.next_photo.NextPhoto`."""

    @property
    def organ(self) -> str: ...
    @property
    def told_apart(self) -> float: ...
    @property
    def told_apart_now(self) -> float: ...


def promise_words(promise: Promise) -> str:
    r"""Say all of a promise: what it is, where it comes from, and what was measured.

    Example:
        >>> promise = Promise("rows", level=0.9, asked=0.9, rows=84, has_law=True)
        >>> print(promise_words(promise).replace(". ", ".\n"))
        90 of 100 such lists contain the right class.
        The promise is for all photos together, not for each class.
        The lists were calibrated on 84 photos, so the true share is probably between 83 and 96 %.
    """
    said = [*_what(promise), *_scope(promise), *_bounds(promise)]
    return " ".join([*said, *_calibration(promise), *_measured(promise)])


def promise_in_short(promise: Promise) -> str:
    """Say in a short sentence each what is promised and what was measured.

    Example:
        >>> from shortlist.promise import Measured
        >>> measured = Measured(921, 0.912, None, None, 1.3)
        >>> promise_in_short(Promise("rows", level=0.9, asked=0.9, measured=measured))
        '90 of 100 such lists contain the right class. Measured: 91.2.'
        >>> promise_in_short(Promise("size", size=5))
        'Such lists have 5 classes on average.'
    """
    words, found = strings()["promise"], promise.measured
    if promise.void == "at most":
        return " ".join([*_what(promise), *_share_words(promise)])
    if promise.has_too_few_rows:
        return words["too_few"].format(**_about(promise))
    if promise.level is not None:
        text = words["short"].format(level=as_percent(promise.level), whom=_for_whom(promise))
    elif promise.size is not None:
        size = "average_size" if promise.about == "size" else "fixed_size"
        text = words[size].format(size=_classes(promise.size))
    else:
        text = words["nothing"]
    if found is None:
        return text
    measured = words["measured_short"].format(
        coverage=as_share(found.coverage, found.rows),
        contain="" if promise.level is not None else words["measured_contain"],
        below=words["measured_below"] if promise.is_below else "",
    )
    return f"{text} {measured}"


def promise_brief(promise: Promise) -> str:
    """Say in a few words what is promised about what, for a table.

    Example:
        >>> promise_brief(Promise("average class", level=0.9, asked=0.9))
        'promised 90 for the average class'
        >>> promise_brief(Promise("size", size=5))
        '5 on average'
    """
    words = strings()["promise"]
    if promise.level is not None:
        return words["brief"].format(level=as_percent(promise.level), whom=_for_whom(promise))
    if promise.asked is not None:
        return words["brief_asked"].format(asked=as_percent(promise.asked))
    return words["brief_size"].format(size=as_number(f"{promise.size:g}")) if promise.about == "size" else ""


def promise_numbers(promise: Promise) -> dict[str, Any]:
    """Return the few numbers that a program needs beside a list.

    Example:
        >>> numbers = promise_numbers(Promise("vote", level=0.9, asked=0.9, rows=999))
        >>> numbers["about"], numbers["level"], numbers["holds"], numbers["calibration_rows"]
        ('vote', 0.9, True, 999)
    """
    measured = promise.measured
    return {
        "about": promise.about,
        "level": promise.level,
        "holds": promise.holds,
        "calibration_rows": promise.rows,
        "spread": promise.spread,
        "measured": None if measured is None else {"coverage": measured.coverage, "rows": measured.rows},
    }


def why_not(promise: Promise) -> str | None:
    """Say why a promise is not about a list; ``None`` if it is, or if nothing is promised."""
    return (
        None if promise.void is None or promise.level is None else strings()["promise"]["void"][promise.void]
    )


def not_about_words(promise: Promise) -> list[str]:
    """Say that a promise is not about some lists and why, in a sentence; none if it is, or says so itself."""
    why = None if promise.void == "at most" else why_not(promise)
    return [] if why is None else [strings()["promise"]["not_about"].format(why=why)]


def novelty_words(detector: _Detector) -> str:
    """Say what a detector of strangers promises."""
    words = strings()["novelty"]
    given = (
        "" if detector.delta is None else words["given"].format(chance=as_number(f"{1 - detector.delta:.3g}"))
    )
    return words[detector.rule].format(
        level=as_number(f"{100 * detector.level:g}"), rows=as_number(str(len(detector.values))), given=given
    )


def next_photo_words(photo: _NextPhoto, first: str, second: str) -> str:
    """Say which photo would tell two candidates apart, and how often it did."""
    shares = {"then": f"{100 * photo.told_apart:.0f}", "now": f"{100 * photo.told_apart_now:.0f}"}
    return strings()["next_photo"].format(organ=_fact(photo.organ), first=first, second=second, **shares)


def ladder_words(promise: Promise) -> str:
    """Say what may be promised at a step of a control from fewer to surer, for what a promise is about."""
    rows = _photos(promise.rows or 0, of_objects=_is_of_objects(promise))
    return strings()["promise"]["ladder"].format(rows=rows)


def scope_words(promise: Promise) -> str:
    """Say which objects a promise is about, and which not; nothing if it is about all photos.

    Example:
        >>> scope_words(Promise("place", level=0.9, place="the Alps", classes=12))
        'This is about the 12 classes of the Alps, and not about a class that does not occur there.'
    """
    words, said = strings()["promise"]["scope"], []
    if promise.classes is not None:
        said.append(words["place_one" if promise.classes == 1 else "place"].format(**_about(promise)))
    if objects := _objects(promise):
        said.append(words["about_objects"].format(objects=objects))
    return " ".join([*said, *_joined(promise)])


def _for_whom(promise: Promise) -> str:
    words = strings()["promise"]
    return words["whom"][promise.about].format(**_about(promise))


def _about(promise: Promise) -> dict[str, str]:
    """Return the names in a sentence about a promise."""
    words = strings()["promise"]
    place = promise.place or words["place"]
    return {
        "group": strings()["page"]["levels"].get(promise.group, promise.group) or words["group"],
        "place": place,
        "of_place": "" if promise.classes is None else words["of_place"].format(place=place),
        "classes": as_count(promise.classes or 0),
        "objects": _objects(promise) or words["all_objects"],
    }


def _objects(promise: Promise) -> str:
    """Say which objects a promise is about, by their photos and what these show; nothing if any."""
    words, scope = strings()["promise"], promise.scope
    photos, column = scope.calibrated_photos or scope.photos, scope.column and not scope.joined
    if photos == 1 and not column:
        return ""
    kind = "both" if photos > 1 and column else "column" if column else "photos"
    return words[f"objects_{kind}"].format(count=photos, column=_fact(scope.column), value=_fact(scope.value))


def _what(promise: Promise) -> list[str]:
    """Say what is promised about what."""
    words = strings()["promise"]
    asked = None if promise.asked is None else as_percent(promise.asked)
    if promise.level is not None:
        values = {"level": as_percent(promise.level), **_about(promise)}
        if promise.void == "at most":
            return [words["capped"].format(most=_classes(promise.at_most or 0), **values)]
        more = [] if promise.asked in (None, promise.level) else [words["asked_more"].format(asked=asked)]
        key = "place_one" if (promise.about, promise.classes) == ("place", 1) else promise.about
        return [words["level"][key].format(**values), *more]
    if promise.about == "probabilities" and asked is not None:
        return [words["if_right"].format(asked=asked)]
    if promise.about == "size":
        size = _classes(promise.size or 0)
        return [words["average_size"].format(size=size), words["nothing"]]
    if asked is not None:
        return [words["nothing"], words["asked"].format(asked=asked)]
    size = [] if promise.size is None else [words["fixed_size"].format(size=_classes(promise.size))]
    return [*size, words["nothing"]]


def _joined(promise: Promise) -> list[str]:
    """Say that all photos count together, if too few are like those that the promise was asked for."""
    words, scope = strings()["promise"]["scope"], promise.scope
    values = {"column": _fact(scope.column), "value": _fact(scope.value)}
    return [words["joined"].format(**values)] if scope.joined else []


def _scope(promise: Promise) -> list[str]:
    """Say which objects a promise is about, and which not, where that was not said before."""
    words, scope, said = strings()["promise"]["scope"], promise.scope, []
    if promise.level is None or promise.void == "at most":
        return _joined(promise)
    counts = {"classes": 0 if promise.about == "place" else promise.classes, "unknown": scope.unknown}
    for name, count in counts.items():
        if count:
            key = f"{name}_one" if count == 1 else name
            said.append(words[key].format(**{**_about(promise), "count": as_count(count)}))
    objects = _objects(promise)
    if objects and promise.about not in ("rows", "node"):
        said.append(words["objects"].format(objects=objects))
    return [*said, *_joined(promise)]


def _bounds(promise: Promise) -> list[str]:
    """Say how large lists are at most, and how often they contain the right class where that is measured."""
    words, said = strings()["promise"], []
    few = promise.classes is not None and promise.classes <= (promise.at_most or 0)
    if promise.at_most is not None and not few and promise.void != "at most":  # which says so
        said.append(words["at_most"].format(most=_classes(promise.at_most)))
    return [*said, *_share_words(promise)]


def _share_words(promise: Promise) -> list[str]:
    """Say how often lists contain the right class, where that is measured."""
    if promise.share is None:
        return []
    words, rows = strings()["promise"], promise.rows or 0
    low, high = promise.share_range or (0.0, 1.0)
    values = {"rows": _counted(promise, rows), "share": as_share(promise.share, rows)}
    values |= {"low": as_lower_end(low, rows), "high": as_upper_end(high, rows)}
    plain = "share" if promise.classes is None else "share_place"
    return [words["share_macro" if promise.scope.macro else plain].format(**_about(promise), **values)]


def _counted(promise: Promise, rows: int) -> str:
    """Return how many photos or objects there are, of which kind."""
    objects = _objects(promise)
    if rows == 1 or not objects:
        return _photos(rows, of_objects=_is_of_objects(promise))
    return f"{as_count(rows)} {objects}"


def _calibration(promise: Promise) -> list[str]:
    """Say from how many photos a promise comes, and how far these alone can move it."""
    words = strings()["promise"]
    if promise.rows is None or promise.about == "nothing":
        return []
    said = _spread(promise, promise.rows)
    if promise.void == "at most":  # nothing is promised
        return said
    if promise.class_rows is not None:
        least, median = map(as_count, promise.class_rows)
        said.append(words["units"].format(unit=_unit(promise), least=least, median=median))
    if promise.is_by_unit and promise.class_rows is None:
        few = "few_nothing" if promise.left_out else "few_all_classes"
        said.append(words[few].format(unit=_unit(promise)))
    elif promise.left_out:
        lack = "left_out_few" if promise.is_by_unit else "left_out_none"  # an average counts every class
        key = f"{lack}_one" if promise.left_out == 1 else lack
        objects = _objects(promise) or words["any_photos"]
        said.append(words[key].format(count=as_count(promise.left_out), objects=objects))
    if promise.rows_also:
        said.append(words["also"].format(also=_also(promise.rows_also)))
    return said


def _spread(promise: Promise, rows: int) -> list[str]:
    words, law_rows = strings()["promise"], promise.law_rows
    photos = _photos(rows, of_objects=_is_of_objects(promise))
    plain = words["calibrated"].format(rows=photos)
    unknown = promise.is_by_unit and promise.class_rows is None
    if promise.level is None or promise.void == "at most" or unknown:
        return [plain]
    all_classes = words["all_classes"].format(**_about(promise))
    if promise.lists_all:
        return [plain, all_classes]
    if promise.spread is None or law_rows is None:
        return [plain, words["no_spread"]]
    if conformal_rank(law_rows, promise.level) > law_rows:
        return [plain, all_classes]
    low, high = promise.spread
    smallest = "" if promise.class_rows is None else words["smallest"].format(unit=_unit(promise))
    ends = {"low": as_lower_end(low, law_rows), "high": as_upper_end(high, law_rows), "smallest": smallest}
    return [words["spread"].format(rows=photos, **ends)]


def _measured(promise: Promise) -> list[str]:
    """Say what was measured, and whether it goes with the promise."""
    words, found = strings()["promise"], promise.measured
    if found is None:
        return []
    interval = ""
    if found.low is not None and found.high is not None:
        ends = {"low": as_lower_end(found.low, found.rows), "high": as_upper_end(found.high, found.rows)}
        interval = words["measured_interval"].format(**ends)
    text = words["measured"].format(
        rows=_photos(found.rows),
        others=words["measured_others"] if promise.left_out else "",
        votes=words["measured_votes"] if promise.about == "vote" else "",
        coverage=as_share(found.coverage, found.rows),
        interval=interval,
        size=as_number(f"{found.mean_size:.1f}"),
    )
    if promise.is_below:
        return [text, words["below_class" if promise.about == "each class" else "below"]]
    less = promise.level is not None and found.coverage < promise.level
    return [text, words["chance"]] if less and found.p_value is not None else [text]


def _is_of_objects(promise: Promise) -> bool:
    """Whether what calibrated are objects of several photos."""
    return (promise.scope.calibrated_photos or promise.scope.photos) > 1


def _fact(text: str) -> str:
    """Return the name of a column of photos, or of what they show, in the language that is spoken."""
    return strings()["page"]["photo_facts"].get(text, text)


def _also(text: str) -> str:
    """Say what calibration rows also did, which is noted in English, in the language that is spoken."""
    words = strings()["promise"]
    parts = [words["also_did"].get(part, part) for part in re.split(r", | and ", text)]
    return words["also_and"].join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _unit(promise: Promise) -> str:
    return strings()["promise"]["unit_cluster" if promise.about == "each cluster" else "unit_class"]


def _photos(number: int, *, of_objects: bool = False) -> str:
    words = strings()["promise"]
    kind = ("object" if of_objects else "photo") + "s" * (number != 1)
    return words[kind].format(count=as_count(number))


def _classes(number: float) -> str:
    words = strings()["promise"]
    return words["one_class" if is_singular(number) else "many_classes"].format(
        count=as_number(f"{number:g}")
    )
