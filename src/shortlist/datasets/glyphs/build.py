"""Build a data set of characters from font faces: what is drawn, how often, and for which part."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist._progress import Progress
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
from shortlist.datasets.glyphs.render import Plan, further_photos, make_plan, map_tasks, render
from shortlist.datasets.glyphs.trace import Traces, find_bad, trace_face

PARTS = ("train", "val", "test")
FURTHER = "_further"  # end of the name of further photos of a split
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
    photos: int = 1


@dataclass(frozen=True)
class Drawn:
    """Images (n, 1, 32, 32), their classes (n,), their faces (n,) and the objects that they show (n,)."""

    images: NDArray[np.uint8]
    targets: NDArray[np.int64]
    faces: NDArray[np.int64]
    objects: NDArray[np.int64]


@dataclass(frozen=True)
class Built:
    """A finished set: its splits by name, with ``"val_further"`` and ``"test_further"`` if there are any."""

    parts: Mapping[str, Drawn]
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
    parts: dict[str, Drawn] = {}
    for part, name in enumerate(PARTS):
        usable = [of_class[allowed[of_class, part]] for of_class in by_class]
        sizes = counts if part == 0 else held_out
        plan = make_plan(characters, sizes.tolist(), usable, seed=(recipe.seed, part, 0))
        how: Any = {"workers": workers, "progress": progress, "stage": f"{name} images"}
        parts |= _draw(name, plan, [str(face.path) for face in faces], (recipe.seed, part), recipe, how)
    report = {
        "classes": len(characters),
        "images": {name: len(drawn.targets) for name, drawn in parts.items()},
        "drawings": len(traces),
        "dropped drawings": dropped,
        "share drawn as another class": _shares_drawn_alike(traces, parts, characters),
        "faces": _facts(faces, parts),
    }
    return Built(parts, _class_table(characters, counts, groups), report)


def _draw(
    name: str, plan: Plan, paths: Sequence[str], seed: tuple[int, int], recipe: Recipe, how: dict[str, Any]
) -> dict[str, Drawn]:
    """Draw a split, and further photos of what is in it, if it is held out and the recipe wants them."""
    plans = {name: (plan, np.arange(len(plan)))}
    if recipe.photos > 1 and name != "train":
        plans[name + FURTHER] = further_photos(plan, most=recipe.photos, seed=(*seed, 2))
    drawn = {}
    for step, (part, (rows, objects)) in enumerate(plans.items()):
        images = render(rows, paths, seed=(*seed, 1 + 2 * step), **how)
        drawn[part] = Drawn(images[:, None], rows.target, rows.face, objects + (seed[1] << 32))
    return drawn


def _check_classes(characters: Sequence[Any], recipe: Recipe) -> None:
    if len(characters) < 2:
        raise ValueError(
            f"the options leave {len(characters)} classes, at least 2 are needed: raise max_classes "
            f"({recipe.max_classes}) or lower min_faces ({recipe.min_faces})"
        )


def _facts(faces: Sequence[Face], parts: Mapping[str, Drawn]) -> list[dict[str, Any]]:
    """Return where each face comes from, and how many images of each split it drew."""
    return [
        {
            "name": face.name,
            "lineage": face.lineage,
            "license": face.license[:200],
            "checksum": face.checksum,
            "images": {name: int((drawn.faces == i).sum()) for name, drawn in parts.items()},
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
    traces: Traces, parts: Mapping[str, Drawn], characters: Sequence[int]
) -> dict[str, float]:
    """Return the shares of drawings and images that equal another class's in the same face, before jitter."""
    alike = shared_drawings(traces)
    pairs = set(zip(traces.face[alike].tolist(), traces.character[alike].tolist(), strict=True))
    shares = {"drawings": float(alike.mean())}
    for name, drawn in parts.items():
        rows = zip(drawn.faces.tolist(), (characters[i] for i in drawn.targets.tolist()), strict=True)
        shares[name] = sum(row in pairs for row in rows) / len(drawn.targets)
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
