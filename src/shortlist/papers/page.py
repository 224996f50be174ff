"""Every published number as a page, with the command that makes ours."""

from itertools import groupby

from shortlist._sheets import pipe_row
from shortlist.papers.published import (
    PublishedNumber,
    PublishedTable,
    cell_text,
    load_published,
    number_text,
)

_WIDEST = 12  # columns that fit a screen: a wider table is turned, if it has fewer rows
_HEAD = """# Published numbers

Every number of the papers' tables of results, as printed, and the suite that makes ours.
`shortlist papers page > docs/explanations/published.md` writes this page from
`src/shortlist/papers/tables`, which `shortlist report` reads too.

- `±` is half the published 95 % interval.
- In parentheses are the classes with few, medium and many training images.
- `|` stands between the metrics that are named above the table.
- A suite needs `--set data.root=DIR`, and for ImageNet-LT also `--set data.lists=LISTS`.
- **None of these suites was run on the real data here.**
"""


def published_page() -> str:
    """Return the page in Markdown."""
    parts = [_HEAD]
    for source, tables in groupby(load_published(), key=lambda table: table.source):
        parts.append(f"## {source}\n")
        parts += [_section(table) for table in tables]
    return "\n".join(parts)


def _section(table: PublishedTable) -> str:
    place = table.place.capitalize()
    if table.thesis and table.thesis not in table.table:
        place += f" (thesis: {table.thesis})"
    unit = "" if table.unit == "%" else f", in {table.unit}"
    said = [f"mean of {table.runs} runs"] if table.runs else []
    said += [table.note] if table.note else []
    about = "; ".join([f"Metric: {_metrics(table)}{unit}", *said])
    lines = [f"### {place}: {table.name}\n", f"{about}.\n"]
    if table.suite:
        lines.append(f"`shortlist suite run papers:{table.suite}`\n")
    grid = [["method", *(column.name for column in table.columns)]]
    grid += [[row.method, *map(_shown, row.cells)] for row in table.rows]
    if len(grid[0]) > max(_WIDEST, len(grid)):
        grid = [list(line) for line in zip(*grid, strict=True)]
    lines += [pipe_row(grid[0]), pipe_row(["---"] * len(grid[0])), *map(pipe_row, grid[1:])]
    return "\n".join(lines) + "\n"


def _metrics(table: PublishedTable) -> str:
    names = dict.fromkeys(metric for column in table.columns for metric in column.metrics)
    return ", ".join(f"`{name}`" for name in names)


def _shown(cell: tuple[PublishedNumber, ...]) -> str:
    """Write a cell as it is printed, with what the paper says about its numbers."""
    remarks = dict.fromkeys(number.remark for number in cell if number.remark)
    numbers = cell_text(cell, [number_text(number) for number in cell]).replace("|", "\\|")
    return numbers + "".join(f" ({remark})" for remark in remarks)
