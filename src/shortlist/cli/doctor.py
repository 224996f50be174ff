"""``shortlist doctor``: what is wrong with a folder, and what can be restored."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shortlist.cli._console import print_json
from shortlist.cli._options import AllowCode, AsJson, argument

if TYPE_CHECKING:
    from shortlist._store.doctor import Finding


def doctor(
    folders: Annotated[
        list[str], argument("Run folders, saved models, indexes, stores of feedback, releases.")
    ],
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Check every file of runs, models, indexes and stores of feedback, and say what can be restored.

    Nothing is changed. The exit code is 1 if anything is wrong.
    """
    from dataclasses import asdict

    from shortlist._messages import one_line

    findings_of = {folder: _examine(folder) for folder in folders}
    if as_json:
        print_json({folder: [asdict(finding) for finding in some] for folder, some in findings_of.items()})
    else:
        for folder, findings in findings_of.items():
            for finding in findings:
                typer.echo(one_line(f"{folder}: {finding.file}: {finding.what}. To do: {finding.remedy}"))
            if not findings:
                typer.echo(f"{folder}: all files are as they were written")
    if any(findings_of.values()):
        raise typer.Exit(1)


def _examine(place: str) -> "list[Finding]":
    """Check a folder of any kind, and an index inside of a run or a model."""
    from shortlist._store.doctor import inside
    from shortlist.feedback import examine_store, is_address, is_store
    from shortlist.index import NAME as INDEX, examine_index
    from shortlist.model import examine_model
    from shortlist.releases import examine_releases, is_releases
    from shortlist.runs import examine_run

    folder = Path(place)
    if is_address(place) or is_store(folder):
        return examine_store(place)
    if is_releases(folder):
        return examine_releases(folder)
    if (folder / INDEX).exists():
        return examine_index(folder)
    if (folder / "run.json").is_file():
        findings = examine_run(folder)
    elif (folder / "model.json").is_file():
        findings = examine_model(folder)
    else:
        why = f"it has no run.json, model.json or {INDEX}" if folder.is_dir() else "there is no such folder"
        raise ValueError(f"{folder} must be a run, a saved model, an index, a store or releases: {why}")
    if (folder / "index" / INDEX).exists():
        named = {finding.file for finding in findings}  # what is left over in the index is left over here too
        inner = inside("index", examine_index(folder / "index"))
        findings += [finding for finding in inner if finding.file not in named]
    return findings
