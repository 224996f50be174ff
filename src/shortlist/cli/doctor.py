"""``shortlist doctor``: what is wrong with a folder, and what can be restored."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["doctor"]


def doctor(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folders, saved models, indexes, stores of feedback, releases.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Check every file of runs, models, indexes and stores of feedback, and say what can be restored.

    Nothing is changed. The exit code is 1 if anything is wrong.
    """
    from dataclasses import asdict

    from shortlist._messages import one_line
    from shortlist.cli._console import print_json
    from shortlist.feedback.doctor import examine_store
    from shortlist.feedback.store import is_store
    from shortlist.index.doctor import examine_any
    from shortlist.releases import is_releases
    from shortlist.releases.doctor import examine_releases
    from shortlist.runs.doctor import Finding

    def examine(folder: Path) -> list[Finding]:
        if is_store(folder):
            return examine_store(folder)
        return examine_releases(folder) if is_releases(folder) else examine_any(folder)

    found = {str(folder): examine(folder) for folder in folders}
    if as_json:
        print_json({folder: [asdict(one) for one in findings] for folder, findings in found.items()})
    else:
        for folder, findings in found.items():
            for one in findings:
                typer.echo(one_line(f"{folder}: {one.file}: {one.what}. To do: {one.remedy}"))
            if not findings:
                typer.echo(f"{folder}: all files are as they were written")
    if any(found.values()):
        raise typer.Exit(1)
