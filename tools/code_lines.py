"""Count lines of code by room: without docstrings, comments and blank lines.

``python tools/code_lines.py [FOLDER] [OTHER]`` counts ``src/shortlist``, or FOLDER, and compares with OTHER.
"""

import ast
import sys
from collections import Counter
from pathlib import Path


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the numbers of all lines that belong to docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            if isinstance(first.value.value, str):
                lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(text: str) -> int:
    """Count the lines of a file that are code."""
    skipped = docstring_lines(ast.parse(text))
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return sum(1 for number, line in lines if number not in skipped and line and not line.startswith("#"))


def by_room(folder: Path) -> Counter[str]:
    """Return the lines of code of each room of a package."""
    rooms: Counter[str] = Counter()
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.pyi")]):
        parts = path.relative_to(folder).parts
        is_room = len(parts) > 1 and not parts[0].startswith("_")
        rooms[parts[0] if is_room else "(ground floor)"] += code_lines(path.read_text("utf-8"))
    return rooms


def main(folder: str = "src/shortlist", other: str | None = None) -> None:
    """Print a table of rooms."""
    now = by_room(Path(folder))
    before = by_room(Path(other)) if other is not None else Counter[str]()
    for room in sorted(now | before, key=lambda name: -now[name]):
        print(f"{room:<16}{now[room]:>8,}" + (f"{before[room]:>10,}" if other is not None else ""))
    print(f"{'all':<16}{now.total():>8,}" + (f"{before.total():>10,}" if other is not None else ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
