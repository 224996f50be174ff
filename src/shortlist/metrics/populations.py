"""Coverage and size of lists by number of photos, by group and at a place, each with its own threshold."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._row_facts import RowFacts, photo_order
from shortlist.coverage_law import clopper_pearson
from shortlist.metrics.results import Estimate, ListNumbers, PopulationNumbers, PopulationResults
from shortlist.metrics.rows import block_rows
from shortlist.metrics.shares import effective_rows
from shortlist.predictors import CalibrationRows, Population

MOST_PHOTOS = 10
"""Largest number of photos of an object that is measured."""


def photos_of_objects(
    objects: Int[Tensor, " n"],
    photos: int,
    members: Bool[Tensor, " n"] | None = None,
    *,
    order: Int[Tensor, " n"] | None = None,
) -> Int[Tensor, "k photos"]:
    """Return the rows of so many photos of each object that has them: the first by a hash of its number.

    Args:
        objects: Number of the object of each row (n,).
        photos: Number of photos.
        members: Which rows count; all by default.
        order: What ``photo_order`` gives for the objects, if it is there already.

    Example:
        >>> photos_of_objects(torch.tensor([7, 7, 3, 7, 3]), 3).sort().values
        tensor([[0, 1, 3]])
    """
    order = photo_order(objects) if order is None else order
    order = order if members is None else order[members[order]]
    _, counts = objects[order].unique_consecutive(return_counts=True)
    starts = counts.cumsum(0) - counts
    return order[starts[counts >= photos, None] + torch.arange(photos)]


def measure_populations(
    rows: CalibrationRows,
    scores: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    facts: RowFacts | None = None,
    coverage: float = 0.9,
) -> PopulationResults:
    """Measure lists of a coverage by number of photos and by group, on objects that did not calibrate.

    Each line has lists with a threshold of its own, and lists with the common one: that of single photos of
    all groups. Objects are independent, so that intervals are exact; of each object as many photos count as
    the line says, and one in lines of groups.

    Args:
        rows: Calibration rows of the model.
        scores: Mapped scores (n, c) of test rows.
        target: Their classes (n,), each in [0, c).
        facts: Which rows are photos of one object, and groups of rows; each row is an object if ``None``.
        coverage: Promised coverage of the lists.
    """
    facts = RowFacts() if facts is None else facts
    objects = _objects(facts, len(target))
    order = photo_order(objects)
    measured: Any = {"scores": scores, "target": target, "coverage": coverage}
    by_photos = {}
    for photos in range(1, MOST_PHOTOS + 1 if facts.observation is not None else 2):
        chosen = photos_of_objects(objects, photos, order=order)
        if not len(chosen):
            break
        by_photos[str(photos)] = _beside(rows, rows.objects(photos), chosen, **measured)
    by_group: dict[str, dict[str, PopulationNumbers]] = {}
    for column, (codes, names) in facts.groups.items():
        calibrated = rows.facts.groups[column][1] if column in rows.facts.groups else ()
        for code, value in enumerate(names):
            chosen = photos_of_objects(objects, 1, codes == code, order=order)
            if not len(chosen):
                continue
            like = rows.objects(1, rows.members(column, value)) if value in calibrated else chosen[:0]
            by_group.setdefault(column, {})[value] = _beside(rows, like, chosen, **measured)
    return PopulationResults(coverage, by_photos if len(by_photos) > 1 else {}, by_group)


def measure_place(
    rows: CalibrationRows,
    scores: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    weights: Float[Tensor, " c"],
    *,
    facts: RowFacts | None = None,
    coverage: float = 0.9,
) -> PopulationNumbers:
    """Measure lists of a coverage at a place: with its own thresholds, and those of all rows, cut to it.

    Test rows count as often as their classes occur there: those of class y weigh :math:`v_y / n_y`.

    Args:
        rows: Calibration rows of the model.
        scores: Mapped scores (n, c) of test rows.
        target: Their classes (n,).
        weights: How often the classes occur at the place (c,), which add up to 1.
        facts: Which rows are photos of one object; each row is an object if ``None``.
        coverage: Promised coverage of the lists.

    Raises:
        ValueError: If no test row, or no calibration row, is of a class of the place.
    """
    objects = _objects(RowFacts() if facts is None else facts, len(target))
    chosen = photos_of_objects(objects, 1, weights[target] > 0)
    if not len(chosen):
        raise ValueError("test rows must have a class of the place, got none")
    there = Population(rows, rows.objects(), importance=weights, frequency=weights)
    measured: Any = {"scores": scores, "target": target, "coverage": coverage, "place": weights}
    common = _numbers(Population(rows, rows.objects()), chosen, **measured)
    lists = _numbers(there, chosen, **measured) if there.is_enough(coverage) else None
    return PopulationNumbers(len(chosen), there.size, lists, common)


def _objects(facts: RowFacts, rows: int) -> Tensor:
    """Return the number of the object of each row (n,)."""
    return torch.arange(rows) if facts.objects is None else facts.objects


def _beside(rows: CalibrationRows, calibration: Tensor, chosen: Tensor, **measured: Any) -> PopulationNumbers:
    """Measure lists with the thresholds of some calibration objects, and with those of single photos."""
    common = _numbers(Population(rows, rows.objects(), photos=chosen.shape[1]), chosen, **measured)
    like = Population(rows, calibration) if len(calibration) else None
    enough = like is not None and like.is_enough(measured["coverage"])
    lists = _numbers(like, chosen, **measured) if like is not None and enough else None
    return PopulationNumbers(len(chosen), len(calibration), lists, common)


def _numbers(
    population: Population,
    chosen: Tensor,
    *,
    scores: Tensor,
    target: Tensor,
    coverage: float,
    place: Tensor | None = None,
) -> ListNumbers:
    """Measure the lists of objects, whose photos are rows (k, photos)."""
    hits, sizes = [], []
    for some in chosen.split(max(1, block_rows(scores.shape[1]) // chosen.shape[1])):
        values = population.values(scores[some.reshape(-1)])
        sets = torch.from_numpy(population.sets_of_coverage(values, coverage))
        sets = sets if place is None else sets & (place > 0)
        hits.append(sets.gather(1, target[some[:, :1]]).squeeze(1).double())
        sizes.append(sets.sum(1).double())
    hit, size = torch.cat(hits), torch.cat(sizes)
    if place is None:
        share, number = float(hit.mean()), float(len(hit))
        return ListNumbers(Estimate(share, *clopper_pearson(float(hit.sum()), number)), float(size.mean()))
    return lists_at_place(hit, size, target[chosen[:, 0]], place)


def lists_at_place(
    hit: Float[Tensor, " n"], size: Float[Tensor, " n"], labels: Int[Tensor, " n"], place: Float[Tensor, " c"]
) -> ListNumbers:
    """Measure lists of objects at a place.

    Args:
        hit: Whether the list of each object has its class.
        size: Number of classes in it.
        labels: Class of each object, which occurs there.
        place: How often the classes occur there (c,), which add up to 1.
    """
    counts = labels.bincount(minlength=len(place))
    weights = place[labels] / counts[labels]
    share = min(1.0, float((hit * weights).sum() / weights.sum()))
    number = effective_rows(counts.tolist(), place.tolist())
    mean = float((size * weights).sum() / weights.sum())
    return ListNumbers(Estimate(share, *clopper_pearson(share * number, number)), mean)
