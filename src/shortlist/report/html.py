"""Pieces of a page: text is escaped unless it is marked as made here."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

__all__ = ["Markup", "bullets", "details", "document", "figure", "joined", "legend", "table", "tag", "text"]


class Markup(str):
    """Text that is markup already; everything else is escaped."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Anything as markup.

    Example:
        >>> text('<b> & "c"')
        '&lt;b&gt; &amp; &quot;c&quot;'
    """
    return value if isinstance(value, Markup) else Markup(escape("" if value is None else str(value)))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Parts one after the other."""
    return Markup(between.join(text(part) for part in parts))


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """An element; ``class_`` and ``aria_label`` become ``class`` and ``aria-label``, None leaves one out.

    Example:
        >>> tag("p", "a < b", class_="note")
        '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{joined(content)}</{name}>")


def table(
    caption: object,
    columns: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    words: Collection[int] = (0,),
) -> Markup:
    """A table that scrolls in itself where it is too wide.

    Args:
        caption: What it shows.
        columns: Heads.
        rows: Cells; the first of each row is its head.
        words: Which columns hold words; the others hold numbers and are set to the right.
    """
    heads = [
        tag("th", head, scope="col", class_=None if i in words else "n") for i, head in enumerate(columns)
    ]
    lines = []
    for row in rows:
        cells = [
            tag("th", cell, scope="row") if i == 0 else tag("td", cell, class_=None if i in words else "n")
            for i, cell in enumerate(row)
        ]
        lines.append(tag("tr", *cells))
    inner = tag(
        "table", tag("caption", tag("span", caption)), tag("thead", tag("tr", *heads)), tag("tbody", *lines)
    )
    return tag("div", inner, class_="scroll", tabindex=0, role="group", aria_label=caption)


def details(summary: object, *content: object, opened: bool = False, class_: str | None = None) -> Markup:
    """Something that can be opened."""
    made = tag("details", tag("summary", summary), *content, class_=class_)
    return Markup(made.replace("<details", "<details open", 1)) if opened else made


def bullets(items: Iterable[object]) -> Markup:
    """A list."""
    return tag("ul", *(tag("li", item) for item in items))


def legend(entries: Sequence[tuple[Markup, str]]) -> Markup:
    """Signs and what they stand for."""
    items = (tag("li", sign, " ", label) for sign, label in entries)
    return tag("ul", *items, class_="legend")


def figure(
    name: str,
    title: str,
    note: object,
    body: Sequence[Markup],
    *,
    signs: Markup | None = None,
    numbers: Markup | None = None,
) -> Markup:
    """A figure with its numbers below it, closed at first."""
    parts: list[object] = [tag("figcaption", tag("h4", title), tag("p", note))]
    if signs is not None:
        parts.append(signs)
    parts.append(tag("div", *body, class_="panels"))
    if numbers is not None:
        parts.append(details("The numbers", numbers))
    return tag("figure", *parts, id=name)


def document(title: str, body: Markup, *, about: Mapping[str, str] | None = None) -> str:
    """The whole page, with its style inside it."""
    style = files("shortlist.report").joinpath("page.css").read_text(encoding="utf-8")
    metas = "".join(f'<meta name="{escape(k)}" content="{escape(v)}">\n' for k, v in (about or {}).items())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'{metas}<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>\n{style}</style>\n'
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
