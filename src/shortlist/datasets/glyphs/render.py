"""Draw characters with jitter: size, place, rotation, blur, contrast and noise, all from one seed."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from shortlist._progress import Progress
from shortlist.datasets.glyphs.trace import BASELINE, SIDE, SIZES, load_font

MOST_SHIFT = 2.0  # pixels
MOST_ROTATION = 6.0  # degrees
MOST_BLUR = 1.0  # share of a 3 x 3 mean in the image
BACKGROUND = (0.0, 70.0)
INK = (120.0, 255.0)
MOST_NOISE = 25.0  # standard deviation, of 255
MARGIN = 8  # pixels drawn around an image, for rotation and shifts to bring in
CHUNK = 1024  # images that share a stream of noise; part of what a seed means


@dataclass(frozen=True)
class Plan:
    """The plan of what to draw, one row per image.

    Args:
        target: Class of each image (n,).
        character: Code point of each image (n,).
        face: Face of each image (n,).
        size: Pixels per em (n,).
        motion: Shift right, shift down (pixels) and rotation (degrees) (n, 3).
        light: Background, ink, blur and noise (n, 4).
    """

    target: NDArray[np.int64]
    character: NDArray[np.int64]
    face: NDArray[np.int64]
    size: NDArray[np.int64]
    motion: NDArray[np.float64]
    light: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.target)

    def select(self, rows: NDArray) -> "Plan":
        """Return some of the rows."""
        return Plan(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def make_plan(
    characters: Sequence[int],
    sizes: Sequence[int],
    faces: Sequence[Sequence[int] | NDArray],
    *,
    seed: Sequence[int],
) -> Plan:
    """Plan ``sizes`` images for each class, which go through its faces in turn, in mixed order.

    Args:
        characters: Code point of each class.
        sizes: Number of images of each class.
        faces: Faces to draw each class with.
        seed: Numbers that seed the random stream.
    """
    rng = np.random.default_rng(list(seed))
    chosen = []
    for size, of_class in zip(sizes, faces, strict=True):
        rounds = [rng.permutation(np.asarray(of_class)) for _ in range(-(-size // len(of_class)))]
        chosen.append(np.concatenate(rounds)[:size])
    target = np.repeat(np.arange(len(characters)), sizes)
    n = len(target)
    order = rng.permutation(n)
    size = rng.choice(np.array(SIZES), n)
    motion, light = _jitter(n, rng)
    target, face = target[order], np.concatenate(chosen)[order].astype(np.int64)
    return Plan(target, np.asarray(characters, np.int64)[target], face, size, motion, light)


def _jitter(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw motion (n, 3) and light (n, 4) of images."""
    motion = rng.uniform(-1, 1, (n, 3)) * (MOST_SHIFT, MOST_SHIFT, MOST_ROTATION)
    low, high = zip(BACKGROUND, INK, (0.0, MOST_BLUR), (0.0, MOST_NOISE), strict=True)
    return motion, rng.uniform(low, high, (n, 4))


def further_photos(plan: Plan, *, most: int, seed: Sequence[int]) -> tuple[Plan, NDArray[np.int64]]:
    """Plan further images of each row: the same face and size, moved and lit anew.

    Args:
        plan: The first image of each object.
        most: Largest number of images of an object, the first one among them; 1, 2, ... are equally frequent.
        seed: Numbers that seed the random stream.

    Returns:
        The plan, and the row (m,) that each image is a further one of.
    """
    rng = np.random.default_rng(list(seed))
    rows = np.repeat(np.arange(len(plan)), rng.integers(0, most, len(plan)))
    motion, light = _jitter(len(rows), rng)
    return replace(plan.select(rows), motion=motion, light=light), rows


def render(
    plan: Plan,
    paths: Sequence[str],
    *,
    seed: Sequence[int],
    workers: int = 1,
    progress: Progress | None = None,
    stage: str = "images",
) -> NDArray[np.uint8]:
    """Draw a plan (n, 32, 32). The result does not depend on the number of workers."""
    order = np.argsort(plan.face, kind="stable")  # few fonts at a time
    chunks = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]
    tasks = [(plan.select(rows), paths, [*seed, i]) for i, rows in enumerate(chunks)]
    images = np.empty((len(plan), SIDE, SIDE), np.uint8)
    for rows, drawn in zip(
        chunks, map_tasks(_render_chunk, tasks, workers=workers, progress=progress, stage=stage), strict=True
    ):
        images[rows] = drawn
    return images


def map_tasks(
    function: Callable, tasks: Sequence[tuple], *, workers: int, progress: Progress | None, stage: str
) -> list:
    """Compute ``[function(*task) for task in tasks]``, in several processes if ``workers`` > 1."""
    results = []
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn")) if workers > 1 else None
    try:
        # fork would copy the threads' locks
        coming = pool.map(function, *zip(*tasks, strict=True), chunksize=4) if pool else None
        for i, task in enumerate(tasks):
            results.append(next(coming) if coming else function(*task))
            if progress:
                progress(stage, i + 1, len(tasks))
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)
    return results


def _render_chunk(plan: Plan, paths: Sequence[str], seed: Sequence[int]) -> NDArray[np.uint8]:
    ink = np.empty((len(plan), SIDE, SIDE), np.float32)
    for i in range(len(plan)):
        font = load_font(paths[plan.face[i]], int(plan.size[i]))
        ink[i] = _draw_moved(font, chr(plan.character[i]), *plan.motion[i].tolist())
    ink /= 255
    background, full, blur, noise = plan.light.astype(np.float32).T[:, :, None, None]
    ink += blur * (_mean_of_3_by_3(ink) - ink)
    ink = background + (full - background) * ink
    rng = np.random.default_rng(list(seed))
    ink += noise * rng.standard_normal(ink.shape, np.float32)
    return np.clip(np.rint(ink), 0, 255).astype(np.uint8)


def _draw_moved(font, text: str, right: float, down: float, degrees: float) -> NDArray[np.uint8]:
    from PIL import Image, ImageDraw

    side = SIDE + 2 * MARGIN
    canvas = Image.new("L", (side, side))
    ImageDraw.Draw(canvas).text((side // 2, BASELINE + MARGIN), text, fill=255, font=font, anchor="ms")
    # for each pixel of the image, the place on the canvas: turned around the middle, then moved
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = -SIDE / 2 - right, -SIDE / 2 - down
    matrix = (cos, sin, cos * x + sin * y + side / 2, -sin, cos, -sin * x + cos * y + side / 2)
    moved = canvas.transform((SIDE, SIDE), Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)
    return np.asarray(moved)


def _mean_of_3_by_3(images: NDArray[np.float32]) -> NDArray[np.float32]:
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    rows = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    total = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
    return (total / np.float32(9)).astype(np.float32, copy=False)
