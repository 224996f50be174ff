import math
from collections import Counter

import pytest
import torch

from shortlist.datasets.longtail import long_tailed_counts, subset_by_counts
from shortlist.datasets.noise import redraw_within_groups
from shortlist.datasets.partition import balanced_split, proportional_split, rank_within_class, share_of


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# sizes 1, 2, 3, 4, 5, 10, 30, 70, 101; in mixed order
SIZES = [1, 2, 3, 4, 5, 10, 30, 70, 101]
TARGETS = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
TARGETS = TARGETS[torch.randperm(len(TARGETS), generator=generator(7))]


def counts(rows: torch.Tensor) -> list[int]:
    found = Counter(TARGETS[rows].tolist())
    return [found[c] for c in range(len(SIZES))]


def test_proportional_split_has_the_sizes_of_the_formula():
    train, val, test = proportional_split(TARGETS, generator=generator())
    # by hand: ceil(n / 10) each, but a class of 1 or 2 cannot give two and keep one
    held = [0, 0, 1, 1, 1, 1, 3, 7, 11]
    assert counts(val) == held
    assert counts(test) == held
    assert counts(train) == [n - 2 * h for n, h in zip(SIZES, held, strict=True)]


def test_proportional_split_is_disjoint_complete_and_seeded():
    parts = proportional_split(TARGETS, generator=generator(1))
    rows = [row for part in parts for row in part.tolist()]
    assert sorted(rows) == list(range(len(TARGETS)))
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    again = proportional_split(TARGETS, generator=generator(1))
    other = proportional_split(TARGETS, generator=generator(2))
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not torch.equal(parts[1], other[1])


def test_share_is_exact_where_binary_arithmetic_is_not():
    assert math.ceil(0.07 * 100) == 8  # what must not happen
    assert [share_of(0.07, n) for n in (1, 100, 101, 200)] == [1, 7, 8, 14]


def test_every_row_is_held_out_equally_often():
    targets = torch.tensor([0] * 10)
    held = Counter()
    for seed in range(2000):
        _, val = proportional_split(targets, fraction=0.2, parts=1, generator=generator(seed))
        held.update(val.tolist())
    for row in range(10):
        assert abs(held[row] - 400) < 5 * math.sqrt(2000 * 0.2 * 0.8)


def test_balanced_split_takes_equally_many_of_each_class():
    targets = torch.arange(1000) % 10
    train, val = balanced_split(targets, val_size=103, generator=generator())
    assert targets[val].bincount().tolist() == [11, 11, 11, 10, 10, 10, 10, 10, 10, 10]
    assert sorted(train.tolist() + val.tolist()) == list(range(1000))
    train, val = balanced_split(targets, val_size=0)
    assert len(train) == 1000
    assert len(val) == 0


def test_rank_within_class_of_many_classes():
    targets = torch.arange(50_000).repeat(2)
    rank = rank_within_class(targets, generator=generator())
    assert targets[rank == 0].bincount().tolist() == [1] * 50_000
    assert set(rank.tolist()) == {0, 1}


@pytest.mark.errors
def test_bad_splits_are_named():
    with pytest.raises(
        ValueError, match="val_size must leave a training row of each class, got 4: 2 of the 2"
    ):
        balanced_split(torch.tensor([0, 0, 1, 1]), val_size=4)
    with pytest.raises(ValueError, match=r"fraction must be < 1, got 1\.0"):
        proportional_split(TARGETS, fraction=1.0)
    with pytest.raises(ValueError, match="targets must be >= 0, got -1"):
        rank_within_class(torch.tensor([0, -1]))
    with pytest.raises(ValueError, match="targets must be int64"):
        rank_within_class(torch.tensor([0.0]))


def test_long_tailed_counts_are_the_published_ones(golden):
    cases = [case for case in golden("longtail").cases if case["kind"] == "cifar_lt_counts"]
    assert len(cases) == 4
    for case in cases:
        p = case["params"]
        found = long_tailed_counts(
            p["n_classes"], n_max=p["img_max"], rho=1 / p["imb_factor"], profile=p["profile"]
        )
        assert found.tolist() == case["counts"]
        assert int(found.sum()) == case["total"]


def test_subset_has_the_counts_and_every_row_a_chance():
    targets = torch.arange(60) % 3
    wanted = torch.tensor([20, 7, 0])
    seen = set()
    for seed in range(40):
        rows = subset_by_counts(targets, wanted, generator=generator(seed))
        assert targets[rows].bincount(minlength=3).tolist() == [20, 7, 0]
        assert len(set(rows.tolist())) == 27
        seen.update(rows.tolist())
    assert seen == {row for row in range(60) if row % 3 < 2}


@pytest.mark.errors
def test_bad_long_tails_are_named():
    with pytest.raises(ValueError, match=r"rho must be >= 1, got 0\.01"):
        long_tailed_counts(10, n_max=100, rho=0.01)
    with pytest.raises(ValueError, match="profile must be one of exp, step, got 'linear'"):
        long_tailed_counts(10, n_max=100, profile="linear")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(2 for class 1\), got 3"):
        subset_by_counts(torch.tensor([0, 1, 1]), torch.tensor([1, 3]))
    with pytest.raises(ValueError, match=r"one entry per class \(3\), got 2"):
        subset_by_counts(torch.tensor([0, 1, 2]), torch.tensor([1, 1]))


# superclasses of different sizes, not in order
GROUPS = torch.tensor([2, 0, 1, 2, 0, 2, 2])


@pytest.mark.parametrize("p", [0.0, 0.1, 0.4, 1.0])
def test_noise_stays_in_the_superclass_and_has_its_rate(p):
    n = 30_000
    clean = torch.randint(7, (n,), generator=generator(3))
    before = clean.clone()
    noisy = redraw_within_groups(clean, GROUPS, probability=p, generator=generator(4))
    assert torch.equal(clean, before)
    assert torch.equal(GROUPS[noisy], GROUPS[clean])
    sizes = {0: 2, 1: 1, 2: 4}
    for c in range(7):
        rows = clean == c
        m, total = sizes[int(GROUPS[c])], int(rows.sum())
        for other in range(7):
            share = p / m if GROUPS[other] == GROUPS[c] else 0.0
            share += (1 - p) if other == c else 0.0
            count = int((noisy[rows] == other).sum())
            assert abs(count - total * share) <= 5 * math.sqrt(total * share * (1 - share)) + 1e-6


@pytest.mark.errors
def test_bad_noise_is_named():
    with pytest.raises(ValueError, match=r"probability must be <= 1, got 1\.5"):
        redraw_within_groups(torch.tensor([0]), GROUPS, probability=1.5)
    with pytest.raises(ValueError, match=r"targets must be in \[0, 7\), got 7"):
        redraw_within_groups(torch.tensor([0, 7]), GROUPS, probability=0.5)
    with pytest.raises(ValueError, match="groups must be int64"):
        redraw_within_groups(torch.tensor([0]), torch.tensor([0.0]), probability=0.5)
