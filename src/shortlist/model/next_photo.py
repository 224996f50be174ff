"""Which photo to take next: the organ whose photos tell the two best candidates apart."""

from math import comb
from typing import NamedTuple

from torch import Tensor

from shortlist._recent import Recent
from shortlist.predictors import CalibrationRows

ORGAN = "organ"
_LEVEL = 0.05  # how often an organ may be named that helps no more than another
_FEWEST = 5  # objects of each of the two classes
_KEPT = 1024  # pairs that are remembered


class NextPhoto(NamedTuple):
    """A photo that would tell two candidates apart, and how much better than the photos at hand.

    Args:
        organ: What to take a photo of.
        classes: Indices of the two candidates.
        told_apart: Share of the known objects of the two that a photo of the organ puts in the right order.
        told_apart_now: The same share for photos as they are at hand.
        objects: Number of known objects with a photo of the organ.
    """

    organ: str
    classes: tuple[int, int]
    told_apart: float
    told_apart_now: float
    objects: int


class NextPhotos:
    """Finds the next photo from calibration rows whose organs are known.

    Only what was measured is said. An organ is named if its photos confuse the two classes less often than
    the photos at hand: in each class not more often, and together by Fisher's exact test at 5 %, for all
    organs that are tried.

    Args:
        rows: Calibration rows of a model; ``None`` or rows without organs find nothing.
    """

    def __init__(self, rows: CalibrationRows | None) -> None:
        self._rows = rows if rows is not None and ORGAN in rows.facts.groups else None
        self._pairs: Recent[NextPhoto | None] = Recent(_KEPT)

    def find(self, first: int, second: int, organ: str | None) -> NextPhoto | None:
        """Return the next photo for two candidates and the organ at hand, if that is known."""
        if self._rows is None:
            return None
        rows, pair = self._rows, (min(first, second), max(first, second))
        return self._pairs.get((pair, organ), lambda: _find(rows, pair, organ))


class _Confusions(NamedTuple):
    """How many objects of each of two classes there are, and how many are taken for the other one."""

    objects: tuple[int, int]
    wrong: tuple[float, float]

    @property
    def told_apart(self) -> float:
        """Share of objects in the right order, the mean of the two classes."""
        shares = [1 - wrong / number for wrong, number in zip(self.wrong, self.objects, strict=True)]
        return sum(shares) / 2

    def is_better_than(self, other: "_Confusions", level: float) -> bool:
        """Whether the two are confused less often, in no class more often, and not by chance."""
        columns = zip(self.wrong, self.objects, other.wrong, other.objects, strict=True)
        if any(wrong * others > wrong_others * number for wrong, number, wrong_others, others in columns):
            return False
        wrong = round(sum(self.wrong)), round(sum(other.wrong))
        return _chance_of_fewer(*wrong, sum(self.objects), sum(other.objects)) < level


def _find(rows: CalibrationRows, pair: tuple[int, int], organ: str | None) -> NextPhoto | None:
    codes, names = rows.facts.groups[ORGAN]
    of_pair = (rows.target == pair[0]) | (rows.target == pair[1])
    tried = [name for name in names if name and name != organ]
    best = None
    for name in tried:
        has_organ = codes == names.index(name)
        at_hand = codes == names.index(organ) if organ in names else ~has_organ
        photos = _confusions(rows, pair, has_organ & of_pair)
        others = _confusions(rows, pair, at_hand & of_pair)
        if min(photos.objects + others.objects) < _FEWEST:
            continue
        if photos.is_better_than(others, _LEVEL / len(tried)):
            photo_to_ask = NextPhoto(name, pair, photos.told_apart, others.told_apart, sum(photos.objects))
            best = max(best or photo_to_ask, photo_to_ask, key=lambda photo: photo.told_apart)
    return best


def _confusions(rows: CalibrationRows, pair: tuple[int, int], members: Tensor) -> _Confusions:
    """Count confusions in the first photo of each object that is a member."""
    chosen = rows.objects(1, members).squeeze(1)
    log_p, classes = rows.at(chosen)
    first, second = (_column(log_p, classes, index) for index in pair)
    lead = (first - second).sign()  # 0 where both were dropped: half an error
    is_first = rows.target[chosen] == pair[0]
    wrong_first, wrong_second = (1 - lead[is_first]).sum() / 2, (1 + lead[~is_first]).sum() / 2
    return _Confusions(
        (int(is_first.sum()), int((~is_first).sum())), (float(wrong_first), float(wrong_second))
    )


def _column(log_p: Tensor, classes: Tensor | None, index: int) -> Tensor:
    """Return the log-posterior of a class in each row, a very small one where it was dropped."""
    if classes is None:
        return log_p[:, index].float()
    return log_p.float().masked_fill(classes != index, -1e30).amax(1)


def _chance_of_fewer(wrong: int, wrong_others: int, number: int, others: int) -> float:
    """Return the chance of so few of all errors among ``number`` of all objects, by Fisher's exact test."""
    errors, total = wrong + wrong_others, number + others
    fewest = max(0, errors - others)
    ways = sum(comb(errors, k) * comb(total - errors, number - k) for k in range(fewest, wrong + 1))
    return ways / comb(total, number)
