"""Let a benchmark grow by people's votes: nothing of it is forgotten, and proposals become classes."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist._checks import check_count, check_number
from shortlist.checklist import Checklist
from shortlist.class_table import ClassTable
from shortlist.curation._ballot import PROPOSAL
from shortlist.curation._classes import add_classes
from shortlist.curation.build import BenchmarkPlan, plan_of_rows
from shortlist.curation.deletions import StoreCopies
from shortlist.curation.labeled import Photos, read_photos
from shortlist.curation.parts import Frozen, name_of_photo, read_frozen
from shortlist.curation.proposals import Proposals
from shortlist.curation.quality import IsStrange, bounds_of, flagged_observations, strange_observations
from shortlist.curation.votes import ConsensusLabels, aggregate_votes, read_votes
from shortlist.inputs import Row


def plan_growth(
    old: str | Path,
    *,
    votes: str | Path,
    images: str | Path,
    names: str | Path | None = None,
    min_observations: int = 5,
    held_out: float | None = None,
    keep_good: float | None = None,
    is_strange: IsStrange | None = None,
    copies: StoreCopies | None = None,
    **rule: Any,
) -> BenchmarkPlan:
    """Plan the next benchmark: all of an earlier one, and the photos whose labels people's votes make valid.

    All images of the earlier benchmark are in the new one, in the same splits, and all its classes. New
    photos go to training and validation: the test images stay the only ones. A valid label of a photo that is
    there already replaces the old label, but for test images. A photo that two observations give different
    labels gets none of them: a new one is left out, and an earlier one stays as it was.

    A vote names a class by its id, its name or a synonym. Any other label proposes a class, with ``!new:`` at
    its start or without. A class is made of it if it is the valid label of enough observations; until then it
    waits.

    Args:
        old: Folder of the earlier benchmark.
        votes: Votes, as :func:`~shortlist.curation.votes.read_votes` reads them.
        images: List with the columns path and item: the photos of the items that were voted on.
        names: Checklist of what proposed names are, for :meth:`shortlist.checklist.Checklist.read`.
        min_observations: Number of valid observations that make a class of a proposal.
        held_out: Chance of a new observation to be in the validation split; that of ``old`` if left out.
        keep_good: Promised share of good photos that are not flagged as blurred or small, by those that
            ``old`` holds out. An observation with a flagged new photo waits. Nothing is flagged if left out.
        is_strange: Says which photos are like nothing known; an observation with such a new photo waits.
        copies: The copies of photos that stores of feedback in PostgreSQL have now, by
            :func:`shortlist.feedback.copies_in`. Needed if there are photos from such a store: those that
            were deleted from it are in no later benchmark.
        **rule: Options of :func:`~shortlist.curation.votes.aggregate_votes`.

    Returns:
        The plan, for :func:`~shortlist.curation.build.apply_plan`.
    """
    check_count("min_observations", min_observations)
    copies = {} if copies is None else copies
    frozen, left_out = read_frozen(old, copies=copies), Counter[str]()
    held_out = float(frozen.options.get("held_out", 0.1)) if held_out is None else held_out
    check_number("held_out", held_out, low=0.0, below=1.0)
    seed = frozen.options.get("seed", 0)
    proposals = Proposals(frozen.classes, None if names is None else Checklist.read(names))
    labels = _find_labels(votes, proposals, left_out, rule)
    photos = read_photos(images, left_out, copies)
    frozen, rows = frozen.given_by(photos), list(_rows_of_labels(labels, photos, left_out))
    rows = _without_contradictions(rows, left_out)
    rows = _without_flagged(rows, frozen, keep_good, is_strange, left_out)
    rows, waiting = _without_waiting(rows, min_observations)
    old_rows, new_rows = frozen.take_in(rows, left_out)
    new_rows.sort(key=lambda row: row.class_label)
    new_rows = frozen.place(new_rows, held_out=held_out, seed=seed, left_out=left_out)
    new_ids = _proposed_classes(frozen.classes, [*old_rows, *new_rows], waiting)
    before = {path: image.row for path, image in frozen.earlier.items()}
    old_rows = [before[row.path] if row.label in waiting else row for row in old_rows]
    placed = [*old_rows, *(row for row in new_rows if row.label not in waiting)]
    options = frozen.options | {"held_out": held_out, "seed": seed, "grown_from": str(Path(old).resolve())}
    options |= {"votes": str(votes), "images": str(images), "min_observations": min_observations} | rule
    options |= {} if names is None else {"names": str(names)}
    plan = plan_of_rows(placed, add_classes(frozen.classes, proposals.classes(new_ids)), options)
    plan.left_out.update(+left_out)
    plan.waiting.update({proposals.name(id): number for id, number in waiting.items()})
    plan.earlier.update(frozen.earlier)
    plan.taken_over["images taken over"] = len(old_rows)
    plan.taken_over["new images"] = len(placed) - len(old_rows)
    plan.taken_over["corrected labels"] = sum(row.label != before[row.path].label for row in old_rows)
    plan.taken_over["new classes"] = len(new_ids)
    return plan


def _find_labels(
    votes: str | Path, proposals: Proposals, left_out: Counter[str], rule: Mapping[str, Any]
) -> ConsensusLabels:
    """Find labels by votes for classes and proposals."""
    columns = read_votes(votes)
    columns["label"], unclear = proposals.resolve_column(columns["label"])
    labels = aggregate_votes(**columns, **rule)
    left_out["votes for a name of several classes"] += unclear
    left_out["votes without item, user or label"] += labels.empty_votes - unclear
    left_out["votes of the machine"] += labels.machine_votes
    return labels


def _rows_of_labels(labels: ConsensusLabels, photos: Photos, left_out: Counter[str]) -> Iterator[Row]:
    """Give the photos of items with a valid label; that of photos that people rejected begins with ``!``."""
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


def _without_contradictions(rows: list[Row], left_out: Counter[str]) -> list[Row]:
    """Leave out photos that observations give different labels: nobody can say which of them is right."""
    labels: dict[str, set[str]] = {}
    for row in rows:
        labels.setdefault(name_of_photo(row.path), set()).add(row.class_label)
    kept = [row for row in rows if len(labels[name_of_photo(row.path)]) == 1]
    left_out["photos with different labels in two observations"] += len(rows) - len(kept)
    return kept


def _without_flagged(
    rows: list[Row],
    frozen: Frozen,
    keep_good: float | None,
    is_strange: IsStrange | None,
    left_out: Counter[str],
) -> list[Row]:
    """Leave out observations with a new photo that is flagged; the same votes bring them again."""
    originals = {image.original for image in frozen.earlier.values()}
    new = [row for row in rows if os.path.abspath(row.path) not in originals]
    flagged = strange_observations(new, is_strange, left_out)
    if keep_good is not None:
        held_out = (
            row.path for row in frozen.rows if row.split != "train" and row.path not in frozen.deleted
        )
        flagged |= flagged_observations(new, bounds_of(held_out, keep=keep_good), left_out)
    return [row for row in rows if row.observation not in flagged]


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


def _proposed_classes(classes: ClassTable, rows: list[Row], waiting: dict[str, int]) -> list[str]:
    """Return the ids of new classes of rows; one without a training image waits."""
    ids, observations = set(classes.ids), dict[str, set[str]]()
    for row in rows:
        if row.class_label not in ids:
            observations.setdefault(row.class_label, set()).add(row.observation)
    trained = {row.class_label for row in rows if row.split == "train"}
    waiting |= {id: len(several) for id, several in observations.items() if id not in trained}
    return sorted(trained & observations.keys())
