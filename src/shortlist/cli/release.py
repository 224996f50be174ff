"""``shortlist release`` and ``shortlist releases``: the gate before a model is served, and the way back."""

from pathlib import Path
from typing import Annotated, Any

import typer

from shortlist.cli._console import print_json, print_next, working
from shortlist.cli._options import AllowCode, AsJson, OwnNetwork, argument, option


def release(
    new: Annotated[Path, argument("New model: a run folder or the folder of a saved model.")],
    data: Annotated[
        Path, option("Frozen test images: a benchmark, a folder of classes, or a list with path and label.")
    ],
    against: Annotated[
        Path | None, option("Old model: a run folder or a saved model. By default the current release.")
    ] = None,
    to: Annotated[Path, option("Folder of releases, which shortlist serve follows.")] = Path("releases"),
    metric: Annotated[
        list[str] | None,
        option(
            "Metric that must not get worse, such as top5.micro, top5.macro, top5.rare or "
            "sets.NAME.coverage.micro. May be given several times.",
            show_default="top1.micro, top5.micro, top5.macro, top5.rare, sets.NAME.size.micro",
        ),
    ] = None,
    tolerance: Annotated[float, option("How much worse a metric may be, as a share.")] = 0.0,
    size_tolerance: Annotated[
        float, option("How much larger sets may be on average, as a share of the old size.")
    ] = 0.25,
    trained_on: Annotated[str, option("Data that the model was trained on, for the list.")] = "",
    who: Annotated[str | None, option("Who releases it; by default your user name.")] = None,
    network: OwnNetwork = None,
    old_network: Annotated[
        str | None,
        option(
            "Function that makes the network of the old model, if it is your own code too. By default "
            "that of --network.",
            metavar="MODULE:FUNCTION",
        ),
    ] = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Promote a model if no metric got worse by more than chance explains, and its promises hold.

    Sets must not be more than a quarter larger on average.

    Otherwise the command says what failed, changes nothing, and ends with exit code 1. The first release is
    only checked for its promises and for sets of all classes.
    """
    from dataclasses import asdict

    from shortlist.compare import judge_release
    from shortlist.model import Model, model_version, needs_code
    from shortlist.releases import Judged, Releases

    place = Releases(to)
    current = place.current()
    old = against if against is not None else None if current is None else place.model_path(current)
    judged = Judged(model_version(new), None if current is None else current.number)
    with working(as_json=as_json):
        usual = network if old is not None and needs_code(old) else None
        before = None if old is None else Model.load(old, network=old_network or usual)
        allowed = {"tolerance": tolerance, "size_tolerance": size_tolerance}
        after = Model.load(new, network=network)
        verdict = judge_release(after, before, data, metrics=metric or None, **allowed)
    released = None
    if verdict.passed:
        released = place.add(
            new,
            who=who,
            judged=judged,
            data=trained_on,
            frozen=str(data.resolve()),
            against="" if old is None else model_version(old),
            checks={check.name: check.words for check in verdict.checks},
        )
    if as_json:
        checks = [asdict(check) for check in verdict.checks]
        number = None if released is None else released.number
        print_json({"released": number, "rows": verdict.rows, "checks": checks})
    else:
        _print_verdict(verdict, released, new, to)
    if released is None:
        raise typer.Exit(1)


def _print_verdict(verdict: Any, released: Any, new: Path, to: Path) -> None:
    from shortlist._messages import one_line

    for check in verdict.checks:  # whose words may name classes of a stranger's model
        typer.echo(f"{'kept  ' if check.passed else 'FAILED'}  {one_line(f'{check.name}: {check.words}')}")
    if released is None:
        failed = ", ".join(check.name for check in verdict.failed)
        typer.echo(f"Not released, by {verdict.rows:,} frozen test images: {failed}.")
    else:
        typer.echo(f"Released as number {released.number} ({released.version}) in {to}.")
        if not released.index:
            typer.echo(f"Its page shows no known photos: shortlist index {new} before the release adds them.")
        print_next("serve", to)


def releases(
    folder: Annotated[Path, argument("Folder of releases.")] = Path("releases"),
    back: Annotated[bool, option("Roll back to the release before the current one.", "--back")] = False,
    who: Annotated[str | None, option("Who rolls back; by default your user name.")] = None,
    as_json: AsJson = False,
) -> None:
    """List releases with who, when and from which data; or roll back."""
    from dataclasses import asdict

    from shortlist._messages import one_line
    from shortlist.releases import Releases, is_releases

    if not is_releases(folder):
        raise ValueError(f"{folder} has no releases: releases.json is missing")
    place = Releases(folder)
    if back:
        place.roll_back(who=who)
    current, every = place.current(), place.all()
    for path in place.missing():
        typer.echo(f"{path} is missing: this list is of another folder, or the model was removed", err=True)
    if as_json:
        listed = [asdict(entry) for entry in every]
        number = None if current is None else current.number
        print_json({"current": number, "releases": listed, "history": place.history()})
        return
    for entry in every:
        mark = "current" if entry == current else ""
        words = (entry.number, entry.version, entry.time, entry.who, entry.data or "-", entry.source, mark)
        typer.echo("  ".join(one_line(str(word)) if word else "" for word in words))
