"""Draw the pictures of the results pages: dots with 95 % intervals, from the tables in the pages themselves.

python tools/page_dots.py            # writes docs/results/NAME.svg for each page below
python tools/page_dots.py --check    # exit code 1 if a picture is not that of its page
"""

import argparse
import re
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parents[1] / "docs" / "results"
FIRST, FIVE, THREE = "top1.micro (%)", "top5.micro (%)", "top3.micro (%)"
RARE, SETS = "top5.macro (%)", "sets.average5.coverage.micro (%)"

# page: panels, each a heading of a table (how it begins), a column, and a title
PANELS: dict[str, list[tuple[str, str, str]]] = {
    "annealing": [("The tables", FIRST, "first place"), ("The tables", FIVE, "lists of 5")],
    "average_k": [("The tables", FIVE, "lists of 5"), ("The tables", SETS, "sets of 5 on average")],
    "bayes": [
        ("The tables", THREE, "lists of 3"),
        ("The tables", "top3.macro (%)", "lists of 3, average class"),
        ("The tables", "sets.average3.coverage.micro (%)", "sets of 3 on average"),
    ],
    "label_noise": [
        ("data.label_noise 0", FIVE, "lists of 5, right labels"),
        ("data.label_noise 0.2", FIVE, "20 % wrong"),
        ("data.label_noise 0.4", FIVE, "40 % wrong"),
    ],
    "multi_label": [
        ("The tables", "at_true.f1", "F1 at the true number"),
        ("The tables", "at_predicted.f1", "F1 at the predicted number"),
    ],
    "noise_std": [
        ("network shallow", FIVE, "lists of 5, 4 convolutions"),
        ("network deep", FIVE, "8 convolutions"),
    ],
    "photos_average_k": [
        ("Birds", SETS, "sets of 5 on average, birds"),
        ("Cars", SETS, "cars"),
        ("CIFAR-100, from scratch", SETS, "CIFAR-100, from scratch"),
    ],
    "photos_long_tail": [
        ("Birds", RARE, "birds"),
        ("CIFAR-100", RARE, "CIFAR-100"),
        ("CIFAR-100, features learned", RARE, "learned features"),
        ("CIFAR-100, ResNet-32", RARE, "ResNet-32"),
    ],
    "photos_noise": [
        ("labels clean", FIVE, "lists of 5, right labels"),
        ("labels superclass_0.2", FIVE, "20 % wrong"),
        ("labels superclass_0.4", FIVE, "40 % wrong"),
    ],
    "photos_ranked": [
        ("The tables", FIRST, "first place"),
        ("The tables", FIVE, "lists of 5"),
        ("The tables", "top10.micro (%)", "lists of 10"),
    ],
    "ranked": [
        ("The tables", FIRST, "first place"),
        ("The tables", THREE, "lists of 3"),
        ("The tables", FIVE, "lists of 5"),
    ],
    "scores": [
        ("The tables", "sets.average3.coverage.macro (%)", "sets of 3, average class"),
        ("The tables", "sets.average3_macro.coverage.macro (%)", "the same with class priors"),
    ],
    "steepness": [("set glyphs", FIVE, "lists of 5, glyphs"), ("set gaussians", FIVE, "Gaussians")],
}
WIDTH, ROW, LABELS, NUMBERS, TOP = 1000, 20, 235, 50, 64
BETTER, WORSE, LEVEL = "#14786a", "#b0560a", "#777777"
MOST = 12.0  # points to each side that a panel shows


class Change(NamedTuple):
    """A difference to the base of a table: its value, half its interval, and whether it is significant."""

    value: float
    half: float
    is_significant: bool


