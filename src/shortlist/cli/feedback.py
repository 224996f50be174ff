"""``shortlist feedback``: what people said about lists, as votes, counts and a queue to review."""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from shortlist._progress import each
from shortlist._store.json import strict_json
from shortlist.cli._console import print_facts, print_json, print_next, printable, working
from shortlist.cli._options import AsJson, argument, option

feedback_app = typer.Typer(
    help="What people said about lists: count, export, review and delete it.", no_args_is_help=True
)

Store = Annotated[
    str, argument("Folder or postgresql:// address of the store, as given to shortlist serve --feedback.")
]


class Form(str, Enum):
    """Form of exported votes."""

    votes = "votes"
    crowd_kit = "crowd-kit"
    peerannot = "peerannot"
    dwca = "dwca"


@feedback_app.command()
def stats(store: Store, as_json: AsJson = False) -> None:
    """Count the answers by verb, the people, the photos, and what was deleted."""
    from shortlist.feedback import stats_of

    counts = stats_of(store)
    verbs = counts.pop("verbs")
    _print(counts | ({"verbs": verbs} if as_json else verbs), as_json)


@feedback_app.command()
def export(
    store: Store,
    out: Annotated[
        Path, option("File of votes: .csv or .parquet; .json for peerannot, .zip for dwca.", "--out", "-o")
    ],
    form: Annotated[Form, option("Form of the votes, by the tool that reads them.")] = Form.votes,
    images: Annotated[
        Path | None, option("File (.csv or .parquet) for the photos with copies, and what is known of them.")
    ] = None,
    with_flagged: Annotated[
        bool, option("Also export flagged observations that nobody but their owner looked at.")
    ] = False,
    with_machine: Annotated[
        bool, option("Add the first class of each list as a vote of the user !machine.")
    ] = False,
    classes: Annotated[
        Path | None, option("With dwca: folder of the model or the data whose classes have the names.")
    ] = None,
    title: Annotated[str, option("With dwca: title of the data set.")] = "",
    with_unverified: Annotated[
        bool, option("With dwca: also names that lead the votes and are not valid; they are marked.")
    ] = False,
    media_url: Annotated[
        str, option("With dwca: address of the published photos, which the archive does not hold then.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write people's answers as votes. Of several answers of a person to one observation, the last counts.

    "None of these", "the photo is bad" and "not this kind" are votes for !none_of_these, !bad_image and
    !not_this_kind. A proposed name is a vote for !new:NAME. "I do not know" is no vote.

    The form dwca is a Darwin Core archive of the observations with consent, license, date and a valid label.
    """
    if form is Form.dwca:
        options = {"with_unverified": with_unverified, "with_flagged": with_flagged, "media_url": media_url}
        _print(_export_archive(store, out, classes, title, options), as_json)
        return
    with working(as_json=as_json):
        options = {"with_flagged": with_flagged, "with_machine": with_machine}
        content = _export_votes(store, out, images, form.value, options)
    _print(content, as_json)
    if form is Form.votes and not as_json:
        print_next("data", "votes", out, "--out", out.with_name("labels.csv"))


def _export_votes(
    store: str, out: Path, images: Path | None, form: str, options: dict[str, bool]
) -> dict[str, Any]:
    """Write votes and photos, and return what was counted."""
    from shortlist.feedback import (
        Photo,
        Vote,
        answers_by_item,
        each_vote,
        photos_of,
        stats_of,
        write_photos,
        write_votes,
    )

    left_out, seen, counts = Counter[str](), {"votes": 0, "items": 0}, stats_of(store)
    users: set[str] = set()

    def votes() -> Iterator[Vote]:
        last = None
        answers = each("answers", answers_by_item(store), counts["events"])
        for vote in each_vote(answers, left_out, **options):
            seen["votes"] += 1
            seen["items"] += vote.item != last
            users.add(vote.user)
            last = vote.item
            yield vote

    files = write_votes(out, votes(), form=form)
    known = each("photos", photos_of(store), counts["images"])
    photos = (Photo.known(*photo) for photo in known)
    if images is not None:
        number = write_photos(images, photos, store)
        files.append(images)
    else:
        number = sum(1 for _ in photos)
    reasons = {f"left out: {what}": number for what, number in sorted((+left_out).items())}
    written = ", ".join(map(str, files))
    return {**seen, "users": len(users), "photos": number, **reasons, "written": written}


def _export_archive(
    store: str, out: Path, classes: Path | None, title: str, options: dict[str, Any]
) -> dict[str, Any]:
    from shortlist.class_table import ClassTable
    from shortlist.feedback import export_archive

    if classes is None or not title:
        raise ValueError("--classes and --title must be given with --form dwca")
    files = [classes / "class_table.json", classes / "model" / "class_table.json"]
    table = ClassTable.load(next((file for file in files if file.exists()), files[0]))
    number, left_out = export_archive(out, store, table, title=title, **options)
    reasons = {f"left out: {what}": count for what, count in sorted(left_out.items())}
    return {"observations": number, **reasons, "written": str(out)}


@feedback_app.command("import")
def import_file(
    store: Store,
    files: Annotated[list[Path], argument("Files of answers that people saved in an app.")],
    as_json: AsJson = False,
) -> None:
    """Record answers that people saved as files in an app (shortlist export --format app).

    An answer that is in the store is not recorded again. The exit code is 1 if an answer was refused.
    """
    from shortlist.feedback import FeedbackStore
    from shortlist.serve import import_answers

    counts: dict[str, Any] = {"new": 0, "known": 0, "refused": 0}
    refused: list[str] = []
    with FeedbackStore(store) as opened:
        for file in files:
            done = import_answers(opened, file)
            counts["new"] += done.new
            counts["known"] += done.known
            refused += [f"{file}: {words}" for words in done.refused]
    counts["refused"] = len(refused)
    _print(counts | ({"reasons": refused} if as_json else {}), as_json)
    if not as_json:
        for words in refused:
            typer.echo(printable(words), err=True)
    if refused:
        raise typer.Exit(1)


@feedback_app.command()
def review(
    store: Store,
    limit: Annotated[int, option("How many to list.", min=1)] = 20,
    theta: Annotated[float, option("Weight that a valid label must exceed.")] = 2.0,
    min_agreement: Annotated[float, option("Share that a valid label must exceed.")] = 0.5,
    min_voters: Annotated[int, option("People who must give a valid label, or one who is invited.")] = 2,
    out: Annotated[Path | None, option("File for all of them (.csv).", "--out", "-o")] = None,
    as_json: AsJson = False,
) -> None:
    """List observations that the votes could not decide, and proposed names that are no classes yet.

    Where one more answer helps most comes first. shortlist data grow makes classes of the names.
    """
    from shortlist._tables import write_columns
    from shortlist.feedback import photo_files, review_queue, waiting_proposals

    rule: dict[str, Any] = {"theta": theta, "min_agreement": min_agreement, "min_voters": min_voters}
    queue, proposals = review_queue(store, first=limit, **rule), waiting_proposals(store, **rule)
    if out is not None:
        names = ("item", "information", "label", "votes", "undecided")
        write_columns(out, {name: [getattr(row, name) for row in queue] for name in names})
    first = [row._replace(photos=photo_files(store, row.photos)) for row in queue[:limit]]
    if as_json:
        content = {"waiting": len(queue), "first": [row._asdict() for row in first]}
        typer.echo(strict_json(content | {"proposals": [name._asdict() for name in proposals]}))
        return
    typer.echo(f"{len(queue):,} observations wait{'; the most informative first:' if queue else '.'}")
    for row in first:
        shares = ", ".join(f"{label} {share:.2f}" for label, share in row.candidates[:4])
        typer.echo(f"{row.item}  {row.information:.3f} nats  {row.votes} votes  {shares}")
        for file in row.photos:
            typer.echo(f"    {file}")
    if proposals:
        typer.echo(f"{len(proposals):,} proposed names:")
    for name, observations, valid in proposals[:limit]:
        typer.echo(printable(f"{name}  {observations} observations, {valid} with a valid label"))


@feedback_app.command()
def drift(
    store: Store,
    promised: Annotated[
        float | None, option("Promised coverage of lists whose predictor states none.")
    ] = None,
    reference: Annotated[int, option("Number of first lists of a model to compare with.", min=20)] = 500,
    recent: Annotated[int, option("Number of newest lists that are compared with them.", min=20)] = 500,
    as_json: AsJson = False,
) -> None:
    """Say for each model whether its lists still contain the right class, and whether its scores shift.

    The first is measured on the answers to audited requests (shortlist serve --audit). The exit code is 1 if
    a promise is broken by more than chance explains.
    """
    from dataclasses import asdict

    from shortlist.feedback import find_drift, last_answers

    drifts = find_drift(last_answers(store), promised=promised, reference=reference, recent=recent)
    if as_json:
        typer.echo(strict_json({each.model: asdict(each) | {"is_below": each.is_below} for each in drifts}))
    else:
        for each in drifts:
            typer.echo(each.words())
        if not drifts:
            typer.echo("No answer to a list yet.")
    if any(each.is_below for each in drifts):
        raise typer.Exit(1)


@feedback_app.command()
def delete(
    store: Store,
    person: Annotated[str | None, option("Name of a person, as it was sent.")] = None,
    image: Annotated[str | None, option("SHA-256 of a photo.")] = None,
    as_json: AsJson = False,
) -> None:
    """Delete all that is known of a person or a photo. The deletion is recorded, without the name."""
    from shortlist.feedback import FeedbackStore, read_manifest

    if (person is None) == (image is None):
        raise ValueError("exactly one of --person and --image must be given")
    read_manifest(store)  # a store is not made here
    with FeedbackStore(store) as opened:
        erased = opened.erase_person(person) if person is not None else opened.erase_image(image or "")
    content: dict[str, Any] = {"deleted events": erased.events, "deleted copies of photos": erased.copies}
    if erased.pending:
        content["pending"] = "somebody reads the store: old pages go when the store is opened next"
    _print(content, as_json)


def _print(content: dict[str, Any], as_json: bool) -> None:

    (print_json if as_json else print_facts)(content)
