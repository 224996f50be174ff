"""The model card: a page for people that goes with the files of a model."""

from collections.abc import Mapping
from typing import Any

from shortlist._messages import one_line
from shortlist.class_table import GROUPS, ClassTable
from shortlist.metrics import Results
from shortlist.model.card_data import front_matter, metadata
from shortlist.model.card_figure import figure_svg
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


PAGE, FIGURE = "README.md", "coverage.svg"
"""Files of a card; the figure is left out where nothing was measured."""
_SHOW = f"\n![Share of photos whose list contains the right class]({FIGURE})\n"


def card_files(
    description: Mapping[str, Any],
    promises: Mapping[str, Promise],
    classes: ClassTable,
    scores: str,
    results: Results | None = None,
) -> dict[str, str]:
    """Write the card: a page in Markdown that begins with the metadata of the Hugging Face hub, and a figure.

    Args:
        description: What ``model.json`` says.
        promises: By name of the predictor, what it promises and what was measured.
        classes: The classes with their training counts.
        scores: What the scores mean, in a sentence.
        results: Results on test rows, if there are any.

    Returns:
        The text of each file, by its name.
    """
    figure = figure_svg(promises, results)
    about = description["about"]
    strangers = "; its detector of strangers flags some of them" if description["novelty"] else ""
    sections = {
        "What it is": _facts(description, scores),
        "Classes": _classes(classes),
        "What its lists promise": _promises(promises),
        "What was measured": _measured(promises) + _groups(results) + (_SHOW if figure else ""),
        "What it is not for": _NOT_FOR.format(strangers=strangers),
        "Stated by its makers": _stated(about),
    }
    text = "".join(f"\n## {title}\n\n{section}" for title, section in sections.items())
    start = "A model of shortlist. This page is written with the model."
    top = front_matter(metadata(description, promises, results))
    page = f"{top}# {_plain(about.get('name') or 'Model')}\n\n{start}\n{text}"
    return {PAGE: page} if figure is None else {PAGE: page, FIGURE: figure}


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
    measured = {name: promise.measured for name, promise in promises.items() if promise.measured is not None}
    if not measured:
        return "Nothing was measured on test rows.\n"
    lines = ["| sets | test rows | right class in the set (%) | 95 % interval | classes in a set |"]
    lines.append("| --- | ---: | ---: | --- | ---: |")
    for name, one in measured.items():
        interval = (
            "" if one.low is None or one.high is None else f"{100 * one.low:.1f} to {100 * one.high:.1f}"
        )
        lines.append(
            f"| {_plain(name)} | {one.rows:,} | {100 * one.coverage:.1f} | {interval} | {one.mean_size:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _groups(results: Results | None) -> str:
    """Show the coverage of each group of classes, if the class table has training counts."""
    if results is None or not results.groups:
        return ""
    lines = [f"| sets, right class in the set (%) | {' | '.join(results.groups)} |"]
    lines.append(f"| --- |{' ---: |' * len(results.groups)}")
    for name, sets in results.sets.items():
        estimates = [sets.coverage.groups.get(group) for group in results.groups]
        cells = [
            f"{100 * one.value:.1f}" if one and one.value is not None else "no rows" for one in estimates
        ]
        lines.append(f"| {_plain(name)} | {' | '.join(cells)} |")
    rows = ", ".join(f"{group} {of.rows:,}" for group, of in results.groups.items())
    return f"\nBy the training rows of the right class (test rows: {rows}):\n\n" + "\n".join(lines) + "\n"


def _stated(about: Mapping[str, Any]) -> str:
    lines = [f"- {key.replace('_', ' ')}: {_plain(about.get(key) or 'not stated')}\n" for key in _STATED]
    return "".join(lines) + "\nState these in `about` of `Model.from_parts`, then save the model again.\n"


def _plain(value: Any) -> str:
    """A value in one line, without what Markdown or HTML would make of it."""
    text = one_line(str(value))
    for sign in "\\`*_|[]<>#":
        text = text.replace(sign, f"\\{sign}")
    return text
