"""``shortlist data votes`` and ``data grow``: labels by the votes of many users, and data that grow."""

import inspect
from collections.abc import Callable
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from shortlist.cli._console import print_facts, print_json, print_next, printable, replacing_words, working
from shortlist.cli._options import AsJson, argument, option
from shortlist.cli.data import (
    KeepGood,
    LinkKind,
    Stores,
    Strangers,
    app,
    check_is_free,
    copies_of,
    plan_content,
    plan_facts,
    stranger_test,
    waiting,
)


class VoteRule(str, Enum):
    """Rule by which users get their weights."""

    confirmed = "confirmed"
    adaptive = "adaptive"
    majority = "majority"
    agreement = "agreement"
    dawid_skene = "dawid_skene"


def _rule_options(
    rule: Annotated[
        VoteRule,
        option(
            "Rule by which users get weights: confirmed counts the species that others confirmed, "
            "adaptive is the published rule."
        ),
    ] = VoteRule.confirmed,
    theta: Annotated[
        float | None,
        option(
            "A label is valid if the weights of its voters sum to more than this.",
            show_default="2; 1 for majority and agreement; 0.9 for dawid_skene",
        ),
    ] = None,
    min_agreement: Annotated[
        float | None,
        option(
            "A label is valid if its share of the weight of all who looked is above this.",
            show_default="0.5; 0 for adaptive",
        ),
    ] = None,
    min_voters: Annotated[
        int | None,
        option(
            "A label is valid if this many people gave it, or one who is invited (column invited).",
            show_default="2; 1 for adaptive",
        ),
    ] = None,
    alpha: Annotated[float, option("First exponent of confirmed and adaptive weights.")] = 0.5,
    beta: Annotated[float, option("Second exponent of confirmed and adaptive weights.")] = 0.2,
    b0: Annotated[
        float | None, option("Weight of a newcomer, who knows at most one species.", show_default="log 2.1")
    ] = None,
    machine: Annotated[str, option("Name of the user whose votes are those of a model.")] = "!machine",
    machine_weight: Annotated[
        float | None, option("Weight of the machine's votes, which are left out without this.")
    ] = None,
    max_iterations: Annotated[int, option("Stop after this many rounds.")] = 100,
) -> dict[str, Any]:
    """Return the options of a rule of votes, as :func:`aggregate_votes` takes them."""
    options = {"rule": rule.value, "theta": theta, "min_agreement": min_agreement, "alpha": alpha}
    options |= {"min_voters": min_voters, "beta": beta, "machine": machine, "machine_weight": machine_weight}
    return options | {"max_iterations": max_iterations} | ({} if b0 is None else {"b0": b0})


def _with_rule_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of a rule of votes; it takes them as its argument ``rule``."""
    options = inspect.signature(_rule_options).parameters
    signature = inspect.signature(verb)

    @wraps(verb)
    def with_options(**values: Any) -> None:
        rule = _rule_options(**{name: values.pop(name) for name in options})
        verb(**values, rule=rule)

    others = {name: given for name, given in signature.parameters.items() if name != "rule"}
    parameters = (others | dict(options)).values()
    with_options.__signature__ = signature.replace(  # pyright: ignore[reportAttributeAccessIssue]
        parameters=[given.replace(kind=given.KEYWORD_ONLY) for given in parameters]
    )
    with_options.__annotations__ = {given.name: given.annotation for given in parameters}
    return with_options


@app.command()
@_with_rule_options
def votes(
    file: Annotated[
        Path,
        argument(
            "A .csv or .parquet file with the columns item, user, label and optionally author and invited (0 "
            "or 1), or with task, worker, label."
        ),
    ],
    rule: dict[str, Any],
    out: Annotated[
        Path | None, option("File to write the labels to (.csv or .parquet).", "--out", "-o")
    ] = None,
    users: Annotated[Path | None, option("File to write the users' weights to (.csv or .parquet).")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the label of each item by the votes of many users; users who know more species weigh more.

    The weights of the users depend on which labels are valid, and the labels depend on the weights. The
    command computes both in turn until nothing changes. The column author says who made the item; it may be
    missing or have gaps. Rows without item, user or label are left out and counted.

    The label !none_of_these is a vote against all others: it counts in the agreement, and never wins.
    """
    from shortlist.curation import aggregate_votes, read_votes, save_consensus, save_users

    for flag, path in (("--out", out), ("--users", users)):
        if path is not None and path.suffix.lower() not in (".csv", ".parquet"):
            raise ValueError(f"{flag} must end in .csv or .parquet, got {path}")
        if path is not None and path.resolve() == file.resolve():
            raise ValueError(f"{flag} must not be the file of votes itself, got {path}")
    places = [f"{path}{replacing_words(path)}" for path in (out, users) if path is not None]
    with waiting("reading votes"):
        columns = read_votes(file)
    with waiting("weighing votes"):
        labels = aggregate_votes(**columns, **rule)
        if out is not None:
            save_consensus(out, labels)
        if users is not None:
            save_users(users, labels)
    title = f"Labels of {file}" + (f" in {' and '.join(places)}" if places else "")
    _print_votes(title, len(columns["item"]), labels, as_json)


