"""The page of the command line, made from the help of each verb."""

from pathlib import Path
from typing import Any

import typer.main

from shortlist.cli import app

_PLAIN = str.maketrans({"*": r"\*", "|": r"\|", "<": "&lt;"})  # no markup inside a table
_START = """# Command line

Each verb has `--help`. `--json` prints the same for scripts. A verb that fails says
why in one line, and its exit code is 2. This page is made from the help itself.
"""


def command_page() -> str:
    """Return the help of all verbs as Markdown."""
    return "\n".join([_START, *_sections(typer.main.get_command(app), "shortlist")])


def _sections(command: Any, name: str) -> list[str]:
    inner = getattr(command, "commands", {})
    lines = [] if name == "shortlist" else [f"## `{name}`\n", *_paragraphs(command)]
    if not inner:
        lines += _arguments(command)
    for word, one in inner.items():
        lines += _sections(one, f"{name} {word}")
    return lines


def _paragraphs(command: Any) -> list[str]:
    text = (command.help or "").replace("\f", "\n")
    return ["\n\n".join(" ".join(part.split()) for part in text.split("\n\n")) + "\n"]


def _arguments(command: Any) -> list[str]:
    rows = [_row(one) for one in command.params if one.name != "help"]
    return ["| argument | meaning | default |", "| --- | --- | --- |", *rows, ""] if rows else []


def _row(one: Any) -> str:
    if one.param_type_name == "argument":
        names = [one.name.upper() + ("..." if one.nargs != 1 else "")]
    else:
        names = [*one.opts, *one.secondary_opts]
    shown = ", ".join(f"`{name}`" for name in names)
    default = one.show_default if isinstance(one.show_default, str) else one.default
    has_default = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    value = "required" if one.required else f"`{default}`" if has_default else ""
    meaning = " ".join((one.help or "").split()).translate(_PLAIN)
    return f"| {shown} | {meaning} | {value} |"
