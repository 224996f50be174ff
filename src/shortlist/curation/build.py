"""Make a benchmark from your own labeled images, in the way Pl@ntNet-300K was made."""

import errno
import json
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_number
from shortlist._progress import each
from shortlist._store.files import replacing_folder, write_text
from shortlist.checklist import Checklist
from shortlist.class_table import ClassTable
from shortlist.curation._classes import name_classes, take_classes
from shortlist.curation.deletions import StoreCopies
from shortlist.curation.labeled import read_labeled
from shortlist.curation.parts import hash_place, part_by_hash, sha256_of
from shortlist.curation.quality import (
    IsStrange,
    bounds_of,
    flagged_observations,
    repeated_observations,
    strange_observations,
)
from shortlist.datasets import proportional_split, share_of
from shortlist.inputs import BENCHMARK_FORMAT, SPLITS, BenchmarkImage, Row, entry_of, folder_names

Link = Literal["hard", "symbolic"]
Splitting = Literal["share", "hash"]


@dataclass(frozen=True)
class BenchmarkPlan:
    """The plan of a benchmark: the class and part of each image. Nothing is written yet.

    Attributes:
        rows: (path, class index, part) of each image.
        class_table: Classes with their genera and training counts.
        options: Options that the plan was made with.
        left_out: Numbers of genera, classes and images of the source that were left out, by reason.
        about: What is known of each image: observation, organ, author, license, date, place, source.
        taken_over: Numbers of images of the earlier benchmark, of new images, of images of the earlier one
            that have another label now, and of new classes; empty without an earlier benchmark.
        waiting: Proposed classes with too few valid observations, and the number of these.
        earlier: Images of the earlier benchmark, by their paths.
        unmatched: Names of classes that are not in the checklist.
        without_images: Names of classes of the source that have no image, and so are not in the benchmark.
    """

    rows: list[tuple[str, int, str]]
    class_table: ClassTable
    options: dict[str, Any]
    left_out: dict[str, int]
    about: list[dict[str, str]]
    taken_over: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    earlier: dict[str, BenchmarkImage] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    without_images: list[str] = field(default_factory=list)

    def sizes(self) -> dict[str, int]:
        """Return the number of images of each split."""
        counts = Counter(part for _, _, part in self.rows)
        return {part: counts[part] for part in SPLITS}


def plan_benchmark(
    source: str | Path,
    *,
    images: str | Path | None = None,
    names: str | Path | None = None,
    copies: StoreCopies | None = None,
    genus_fraction: float = 1.0,
    min_images: int = 5,
    held_out: float = 0.1,
    split: Splitting = "share",
    seed: int = 0,
    keep_good: float | None = None,
    is_strange: IsStrange | None = None,
) -> BenchmarkPlan:
    r"""Choose classes and parts in the way Pl@ntNet-300K was made; nothing is written.

    Genera are drawn uniformly; all their classes with at least ``min_images`` images are kept, so that
    classes which look alike stay together and the long tail stays long; of each class :math:`\lceil 0.1\, n
    \rceil` images are validation, as many test, and the rest training.

    Data that will grow (:func:`~shortlist.curation.grow.plan_growth`) are split by ``split="hash"``: the part
    of an image depends on its observation and the seed alone, and all photos of an observation are in one.

    Args:
        source: ``<source>/<class>/*.jpg`` (the genus is read from scientific names),
            ``<source>/<genus>/<class>/*.jpg``, or a ``.csv`` or ``.parquet`` list with the columns path,
            label and, optionally, genus, observation, organ, author, license, date. A list may be a table of
            :func:`~shortlist.curation.votes.save_consensus`, with item instead of path: items that are not
            valid are left out. A ``class_table.json`` in the folder or beside the list has the ids, names
            and parents of the classes.
        images: List with the columns path and item: the photos of the items of the source.
        names: Checklist, for :meth:`shortlist.checklist.Checklist.read`: the classes get the authors,
            synonyms, common names, parents and ids elsewhere that it has of their names.
        copies: As :func:`~shortlist.curation.grow.plan_growth` takes them.
        genus_fraction: Share of the genera that is drawn, in (0, 1], rounded, at least one; all by default.
            Pl@ntNet-300K was made with 0.1.
        min_images: Smallest number of images of a class, at least 3.
        held_out: Share of each class in the validation split and in the test split; each class must keep a
            training image. With ``hash``, the chance of an observation to be in either.
        split: ``"share"`` draws exact shares of each class; ``"hash"`` is for data that grow.
        seed: Seed of the draws.
        keep_good: Promised share of photos that are not flagged as blurred or small, beside the photos of the
            source as a whole. An observation with a flagged photo waits, and so does one with a photo of an
            earlier observation. Nothing is flagged if left out.
        is_strange: Says which photos are like nothing known; an observation with such a photo waits.

    Returns:
        The plan, for :func:`apply_plan`.
    """
    _check_options(genus_fraction, min_images, held_out)
    check_choice("split", split, ("share", "hash"))
    rows, classes, left_out = read_labeled(source, images=images, copies=copies)
    classes, unmatched = (classes, []) if names is None else name_classes(classes, Checklist.read(names))
    number_of_rows = len(rows)
    flagged = strange_observations(rows, is_strange, left_out)
    if keep_good is not None:
        bounds = bounds_of([row.path for row in rows], keep=keep_good)
        flagged |= flagged_observations(rows, bounds, left_out) | repeated_observations(rows, left_out)
    rows = [row for row in rows if row.observation not in flagged]
    kept, counts = _choose_classes(source, rows, classes, genus_fraction, min_images, split, seed)
    number = {id: place for place, id in enumerate(classes.ids)}
    rows = sorted((row for row in rows if row.label in kept), key=lambda row: number[row.class_label])
    if split == "share":
        placed = _placed_by_share(rows, kept, held_out, seed)
    else:
        by_hash = [part_by_hash(row.observation, held_out=held_out, seed=seed) for row in rows]
        placed = [replace(row, split=part) for row, part in zip(rows, by_hash, strict=True)]
    trained = {row.class_label for row in placed if row.split == "train"}
    if lacking := len(kept) - len(trained):
        left_out["classes without a training image"] += lacking
    placed = [row for row in placed if row.label in trained]
    options: dict[str, Any] = {"source": str(Path(source).resolve()), "genus_fraction": genus_fraction}
    options |= {"min_images": min_images, "held_out": held_out, "split": split, "seed": seed}
    options |= {} if names is None else {"names": str(names)}
    plan = plan_of_rows(placed, take_classes(classes, sorted(number[id] for id in trained)), options)
    plan.unmatched.extend(unmatched)
    labels = {row.class_label for row in rows}
    empty = [name for id, name in zip(classes.ids, classes.names, strict=True) if id not in labels]
    plan.without_images.extend(empty)
    plan.left_out.update(counts | {"images": number_of_rows - len(placed)} | left_out)
    return plan


