"""Each page of results begins with what it means for the reader; pictures have the numbers of their page."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
PAGES = sorted(path.stem for path in RESULTS.glob("*.md") if path.stem not in ("README", "untuned"))


def page_dots():
    spec = importlib.util.spec_from_file_location("page_dots", ROOT / "tools/page_dots.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_first_what_it_means(name):
    before_the_first_table = (RESULTS / f"{name}.md").read_text().partition("\n| ")[0]
    assert re.search(r"^(\*\*|## )What this means for you", before_the_first_table, re.M)


def test_pictures_have_the_numbers_of_their_pages():
    tool = page_dots()
    for name in tool.PANELS:
        assert tool.draw(name) == (RESULTS / f"{name}.svg").read_text(), f"python tools/page_dots.py: {name}"
        assert f"]({name}.svg)" in (RESULTS / f"{name}.md").read_text().partition("\n| ")[0]


def test_a_dot_is_where_its_number_is():
    """By hand, from docs/results/annealing.md: noise_1, lists of five, -3.2 +- 0.9, which is significant."""
    [page] = [(RESULTS / "annealing.md").read_text()]
    [row] = re.findall(r"^\| noise_1 \| -.*$", page, re.M)
    assert row.split("|")[4].strip() == "**-3.2 ± 0.9**"
    tool = page_dots()
    base, table = tool.differences(page)["The tables"]
    assert base == "ce" and table["noise_1"]["top5.micro (%)"] == (-3.2, 0.9, True)
    text = (RESULTS / "annealing.svg").read_text()
    [(y, color)] = re.findall(r'y="(\d+)" text-anchor="end" fill="(#\w+)">-3\.2</text>\n(?=.*)', text)[:1]
    assert color == tool.WORSE and f'cy="{int(y) - 5}" r="4" fill="{color}"' in text
