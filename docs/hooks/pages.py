"""Pages that are made from files outside of ``docs``, and links to such files.

The home page is README.md. The changelog and the pages about the project are files of the repository, and
the page of the command line is made from the command's own help.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from command_line import command_page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "GOVERNANCE.md": "governance.md",
}
SHOWN_AS_THEY_ARE = ("examples/*.py", "examples/*.ipynb", "CITATION.cff", "LICENSE")
_LINK = re.compile(r"(\]\()(?!https?://|#)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files from outside of ``docs``."""
    for source, page in PAGES.items():
        text = with_links_of(page, (ROOT / source).read_text(), folder="")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "reference/command_line.md", content=command_page()))
    for pattern in SHOWN_AS_THEY_ARE:
        for path in sorted(ROOT.glob(pattern)):
            place = _place(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, place, content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Let links that leave ``docs`` lead to the page or file of the site."""
    if page.file.src_uri in PAGES.values():
        return markdown
    return with_links_of(page.file.src_uri, markdown, folder=posixpath.dirname(f"docs/{page.file.src_uri}"))


def with_links_of(page: str, text: str, *, folder: str) -> str:
    """Rewrite links, which start in a folder of the repository, for a page of the site."""

    def rewritten(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        return found[1] + posixpath.relpath(_place(target), posixpath.dirname(page) or ".")

    return _LINK.sub(rewritten, text)


def _place(target: str) -> str:
    """Where a file of the repository is on the site."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"files/{target}" if target.endswith(".ipynb") else f"files/{target}.txt"  # a browser shows text
