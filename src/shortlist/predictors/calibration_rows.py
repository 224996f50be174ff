"""Calibration rows that a model keeps: from them sets of any coverage, size and population can be made."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import check_priors, check_scores, check_target
from shortlist._row_facts import RowFacts, photo_order
from shortlist.predictors._activation import check_finite
from shortlist.predictors._chunks import chunk_rows
from shortlist.predictors._size_bounds import first_classes

MAX_ROWS = 20_000  # calibration rows that are kept, about; more hardly change a threshold
MAX_BYTES = 64_000_000  # of the posteriors of all rows
_SEED = 20_000  # of the choice of rows, which must not depend on their values
_LOWEST = -1e30  # above -inf, which is for what is chosen already
_SHOWN = 5  # look-alikes of a class


class Kept(NamedTuple):
    """Log-posteriors of some rows as they are kept: all, or those of some classes.

    Attributes:
        log_p: Log-posteriors (n, m), half precision.
        classes: Their classes (n, m), in order; ``None`` if all c are kept, in order.
    """

    log_p: Tensor
    classes: Tensor | None


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """What a model keeps of its calibration rows, so that a request can choose what its promise is about.

    Posteriors are kept in half precision, of all classes as long as that takes 64 MB. Beyond, each row keeps
    its best classes by the posterior and by the posterior over the prior, half each. Whatever is kept, new
    rows are treated in the same way (:meth:`kept`), so that promises stay exact and only sizes suffer.

    Of more than 20,000 rows about so many are drawn by a fixed seed, whole observations together. Rows of an
    observation follow each other in the order of a keyed hash, whose first m are its m photos.

    Args:
        target: True classes (n,).
        log_p: Log-posteriors (n, m), as a rule in half precision; see :class:`Kept`.
        classes: Classes (n, m) of ``log_p``; ``None`` if all are kept.
        num_classes: Number c of classes.
        priors: Class priors (c,) that the posteriors contain; ``None`` if they are not known.
        frequencies: Class frequencies (c,) of photos; the priors if ``None``.
        facts: Which rows are photos of one object, and columns that rows can be chosen by, such as ``organ``.
            Rows of an object have one number and follow each other.
    """

    target: Int[Tensor, " n"]
    log_p: Float[Tensor, "n m"]
    classes: Int[Tensor, "n m"] | None
    num_classes: int
    priors: Float[Tensor, " c"] | None = None
    frequencies: Float[Tensor, " c"] | None = None
    facts: RowFacts = field(default_factory=RowFacts)

    @staticmethod
    def of_rows(
        scores: Float[Tensor, "n c"],
        target: Int[Tensor, " n"],
        *,
        priors: Tensor | None = None,
        frequencies: Tensor | None = None,
        facts: RowFacts | None = None,
        max_bytes: int = MAX_BYTES,
        dtype: torch.dtype = torch.half,
    ) -> "CalibrationRows":
        """Keep what is needed of calibration rows.

        Args:
            scores: Mapped scores (n, c) of rows that the model was not trained on.
            target: True classes (n,), int64; -100 leaves a row out.
            priors: Class priors (c,) that the scores contain.
            frequencies: Class frequencies (c,) of photos, if they are not the priors.
            facts: Which rows are photos of one object, and groups of rows, if the data say so.
            max_bytes: Most bytes for the posteriors.
            dtype: Precision of the posteriors.

        Raises:
            ValueError: If no row is left, or something does not fit.
        """
        check_scores(scores, name="scores")
        check_target(target, scores, ignore_index=-100)
        if facts is not None and len(facts) != len(scores):
            raise ValueError(f"facts must have one entry per row ({len(scores)}), got {len(facts)}")
        if priors is not None:
            check_priors("priors", priors, num_classes=scores.shape[1])
        counted = (target != -100).nonzero().squeeze(1).cpu()
        if not len(counted):
            raise ValueError("calibration rows must be at least 1 that is not left out, got 0")
        objects = None if facts is None else _numbered(facts.objects, target)
        order = _drawn(counted, None if facts is None else facts.objects, objects)
        groups = {} if facts is None else facts.groups
        priors = None if priors is None else priors.double().cpu()
        width = _width(len(order), scores.shape[1], max_bytes)
        parts = []
        for rows in order.split(chunk_rows(scores.shape[1])):
            check_finite(scores[rows])
            parts.append(_kept(scores[rows], width, dtype, priors))
        classes = [part.classes for part in parts if part.classes is not None]
        return CalibrationRows(
            target[order].cpu(),
            torch.cat([part.log_p for part in parts]),
            torch.cat(classes) if classes else None,
            scores.shape[1],
            priors=priors,
            frequencies=None if frequencies is None else frequencies.double().cpu(),
            facts=RowFacts(objects, groups).take(order),
        )

    def __len__(self) -> int:
        return len(self.target)

    @property
    def width(self) -> int:
        """Number of classes whose posterior is kept of each row."""
        return self.log_p.shape[1]

    def kept(self, scores: Float[Tensor, "n c"]) -> Kept:
        """Do to new rows what was done to the kept ones: round, and drop all but the best classes."""
        if scores.shape[1] != self.num_classes:
            raise ValueError(f"scores must have {self.num_classes} classes, got {scores.shape[1]}")
        return _kept(scores, self.width, self.log_p.dtype, self.priors)

    def at(self, rows: Tensor) -> Kept:
        """Return kept rows, by number."""
        classes = None if self.classes is None else self.classes[rows]
        return Kept(self.log_p[rows], None if classes is None else classes.long())

    def members(self, column: str, value: str) -> Tensor:
        """Return which rows (n,) have a value in a column.

        Raises:
            ValueError: If there is no such column or value; the message names those that there are.
        """
        groups = self.facts.groups
        if column not in groups:
            columns = ", ".join(groups) or "none"
            raise ValueError(f"group must be of a column of the calibration rows ({columns}), got {column!r}")
        codes, names = groups[column]
        if value not in names:
            raise ValueError(f"group must be one of {', '.join(names) or 'none'} ({column}), got {value!r}")
        return codes == names.index(value)

    def objects(self, photos: int = 1, members: Tensor | None = None) -> Int[Tensor, "k photos"]:
        """Return the rows of each object with at least so many photos: those of its first ones.

        Args:
            photos: Number of photos of an object.
            members: Which rows (n,) count, all by default.
        """
        rows = torch.arange(len(self)) if members is None else members.nonzero().squeeze(1)
        if self.facts.observation is None:
            return rows[:, None] if photos == 1 else rows.new_empty(0, photos)
        _, counts = self.facts.observation[rows].unique_consecutive(return_counts=True)
        starts = counts.cumsum(0) - counts
        return rows[starts[counts >= photos, None] + torch.arange(photos)]

    def confused_with(self, index: int) -> list[tuple[int, float]]:
        """Return the classes that get most of the probability of a class's rows, and how much, most first."""
        rows = (self.target == index).nonzero().squeeze(1)
        if not len(rows):
            return []
        log_p, classes = self.at(rows)
        total = torch.zeros(self.num_classes, dtype=torch.float64)
        where = torch.arange(self.num_classes).expand_as(log_p) if classes is None else classes
        total.index_add_(0, where.reshape(-1), log_p.double().exp().reshape(-1))
        total[index] = -1.0
        best = (total / len(rows)).topk(min(_SHOWN, self.num_classes - 1))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [(other, share) for other, share in pairs if share > 0]

    def to_tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors, for a file."""
        names = ("target", "log_p", "classes", "priors", "frequencies")
        parts = {name: getattr(self, name) for name in names}
        facts, groups = self.facts.to_tensors()
        about = json.dumps({"num_classes": self.num_classes, "groups": groups}, ensure_ascii=False)
        text = torch.frombuffer(bytearray(about.encode()), dtype=torch.uint8)
        return {**{name: part for name, part in parts.items() if part is not None}, **facts, "about": text}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> "CalibrationRows":
        """Restore what :meth:`to_tensors` returned.

        Raises:
            ValueError: If parts are missing or do not go together.
        """
        if not {"target", "log_p", "about"} <= tensors.keys():
            raise ValueError(f"calibration rows must have target, log_p and about, got {', '.join(tensors)}")
        about = json.loads(bytes(tensors["about"].tolist()))
        facts = RowFacts.from_tensors(tensors, about["groups"]) or RowFacts()
        optional = {name: tensors.get(name) for name in ("classes", "priors", "frequencies")}
        rows = CalibrationRows(
            tensors["target"], tensors["log_p"], num_classes=about["num_classes"], facts=facts, **optional
        )
        rows._check()
        return rows

    def _check(self) -> None:
        """Require parts of one length, with classes and log-posteriors that can be."""
        columns = [self.log_p, *(codes for codes, _ in self.facts.groups.values())]
        columns += [part for part in (self.classes, self.facts.observation) if part is not None]
        wide = self.log_p.ndim == 2 and (self.classes is not None or self.width == self.num_classes)
        if not wide or not len(self) or any(len(part) != len(self) for part in columns):
            raise ValueError("calibration rows must have columns of one length")
        indices = [self.target] if self.classes is None else [self.target, self.classes]
        if any(int(part.min()) < 0 or int(part.max()) >= self.num_classes for part in indices):
            raise ValueError(f"calibration rows must have classes from 0 to {self.num_classes - 1}")
        best = self.log_p.max()
        if not best <= 0:
            raise ValueError(f"calibration rows must have log-posteriors <= 0, got {float(best)}")


def _width(rows: int, num_classes: int, max_bytes: int) -> int:
    """Return of how many classes the posterior is kept."""
    if 2 * rows * num_classes <= max_bytes:
        return num_classes
    entry = 2 + _class_type(num_classes).itemsize
    return max(2, min(num_classes - 1, max_bytes // (entry * rows)))


def _class_type(num_classes: int) -> torch.dtype:
    return torch.int16 if num_classes <= 2**15 else torch.int32


def _kept(scores: Tensor, width: int, dtype: torch.dtype, priors: Tensor | None) -> Kept:
    """Return the log-posteriors of the best classes, rounded."""
    scores = scores.detach().cpu()
    log_p = (scores if scores.dtype == torch.float64 else scores.float()).log_softmax(1).to(dtype)
    return Kept(log_p, None) if width == scores.shape[1] else _best(log_p, width, priors)


def _best(log_p: Tensor, width: int, priors: Tensor | None) -> Kept:
    """Keep the best classes of each row (n, c): half by the posterior, the others by it over the priors.

    Which of equal ones are kept follows from the row alone: those that come first.
    """
    values = log_p.double() if log_p.dtype == torch.float64 else log_p.float()
    chosen = first_classes(values, width if priors is None else width - width // 2)
    if priors is not None:
        over = (values - priors.log().to(values)).clamp_min(_LOWEST).masked_fill(chosen, -torch.inf)
        chosen |= first_classes(over, width // 2)
    classes = chosen.nonzero()[:, 1].view(len(log_p), width)
    return Kept(log_p.gather(1, classes), classes.to(_class_type(log_p.shape[1])))


def _numbered(observations: Tensor | None, target: Tensor) -> Tensor | None:
    """Return a number for each object (n,), if objects are known: rows of one observation and one class."""
    if observations is None:
        return None
    return torch.stack([observations, target.cpu()]).unique(dim=1, return_inverse=True)[1]


def _drawn(counted: Tensor, observations: Tensor | None, objects: Tensor | None) -> Tensor:
    """Return the numbers of the rows that are kept, those of an object together in the order of its photos.

    As many objects are drawn as have about ``MAX_ROWS`` rows: their number does not depend on which.
    """
    generator = torch.Generator().manual_seed(_SEED)
    if observations is None or objects is None:
        return counted[torch.randperm(len(counted), generator=generator)][:MAX_ROWS].sort().values
    rows = counted[photo_order(observations[counted])]
    numbers, of_row = objects[rows].unique(return_inverse=True)
    drawn = torch.zeros(len(numbers), dtype=torch.bool)
    wanted = min(len(numbers), max(1, len(numbers) * MAX_ROWS // len(counted)))
    drawn[torch.randperm(len(numbers), generator=generator)[:wanted]] = True
    rows, of_row = rows[drawn[of_row]], of_row[drawn[of_row]]
    return rows[of_row.argsort(stable=True)]
