"""The model card: a page for people that goes with the files of a model."""

from collections.abc import Mapping
from typing import Any

from shortlist._messages import one_line
from shortlist.class_table import GROUPS, ClassTable
from shortlist.promise import Promise
from shortlist.sentences import promise_words

_SHOWN = 20  # classes that are listed by name
_STATED = ("intended_use", "data", "license", "contact")
_NOT_FOR = """\
- It knows the classes above and no others. An input of another kind gets a list too{strangers}.
- What is promised holds for inputs that are drawn like the calibration rows. Photos of another place,
  season or camera may be covered less often.
- Check a list before anything depends on it, such as health, money or a permit.
"""


def card_text(
    description: Mapping[str, Any],
    promises: Mapping[str, Promise],
    classes: ClassTable,
    scores: str,
) -> str:
    """Write the card in Markdown.

    Args:
        description: What ``model.json`` says.
        promises: By name of the predictor, what it promises and what was measured.
        classes: The classes with their training counts.
        scores: What the scores mean, in a sentence.
    """
    about = description["about"]
    strangers = "; its detector of strangers flags some of them" if description["novelty"] else ""
    sections = {
        "What it is": _facts(description, scores),
        "Classes": _classes(classes),
        "What its lists promise": _promises(promises),
        "What was measured": _measured(promises),
        "What it is not for": _NOT_FOR.format(strangers=strangers),
        "Stated by its makers": _stated(about),
    }
    text = "".join(f"\n## {title}\n\n{section}" for title, section in sections.items())
    start = "A model of shortlist. This page is written with the model."
    return f"# {_plain(about.get('name') or 'Model')}\n\n{start}\n{text}"


def _facts(description: Mapping[str, Any], scores: str) -> str:
    network, prepared, about = description["network"], description["preprocessing"], description["about"]
    facts = {
        "network": network["name"] if network else "of its makers' own code",
        "input": f"photos of {prepared['width']} x {prepared['height']} pixels"
        if prepared
        else "prepared vectors",
        "trained": about.get("trained"),
        **(about.get("training") or {}),
        "versions": ", ".join(f"{name} {version}" for name, version in (about.get("versions") or {}).items()),
        "scores": scores,
    }
    return "".join(
        f"- {_plain(key)}: {_plain(value)}\n" for key, value in facts.items() if value not in (None, "")
    )


def _classes(classes: ClassTable) -> str:
    names = ", ".join(_plain(name) for name in classes.names[:_SHOWN])
    more = (
        f" and {len(classes) - _SHOWN:,} more, which `class_table.json` lists"
        if len(classes) > _SHOWN
        else ""
    )
    text = f"{len(classes):,} classes: {names}{more}.\n"
    if classes.counts:
        sizes = classes.groups().bincount(minlength=len(GROUPS)).tolist()
        groups = ", ".join(f"{size:,} {name}" for size, name in zip(sizes, GROUPS, strict=True))
        least, most = min(classes.counts), max(classes.counts)
        text += (
            f"\n{sum(classes.counts):,} training rows, {least:,} to {most:,} of a class. "
            f"Classes by training rows (few: below 20, many: above 100): {groups}.\n"
        )
    return text


def _promises(promises: Mapping[str, Promise]) -> str:
    if not promises:
        return "It has no predictors of sets.\n"
    return "".join(
        f"- **{_plain(name)}**: {_plain(promise_words(promise))}\n" for name, promise in promises.items()
    )


def _measured(promises: Mapping[str, Promise]) -> str:
    found = {name: promise.measured for name, promise in promises.items() if promise.measured is not None}
    if not found:
        return "Nothing was measured on test rows.\n"
    lines = ["| sets | test rows | right class in the set (%) | 95 % interval | classes in a set |"]
    lines.append("| --- | ---: | ---: | --- | ---: |")
    for name, one in found.items():
        interval = (
            "" if one.low is None or one.high is None else f"{100 * one.low:.1f} to {100 * one.high:.1f}"
        )
        lines.append(
            f"| {_plain(name)} | {one.rows:,} | {100 * one.coverage:.1f} | {interval} | {one.mean_size:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _stated(about: Mapping[str, Any]) -> str:
    lines = [f"- {key.replace('_', ' ')}: {_plain(about.get(key) or 'not stated')}\n" for key in _STATED]
    return "".join(lines) + "\nState these in `about` of `Model.from_parts`, then save the model again.\n"


def _plain(value: Any) -> str:
    """A value in one line, without what Markdown or HTML would make of it."""
    text = one_line(str(value))
    for sign in "\\`*_|[]<>#":
        text = text.replace(sign, f"\\{sign}")
    return text
