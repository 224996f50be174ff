"""Photos that are too blurred or too small, by bounds that keep a promised share of good photos."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shortlist._checks import check_number
from shortlist.curation.parts import hash_place, name_of_photo
from shortlist.inputs import Row
from shortlist.preprocessing import decoded, refuse_special_files

if TYPE_CHECKING:
    from PIL import Image

IsStrange = Callable[[Sequence[str]], Sequence[bool]]
"""Says of photos, by their paths, which are like nothing that a model knows."""
KEEP_GOOD = 0.99
"""Share of good photos that a model's own bounds keep."""
_SIDE = 256  # pixels of the longer side at which sharpness is measured
_MOST_MEASURED = 1000  # photos by which bounds are chosen


class Quality(NamedTuple):
    """How sharp and how large a photo is; zeros if it cannot be read.

    Args:
        sharpness: Variance of the Laplacian of its gray levels, at a longer side of 256 pixels.
        side: Its shorter side in pixels.
    """

    sharpness: float
    side: float


def quality_of(path: str | Path) -> Quality:
    """Measure a photo."""
    from PIL import Image

    try:
        refuse_special_files(path)
        with Image.open(path) as opened:
            return opened_quality(opened)
    except Exception:  # decoders fail in many ways on broken files
        return Quality(0.0, 0.0)


def opened_quality(opened: "Image.Image") -> Quality:
    """Measure a photo that was opened, which is decoded here; a large JPEG at a part of its size."""
    side = min(opened.size)
    image, box = decoded(opened, _SIDE)
    scale = _SIDE / max(image.size)
    size = [max(3, round(length * scale)) for length in image.size]
    gray = np.asarray(image.convert("L").resize((size[0], size[1]), box=box), dtype=np.float64)
    around = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:]
    return Quality(float((around - 4 * gray[1:-1, 1:-1]).var()), float(side))


@dataclass(frozen=True)
class QualityBounds:
    """The least sharpness and side of a photo that is not flagged; see :meth:`calibrate`."""

    sharpness: float
    side: float

    @classmethod
    def calibrate(cls, good: Iterable[Quality], *, keep: float) -> "QualityBounds":
        r"""Choose bounds that flag a good photo with a probability of at most ``1 - keep``.

        Each of the two bounds is the k-th smallest value of n good photos, with :math:`k = \lfloor (n + 1)
        (1 - keep) / 2 \rfloor`: a further good photo is below it with a probability of at most
        :math:`k / (n + 1)`. With fewer than :math:`2 / (1 - keep) - 1` photos nothing is flagged.

        Args:
            good: Photos that are known to be good.
            keep: Promised share of good photos that are not flagged, in (0, 1).
        """
        check_number("keep", keep, above=0.0, below=1.0)
        values = np.asarray(list(good), dtype=np.float64).reshape(-1, 2)
        rank = math.floor((len(values) + 1) * (1 - keep) / 2 + 1e-9)
        bounds = np.sort(values, axis=0)[rank - 1] if rank else (0.0, 0.0)
        return cls(float(bounds[0]), float(bounds[1]))

    def flags(self, quality: Quality) -> list[str]:
        """Return what is wrong with a photo: ``blurred``, ``small``; empty if nothing is."""
        wrong = {"blurred": quality.sharpness < self.sharpness, "small": quality.side < self.side}
        return [flag for flag, holds in wrong.items() if holds]


def quality_bounds(about: Mapping[str, Any]) -> QualityBounds | None:
    """Return the bounds of a model by what it says about itself; ``None`` if it has none."""
    try:
        bounds = about["quality"]
        return QualityBounds(float(bounds["sharpness"]), float(bounds["side"]))
    except (KeyError, TypeError, ValueError):
        return None


def bounds_of(good: Iterable[str], *, keep: float) -> QualityBounds:
    """Choose bounds by good photos: at most 1000 of them, drawn by a hash of their paths."""
    drawn = sorted(good, key=lambda path: hash_place(path, seed=0, what="quality"))[:_MOST_MEASURED]
    return QualityBounds.calibrate(map(quality_of, drawn), keep=keep)


def flagged_observations(rows: Iterable[Row], bounds: QualityBounds, left_out: Counter[str]) -> set[str]:
    """Return the observations with a photo that is blurred or small, and count them."""
    flagged = {row.observation for row in rows if bounds.flags(quality_of(row.path))}
    left_out["observations with a blurred or small photo, which wait"] += len(flagged)
    return flagged


def repeated_observations(rows: Iterable[Row], left_out: Counter[str]) -> set[str]:
    """Return the observations with the photo of an earlier one, to the byte, and count them.

    If they say different things of the photo, the earlier one is among them: nobody knows which is right.
    """
    by_photo: dict[str, list[Row]] = {}
    for row in rows:
        by_photo.setdefault(name_of_photo(row.path), []).append(row)
    repeated: set[str] = set()
    for same in by_photo.values():
        kept = {same[0].observation} if len({row.class_label for row in same}) == 1 else set()
        several = {row.observation for row in same}
        repeated |= several - kept if len(several) > 1 else set()
    left_out["observations with a photo of another one, which wait"] += len(repeated)
    return repeated


def strange_observations(
    rows: Sequence[Row], is_strange: IsStrange | None, left_out: Counter[str]
) -> set[str]:
    """Return the observations with a photo that is like nothing known, and count them."""
    if is_strange is None or not rows:
        return set()
    strange = is_strange([row.path for row in rows])
    flagged = {row.observation for row, is_flagged in zip(rows, strange, strict=True) if is_flagged}
    left_out["observations with a photo like nothing known, which wait"] += len(flagged)
    return flagged
