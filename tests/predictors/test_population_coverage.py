"""Coverage of populations by simulation, on Gaussian classes and with an overconfident model."""

import math
from itertools import product

import pytest
import torch

from shortlist._row_facts import RowFacts
from shortlist.predictors.calibration_rows import CalibrationRows
from shortlist.predictors.population import Population

CLASSES, DIM, PHOTOS = 20, 4, 3
LEVEL = 0.9
CENTERS = 1.3 * torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(7))
PRIORS = 1 / torch.arange(1, CLASSES + 1).double()
PRIORS /= PRIORS.sum()
VIEWS = ("leaf", "flower")
PLACES = {
    "all": None,
    "even": torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64),
    "frequent": (torch.arange(CLASSES) < 8).double() / 8,
    "rare": (torch.arange(CLASSES) >= 12).double() / 8,
    "other": torch.where(torch.arange(CLASSES) % 3 == 0, torch.arange(CLASSES) + 1.0, 0.0).double(),
}


def objects(number: int, frequency: torch.Tensor, generator: torch.Generator):
    """Draw objects of up to three photos, each a leaf or a flower; flowers are easier."""
    target = torch.multinomial(frequency, number, replacement=True, generator=generator)
    own = CENTERS[target] + 0.7 * torch.randn(number, DIM, generator=generator)
    view = torch.randint(2, (number, PHOTOS), generator=generator)
    noise = torch.where(view == 1, 0.5, 0.9)[:, :, None] * torch.randn(
        number, PHOTOS, DIM, generator=generator
    )
    x = own[:, None] + noise
    distance = (x[:, :, None] - CENTERS).square().sum(3)
    scores = 1.5 * (PRIORS.log() - distance / (2 * 1.1))  # with another spread, and too sure
    return scores, target, view


def calibration_rows(number: int, generator: torch.Generator, max_bytes: int) -> CalibrationRows:
    scores, target, view = objects(number, PRIORS, generator)
    kept = torch.rand(number, PHOTOS, generator=generator) < torch.tensor([1.0, 0.8, 0.7])  # 1 to 3 photos
    observation = torch.arange(number)[:, None].expand(number, PHOTOS)
    facts = RowFacts(observation[kept], {"view": (view[kept].int(), VIEWS)})
    labels = target[:, None].expand(number, PHOTOS)[kept]
    return CalibrationRows.of_rows(
        scores[kept].float(), labels, priors=PRIORS, facts=facts, max_bytes=max_bytes
    )


def one_draw(seed: int, place: str, photos: int, group: str | None, cut: bool) -> tuple[int, int]:
    """Return hits and objects of one new draw of calibration and test objects."""
    generator = torch.Generator().manual_seed(seed)
    rows = calibration_rows(2000, generator, max_bytes=5000 * 4 * 8 if cut else 10**9)
    assert (rows.width < CLASSES) == cut
    weights = None if PLACES[place] is None else PLACES[place] / PLACES[place].sum()
    members = None if group is None else rows.members("view", group)
    population = Population(rows, rows.objects(photos, members), importance=weights, frequency=weights)
    scores, target, view = objects(1500, PRIORS if weights is None else weights, generator)
    if group is not None:  # objects with so many photos of the group, the first of them
        is_view = view == VIEWS.index(group)
        order = is_view.int().argsort(dim=1, descending=True, stable=True)
        enough = is_view.sum(1) >= photos
        scores = scores.gather(1, order[:, :, None].expand_as(scores))[enough]
        target = target[enough]
    chosen = scores[:, :photos].reshape(-1, CLASSES).float()
    sets = torch.from_numpy(population.sets_of_coverage(population.values(chosen), LEVEL))
    counted = torch.ones(CLASSES, dtype=torch.bool)  # the promise does not extend to classes without rows
    if weights is not None:
        counted = (
            torch.zeros(CLASSES).index_add_(
                0, rows.target[population._objects[:, 0]].long(), torch.ones(population.size)
            )
            > 0
        )
    own = counted[target]
    return int(sets.gather(1, target[:, None]).squeeze(1)[own].sum()), int(own.sum())


COMBINATIONS = list(product(PLACES, (1, 2, 3), (None, *VIEWS), (False, True)))


@pytest.mark.parametrize(("place", "photos", "group", "cut"), COMBINATIONS)
@pytest.mark.slow
def test_coverage_is_in_its_band(place, photos, group, cut):
    """The mean over draws is at least the promise, and not far above where rows are many."""
    draws = [one_draw(seed, place, photos, group, cut) for seed in range(25)]
    shares = torch.tensor([hits / number for hits, number in draws], dtype=torch.float64)
    error = float(shares.std()) / math.sqrt(len(shares))
    assert float(shares.mean()) >= LEVEL - 3 * error
    if place == "all" and group is None and not cut:
        assert float(shares.mean()) <= LEVEL + 0.01 + 3 * error


@pytest.mark.parametrize(
    ("place", "photos", "group", "cut"), [COMBINATIONS[3], COMBINATIONS[40], COMBINATIONS[-1]]
)
def test_coverage_of_some_combinations(place, photos, group, cut):
    draws = [one_draw(seed, place, photos, group, cut) for seed in range(12)]
    shares = torch.tensor([hits / number for hits, number in draws], dtype=torch.float64)
    assert float(shares.mean()) >= LEVEL - 3 * float(shares.std()) / math.sqrt(len(shares))