def _choose_classes(
    source: str | Path,
    rows: list[Row],
    classes: ClassTable,
    genus_fraction: float,
    min_images: int,
    split: Splitting,
    seed: int,
) -> tuple[list[str], dict[str, int]]:
    """Return the classes of drawn genera with enough images, and what is left out.

    Genera are drawn together, or by hash, each for itself.
    """
    images = Counter(row.class_label for row in rows)
    genera = classes.parents.get("genus", classes.ids)  # without a genus, each for itself
    genus_of_class = {id: genus or id for id, genus in zip(classes.ids, genera, strict=True) if images[id]}
    every = sorted(set(genus_of_class.values()))
    if split == "share":
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(len(every), generator=generator)
        chosen = {every[int(i)] for i in drawn[: max(1, round(genus_fraction * len(every)))]}
    else:
        chosen = {genus for genus in every if hash_place(genus, seed=seed, what="genus") < genus_fraction}
    of_chosen = [id for id, genus in genus_of_class.items() if genus in chosen]
    kept = [id for id in of_chosen if images[id] >= min_images]
    if not kept:
        raise ValueError(
            f"{source}: none of the {len(of_chosen)} classes of the {len(chosen)} genera drawn has "
            f"min_images = {min_images} images"
        )
    left_out = {
        "genera not drawn": len(every) - len(chosen),
        "classes of those": len(genus_of_class) - len(of_chosen),
        f"classes with fewer than {min_images} images": len(of_chosen) - len(kept),
    }
    return kept, left_out


def _placed_by_share(rows: list[Row], kept: list[str], held_out: float, seed: int) -> list[Row]:
    """Draw the same share of each class for each held-out part."""
    several = Counter(row.observation for row in rows).most_common(1)
    if several and several[0][1] > 1:
        raise ValueError(
            f"split must be 'hash' if observations have several photos, which belong into one part: "
            f"{several[0][0][:80]!r} has {several[0][1]}"
        )
    images = Counter(row.class_label for row in rows)
    _check_training_images(images, kept, held_out)
    number = {name: i for i, name in enumerate(kept)}
    targets = torch.tensor([number[row.class_label] for row in rows], dtype=torch.int64)
    generator = torch.Generator().manual_seed(seed + 1)
    parts = proportional_split(targets, fraction=held_out, generator=generator)
    part_of = {row: part for part, part_rows in zip(SPLITS, parts, strict=True) for row in part_rows.tolist()}
    return [replace(row, split=part_of[place]) for place, row in enumerate(rows)]


