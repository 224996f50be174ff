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
WITH_PHOTOS = "tutorials/own_photos.md"  # its code needs a run: tests/test_own_photos.py
GO_ON = {"guides/scikit_learn.md"}  # whose blocks use what those before made
RUN_HERE = sorted(
    str(path.relative_to(DOCS))
    for path in [
        *DOCS.glob("tutorials/*.md"),
        *DOCS.glob("guides/*.md"),
        DOCS / "install.md",
        DOCS / "faq.md",
        DOCS / "migration.md",
    ]
)
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


@pytest.mark.parametrize("page", [page for page in RUN_HERE if page != WITH_PHOTOS])
def test_python_of_tutorials_and_guides_runs(page):
    names: dict = {}
    for code in python_of(DOCS / page):
        exec(code, names if page in GO_ON else {})


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


def test_each_page_is_in_the_navigation():
    text = re.sub(r"^hooks:.*$", "", (ROOT / "mkdocs.yml").read_text(), flags=re.M)
    listed = set(re.findall(r"[\w/]+\.md", yaml.dump(yaml.safe_load(text)["nav"])))
    made = {"index.md", "changelog.md", "contributing.md", "security.md", "conduct.md", "governance.md"}
    made.add("reference/command_line.md")
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert listed - made == there


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
def test_pages_fit_the_screen_and_stay_at_home(site, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 844})
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    for name in ("index", "losses", "recipes", "migration", "papers", "reference/losses", "security"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requests)
