"""The templates of the page: they escape every value but the page's own style."""

from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from shortlist._text import format_percent
from shortlist.report.drawings import FRAME, color_of, dash_of
from shortlist.report.words import count

_TEMPLATES = Environment(
    loader=PackageLoader("shortlist.report"),
    autoescape=True,
    undefined=StrictUndefined,  # a name that the numbers do not have is an error, not an empty place
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"color": color_of, "count": count, "dash": dash_of, "percent": format_percent}
_TEMPLATES.globals |= {"frame": FRAME}


def render(template: str, **values: Any) -> str:
    """Fill a file of ``templates/`` with values.

    Example:
        >>> page = render("summary.html", section={"overview": "a < b", "findings": [], "intervals": ""})
        >>> "<p>a &lt; b</p>" in page
        True
    """
    return _TEMPLATES.get_template(template).render(**values)


def page_style() -> str:
    """Read the page's style sheet."""
    return files("shortlist.report").joinpath("page.css").read_text(encoding="utf-8")
