"""``shortlist data``: build, check and describe data sets."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shortlist._progress import progress_report
from shortlist.cli._console import print_facts, print_json, print_next, printable, warnings_as_lines, working
from shortlist.cli._options import AsJson, argument, option

app = typer.Typer(help="Build, check and describe data sets, and find labels by vote.", no_args_is_help=True)

_EXAMPLES = 5  # that are printed of each finding


class LinkKind(str, Enum):
    """Kind of link by which a benchmark refers to an image instead of copying it."""

    hard = "hard"
    symbolic = "symbolic"


class Splitting(str, Enum):
    """Way to divide images into parts."""

    share = "share"
    hash = "hash"


Stores = Annotated[
    list[str] | None,
    option(
        "Address of the store in PostgreSQL that photos were exported from: those that were deleted from it "
        "since are left out. May be given several times.",
        "--store",
    ),
]


def copies_of(stores: list[str] | None) -> dict[str, frozenset[str]]:
    """Return the copies of photos that stores have now, by the id of the store."""
    from shortlist.feedback import copies_in, read_manifest

    return {read_manifest(store)["store"]: copies_in(store) for store in stores or ()}


KeepGood = Annotated[
    float | None,
    option(
        "Flag blurred and small photos, such that this share of good photos is kept. Good ones are held out "
        "(val, test), or else all. What is flagged waits, and nothing is deleted. data build flags photos of "
        "an earlier observation too.",
        show_default="nothing is flagged",
    ),
]


Strangers = Annotated[
    Path | None,
    option(
        "Run or model with a detector of strangers: flag photos that are like nothing it knows, at the rate "
        "of false alarms that it promises. What is flagged waits.",
        "--model",
        show_default="nothing is flagged",
    ),
]


def stranger_test(path: Path | None) -> Callable[[Sequence[str]], list[bool]] | None:
    """Return what says of photos whether a model takes them for strangers; nothing without a model."""
    if path is None:
        return None
    from shortlist.model import Model

    model = Model.load(path)
    if model.novelty is None:
        raise ValueError(f"--model must have a detector of strangers, got none in {path}: see novelty")
    return lambda photos: [bool(one.novelty and one.novelty.novel) for one in model.short_lists(photos)]


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a spinner on stderr, if that is a terminal, and print each warning as one line."""
    console = Console(stderr=True)
    with warnings_as_lines(), console.status(what) if console.is_terminal else nullcontext():
        yield


