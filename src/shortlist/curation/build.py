"""Make a benchmark from your own labeled images, in the way Pl@ntNet-300K was made."""

import errno
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from shortlist._checks import check_choice, check_count, check_number
from shortlist._files import replacing_folder, write_text
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import missing
from shortlist.datasets.folders import PARTS, class_folders, images_below
from shortlist.datasets.lists import read_columns
from shortlist.datasets.partition import proportional_split, share_of
from shortlist.datasets.plantnet import genus_of

__all__ = ["BenchmarkPlan", "Link", "apply_plan", "build_benchmark", "plan_benchmark"]

Link = Literal["hard", "symbolic"]
LAYOUT = (
    "Expected <source>/<class>/*.jpg, <source>/<genus>/<class>/*.jpg, or a .csv or .parquet list with the "
    "columns path, label and, optionally, genus."
)


@dataclass(frozen=True)
class BenchmarkPlan:
    """The plan of a benchmark: the class and part of each image. Nothing is written yet.

    Attributes:
        rows: (path, class index, part) of each image.
        class_table: Classes with their genera and training counts.
        options: Options that the plan was made with.
        left_out: Numbers of genera, classes and images of the source that were left out, by reason.
    """

    rows: list[tuple[str, int, str]]
    class_table: ClassTable
    options: dict[str, Any]
    left_out: dict[str, int]

    def sizes(self) -> dict[str, int]:
        """Return the number of images of each split."""
        counts = Counter(part for _, _, part in self.rows)
        return {part: counts[part] for part in PARTS}


def _from_list(path: Path) -> Iterator[tuple[str, str, str]]:
    table = read_columns(path, ["path", "label"], optional=["genus"])
    columns = {name: column.to_pylist() for name, column in table.items()}
    genera = columns.get("genus") or [genus_of(str(label)) for label in columns["label"]]
    if empty := sum(genus is None for genus in genera):
        raise ValueError(f"{path} has {empty} empty fields in column 'genus'")
    for image, label, genus in zip(columns["path"], columns["label"], genera, strict=True):
        yield os.path.join(path.parent, str(image)), str(label), str(genus)


def _from_folder(root: Path) -> Iterator[tuple[str, str, str]]:
    for outer in class_folders(root):
        inner = class_folders(root / outer)
        if inner:
            if flat := [image for image in images_below(root / outer) if Path(image).parent == root / outer]:
                raise ValueError(
                    f"{root / outer} holds both folders and {len(flat)} images: it is neither a class nor a "
                    f"genus. {LAYOUT}"
                )
            for name in inner:
                yield from ((image, name, outer) for image in images_below(root / outer / name))
        else:
            yield from ((image, outer, genus_of(outer)) for image in images_below(root / outer))


def _collect(source: Path) -> tuple[dict[str, list[str]], dict[str, str], int]:
    """Return the images and genus of each class, and how many rows were left out as duplicates."""
    if not source.exists():
        raise missing(source, LAYOUT)
    images: dict[str, list[str]] = {}
    genus_by_class: dict[str, str] = {}
    class_of: dict[str, str] = {}
    repeated = 0
    for image, name, genus in _from_folder(source) if source.is_dir() else _from_list(source):
        if genus_by_class.setdefault(name, genus) != genus:
            raise ValueError(
                f"{source}: class {name!r} is in two genera, {genus_by_class[name]!r} and {genus!r}"
            )
        known = class_of.get(os.path.abspath(image))
        if known not in (None, name):
            raise ValueError(f"{source}: {image} is in two classes, {known!r} and {name!r}")
        if known == name:  # twice, it could get into two parts
            repeated += 1
            continue
        class_of[os.path.abspath(image)] = name
        images.setdefault(name, []).append(image)
    if not images:
        raise ValueError(f"{source} holds no images in class folders. {LAYOUT}")
    return images, genus_by_class, repeated


