"""The publications: their recipes and suites, their printed numbers, and their figures.

``shortlist papers`` lists them. ``papers:NAME`` names a recipe or a suite wherever a command takes a file.
"""

from shortlist.papers.figures import FIGURES, load_figure, write_figure
from shortlist.papers.files import recipe_path, recipes, suites
from shortlist.papers.matching import PublishedValue, find_published
from shortlist.papers.page import published_page
from shortlist.papers.published import PublishedNumber, PublishedTable, load_published

__all__ = [
    "PublishedNumber",
    "PublishedTable",
    "PublishedValue",
    "find_published",
    "load_published",
    "recipe_path",
    "recipes",
    "suites",
]
