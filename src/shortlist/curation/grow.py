"""Let a benchmark grow by people's votes: nothing of it is forgotten, and proposals become classes."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist._checks import check_count, check_number
from shortlist._text import composed
from shortlist.class_table import ClassTable, class_finder
from shortlist.curation._ballot import PROPOSAL
from shortlist.curation._classes import add_classes
from shortlist.curation.build import BenchmarkPlan, plan_of_rows
from shortlist.curation.labeled import read_photos
from shortlist.curation.parts import read_frozen
from shortlist.curation.votes import ConsensusLabels, aggregate_votes, read_votes
from shortlist.datasets import genera_of
from shortlist.inputs import Row


def plan_growth(
    old: str | Path,
    *,
    votes: str | Path,
    images: str | Path,
    min_observations: int = 5,
    held_out: float | None = None,
    **rule: Any,
) -> BenchmarkPlan:
    """Plan the next benchmark: all of an earlier one, and the photos whose labels people's votes make valid.

    All images of the earlier benchmark are in the new one, in the same splits, and all its classes. New
    photos go to training and validation: the test images stay the only ones. A valid label of a photo that is
    there already replaces the old label, but for test images.

    A vote names a class by its id or name. Any other label proposes a class, with ``!new:`` at its start or
    without. A class is made of it if it is the valid label of enough observations; until then it waits.

    Args:
        old: Folder of the earlier benchmark.
        votes: Votes, as :func:`~shortlist.curation.votes.read_votes` reads them.
        images: List with the columns path and item: the photos of the items that were voted on.
        min_observations: Number of valid observations that make a class of a proposal.
        held_out: Chance of a new observation to be in the validation split; that of ``old`` if left out.
        **rule: Options of :func:`~shortlist.curation.votes.aggregate_votes`.

    Returns:
        The plan, for :func:`~shortlist.curation.build.apply_plan`.
    """
    check_count("min_observations", min_observations)
    frozen, left_out = read_frozen(old), Counter[str]()
    held_out = float(frozen.options.get("held_out", 0.1)) if held_out is None else held_out
    check_number("held_out", held_out, low=0.0, below=1.0)
    seed = frozen.options.get("seed", 0)
    labels = find_labels(votes, frozen.classes, left_out, **rule)
    rows = list(_rows_of_labels(labels, images, left_out))
    rows, waiting = _without_waiting(rows, min_observations)
    old_rows, new_rows = frozen.take_in(rows, left_out)
    new_rows.sort(key=lambda row: row.class_label)
    new_rows = frozen.place(new_rows, held_out=held_out, seed=seed, left_out=left_out)
    classes = _with_new_classes(frozen.classes, [*old_rows, *new_rows], waiting)
    before = {path: image.row for path, image in frozen.earlier.items()}
    old_rows = [before[row.path] if row.label in waiting else row for row in old_rows]
    placed = [*old_rows, *(row for row in new_rows if row.label not in waiting)]
    options = frozen.options | {"held_out": held_out, "seed": seed, "grown_from": str(Path(old).resolve())}
    options |= {"votes": str(votes), "images": str(images), "min_observations": min_observations} | rule
    plan = plan_of_rows(placed, classes, options)
    plan.left_out.update(+left_out)
    plan.waiting.update(waiting)
    plan.earlier.update(frozen.earlier)
    plan.taken_over["images taken over"] = len(old_rows)
    plan.taken_over["new images"] = len(placed) - len(old_rows)
    plan.taken_over["corrected labels"] = sum(row.label != before[row.path].label for row in old_rows)
    plan.taken_over["new classes"] = len(classes) - len(frozen.classes)
    return plan


def find_labels(
    votes: str | Path, classes: ClassTable, left_out: Counter[str], **rule: Any
) -> ConsensusLabels:
    """Find labels by votes for classes of a table, and for proposals that are none of them."""
    columns = read_votes(votes)
    columns["label"], unclear = _resolved(columns["label"], classes)
    labels = aggregate_votes(**columns, **rule)
    left_out["votes for a name of several classes"] += unclear
    left_out["votes without item, user or label"] += labels.empty_votes - unclear
    left_out["votes of the machine"] += labels.machine_votes
    return labels


def _resolved(column: Any, classes: ClassTable) -> tuple[Any, int]:
    """Return the column of labels with ids of classes and proposals, and the number of unclear votes.

    Proposals that differ in upper and lower case alone are one, in the spelling that most votes have.
    """
    import pyarrow

    encoded = column.dictionary_encode()
    words = [str(value) for value in encoded.dictionary.to_pylist()]
    counts = Counter(encoded.indices.to_pylist())
    resolve = _resolver(classes)
    labels = [resolve(word) for word in words]
    spellings: dict[str, Counter[str]] = {}
    for code, label in enumerate(labels):
        if label is not None and label.startswith(PROPOSAL):
            spellings.setdefault(label.casefold(), Counter())[label] += counts[code]
    best = {key: min(names, key=lambda name: (-names[name], name)) for key, names in spellings.items()}
    labels = [None if label is None else best.get(label.casefold(), label) for label in labels]
    unclear = sum(counts[code] for code, label in enumerate(labels) if label is None)
    return pyarrow.array(labels, pyarrow.string()).take(encoded.indices), unclear


def _resolver(classes: ClassTable) -> Callable[[str], str | None]:
    """Return the function from a label to the id of its class or to a proposal; ``None`` if it is unclear."""
    find = class_finder(classes)
    folded: dict[str, set[str]] = {}
    for id, name in zip(classes.ids, classes.names, strict=True):
        for text in (id, name):
            folded.setdefault(text.casefold(), set()).add(id)

    def resolve(label: str) -> str | None:
        if label.startswith("!") and not label.startswith(PROPOSAL):
            return label
        text = composed(" ".join(label.removeprefix(PROPOSAL).split())).lstrip("!")
        try:
            if (index := find(text)) is not None:
                return classes.ids[index]
        except ValueError:  # the name of several classes
            return None
        ids = folded.get(text.casefold(), set())
        if ids:
            return min(ids) if len(ids) == 1 else None
        return f"{PROPOSAL}{text}" if text else None

    return resolve


def _rows_of_labels(labels: ConsensusLabels, images: str | Path, left_out: Counter[str]) -> Iterator[Row]:
    """Give the photos of items with a valid label; that of photos that people rejected begins with ``!``."""
    photos = read_photos(images, left_out)
    for item, label, valid in zip(
        labels.items.tolist(), labels.labels.tolist(), labels.valid.tolist(), strict=True
    ):
        if not valid:
            left_out["items without a valid label"] += 1
        elif str(item) not in photos:
            left_out["items without a photo"] += 1
        else:
            for path, about in photos[str(item)]:
                texts = {key: str(value) for key, value in ({"observation": item} | about).items()}
                yield Row(path, label, **texts)


def _without_waiting(rows: list[Row], min_observations: int) -> tuple[list[Row], dict[str, int]]:
    """Return rows without those of proposals that have too few observations, and the numbers of these.

    Proposals that have enough are labels as others from here on.
    """
    observations: dict[str, set[str]] = {}
    for row in rows:
        if row.class_label.startswith(PROPOSAL):
            observations.setdefault(row.class_label, set()).add(row.observation)
    numbers = {label: len(several) for label, several in observations.items()}
    waiting = {label for label, number in numbers.items() if number < min_observations}
    kept = [
        replace(row, label=row.class_label.removeprefix(PROPOSAL)) for row in rows if row.label not in waiting
    ]
    return kept, {label.removeprefix(PROPOSAL): numbers[label] for label in sorted(waiting)}


def _with_new_classes(classes: ClassTable, rows: list[Row], waiting: dict[str, int]) -> ClassTable:
    """Return the classes with those that are new; one without a training image waits."""
    ids, observations = set(classes.ids), dict[str, set[str]]()
    for row in rows:
        if row.class_label not in ids:
            observations.setdefault(row.class_label, set()).add(row.observation)
    trained = {row.class_label for row in rows if row.split == "train"}
    waiting |= {name: len(several) for name, several in observations.items() if name not in trained}
    names = sorted(trained & observations.keys())
    genera = genera_of([*classes.names, *names])
    relatives = dict(zip(classes.parents.get("genus", ()), range(len(classes)), strict=False))

    def parent(level: str, name: str) -> str:
        """The parent of a new class: its genus by its name, and all else as others of this genus have it."""
        relative = relatives.get(genera[name]) if genera[name] else None
        return (
            genera[name] if level == "genus" else "" if relative is None else classes.parents[level][relative]
        )

    parents = {level: [parent(level, name) for name in names] for level in classes.parents}
    return add_classes(classes, ClassTable(names, parents=parents))
