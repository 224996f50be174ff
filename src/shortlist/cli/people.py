"""``shortlist people``: who is invited to answer, by personal links."""

from typing import Annotated

import typer

from shortlist.cli._console import print_json, printable
from shortlist.cli._options import AsJson, argument, option
from shortlist.cli.feedback import Store

people_app = typer.Typer(help="Invite people to answer, by personal links.", no_args_is_help=True)

Name = Annotated[str, argument("Name of the person, as it is in the votes.")]


@people_app.command()
def add(
    store: Store,
    name: Name,
    page: Annotated[str, option("Address of the server's page.", metavar="URL")] = "http://127.0.0.1:8000/",
    as_json: AsJson = False,
) -> None:
    """Invite a person, and print a personal link. Who opens the link answers under this name, on any device.

    The link is as good as a password: send it to this person alone. For a person who is already invited, the
    command prints a new link, and the link before ends.
    """
    from shortlist.feedback import invite

    token = invite(store, name)
    link = f"{page.rstrip('/')}/#person={token}"
    if as_json:
        print_json({"name": name, "token": token, "link": link})
    else:
        typer.echo(link)


@people_app.command(name="list")
def list_names(store: Store, as_json: AsJson = False) -> None:
    """List the people who were invited, since when, and until when if their link was revoked."""
    from shortlist.feedback import list_people

    people = list_people(store)
    if as_json:
        print_json({"people": [person._asdict() for person in people]})
        return
    for person in people:
        until = f", revoked {person.revoked}" if person.revoked else ""
        typer.echo(printable(f"{person.name}  since {person.since}{until}"))
    if not people:
        typer.echo("Nobody is invited.")


@people_app.command()
def revoke(store: Store, name: Name) -> None:
    """End the link of a person. What the person said stays; shortlist feedback delete --person deletes it.

    Nobody can use the name then, until the person is invited again.
    """
    from shortlist.feedback import revoke as end_link

    end_link(store, name)
    typer.echo(printable(f"The link of {name} is revoked."))
