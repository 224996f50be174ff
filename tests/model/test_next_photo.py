"""Which photo to take next, from confusions by organ."""

import pytest
import torch

from shortlist._row_facts import RowFacts
from shortlist.model.next_photo import NextPhotos, _chance_of_fewer
from shortlist.predictors import CalibrationRows

ORGANS = ["leaf", "flower", "bark"]


def _rows(errors, number=20, *, max_bytes=64_000_000, copies=1):
    """Three classes; ``errors[class, organ]`` of ``number`` objects of classes 0 and 1 are confused."""
    scores, target, organs, objects = [], [], [], []
    for (true, organ), wrong in errors.items():
        for index in range(number):
            guess = 1 - true if index < wrong else true
            for _ in range(copies):
                scores.append([2.0 * (guess == 0), 2.0 * (guess == 1), -1.0])
                target.append(true)
                organs.append(ORGANS.index(organ))
                objects.append(len(objects) // copies)
    facts = RowFacts(torch.tensor(objects), {"organ": (torch.tensor(organs), tuple(ORGANS))})
    return CalibrationRows.of_rows(
        torch.tensor(scores), torch.tensor(target), facts=facts, max_bytes=max_bytes
    )


def test_the_organ_that_confuses_least_is_named():
    rows = _rows(
        {(0, "leaf"): 9, (1, "leaf"): 7, (0, "flower"): 1, (1, "flower"): 0, (0, "bark"): 3, (1, "bark"): 3}
    )
    photo = NextPhotos(rows).find(1, 0, "leaf")
    assert photo is not None and photo.organ == "flower" and photo.classes == (0, 1)
    assert photo.told_apart == pytest.approx(39 / 40) and photo.told_apart_now == pytest.approx(24 / 40)
    assert photo.objects == 40
    assert NextPhotos(rows).find(0, 1, "flower") is None  # nothing is better


def test_photos_of_one_object_count_once():
    errors = {(0, "leaf"): 2, (1, "leaf"): 2, (0, "flower"): 0, (1, "flower"): 0}
    assert NextPhotos(_rows(errors, 5)).find(0, 1, "leaf") is None  # 4 of 10 against 0 of 10: p = 0.043
    assert NextPhotos(_rows(errors, 5, copies=8)).find(0, 1, "leaf") is None
    assert (
        NextPhotos(_rows({key: 8 * wrong for key, wrong in errors.items()}, 40)).find(0, 1, "leaf")
        is not None
    )


def test_an_organ_that_only_names_one_class_is_not_advised():
    rows = _rows({(0, "leaf"): 10, (1, "leaf"): 2, (0, "flower"): 0, (1, "flower"): 8})
    assert NextPhotos(rows).find(0, 1, "leaf") is None  # fewer errors in all, more in the second class


def test_nothing_is_said_without_organs_or_rows_of_both():
    errors = {(0, "leaf"): 9, (1, "leaf"): 9, (0, "flower"): 0, (1, "flower"): 0}
    assert NextPhotos(None).find(0, 1, "leaf") is None
    assert NextPhotos(_rows(errors)).find(0, 2, "leaf") is None  # of class 2 there are no rows
    assert NextPhotos(_rows(errors)).find(0, 1, None) is not None  # against all other photos
    assert NextPhotos(_rows(errors)).find(0, 1, "root") is not None  # an organ that no row has: likewise
    bare = _rows(errors)
    assert NextPhotos(CalibrationRows(bare.target, bare.log_p, None, 3)).find(0, 1, "leaf") is None


def test_rows_that_keep_two_classes_of_three_say_the_same():
    errors = {(0, "leaf"): 9, (1, "leaf"): 7, (0, "flower"): 1, (1, "flower"): 0}
    cut = _rows(errors, max_bytes=2 * 80 * 2)
    assert cut.classes is not None
    assert NextPhotos(cut).find(0, 1, "leaf") == NextPhotos(_rows(errors)).find(0, 1, "leaf")


def test_fishers_test_has_the_chances_of_the_lady_who_tasted_tea():
    """Four of eight cups: 1, 16, 36, 16, 1 of 70 ways to find 0 to 4 of them."""
    chances = [_chance_of_fewer(wrong, 4 - wrong, 4, 4) for wrong in range(5)]
    assert chances == pytest.approx([1 / 70, 17 / 70, 53 / 70, 69 / 70, 1.0])


def test_an_organ_is_rarely_named_if_none_helps():
    generator = torch.Generator().manual_seed(0)
    named = 0
    for _ in range(400):
        draws = (
            torch.binomial(torch.full((6,), 20.0), torch.full((6,), 0.3), generator=generator).int().tolist()
        )
        keys = [(true, organ) for true in (0, 1) for organ in ORGANS]
        named += NextPhotos(_rows(dict(zip(keys, draws, strict=True)))).find(0, 1, "leaf") is not None
    assert named <= 27  # 5 % of 400, and one and a half standard errors: the test is far below it