def plan_benchmark(
    source: str | Path,
    *,
    genus_fraction: float = 0.1,
    min_images: int = 5,
    held_out: float = 0.1,
    seed: int = 0,
) -> BenchmarkPlan:
    r"""Choose classes and parts in the way Pl@ntNet-300K was made; nothing is written.

    Genera are drawn uniformly; all their classes with at least ``min_images`` images are kept, so that
    classes which look alike stay together and the long tail stays long; of each class :math:`\lceil 0.1\, n
    \rceil` images are validation, as many test, and the rest training.

    Args:
        source: ``<source>/<class>/*.jpg`` (the genus is the first word of the class's name),
            ``<source>/<genus>/<class>/*.jpg``, or a ``.csv`` or ``.parquet`` list with the columns path,
            label and, optionally, genus.
        genus_fraction: Share of the genera that is drawn, in (0, 1], rounded, at least one.
        min_images: Smallest number of images of a class, at least 3.
        held_out: Share of each class in the validation split and in the test split; each class must keep a
            training image.
        seed: Seed of the draws.

    Returns:
        The plan, for :func:`apply_plan`.
    """
    _check_options(genus_fraction, min_images, held_out)
    images, genus_by_class, repeated = _collect(Path(source))
    generator = torch.Generator().manual_seed(seed)
    genera = sorted(set(genus_by_class.values()))
    drawn = torch.randperm(len(genera), generator=generator)[: max(1, round(genus_fraction * len(genera)))]
    chosen = {genera[int(i)] for i in drawn}
    of_chosen = sorted(name for name, genus in genus_by_class.items() if genus in chosen)
    kept = [name for name in of_chosen if len(images[name]) >= min_images]
    if not kept:
        raise ValueError(
            f"{source}: none of the {len(of_chosen)} classes of the {len(chosen)} genera drawn has "
            f"min_images = {min_images} images"
        )
    _check_training_images(images, kept, held_out)
    targets = torch.tensor([i for i, name in enumerate(kept) for _ in images[name]], dtype=torch.int64)
    paths = [image for name in kept for image in images[name]]
    parts = proportional_split(targets, fraction=held_out, generator=generator)
    part_of = {row: part for part, rows in zip(PARTS, parts, strict=True) for row in rows.tolist()}
    rows = [(path, int(targets[row]), part_of[row]) for row, path in enumerate(paths)]
    table = ClassTable(
        kept,
        _folder_names(kept),
        targets[parts[0]].bincount(minlength=len(kept)).tolist(),
        {"genus": [genus_by_class[name] for name in kept]},
    )
    left_out = {
        "genera not drawn": len(genera) - len(chosen),
        "classes of those": len(images) - len(of_chosen),
        f"classes with fewer than {min_images} images": len(of_chosen) - len(kept),
        "images": sum(map(len, images.values())) - len(rows),
    }
    if repeated:
        left_out["rows that list an image again"] = repeated
    options = {"source": str(Path(source).resolve()), "genus_fraction": genus_fraction}
    options |= {"min_images": min_images, "held_out": held_out, "seed": seed}
    return BenchmarkPlan(rows, table, options, left_out)


def _check_options(genus_fraction: float, min_images: int, held_out: float) -> None:
    check_number("genus_fraction", genus_fraction, above=0.0)
    if genus_fraction > 1:
        raise ValueError(f"genus_fraction must be <= 1, got {genus_fraction!r}")
    check_count("min_images", min_images)
    check_number("held_out", held_out, above=0.0, below=0.5)
    if min_images < 3:
        raise ValueError(f"min_images must be >= 3, one for each split, got {min_images}")


def _check_training_images(images: dict[str, list[str]], kept: list[str], held_out: float) -> None:
    """Require that each class keeps a training image."""
    for name in kept:
        if 2 * share_of(held_out, len(images[name])) >= len(images[name]):
            raise ValueError(
                f"held_out must leave a training image of each class, got {held_out}: class {name!r} has "
                f"{len(images[name])} images; raise min_images"
            )


def _folder_names(names: list[str]) -> list[str]:
    """Return names of folders for the classes, all different."""
    made: dict[str, None] = {}  # in order, and quick to look up
    for name in names:
        base = name.replace("/", "_").replace("\\", "_").lstrip(".") or "class"
        candidate, number = base, 2
        while candidate in made:
            candidate, number = f"{base}-{number}", number + 1
        made[candidate] = None
    return list(made)


def apply_plan(plan: BenchmarkPlan, dest: str | Path, *, link: Link = "hard") -> None:
    """Make the folders of a plan, with links to the images instead of copies.

    ``dest`` gets ``train/``, ``val/`` and ``test/`` with one folder per class, ``class_table.json`` and
    ``metadata.json`` (class, genus, part and source of each image, and the options). It is made under another
    name and takes its own when complete. The source is only read.

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
        images = {}
        for source, target, part in plan.rows:
            name = plan.class_table.ids[target]
            folder = temporary / part / name
            folder.mkdir(parents=True, exist_ok=True)
            file = _free_name(folder, os.path.basename(source))
            _link(source, file, link)
            images[str(file.relative_to(temporary))] = {
                "class": plan.class_table.names[target],
                "genus": plan.class_table.parents["genus"][target],
                "split": part,
                "source": os.path.abspath(source),
            }
        plan.class_table.save(temporary / "class_table.json")
        content = {"format": "shortlist benchmark 1", "options": plan.options, "images": images}
        text = json.dumps(content, ensure_ascii=False, indent=0) + "\n"
        # a file name may hold bytes that are no UTF-8: written as \udcff, which JSON reads back
        write_text(temporary / "metadata.json", text.encode("utf-8", "backslashreplace").decode())


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
