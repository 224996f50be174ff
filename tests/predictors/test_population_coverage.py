"""Coverage of populations by simulation, on Gaussian classes with a known posterior.

Two models: the exact posterior of a photo, and one with another spread that is too sure. Test objects have
the same number of each class, so that a draw gives the coverage of every population without a second draw.
"""

import math
from collections import defaultdict
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest
import torch

from shortlist._row_facts import RowFacts
from shortlist.predictors.calibration_rows import CalibrationRows
from shortlist.predictors.population import Population

CLASSES, DIM, PHOTOS = 20, 4, 3
OBJECTS, OF_EACH = 3000, 60
LEVEL = 0.9
CENTERS = 1.3 * torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(7))
INDEX = torch.arange(CLASSES).double()
PRIORS = 1 / (INDEX + 1)
PRIORS /= PRIORS.sum()
VIEWS, NOISE, OWN = ("leaf", "flower"), torch.tensor([0.9, 0.5]), 0.7
OTHER = torch.where(INDEX % 3 == 0, INDEX + 1, 0.0)


def shares(weights: torch.Tensor) -> torch.Tensor:
    return weights.double() / weights.sum()


# what counts, and how frequent the classes are
PLACES = {
    "all": (None, None),
    "macro": (shares(torch.ones(CLASSES)), None),
    "frequent": 2 * (shares(INDEX < 8),),
    "rare": 2 * (shares(INDEX >= 12),),
    "other": 2 * (shares(OTHER),),
    "macro other": (shares(OTHER > 0), shares(OTHER)),
}
MODELS = ("exact", "overconfident")
DRAWS = 120


class Draw(NamedTuple):
    """Of one draw: the coverage, how far it may be above the level, and the mass of the sets less it."""

    coverage: float
    slack: float
    excess: float


def objects(target: torch.Tensor, model: str, generator: torch.Generator):
    """Draw objects of three photos, each a leaf or a flower; flowers are easier."""
    number = len(target)
    own = CENTERS[target] + OWN * torch.randn(number, DIM, generator=generator)
    view = torch.randint(2, (number, PHOTOS), generator=generator)
    noise = NOISE[view][:, :, None] * torch.randn(number, PHOTOS, DIM, generator=generator)
    distance = ((own[:, None] + noise)[:, :, None] - CENTERS).square().sum(3).double()
    if model == "exact":
        variance = (OWN**2 + NOISE.double().square())[view][:, :, None]
        return PRIORS.log() - distance / (2 * variance), view
    return 1.5 * (PRIORS.log() - distance / (2 * 1.1)), view


