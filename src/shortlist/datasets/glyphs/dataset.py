"""Data sets of letters and digits of many scripts, drawn from real fonts without a download."""

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist._progress import Progress
from shortlist._row_facts import RowFacts
from shortlist.datasets.splits import Splits, TensorSplit

MEAN, STD = 47.0, 39.0  # of the training pixels of the default set, rounded

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True, repr=False)
class GlyphSplits(Splits):
    """A glyph set, with a record of the fonts that it was drawn from.

    Args:
        train: Training part, ``inputs`` uint8 (n, 1, 32, 32).
        val: Validation part.
        test: Test part.
        class_table: Unicode names and code points; ``genus`` is the group of look-alikes, ``superclass`` the
            script.
        faces: For each split, the face of each image (n,), an index into ``report["faces"]``.
        report: Numbers of the build: what was drawn and what was dropped, fonts and their licenses.
    """

    train: TensorSplit
    val: TensorSplit
    test: TensorSplit
    faces: Mapping[str, Tensor]
    report: Mapping[str, Any]


def standardize(images: Tensor) -> Tensor:
    """Convert gray levels (uint8) to float32 of about zero mean and unit variance.

    >>> standardize(torch.tensor([[47, 86]], dtype=torch.uint8))
    tensor([[0., 1.]])
    """
    return images.to(torch.float32).sub_(MEAN).div_(STD)


def glyphs(
    *,
    seed: int = 0,
    cache: str | Path | None = None,
    max_classes: int | None = 600,
    characters: str | None = None,
    min_faces: int = 4,
    train_images: int = 30_000,
    photos: int = 1,
    transform: Transform | None = standardize,
    progress: Progress | None = None,
) -> GlyphSplits:
    """Make the embedded data set: 600 characters drawn from the text fonts that come with matplotlib.

    Some of the fonts are seen in validation and test only. The classes and their sizes are the same for all
    seeds; the seed draws the images. Built once (some seconds) and then read from the cache; the same seed
    gives the same images, to the bit, with the same versions of the fonts, Pillow (FreeType), NumPy and
    Python's Unicode tables, which are part of the cache's key. Where the cache cannot be written, there is a
    warning and the set is built each time.

    Args:
        seed: Seed of the random images.
        cache: Folder for built sets; ``$SHORTLIST_CACHE`` or ``~/.cache/shortlist`` by default.
        max_classes: Largest number of classes, in whole groups of look-alikes; None for all (about 2,400).
        characters: Characters to use, if enough fonts have them; all by default.
        min_faces: Smallest number of fonts that must have a character.
        train_images: Total number of training images; a class never has fewer than 4.
        photos: Largest number of images of a held-out glyph, in the same face and size. With more than 1, the
            splits stay as they are, and ``further`` has the other images.
        transform: Function applied to batches of images when they are fetched; None leaves them uint8.
        progress: Called with the name of a stage, steps done and steps in all.

    Returns:
        The parts and the class table.

    Raises:
        ValueError: If an option is out of range or leaves fewer than two classes.
    """
    from shortlist.datasets.glyphs.build import Recipe
    from shortlist.datasets.glyphs.faces import matplotlib_faces

    _check_options(seed, max_classes, min_faces, train_images, photos)
    recipe = Recipe(seed, min_faces, max_classes, characters, train_images, photos)
    faces, held_out = matplotlib_faces()
    parts_of = [(1, 2) if held else (0, 1, 2) for held in held_out]
    return _cached(
        faces, parts_of, recipe, "glyphs", cache=cache, transform=transform, workers=1, progress=progress
    )


