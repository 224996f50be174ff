"""The publications: their recipes and suites, their tables and printed numbers, and their figures.

``shortlist papers`` lists them. ``papers:NAME`` names a recipe or a suite wherever a command takes a file.
"""

from shortlist.papers.figures import FIGURES, load_figure, write_figure
from shortlist.papers.files import recipe_path, recipes, suites
from shortlist.papers.filling import fill_layout
from shortlist.papers.layouts import list_tables, load_layout
from shortlist.papers.matching import PublishedValue, find_published
from shortlist.papers.ours import own_estimate, own_numbers
from shortlist.papers.page import published_page
from shortlist.papers.printing import table_sheet
from shortlist.papers.published import PublishedNumber, PublishedTable, load_published

__all__ = [
    "PublishedNumber",
    "PublishedTable",
    "PublishedValue",
    "fill_layout",
    "find_published",
    "list_tables",
    "load_layout",
    "load_published",
    "recipe_path",
    "recipes",
    "suites",
    "table_sheet",
]