def plan_of_rows(placed: list[Row], classes: ClassTable, options: dict[str, Any]) -> BenchmarkPlan:
    """Return the plan of rows that have their splits; it counts the training images of each class."""
    number = {id: place for place, id in enumerate(classes.ids)}
    training = Counter(row.class_label for row in placed if row.split == "train")
    return BenchmarkPlan(
        [(row.path, number[row.class_label], row.split) for row in placed],
        classes.with_counts([training[id] for id in classes.ids]),
        options,
        {},
        [row.about for row in placed],
    )


def _check_options(genus_fraction: float, min_images: int, held_out: float) -> None:
    check_number("genus_fraction", genus_fraction, above=0.0, high=1.0)
    check_count("min_images", min_images)
    check_number("held_out", held_out, above=0.0, below=0.5)
    if min_images < 3:
        raise ValueError(f"min_images must be >= 3, one for each split, got {min_images}")


def _check_training_images(images: Counter[str], kept: list[str], held_out: float) -> None:
    """Require that each class keeps a training image."""
    for name in kept:
        if 2 * share_of(held_out, images[name]) >= images[name]:
            raise ValueError(
                f"held_out must leave a training image of each class, got {held_out}: class {name!r} has "
                f"{images[name]} images; raise min_images"
            )


def apply_plan(plan: BenchmarkPlan, dest: str | Path, *, link: Link = "hard") -> None:
    """Make the folders of a plan, with links to the images instead of copies.

    ``dest`` gets ``train/``, ``val/`` and ``test/`` with one folder per class, ``class_table.json`` and
    ``metadata.json`` (of each image the id of its class, part, source, observation, what else is known, and
    the SHA-256; and the options). It is made under another name and takes its own when complete. The source
    is only read.

    Args:
        plan: Plan that :func:`plan_benchmark` returned.
        dest: Folder to make. It must be empty or not exist yet.
        link: ``"hard"`` (the images survive if the source is deleted; same file system only) or
            ``"symbolic"``.

    Raises:
        ValueError: ``dest`` holds something already, or cannot take hard links to the source.
    """
    check_choice("link", link, ("hard", "symbolic"))
    dest = Path(dest)
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise ValueError(f"{dest} exists and is not empty: nothing is overwritten, choose another name")
    with replacing_folder(dest) as temporary:
        images, folders = {}, folder_names(plan.class_table.ids)
        rows = zip(plan.rows, plan.about, strict=True)
        for (source, target, part), about in each("linking", rows, len(plan.rows)):
            folder = temporary / part / folders[target]
            folder.mkdir(parents=True, exist_ok=True)
            file = _free_name(folder, _file_name(source))
            _link(source, file, link)
            row = Row(str(file), plan.class_table.ids[target], part, **about)
            earlier = plan.earlier.get(source)
            original = os.path.abspath(source) if earlier is None else earlier.original
            digest = sha256_of(source) if earlier is None else earlier.sha256
            images[str(file.relative_to(temporary))] = entry_of(BenchmarkImage(row, original, digest))
        plan.class_table.save(temporary / "class_table.json")
        content = {"format": BENCHMARK_FORMAT, "options": plan.options, "images": images}
        text = json.dumps(content, ensure_ascii=False, indent=0) + "\n"
        # a file name may hold bytes that are no UTF-8: written as \udcff, which JSON reads back
        write_text(temporary / "metadata.json", text.encode("utf-8", "backslashreplace").decode())


def _file_name(source: str) -> str:
    """Return the name of a file, with a suffix by its content if it has none, as copies of feedback."""
    name = os.path.basename(source)
    if os.path.splitext(name)[1] or not os.path.isfile(source):
        return name
    with open(source, "rb") as file:
        start = file.read(12)
    if start.startswith(b"\x89PNG"):
        return f"{name}.png"
    return f"{name}.webp" if start[8:] == b"WEBP" else f"{name}.jpg"


def _free_name(folder: Path, name: str) -> Path:
    """Return the name in the folder, with a number if another image has it."""
    file, number = folder / name, 2
    while os.path.lexists(file):
        stem, suffix = os.path.splitext(name)
        file, number = folder / f"{stem}-{number}{suffix}", number + 1
    return file


def _link(source: str, file: Path, link: Link) -> None:
    if not os.path.exists(source):
        raise FileNotFoundError(f"{source} is listed but missing")
    if link == "symbolic":
        file.symlink_to(os.path.abspath(source))
        return
    try:
        os.link(os.path.realpath(source), file)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        raise ValueError(
            f"{file.parent} cannot take a hard link to {source} ({error.strerror}): use link='symbolic'"
        ) from error


def build_benchmark(
    source: str | Path, dest: str | Path, *, link: Link = "hard", **options: Any
) -> BenchmarkPlan:
    """Make a benchmark: :func:`plan_benchmark` with the given options, then :func:`apply_plan`."""
    plan = plan_benchmark(source, **options)
    apply_plan(plan, dest, link=link)
    return plan