def glyphs_full(
    folders: str | Path | Iterable[str | Path],
    *,
    seed: int = 0,
    cache: str | Path | None = None,
    max_classes: int | None = 1000,
    characters: str | None = None,
    min_faces: int = 10,
    train_images: int = 60_000,
    photos: int = 1,
    require_open_license: bool = True,
    transform: Transform | None = standardize,
    workers: int | None = None,
    progress: Progress | None = None,
) -> GlyphSplits:
    """Make a glyph set from all fonts in some folders, with different designs in each split.

    Fonts of one family, and families that descend from one design, are all in one part. Families of symbols,
    copies, and fonts whose name table does not state an open license are skipped; ``report["skipped"]`` lists
    them.

    Args:
        folders: One or several folders to search for .ttf and .otf files, with their subfolders.
        seed: Seed of the random images.
        cache: Folder for built sets; see :func:`glyphs`.
        max_classes: Largest number of classes, in whole groups of look-alikes; None for all.
        characters: Characters to use, if enough fonts have them; all by default.
        min_faces: Smallest number of fonts that must have a character, at least one for each split.
        train_images: Total number of training images; a class never has fewer than 4.
        photos: Largest number of images of a held-out glyph; see :func:`glyphs`.
        require_open_license: Whether to skip fonts that state no open license.
        transform: Function applied to batches of images when they are fetched; None leaves them uint8.
        workers: Number of processes, all processors by default. With more than one, a script that calls this
            needs the usual ``if __name__ == "__main__":``.
        progress: Called with the name of a stage, steps done and steps in all.

    Returns:
        The parts and the class table.

    Raises:
        ValueError: If a folder does not exist, an option is out of range, or too few fonts are found.
    """
    from shortlist.datasets.glyphs.build import Recipe
    from shortlist.datasets.glyphs.folders import deal_lineages, faces_in

    _check_options(seed, max_classes, min_faces, train_images, photos)
    workers = os.cpu_count() or 1 if workers is None else workers
    check_count("workers", workers)
    recipe = Recipe(seed, min_faces, max_classes, characters, train_images, photos)
    folders = [folders] if isinstance(folders, str | Path) else folders
    faces, skipped = faces_in(folders, require_open_license=require_open_license)
    lineages = len({face.lineage for face in faces})
    if lineages < 3:
        raise ValueError(
            f"folders must hold usable fonts of at least 3 designs, one for each split, got {lineages} "
            f"({len(skipped)} files were skipped)"
        )
    return _cached(
        faces,
        [(part,) for part in deal_lineages(faces)],
        recipe,
        "glyphs-full",
        cache=cache,
        transform=transform,
        workers=workers,
        progress=progress,
        more={"skipped": skipped},
    )


def _check_options(
    seed: int, max_classes: int | None, min_faces: int, train_images: int, photos: int
) -> None:
    check_count("seed", seed, low=0)
    if max_classes is not None:
        check_count("max_classes", max_classes)
    check_count("min_faces", min_faces)
    check_count("train_images", train_images)
    check_count("photos", photos)


def _cached(
    faces: Sequence,
    parts_of: Sequence[Collection[int]],
    recipe,
    stem: str,
    *,
    cache: str | Path | None,
    transform: Transform | None,
    workers: int,
    progress: Progress | None,
    more: Mapping[str, Any] | None = None,
) -> GlyphSplits:
    """Read the set from the cache, or build it and keep it there."""
    from shortlist.datasets.glyphs.build import FURTHER, build
    from shortlist.datasets.glyphs.cache import cache_folder, cache_key, load_built, save_built

    sources = [[face.name, face.checksum, list(parts)] for face, parts in zip(faces, parts_of, strict=True)]
    folder, name = cache_folder(cache), f"{stem}-{cache_key(recipe, sources)}"
    try:
        built = load_built(folder, name)
    except ValueError as error:
        warnings.warn(f"{error}; building it again", stacklevel=3)
        built = None
    if built is None:
        built = build(faces, parts_of, recipe, workers=workers, progress=progress)
        try:
            save_built(built, folder, name)
        except OSError as error:
            warnings.warn(f"the glyph set is not kept for the next time: {error}", stacklevel=3)
    splits = {
        name: TensorSplit(
            torch.from_numpy(drawn.images),
            torch.from_numpy(drawn.targets),
            transform=transform,
            facts=RowFacts(torch.from_numpy(drawn.objects)) if recipe.photos > 1 else None,
        )
        for name, drawn in built.parts.items()
    }
    further = {name.removesuffix(FURTHER): splits.pop(name) for name in built.parts if FURTHER in name}
    return GlyphSplits(
        **splits,
        class_table=built.class_table,
        faces={part: torch.from_numpy(built.parts[part].faces).long() for part in splits},
        report=built.report | dict(more or {}),
        further=further,
    )
