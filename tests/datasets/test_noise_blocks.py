"""Label noise in blocks of classes in alphabetical order, as a published implementation has it."""

import pytest
import torch

from shortlist.datasets.noise import alphabetical_blocks
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import make_recipe
from tests.training.small import RECIPE


def test_blocks_follow_the_names_and_not_the_numbers():
    names = ["worm", "apple", "cup", "bee", "rose", "oak", "lion"]
    groups = alphabetical_blocks(names, 3).tolist()
    want = {"apple": 0, "bee": 0, "cup": 0, "lion": 1, "oak": 1, "rose": 1, "worm": 2}
    assert dict(zip(names, groups, strict=True)) == want


def test_a_recipe_redraws_within_blocks():
    clean = build_data(make_recipe(RECIPE)).train.targets
    data = build_data(make_recipe(RECIPE, ["data.label_noise=1", "data.noise_blocks=5"]))
    noisy, names = data.train.targets, data.class_table.names
    place = {name: i // 5 for i, name in enumerate(sorted(names))}
    block = torch.tensor([place[name] for name in names])
    assert torch.equal(block[noisy], block[clean])
    assert 0.6 < float((noisy != clean).double().mean()) < 0.9  # a new label may be the old one
    parents = data.class_table.parent_index("genus")[0]
    assert not torch.equal(parents[noisy], parents[clean])


@pytest.mark.errors
def test_blocks_of_nothing():
    with pytest.raises(ValueError, match="size must be an integer >= 1, got 0"):
        alphabetical_blocks(["a", "b"], 0)