def _print_votes(title: str, number: int, labels: Any, as_json: bool) -> None:
    rows = {
        "votes": number,
        "users": len(labels.users),
        "items": len(labels.items),
        "valid items": int(labels.valid.sum()),
        "iterations": labels.iterations,
        "converged": labels.converged,
    }
    if labels.machine_votes:
        rows["votes of the machine, left out"] = labels.machine_votes
    if labels.empty_votes:
        rows["rows without item, user or label, left out"] = labels.empty_votes
    if as_json:
        print_json(rows, indent=2)
    else:
        rows["converged"] = "yes" if labels.converged else "no: the last state is given"
        print_facts(rows, title=title)


@app.command()
@_with_rule_options
def grow(
    old: Annotated[Path, argument("Folder of the benchmark that grows, made by data build or data grow.")],
    new: Annotated[Path, argument("Folder to make. It must be empty or not exist yet.")],
    votes: Annotated[Path, option("Votes: the file that shortlist feedback export --out wrote.")],
    images: Annotated[Path, option("Photos: the file that shortlist feedback export --images wrote.")],
    rule: dict[str, Any],
    store: Stores = None,
    names: Annotated[
        Path | None,
        option(
            "Checklist of what proposed names are, with synonyms, authors and common names: a CSV, or a "
            "Darwin Core taxon table or its folder."
        ),
    ] = None,
    min_observations: Annotated[
        int, option("Make a class of a proposed name that is valid for this many observations.", min=1)
    ] = 5,
    held_out: Annotated[
        float | None,
        option("Share of the new observations that goes to val.", show_default="as in the old benchmark"),
    ] = None,
    keep_good: KeepGood = None,
    model: Strangers = None,
    link: Annotated[LinkKind, option("Kind of link to the images.")] = LinkKind.hard,
    dry_run: Annotated[bool, option("Only show what would be made.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make the next benchmark: all of the old one, and the photos whose labels the votes make valid.

    All images and classes of the old benchmark are in the new one, and its test images stay the only ones. A
    valid label of an old photo replaces its label, but not for test images. A proposed name (!new:NAME, or a
    label that is no class) becomes a class if enough observations have it; until then it waits. Photos that
    were deleted from the store of feedback are left out. All of this is counted.
    """
    from shortlist.curation import apply_plan, plan_growth

    check_is_free(new)
    options: dict[str, Any] = {"min_observations": min_observations, "held_out": held_out, "names": names}
    options |= {"keep_good": keep_good, "is_strange": stranger_test(model), "copies": copies_of(store)}
    with waiting("weighing votes"):
        plan = plan_growth(old, votes=votes, images=images, **options, **rule)
    if not dry_run:
        with working(as_json=as_json):
            apply_plan(plan, new, link=link.value)
    if as_json:
        print_json(plan_content(plan, new, applied=not dry_run), indent=2)
        return
    print_facts(plan_facts(plan), title=f"{'Plan for' if dry_run else 'Made'} {new}")
    for name, number in plan.waiting.items():
        typer.echo(printable(f"waits: {name} has {number} of {min_observations} observations"))
    if not dry_run:
        print_next("init", new)
