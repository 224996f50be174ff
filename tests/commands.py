"""Commands of shortlist, in the process of the test or in another one."""

import contextlib
import io
import os
import subprocess
import sys

from click.testing import Result
from typer.testing import CliRunner

import shortlist.cli
from shortlist._named_code import code_of_command


def invoke(*words: object) -> Result:
    """Call a verb; its errors are kept as exceptions."""
    with code_of_command():  # as the program does, or later tests may run the code that this call may
        return CliRunner().invoke(shortlist.cli.app, [*map(str, words)])


def output_of(*words: object, code: int = 0) -> str:
    """Call a verb that must end with this code; returns what it prints."""
    result = invoke(*words)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def run(*words: object) -> tuple[int, str, str]:
    """Run the program in this process; returns its exit code, output and errors."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["shortlist", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            shortlist.cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def command(*words: object) -> list[str]:
    """The words that start the program in another process."""
    return [sys.executable, "-m", "shortlist", *map(str, words)]


def shell(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program in another process, with these variables of the environment."""
    environment = os.environ | variables
    return subprocess.run(command(*words), capture_output=True, text=True, check=False, env=environment)
