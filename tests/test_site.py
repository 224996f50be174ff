"""The documentation site: its code runs, its reference is whole, and its pages ask no other server."""

import importlib
import re
import subprocess
import sys
import types
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
KINDS = ("tutorials", "guides", "reference", "explanations")
EVIDENCE = ("results/", "speed.md")  # of explanations, for their numbers
ASKING = {  # what a browser fetches by itself
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "link": "href",
}


def python_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)


def documented_modules() -> set[str]:
    pages = "".join(path.read_text() for path in DOCS.glob("reference/*.md"))
    return set(re.findall(r"^::: (\S+)", pages, flags=re.M))


def test_the_reference_has_each_module_that_pages_import_from():
    imported = set()
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for code in python_of(page):
            imported |= set(re.findall(r"^\s*from (shortlist[\w.]*) import", code, flags=re.M))
    assert "shortlist.losses" in imported
    assert imported - {"shortlist"} <= documented_modules()


def pages_of(entry) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    return [
        page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages_of(part)
    ]


def test_each_page_is_of_one_of_four_kinds():
    """In the navigation, and in the folder of its kind."""
    text = re.sub(r"^hooks:.*$", "", (ROOT / "mkdocs.yml").read_text(), flags=re.M)
    navigation = {
        name: pages_of(part) for entry in yaml.safe_load(text)["nav"] for name, part in entry.items()
    }
    assert list(navigation) == ["Home", "Tutorials", "Guides", "Reference", "Explanations", "Project"]
    made = {"reference/command_line.md"}
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | made
    listed = [page for name in KINDS for page in navigation[name.title()]]
    assert sorted(listed) == sorted(there)
    for name in KINDS:
        places = (f"{name}/", *EVIDENCE) if name == "explanations" else (f"{name}/",)
        assert all(page.startswith(places) for page in navigation[name.title()]), name


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a link or a name that leads nowhere is an error."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_the_reference_has_every_public_name(site):
    pages = "".join(path.read_text() for path in (site / "reference").glob("*.html"))
    anchors = set(re.findall(r'id="(shortlist\.[^"]*)"', pages))
    modules = documented_modules()
    for name in sorted(modules | {"shortlist"}):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue  # a function by its own name
        if not isinstance(module, types.ModuleType):
            continue
        for public in set(getattr(module, "__all__", ())) - {"__version__"}:
            if isinstance(getattr(module, public), types.ModuleType):
                assert f"{name}.{public}" in modules
            else:
                assert any(a.startswith(f"{name}.") and a.endswith(f".{public}") for a in anchors), public


class Asked(HTMLParser):
    """Collects the addresses that a browser fetches by itself to show a page."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        harmless = tag == "link" and found.get("rel") in ("canonical", "next", "prev")
        if tag in ASKING and not harmless:
            self.addresses.append(found.get(ASKING[tag]) or "")


@pytest.mark.slow
def test_built_pages_ask_no_other_server(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        asked = Asked()
        asked.feed(page.read_text())
        assert not [one for one in asked.addresses if re.match(r"(https?:)?//", one)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import\s)[\"']?(https?:)?//", sheet.read_text()), sheet


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits_the_screen_and_stays_at_home(site, browser, width):
    """A wide formula or table scrolls by itself, never the page."""
    page = browser.new_page(viewport={"width": width, "height": 844})
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    wide = {}
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        if (width_of_page := page.evaluate("document.documentElement.scrollWidth")) > width:
            wide[str(path.relative_to(site))] = width_of_page
    page.close()
    assert not wide
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requests)


@pytest.mark.slow
def test_tables_fit_the_screen_of_a_laptop(site, browser):
    """All but those of results, which have a column for each metric."""
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    cut = {}
    for path in sorted(site.rglob("*.html")):
        if path.parent.name == "results":
            continue
        page.goto(path.as_uri())
        tables = "[...document.querySelectorAll('.md-typeset__scrollwrap')]"
        widths = page.evaluate(f"{tables}.map(e => e.scrollWidth - e.clientWidth)")
        if (over := max(widths, default=0)) > 0:
            cut[str(path.relative_to(site))] = over
    page.close()
    assert not cut
