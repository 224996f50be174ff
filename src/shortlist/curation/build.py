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
from shortlist._store.files import replacing_folder, write_text
from shortlist.class_table import ClassTable
from shortlist.curation.labeled import read_labeled
from shortlist.curation.parts import hash_place, part_by_hash, read_frozen, sha256_of
from shortlist.datasets import proportional_split, share_of
from shortlist.inputs import BENCHMARK_FORMAT, SPLITS, BenchmarkImage, Row, entry_of

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
        taken_over: Numbers of images of the earlier benchmark, of new images, and of images of the earlier
            one that have another label now; empty without an earlier benchmark.
        originals: File that each image of the earlier benchmark was linked from, by its path.
    """

    rows: list[tuple[str, int, str]]
    class_table: ClassTable
    options: dict[str, Any]
    left_out: dict[str, int]
    about: list[dict[str, str]]
    taken_over: dict[str, int] = field(default_factory=dict)
    originals: dict[str, str] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """Return the number of images of each split."""
        counts = Counter(part for _, _, part in self.rows)
        return {part: counts[part] for part in SPLITS}


def plan_benchmark(
    source: str | Path,
    *,
    images: str | Path | None = None,
    genus_fraction: float = 1.0,
    min_images: int = 5,
    held_out: float = 0.1,
    split: Splitting = "share",
    keep_split: str | Path | None = None,
    seed: int = 0,
) -> BenchmarkPlan:
    r"""Choose classes and parts in the way Pl@ntNet-300K was made; nothing is written.

    Genera are drawn uniformly; all their classes with at least ``min_images`` images are kept, so that
    classes which look alike stay together and the long tail stays long; of each class :math:`\lceil 0.1\, n
    \rceil` images are validation, as many test, and the rest training.

    Data that grow are split by ``split="hash"``: the part of an image depends on its observation and the seed
    alone, so that an added image never moves another, and all photos of an observation are in one part.

    Args:
        source: ``<source>/<class>/*.jpg`` (the genus is read from scientific names),
            ``<source>/<genus>/<class>/*.jpg``, or a ``.csv`` or ``.parquet`` list with the columns path,
            label and, optionally, genus, observation, organ, author, license, date. A list may be a table of
            :func:`~shortlist.curation.votes.save_consensus`, with item instead of path: items that are not
            valid are left out.
        images: List with the columns path and item: the photos of the items of the source.
        genus_fraction: Share of the genera that is drawn, in (0, 1], rounded, at least one; all by default.
            Pl@ntNet-300K was made with 0.1.
        min_images: Smallest number of images of a class, at least 3.
        held_out: Share of each class in the validation split and in the test split; each class must keep a
            training image. With ``hash``, the chance of an observation to be in either.
        split: ``"share"`` draws exact shares of each class; ``"hash"`` is for data that grow.
        keep_split: Folder of an earlier benchmark, or its ``metadata.json``, that grows. All its images are
            in the new one, in the same splits, and all its classes, with their ids. What is new goes to
            training and validation. Labels of the source may be ids of its classes. A new label of an image
            that it has already replaces the old one, but for test images.
        seed: Seed of the draws.

    Returns:
        The plan, for :func:`apply_plan`.
    """
    _check_options(genus_fraction, min_images, held_out)
    check_choice("split", split, ("share", "hash"))
    if keep_split is not None and split != "hash":
        raise ValueError("keep_split goes with split='hash': new images must not move others")
    rows, genera, left_out = read_labeled(source, images=images)
    frozen = None if keep_split is None else read_frozen(keep_split)
    old, rows, corrected = ([], rows, 0) if frozen is None else frozen.take_in(rows, left_out)
    genera |= {} if frozen is None else frozen.genera
    considered, always = [*old, *rows], {row.class_label for row in old}
    kept, counts = _choose_classes(
        source, considered, genera, always, genus_fraction, min_images, split, seed
    )
    rows = sorted((row for row in rows if row.label in kept), key=lambda row: row.class_label)
    if split == "share":
        placed = _placed_by_share(rows, kept, held_out, seed)
    elif frozen is None:
        by_hash = [part_by_hash(row.observation, held_out=held_out, seed=seed) for row in rows]
        placed = [replace(row, split=part) for row, part in zip(rows, by_hash, strict=True)]
    else:
        placed = old + frozen.place(rows, held_out=held_out, seed=seed, left_out=left_out)
    placed, kept = _with_training_images(placed, kept, always, left_out)
    options: dict[str, Any] = {"source": str(Path(source).resolve()), "genus_fraction": genus_fraction}
    options |= {"min_images": min_images, "held_out": held_out, "split": split, "seed": seed}
    ids = {} if frozen is None else dict(zip(frozen.classes.names, frozen.classes.ids, strict=True))
    plan = _plan(placed, kept, ids, genera, options)
    plan.left_out.update(counts | {"images": len(considered) - len(placed)} | left_out)
    if frozen is not None:
        plan.originals.update(frozen.originals)
        options["keep_split"] = str(Path(str(keep_split)).resolve())
        taken_over = {"images taken over": len(old), "new images": len(placed) - len(old)}
        plan.taken_over.update(taken_over | {"corrected labels": corrected})
    return plan


def _choose_classes(
    source: str | Path,
    rows: list[Row],
    genera: dict[str, str],
    always: set[str],
    genus_fraction: float,
    min_images: int,
    split: Splitting,
    seed: int,
) -> tuple[list[str], dict[str, int]]:
    """Return classes that are always kept and those of drawn genera, and what is left out.

    Genera are drawn together, or by hash, each for itself.
    """
    images = Counter(row.class_label for row in rows)
    genus_of_class = {label: genera[label] or label for label in images}  # without a genus, each for itself
    every = sorted(set(genus_of_class.values()))
    if split == "share":
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(len(every), generator=generator)
        chosen = {every[int(i)] for i in drawn[: max(1, round(genus_fraction * len(every)))]}
    else:
        chosen = {genus for genus in every if hash_place(genus, seed=seed, what="genus") < genus_fraction}
    chosen |= {genus_of_class[name] for name in always}
    of_chosen = sorted(name for name, genus in genus_of_class.items() if genus in chosen)
    kept = [name for name in of_chosen if images[name] >= min_images or name in always]
    if not kept:
        raise ValueError(
            f"{source}: none of the {len(of_chosen)} classes of the {len(chosen)} genera drawn has "
            f"min_images = {min_images} images"
        )
    left_out = {
        "genera not drawn": len(every) - len(chosen),
        "classes of those": len(images) - len(of_chosen),
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


def _with_training_images(
    placed: list[Row], kept: list[str], always: set[str], left_out: Counter[str]
) -> tuple[list[Row], list[str]]:
    """Leave out classes without a training image; those of an earlier benchmark must have one."""
    trained = {row.class_label for row in placed if row.split == "train"}
    lacking = {name for name in kept if name not in trained}
    if lost := sorted(always - trained):
        raise ValueError(
            f"class {lost[0]!r} of the earlier benchmark must have a training image, it has none"
        )
    if lacking:
        left_out["classes without a training image"] += len(lacking)
    return [row for row in placed if row.label in trained], [name for name in kept if name in trained]


def _plan(
    placed: list[Row], kept: list[str], ids: dict[str, str], genera: dict[str, str], options: dict[str, Any]
) -> BenchmarkPlan:
    number = {name: i for i, name in enumerate(kept)}
    training = Counter(row.class_label for row in placed if row.split == "train")
    column = [genera[name] for name in kept]
    table = ClassTable(
        kept,
        _folder_names(kept, ids),
        [training[name] for name in kept],
        {"genus": column} if any(column) else {},
    )
    return BenchmarkPlan(
        [(row.path, number[row.class_label], row.split) for row in placed],
        table,
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


def _folder_names(names: list[str], ids: dict[str, str]) -> list[str]:
    """Return names of folders for the classes, all different; those that have an id keep it."""
    made, taken = [], set(ids.values())
    for name in names:
        base = name.replace("/", "_").replace("\\", "_").lstrip(".") or "class"
        candidate, number = ids.get(name, base), 2
        while candidate in taken and name not in ids:
            candidate, number = f"{base}-{number}", number + 1
        made.append(candidate)
        taken.add(candidate)
    return made


def apply_plan(plan: BenchmarkPlan, dest: str | Path, *, link: Link = "hard") -> None:
    """Make the folders of a plan, with links to the images instead of copies.

    ``dest`` gets ``train/``, ``val/`` and ``test/`` with one folder per class, ``class_table.json`` and
    ``metadata.json`` (of each image class, genus, part, source, observation, what else is known, and the
    SHA-256 if it is held out; and the options). It is made under another name and takes its own when
    complete. The source is only read.

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
        images, genera = {}, plan.class_table.parents.get("genus", [""] * len(plan.class_table))
        for (source, target, part), about in zip(plan.rows, plan.about, strict=True):
            name = plan.class_table.ids[target]
            folder = temporary / part / name
            folder.mkdir(parents=True, exist_ok=True)
            file = _free_name(folder, _file_name(source))
            _link(source, file, link)
            row = Row(str(file), plan.class_table.names[target], part, **about)
            digest = "" if part == "train" else sha256_of(source)
            image = BenchmarkImage(
                row, genera[target], plan.originals.get(source, os.path.abspath(source)), digest
            )
            images[str(file.relative_to(temporary))] = entry_of(image)
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
