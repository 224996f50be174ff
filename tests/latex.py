"""A strict reading of LaTeX tables, and pdflatex itself where that is installed."""

import re
import shutil
import subprocess
from pathlib import Path

# what may stand behind a backslash in our tables
COMMANDS = (
    *("begin", "end", "toprule", "midrule", "bottomrule", "cmidrule", "multicolumn", "textit", "textbf"),
    *("caption", "centering", "par", "footnotesize", "mathbf", "pm", "times", "leq", "geq", "neq", "alpha"),
    *("beta", "gamma", "varepsilon", "lambda", "tau", "Gamma", "textbackslash", "textasciitilde", "dots"),
    *("textasciicircum", "textless", "textgreater", "textbar", "textquotedbl"),
)
MATHS = (
    "pm",
    "times",
    "leq",
    "geq",
    "neq",
    "mathbf",
    "alpha",
    "beta",
    "gamma",
    "varepsilon",
    "lambda",
    "tau",
)


def check_latex(text: str) -> list[list[str]]:
    """Read the rows of a ``tabular``; fails on whatever would stop LaTeX or change what is printed."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    body = "\n".join(lines)
    assert body.isascii() or not re.search(r"[^\x00-\u017f]", body), "a sign that pdfLaTeX lacks"
    depth, is_math, opened, i = 0, False, [], 0
    while i < len(body):
        sign = body[i]
        if sign == "\\":
            command = re.match(r"\\([A-Za-z]+|.)", body[i:], re.S)
            assert command is not None
            name = command[1]
            assert name in COMMANDS or name in "\\&%$#_{}", f"\\{name}"
            assert name not in MATHS or is_math, f"\\{name} outside of mathematics"
            if name in ("begin", "end"):
                environment = re.match(r"\{(table|tabular)\}", body[i + len(name) + 1 :])
                assert environment is not None
                opened.append(environment[1]) if name == "begin" else None
                assert name == "begin" or opened.pop() == environment[1]
            if name == "\\":  # the next row must not begin as an option of this command
                assert not body[i + 2 :].lstrip().startswith(("[", "*")), "a row begins with [ or *"
            i += len(command[0])
            continue
        assert sign not in "#%~^_" or is_math, f"{sign} at {body[max(0, i - 20) : i + 20]!r}"
        is_math ^= sign == "$"
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0, "a brace closed that was not opened"
        i += 1
    assert depth == 0 and not is_math and not opened
    return _rows(body)


def _rows(body: str) -> list[list[str]]:
    """Return the cells of each row, a head over several columns so often, and check that all are as wide."""
    inside = re.search(r"\\begin\{tabular\}\{([lrc]+)\}\n(.*)\n\\end\{tabular\}", body, re.S)
    assert inside is not None
    rows = []
    for line in inside[2].splitlines():
        if not line.endswith(r"\\"):
            assert re.fullmatch(r"\\(top|mid|bottom)rule|(\\cmidrule\(lr\)\{\d+-\d+\})+|", line), line
            continue
        cells: list[str] = []
        for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\")):
            span = re.match(r"\s*\\multicolumn\{(\d+)\}", cell)
            cells += [cell.strip()] * (int(span[1]) if span else 1)
        assert len(cells) == len(inside[1]), line
        rows.append(cells)
    return rows


def compile_latex(text: str, folder: Path) -> None:
    """Compile tables where pdflatex is installed."""
    program = shutil.which("pdflatex")
    if program is None:
        return
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs}\begin{document}"
    (folder / "t.tex").write_text(f"{head}\n{text}\n\\end{{document}}\n", encoding="utf-8")
    words = [program, "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "t.tex"]
    made = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    assert made.returncode == 0, made.stdout[-2000:]
