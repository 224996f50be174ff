"""Build a data set of characters from font faces: what is drawn, how often, and for which part."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.class_table import ClassTable
from shortlist.datasets.glyphs.counts import held_out_sizes, long_tail_counts
from shortlist.datasets.glyphs.faces import Face
from shortlist.datasets.glyphs.groups import (
    character_name,
    choose_classes,
    look_alike_groups,
    script,
    shared_drawings,
)
from shortlist.datasets.glyphs.render import Progress, make_plan, map_tasks, render
from shortlist.datasets.glyphs.trace import Traces, find_bad, trace_face

PARTS = ("train", "val", "test")
EXPONENT, OFFSET = 1.5, 20.0  # of the Zipf-Mandelbrot profile of class sizes
FEWEST_TRAIN = 4
FEWEST_HELD_OUT = 4
HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class Recipe:
    """The options of a glyph set; see ``glyphs`` for their meaning."""

    seed: int
    min_faces: int
    max_classes: int | None
    characters: str | None
    train_images: int


@dataclass(frozen=True)
class Built:
    """A finished set: for each split, images (n, 1, 32, 32), classes (n,) and faces (n,)."""

    images: Mapping[str, NDArray[np.uint8]]
    targets: Mapping[str, NDArray[np.int64]]
    faces: Mapping[str, NDArray[np.int64]]
    class_table: ClassTable
    report: dict


def build(
    faces: Sequence[Face],
    parts_of: Sequence[Collection[int]],
    recipe: Recipe,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> Built:
    """Draw a data set.

    Args:
        faces: Font faces to draw with.
        parts_of: For each face, the parts (0 train, 1 val, 2 test) in which it may be seen.
        recipe: Options of the set.
        workers: Number of processes.
        progress: Called with the name of a stage, steps done and steps in all.

    Raises:
        ValueError: If fewer than two characters can be drawn for all three parts.
    """
    allowed = np.array([[part in parts for part in range(3)] for parts in parts_of])  # (faces, 3)
    traces, dropped = _trace(faces, allowed, recipe, workers=workers, progress=progress)
    groups = look_alike_groups(traces)
    characters = choose_classes(groups, max_classes=recipe.max_classes)
    _check_classes(characters, recipe)
    traces = traces.select(np.isin(traces.character, characters))
    by_class = [traces.face[traces.character == character] for character in characters]
    num_faces = [int(allowed[of_class, 0].sum()) for of_class in by_class]
    tail: Any = {"exponent": EXPONENT, "offset": OFFSET, "fewest": FEWEST_TRAIN}
    counts = long_tail_counts(characters, num_faces, total=recipe.train_images, **tail)
    held_out = held_out_sizes(counts, share=HELD_OUT_SHARE, fewest=FEWEST_HELD_OUT)
    paths = [str(face.path) for face in faces]
    images, targets, of_face = {}, {}, {}
    for part, name in enumerate(PARTS):
        usable = [of_class[allowed[of_class, part]] for of_class in by_class]
        sizes = counts if part == 0 else held_out
        plan = make_plan(characters, sizes.tolist(), usable, seed=(recipe.seed, part, 0))
        how: Any = {"workers": workers, "progress": progress, "stage": f"{name} images"}
        drawn = render(plan, paths, seed=(recipe.seed, part, 1), **how)
        images[name], targets[name], of_face[name] = drawn[:, None], plan.target, plan.face
    report = {
        "classes": len(characters),
        "images": {name: len(targets[name]) for name in PARTS},
        "drawings": len(traces),
        "dropped drawings": dropped,
        "share drawn as another class": _shares_drawn_alike(traces, targets, of_face, characters),
        "faces": _facts(faces, of_face),
    }
    return Built(images, targets, of_face, _class_table(characters, counts, groups), report)


def _check_classes(characters: Sequence[Any], recipe: Recipe) -> None:
    if len(characters) < 2:
        raise ValueError(
            f"the options leave {len(characters)} classes, at least 2 are needed: raise max_classes "
            f"({recipe.max_classes}) or lower min_faces ({recipe.min_faces})"
        )


def _facts(faces: Sequence[Face], of_face: Mapping[str, NDArray[np.int64]]) -> list[dict[str, Any]]:
    """Return where each face comes from, and how many images of each split it drew."""
    return [
        {
            "name": face.name,
            "lineage": face.lineage,
            "license": face.license[:200],
            "checksum": face.checksum,
            "images": {name: int((of_face[name] == i).sum()) for name in PARTS},
        }
        for i, face in enumerate(faces)
    ]


def _trace(
    faces: Sequence[Face], allowed: NDArray, recipe: Recipe, *, workers: int, progress: Progress | None
) -> tuple[Traces, dict[str, int]]:
    """Draw the characters that enough faces have, and count the drawings that were dropped, by reason."""
    candidates = _enough([face.characters for face in faces], allowed, recipe.min_faces)
    if recipe.characters is not None:
        candidates &= {ord(character) for character in recipe.characters}
    tasks = [(i, str(face.path), sorted(face.characters & candidates)) for i, face in enumerate(faces)]
    tables = map_tasks(trace_face, tasks, workers=workers, progress=progress, stage="drawings")
    traces = Traces.cat(tables)
    bad = find_bad(traces)
    dropped = {reason: int(rows.sum()) for reason, rows in bad.items()}
    unreadable = {i for i, _, characters in tasks if characters} - set(np.unique(traces.face).tolist())
    dropped["face that cannot be drawn"] = len(unreadable)
    traces = traces.select(~np.any(list(bad.values()), axis=0))
    held = [frozenset(traces.character[traces.face == i].tolist()) for i in range(len(faces))]
    left = _enough(held, allowed, recipe.min_faces)
    dropped["characters left with too few faces"] = len(candidates) - len(left)
    return traces.select(np.isin(traces.character, sorted(left))), dropped


def _enough(held: Sequence[frozenset[int]], allowed: NDArray, min_faces: int) -> set[int]:
    """Return the characters that at least ``min_faces`` faces have, with one face for each split."""
    in_all = Counter(character for characters in held for character in characters)
    enough = {character for character, number in in_all.items() if number >= min_faces}
    for part in range(3):
        enough &= set().union(*(held[i] for i in np.flatnonzero(allowed[:, part]).tolist()))
    return enough


def _shares_drawn_alike(
    traces: Traces, targets: Mapping[str, NDArray], of_face: Mapping[str, NDArray], characters: Sequence[int]
) -> dict[str, float]:
    """Return the shares of drawings and images that equal another class's in the same face, before jitter."""
    alike = shared_drawings(traces)
    pairs = set(zip(traces.face[alike].tolist(), traces.character[alike].tolist(), strict=True))
    shares = {"drawings": float(alike.mean())}
    for name in PARTS:
        rows = zip(of_face[name].tolist(), (characters[i] for i in targets[name].tolist()), strict=True)
        shares[name] = sum(row in pairs for row in rows) / len(targets[name])
    return {name: round(share, 4) for name, share in shares.items()}


def _class_table(characters: Sequence[int], counts: NDArray, groups: Mapping[int, str]) -> ClassTable:
    return ClassTable(
        names=[character_name(character) for character in characters],
        ids=[f"U+{character:04X}" for character in characters],
        counts=counts.tolist(),
        parents={
            "genus": [groups[character] for character in characters],
            "superclass": [script(character) for character in characters],
        },
    )