def differences(page: str) -> dict[str, tuple[str, dict[str, dict[str, Change]]]]:
    """Read the tables of differences: by heading, what they are to, and by method the changes by column."""
    tables: dict[str, tuple[str, dict[str, dict[str, Change]]]] = {}
    heading, columns = "", []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("#"):
            heading, columns = line.lstrip("# "), []
        elif line.startswith("| method - "):
            columns = cells[1:]
            tables[heading] = (cells[0].removeprefix("method - "), {})
        elif columns and line.startswith("| ---"):
            continue
        elif columns and line.startswith("|"):
            found = zip(columns, map(_change, cells[1:]), strict=True)
            tables[heading][1][cells[0]] = {name: change for name, change in found if change is not None}
        else:
            columns = []
    return tables


def _change(cell: str) -> Change | None:
    numbers = re.fullmatch(r"(\*\*)?([+-][\d.]+)(?: ± ([\d.]+))?(?:\*\*)?", cell)
    return numbers and Change(float(numbers[2]), float(numbers[3] or 0), bool(numbers[1]))


def draw(name: str) -> str:
    """Return the picture of a page."""
    tables = differences((RESULTS / f"{name}.md").read_text())
    panels = [(_table(tables, heading), column, title) for heading, column, title in PANELS[name]]
    methods = list(dict.fromkeys(method for (_, table), column, _ in panels for method in table))
    base = panels[0][0][0]
    height = TOP + ROW * len(methods) + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>Differences to {escape(base)} in percentage points, with 95 % intervals</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="20" fill="#333">difference to {escape(base)}, in points; '
        "colored where it is significant</text>",
    ]
    for place, method in enumerate(methods):
        y = TOP + ROW * place + 14
        parts.append(f'<text x="{LABELS - 10}" y="{y}" text-anchor="end" fill="#333">{escape(method)}</text>')
    width = (WIDTH - LABELS) / len(panels)
    for place, ((_, table), column, title) in enumerate(panels):
        changes = [table.get(method, {}).get(column) for method in methods]
        parts += _panel(LABELS + place * width, width - 10, height, title, changes)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _table(tables: dict, heading: str) -> tuple[str, dict[str, dict[str, Change]]]:
    exact = [table for name, table in tables.items() if name == heading]
    return (exact or [table for name, table in tables.items() if name.startswith(heading)])[0]


def _panel(left: float, width: float, height: int, title: str, changes: list[Change | None]) -> list[str]:
    """Draw one column: a line at no difference, a dot and an interval for each method, and its number."""
    ends = [abs(one.value) + one.half for one in changes if one is not None]
    reach = min(MOST, max(ends)) or 1.0
    middle, half = left + (width - NUMBERS) / 2, (width - NUMBERS) / 2 - 6
    at = lambda value: middle + half * max(-1.0, min(1.0, value / reach))  # noqa: E731
    parts = [
        f'<text x="{left}" y="46" fill="#111" font-weight="600">{escape(title)}</text>',
        f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{TOP - 8}" y2="{height - 8}" stroke="#999"/>',
    ]
    for place, change in enumerate(changes):
        if change is None:
            continue
        y = TOP + ROW * place + 9
        color = LEVEL if not change.is_significant else BETTER if change.value > 0 else WORSE
        low, high = at(change.value - change.half), at(change.value + change.half)
        parts.append(
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2"/>'
        )
        if abs(change.value) <= reach:
            parts.append(f'<circle cx="{at(change.value):.1f}" cy="{y}" r="4" fill="{color}"/>')
        else:  # it is beyond the end, where an arrow points
            tip, way = at(change.value), 7 if change.value > 0 else -7
            parts.append(f'<path d="M{tip:.1f} {y} l{-way} -5 v10 z" fill="{color}"/>')
        parts.append(
            f'<text x="{left + width - 4:.1f}" y="{y + 5}" text-anchor="end" fill="{color}">'
            f"{change.value:+.1f}</text>"
        )
    return parts


def main() -> None:
    """Write the pictures, or compare them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = []
    for name in PANELS:
        path, text = RESULTS / f"{name}.svg", draw(name)
        if is_check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not is_check:
            path.write_text(text)
    sys.exit(f"not of their page: {', '.join(stale)}" if stale else 0)


if __name__ == "__main__":
    main()
