"""Every published number as a page, with the command that makes ours."""

from itertools import groupby

from shortlist.compare import pipe_row
from shortlist.papers.published import PublishedNumber, PublishedTable, load_published

_HEAD = """# Published numbers

Every number of the papers' tables of results, as printed, and the suite that makes ours.
`shortlist papers page > docs/published.md` writes this page from `src/shortlist/papers/tables`, which
`shortlist report` reads too.

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
    heads = ["method", *(column.name for column in table.columns)]
    rows = [[row.method, *map(_shown, row.cells)] for row in table.rows]
    lines += [pipe_row(heads), pipe_row(["---"] * len(heads)), *map(pipe_row, rows)]
    return "\n".join(lines) + "\n"


def _metrics(table: PublishedTable) -> str:
    names = dict.fromkeys(metric for column in table.columns for metric in column.metrics)
    return ", ".join(f"`{name}`" for name in names)


def _shown(cell: tuple[PublishedNumber, ...]) -> str:
    """Write a cell as it is printed: groups of classes in parentheses behind their mean."""
    groups = [number for number in cell if number.metric.endswith((".few", ".medium", ".many"))]
    means = [_number(number) for number in cell if number not in groups]
    inside = f" ({'/'.join(map(_number, groups))})" if groups else ""
    remarks = dict.fromkeys(number.remark for number in cell if number.remark)
    return " \\| ".join(means) + inside + "".join(f" ({remark})" for remark in remarks)


def _number(number: PublishedNumber) -> str:
    half = "" if number.half is None else f" ± {number.half:.{number.digits}f}"
    return f"{number.value:.{number.digits}f}{half}"
