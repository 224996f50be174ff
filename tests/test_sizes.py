"""No file and no function grows beyond what can be read at once."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "shortlist"
FILE_LINES, FUNCTION_LINES = 400, 40


def long_functions(text: str) -> list[tuple[str, int]]:
    """Name the functions whose bodies, without their docstrings, have too many lines."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1 if ast.get_docstring(node) is not None and len(node.body) > 1 else 0]
            lines = (node.end_lineno or 0) - first.lineno + 1
            if lines > FUNCTION_LINES:
                found.append((node.name, lines))
    return found


def test_files_and_functions_are_short():
    texts = {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    assert {name: found for name, text in texts.items() if (found := long_functions(text))} == {}
    assert [name for name, text in texts.items() if len(text.splitlines()) > FILE_LINES] == []


def test_a_long_function_is_found():
    short = (
        'def short():\n    """Say it.\n' + "    word\n" * 60 + '    """\n' + "    x = 1\n" * FUNCTION_LINES
    )
    assert long_functions(short) == []
    assert long_functions(short + "    x = 1\n") == [("short", FUNCTION_LINES + 1)]