@app.command()
def build(
    source: Annotated[
        Path,
        argument(
            "Labeled images: SOURCE/class/*.jpg, SOURCE/genus/class/*.jpg, or a .csv or .parquet list "
            "with the columns path and label, and optionally genus; or a table of shortlist data votes. "
            "A class_table.json in the folder or beside the list has the ids and names of the classes."
        ),
    ],
    dest: Annotated[Path, argument("Folder to make. It must be empty or not exist yet.")],
    genus_fraction: Annotated[
        float, option("Share of the genera to draw at random; 1 keeps all. Pl@ntNet-300K drew 0.1.")
    ] = 1.0,
    min_images: Annotated[int, option("Leave out classes with fewer images than this.")] = 5,
    held_out: Annotated[
        float, option("Share of the images of each class that goes to val, and the same share to test.")
    ] = 0.1,
    images: Annotated[
        Path | None, option("List with the columns path and item: which photos belong to which item.")
    ] = None,
    names: Annotated[
        Path | None,
        option(
            "Checklist with authors, synonyms, common names, parents and ids of the names of classes: a CSV, "
            "or a Darwin Core taxon table or its folder."
        ),
    ] = None,
    store: Stores = None,
    split: Annotated[
        Splitting,
        option(
            "share draws exact shares of each class; hash is for data that grow (shortlist data grow): the "
            "split of an image depends on its observation alone."
        ),
    ] = Splitting.share,
    seed: Annotated[int, option("Seed of the random draws.")] = 0,
    keep_good: KeepGood = None,
    model: Strangers = None,
    link: Annotated[LinkKind, option("Kind of link to the images.")] = LinkKind.hard,
    apply: Annotated[
        bool, option("Make the benchmark. Without it the plan is only shown.", "--apply", "--yes")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a benchmark from your own labeled images, in the way Pl@ntNet-300K was made.

    The command keeps the classes that have enough images, and divides each class into train, val and test.
    With --genus-fraction it keeps only some genera (groups of classes that look alike), drawn at random.
    Images are linked, not copied, and the source is never changed. Without --apply the command only shows the
    plan and writes nothing.
    """
    from shortlist.curation import apply_plan, plan_benchmark

    with waiting("looking through the source"):
        plan = plan_benchmark(
            source,
            images=images,
            names=names,
            copies=copies_of(store),
            genus_fraction=genus_fraction,
            min_images=min_images,
            held_out=held_out,
            split=split.value,
            seed=seed,
            keep_good=keep_good,
            is_strange=stranger_test(model),
        )
    check_is_free(dest)
    if apply:
        with working(as_json=as_json):
            apply_plan(plan, dest, link=link.value)
    if as_json:
        print_json(plan_content(plan, dest, applied=apply), indent=2)
        return
    print_facts(plan_facts(plan), title=f"{'Made' if apply else 'Plan for'} {dest}")
    _print_names("not in the checklist", plan.unmatched)
    _print_names("without an image, and left out", plan.without_images)
    if not apply:
        typer.echo("Nothing was written. Add --apply to make it.")
    else:
        print_next("init", dest)


def _print_names(what: str, names: list[str]) -> None:
    for name in names[:_EXAMPLES]:
        typer.echo(printable(f"{what}: {name}"))
    if (more := len(names) - _EXAMPLES) > 0:
        typer.echo(f"{what}: and {more} more (--json lists all)")


def check_is_free(dest: Path) -> None:
    """Require that nothing is in the folder of a new benchmark yet."""
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise ValueError(f"{dest} exists and is not empty: nothing is overwritten, choose another name")


def _genera(plan: Any) -> int:
    return len(set(plan.class_table.parents.get("genus", ())) - {""})


def plan_content(plan: Any, dest: Path, *, applied: bool) -> dict[str, Any]:
    """Return a plan as plain values, for scripts."""
    content = {
        "dest": str(dest),
        "applied": applied,
        "classes": len(plan.class_table),
        "genera": _genera(plan),
    }
    content |= {"images": plan.sizes(), "left_out": plan.left_out, "options": plan.options}
    content |= {"not_in_checklist": plan.unmatched} if "names" in plan.options else {}
    content |= {"without_images": plan.without_images} if plan.without_images else {}
    return content | ({"taken_over": plan.taken_over, "waiting": plan.waiting} if plan.taken_over else {})


def plan_facts(plan: Any) -> dict[str, Any]:
    """Return the numbers of a plan, for people."""
    rows = ({"genera": genera} if (genera := _genera(plan)) else {}) | {"classes": len(plan.class_table)}
    rows |= {"classes not in the checklist": len(plan.unmatched)} if plan.unmatched else {}
    rows |= {"classes without an image": len(plan.without_images)} if plan.without_images else {}
    rows |= {f"{part} images": size for part, size in plan.sizes().items()} | plan.taken_over
    return rows | {f"left out: {what}": n for what, n in plan.left_out.items() if n or what == "images"}


@app.command()
def check(
    path: Annotated[Path, argument("A folder of images, or a .csv or .parquet list of images.")],
    near: Annotated[
        bool, option("Also look for images that look the same although their files differ.")
    ] = True,
    max_distance: Annotated[
        int,
        option("Images look the same if their hashes differ in at most this many of 64 bits.", min=0, max=7),
    ] = 3,
    keep_good: KeepGood = None,
    model: Strangers = None,
    workers: Annotated[int | None, option("Number of processes; one per core by default.", min=0)] = None,
    as_json: AsJson = False,
) -> None:
    """Find images that are unreadable, empty, duplicated or in two splits. Nothing is deleted.

    The splits are the folders train, val and test. A perceptual hash finds images that look the same; they
    are not always mistakes, so look at them before you delete any. The exit code is 0 if nothing was found
    and 1 otherwise.
    """
    from shortlist.curation import check_images

    with progress_report(only_bars=True) as tell:
        options: Any = {"near": near, "max_distance": max_distance, "workers": workers}
        options |= {"keep_good": keep_good, "is_strange": stranger_test(model)}
        report = check_images(path, **options, progress=partial(tell, "reading"))
    if as_json:
        print_json(asdict(report), indent=2)
    else:
        _print_findings(path, report, flagged=keep_good is not None)
    raise typer.Exit(0 if report.clean() else 1)


def _print_findings(path: Path, report: Any, *, flagged: bool, limit: int = _EXAMPLES) -> None:
    lists = {
        "unreadable": [f"{file}: {reason}" for file, reason in report.unreadable.items()],
        "empty": report.empty,
        "the same bytes": [" = ".join(group) for group in report.duplicates],
        "look the same": [" ~ ".join(group) for group in report.near_duplicates],
        "in two splits": [", ".join(group) for group in report.across_parts],
        "in two classes": [", ".join(group) for group in report.across_classes],
    }
    lists |= {"blurred": report.blurred, "small": report.small} if flagged else {}
    lists |= {"like nothing known": report.strange} if report.strange else {}
    print_facts(
        {name: len(rows) for name, rows in lists.items()}, title=f"{path}: {report.num_images:,} images"
    )
    for name, rows in lists.items():
        for row in rows[:limit]:
            typer.echo(printable(f"{name}: {row}"))
        if len(rows) > limit:
            typer.echo(f"{name}: and {len(rows) - limit} more (--json lists all)")


@app.command()
def describe(
    name_or_path: Annotated[
        str, argument("Name of a data set, folder of images, list of images, or class table (.json).")
    ],
    root: Annotated[
        Path | None, option("Folder of the named data set, or of the images in the list.")
    ] = None,
    figure: Annotated[Path | None, option("File to draw the Lorenz curve to (.svg, .pdf or .png).")] = None,
    sheet: Annotated[
        Path | None,
        option("File to draw example images to (.png). Classes of one parent (genus) stand in one row."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the classes and splits of a data set, and how unevenly its training images cover the classes.

    Classes of the group "few" have fewer than 20 training images, those of "many" have more than 100. The
    Gini index is 0 if all classes have the same number of images, and close to 1 if a few classes have almost
    all of them. It is twice the area between the Lorenz curve (--figure) and the diagonal.
    """
    from shortlist.class_table import ClassTable
    from shortlist.curation import describe as tools

    splits = None
    with waiting("opening the data set"):
        if name_or_path.endswith(".json") and Path(name_or_path).is_file():
            table = ClassTable.load(name_or_path)
        else:
            splits = tools.open_dataset(name_or_path, root=root)
            table = splits.class_table
        numbers = tools.describe(table, splits)
    if figure is not None:
        tools.draw_lorenz(table.class_counts, figure)
    if sheet is not None:
        with waiting("drawing"):
            _draw_sheet(splits, sheet)
    if as_json:
        shares, images = tools.lorenz_curve(table.class_counts)
        curve = {"lorenz": {"classes": shares.tolist(), "images": images.tolist()}}
        print_json(asdict(numbers) | curve, indent=2)
        return
    rows: dict[str, Any] = {"classes": numbers.num_classes}
    rows |= {f"{level} groups": number for level, number in numbers.parents.items()}
    rows |= {f"{part} rows": size for part, size in numbers.sizes.items()}
    rows |= {f"classes with {group} images": number for group, number in numbers.groups.items()}
    rows |= {"largest class": numbers.largest, "smallest class": numbers.smallest}
    rows |= {"classes without images": numbers.empty_classes, "imbalance": f"{numbers.imbalance:.1f}"}
    rows |= {"Gini index": f"{numbers.gini:.3f}", "classes with half the images": numbers.half_of_images}
    print_facts(rows, title=name_or_path)


def _draw_sheet(splits: Any, path: Path) -> None:
    from shortlist._store.files import replacing
    from shortlist.curation import contact_sheet

    if splits is None:
        raise ValueError("--sheet needs a data set with images, got a class table")
    parents = splits.class_table.parents
    # the lowest level, if there are several; classes of one parent look alike
    level = max(parents, key=lambda name: len(set(parents[name]))) if parents else None
    drawn = contact_sheet(splits.test, splits.class_table, level=level)
    with replacing(path) as temporary:
        drawn.save(temporary)
