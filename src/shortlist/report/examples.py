"""The figures with pictures: confused classes and short lists."""

from collections.abc import Sequence

from shortlist.class_table import ClassTable
from shortlist.report.html import Markup, details, joined, table, tag
from shortlist.report.pictures import Pictures
from shortlist.report.rows import NUM_FIRST, Candidate, MethodRows, ShortList
from shortlist.report.words import count, percent
from shortlist.runs.groups import Group

__all__ = ["confusion_figure", "lists_figure"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def confusion_figure(name: str, method: Group, rows: MethodRows, pictures: Pictures | None) -> Markup:
    """The most confused classes, with rows that were mistaken."""
    names = method.runs[0].class_table.names
    cards, lines = [], []
    for pair, examples in zip(rows.pairs, rows.pair_rows, strict=True):
        (a, b), parts = pair.classes, []
        for true, other, number, total, chosen in (
            (a, b, pair.forth, pair.rows[0], examples[0]),
            (b, a, pair.back, pair.rows[1], examples[1]),
        ):
            lines.append(
                [names[true], names[other], number, total, percent(number / total if total else None)]
            )
            if number:
                share = f"{number:,} of {count(total, 'row')} ({percent(number / total, 0)} %)"
                parts.append(tag("p", share if true == a else f"The other way round: {share}"))
                parts.append(_mistaken(pictures, chosen, other, names[true], names[other]))
        cards.append(tag("div", tag("h5", f"{names[a]}, taken for {names[b]}"), *parts, class_="card"))
    title = tag("h4", "Most confused classes")
    runs = f", counted over {len(method.runs)} runs" if len(method.runs) > 1 else ""
    body: Markup = tag("div", *cards, class_="cards") if cards else tag("p", "No first guess is wrong.")
    numbers = table(
        "First guesses that are wrong", ["true class", "taken for", "rows", "of", "%"], lines, words=(0, 1)
    )
    note = f"Pairs with most wrong first guesses, both ways{runs}."
    note += " After the arrow, a training picture of the class they were taken for." if pictures else ""
    caption = tag("figcaption", title, tag("p", note))
    return tag("figure", caption, body, details("The numbers", numbers) if lines else "", id=name)


def _mistaken(
    pictures: Pictures | None, rows: Sequence[int], other: int, true: str, taken_for: str
) -> Markup:
    """Pictures of rows, and one of the class that they were taken for."""
    if pictures is None:
        return Markup("")
    alt = f"{true}, taken for {taken_for}"
    made = [pictures.test(row, alt=f"Test row {row}: {alt}", side=64) for row in rows]
    shown = [picture for picture in made if picture is not None]
    if not shown:
        return Markup("")
    known = pictures.of_class(other, alt=f"A training picture of {taken_for}", side=64)
    return tag("div", *shown, *(["→", known] if known is not None else []), class_="pictures")


def lists_figure(name: str, method: Group, rows: MethodRows, pictures: Pictures | None) -> Markup:
    """Short lists from easy to hard."""
    table_of_classes = method.runs[0].class_table
    letters = _LETTERS[: len(rows.predictors)]
    cards = [
        _card(place, each, len(rows.lists), table_of_classes, letters, pictures)
        for place, each in enumerate(rows.lists, start=1)
    ]
    key = ", ".join(
        f"{letter} {predictor}" for letter, predictor in zip(letters, rows.predictors, strict=False)
    )
    run = method.runs[0]
    words = (
        f"Test rows of {run.name} (seed {run.recipe.seed}), evenly spaced from the one whose true class got "
    )
    words += "the highest share of the softmax to the one where it got the lowest. The probabilities are "
    words += "for rows whose classes occur as those of the training rows. The true class "
    words += "is marked. "
    words += (
        f"A dot: the set of {key} holds the class."
        if key
        else f"The run has no predictors: these are the {NUM_FIRST} best scores."
    )
    caption = tag("figcaption", tag("h4", "Short lists from easy to hard"), tag("p", words))
    return tag("figure", caption, tag("div", *cards, class_="cards"), id=name)


def _card(
    place: int, each: ShortList, total: int, classes: ClassTable, letters: str, pictures: Pictures | None
) -> Markup:
    true = classes.names[each.true]
    picture = (
        None if pictures is None else pictures.test(each.row, alt=f"Test row {each.row}: {true}", side=80)
    )
    sizes = ", ".join(f"{letter} {number}" for letter, number in zip(letters, each.sizes, strict=False))
    head = tag(
        "div",
        tag("h5", f"{place} of {total}: {true}"),
        tag("p", f"Test row {each.row}. " + (f"Set sizes: {sizes}." if sizes else ""), class_="soft"),
    )
    heads = [tag("td", class_="thumb") if pictures is not None else "", tag("th", "class", scope="col")]
    heads += [tag("th", "%", scope="col", class_="share")]
    heads += [tag("th", letter, scope="col", class_="mark") for letter in letters]
    body = [_line(candidate, each, classes, letters, pictures) for candidate in each.candidates]
    label = f"Candidates for test row {each.row}"
    lists = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body), aria_label=label)
    words = f"and {count(each.more, 'class', 'classes')} more in the sets"
    more = tag("p", words, class_="soft") if each.more else ""
    return tag("div", tag("div", picture or "", head, class_="head"), lists, more, class_="card")


def _line(
    candidate: Candidate, each: ShortList, classes: ClassTable, letters: str, pictures: Pictures | None
) -> Markup:
    name, is_true = classes.names[candidate.index], candidate.index == each.true
    cells: list[Markup] = []
    if pictures is not None:
        picture = pictures.of_class(candidate.index, alt="")
        cells.append(tag("td", picture or "", class_="thumb"))
    badge = joined([" ", tag("span", "true", class_="badge")]) if is_true else ""
    place = "" if any(candidate.held_by) else f" (place {candidate.place}, in no set)"
    if not letters:
        place = "" if candidate.place <= NUM_FIRST else f" (place {candidate.place})"
    cells.append(tag("th", name, badge, place, scope="row"))
    cells.append(tag("td", percent(candidate.probability), class_="share"))
    for letter, held in zip(letters, candidate.held_by, strict=False):
        cells.append(tag("td", "●" if held else "", class_="mark", title=f"in {letter}" if held else None))
    return tag("tr", *cells, class_="true" if is_true else None)
