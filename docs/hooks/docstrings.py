"""What the docstrings say for a terminal, said for a page: formulas become MathML, roles become links."""

import re
from typing import Any

import griffe
from latex2mathml.converter import convert

_EXAMPLE = re.compile(r"^Example:$", flags=re.M)  # the parser knows the plural as a section of code
_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n\1 +\S.*)*)", flags=re.M)
_INLINE = re.compile(r":math:`([^`]+)`")
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`(~?)([\w.]+)`")


def for_a_page(text: str) -> str:
    """Rewrite the formulas and the roles of a docstring."""
    text = _EXAMPLE.sub("Examples:", text)
    text = _BLOCK.sub(lambda found: f"{found[1]}{_block(found[2])}\n", text)
    text = _INLINE.sub(lambda found: _formula(found[1], "inline"), text)
    return _ROLE.sub(_link, text)


def _formula(latex: str, display: Any) -> str:
    return convert(" ".join(latex.split()), display=display)


def _block(latex: str) -> str:
    """Return a formula in a place of its own, which scrolls if it is wider than the page."""
    return f'<div class="formula">{_formula(latex, "block")}</div>'


def _link(found: re.Match[str]) -> str:
    path = found[2]
    shown = path.rsplit(".", 1)[-1] if found[1] else path
    return f'<autoref optional identifier="{path}"><code>{shown}</code></autoref>'


class DocstringsForPages(griffe.Extension):
    """Rewrites each docstring when it is loaded."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = for_a_page(obj.docstring.value)