@cache
def drawn(seed: int, cut: bool, model: str):
    """Draw calibration rows, and the scores, classes and views of test objects."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.multinomial(PRIORS, OBJECTS, replacement=True, generator=generator)
    scores, view = objects(target, model, generator)
    kept = torch.rand(OBJECTS, PHOTOS, generator=generator) < torch.tensor([1.0, 0.8, 0.7])  # 1 to 3 photos
    observation = torch.arange(OBJECTS)[:, None].expand(OBJECTS, PHOTOS)
    rows = CalibrationRows.of_rows(
        scores[kept].float(),
        target[:, None].expand(OBJECTS, PHOTOS)[kept],
        priors=PRIORS,
        facts=RowFacts(observation[kept], {"view": (view[kept].int(), VIEWS)}),
        max_bytes=int(kept.sum()) * 4 * 8 if cut else 10**9,
    )
    assert (rows.width < CLASSES) == cut
    new = torch.arange(CLASSES).repeat_interleave(OF_EACH)
    return rows, *objects(new, model, generator), new


def of_group(scores, view, new, photos, group):
    """Return the first photos of test objects that have so many of the group, and their classes."""
    if group is None:
        return scores[:, :photos].reshape(-1, CLASSES).float(), new
    is_view = view == VIEWS.index(group)
    order = is_view.int().argsort(dim=1, descending=True, stable=True)
    enough = is_view.sum(1) >= photos
    scores = scores.gather(1, order[:, :, None].expand_as(scores))[enough]
    return scores[:, :photos].reshape(-1, CLASSES).float(), new[enough]


def one_draw(seed: int, place: str, photos: int, group: str | None, cut: bool, model: str) -> Draw:
    rows, scores, view, new = drawn(seed, cut, model)
    importance, frequency = PLACES[place]
    members = None if group is None else rows.members("view", group)
    numbers = rows.objects(photos, members)
    population = Population(rows, numbers, importance=importance, frequency=frequency)
    chosen, target = of_group(scores, view, new, photos, group)
    values = population.values(chosen)
    sets = torch.from_numpy(population.sets_of_coverage(values, LEVEL))
    counts = rows.target[numbers[:, 0]].long().bincount(minlength=CLASSES)
    # the promise of weighted rows does not extend to classes without any
    weights = PRIORS if importance is None else shares(importance * (counts > 0))
    weights = weights[target] / target.bincount(minlength=CLASSES)[target]
    hits = sets.gather(1, target[:, None]).squeeze(1).double()
    mass = (torch.from_numpy(values.fit).double() * sets).sum(1)
    coverage = float((hits * weights).sum())
    thresholds = torch.from_numpy(population.thresholds(LEVEL))[torch.from_numpy(population._possible)]
    if importance is None:
        slack = 1 / (len(numbers) + 1)
    else:
        counted = shares(importance * (counts > 0))
        slack = 3 * float((counted / counts.clamp_min(1)).max())
    if bool((thresholds >= 1).any()):  # all dropped classes are equal there, so that all or none are in
        slack = math.inf
    return Draw(coverage, slack, float((mass * weights).sum()) - coverage)


def is_above(values: list[float], bound: float) -> bool:
    """Whether a mean over draws is at least a bound, but for 4 standard errors: many are looked at."""
    found = torch.tensor(values, dtype=torch.float64)
    return float(found.mean()) >= bound - 4 * float(found.std()) / math.sqrt(len(found))


def check_band(draws: list[Draw], combination) -> bool:
    """Check the level, and how far a rank or weighted rows can be above it; return whether both were."""
    assert is_above([draw.coverage for draw in draws], LEVEL), combination
    if any(draw.slack == math.inf for draw in draws):
        return False
    assert is_above([draw.slack - draw.coverage for draw in draws], -LEVEL), combination
    return True


@pytest.mark.slow
def test_coverage_is_in_its_band():
    """More may be covered only where a threshold reaches 1, the score of dropped classes."""
    found = defaultdict(list)
    for seed, cut, model in product(range(DRAWS), (False, True), MODELS):
        for place, photos, group in product(PLACES, (1, 2, 3), (None, *VIEWS)):
            combination = place, photos, group, cut, model
            found[combination].append(one_draw(seed, *combination))
        drawn.cache_clear()
    assert len(found) == 216
    both = [combination for combination, draws in found.items() if check_band(draws, combination)]
    # a threshold of 1: three photos of one view, which few objects have, or rows that are cut
    others = [(photos, group, cut) for _, photos, group, cut, _ in found.keys() - both]
    assert all(cut or (photos == 3 and group is not None) for photos, group, cut in others)
    assert len(both) >= 175
    for (_, photos, _, cut, model), draws in found.items():
        if (photos, cut, model) == (1, False, "exact"):  # the posterior at a place is the known one
            excess = [draw.excess for draw in draws]
            assert is_above(excess, 0.0) and is_above([-share for share in excess], 0.0)


SOME = [
    ("all", 3, None, False, "exact"),
    ("macro", 1, "leaf", True, "overconfident"),
    ("frequent", 2, None, False, "overconfident"),
    ("rare", 1, None, True, "exact"),
    ("other", 2, "flower", False, "exact"),
    ("macro other", 3, None, True, "overconfident"),
]


@pytest.mark.parametrize("combination", SOME, ids=str)
def test_coverage_of_some_combinations(combination):
    assert check_band([one_draw(seed, *combination) for seed in range(12)], combination)
