from pathlib import Path

from shortlist.papers.page import published_page

PAGE = Path(__file__).parents[2] / "docs/explanations/published.md"


def test_the_page_of_published_numbers_is_the_one_of_the_data():
    assert PAGE.read_text(encoding="utf-8") == published_page()


def test_cells_are_written_as_printed():
    text = published_page()
    assert "| 42.4 ± 0.3 (23.9/46.3/72.1) |" in text
    assert "| 86.21 \\| 98.003 |" in text
    assert "| 25.43 (the number of Cui et al. (2019), with their training) |" in text
