"""The table of classes refuses counts that are none."""

import math

import numpy as np
import pytest
import torch

from shortlist.class_table import ClassTable


@pytest.mark.errors
@pytest.mark.parametrize(
    "counts", [(3, 4), (3.0, 4.0), torch.tensor([3, 4]), torch.tensor([3.0, 4.0]), np.array([3, 4])]
)
def test_counts_of_any_kind(counts):
    assert ClassTable(names=("oak", "beech"), counts=counts).counts == (3, 4)
    assert ClassTable(names=("oak", "beech")).with_counts(counts).counts == (3, 4)


@pytest.mark.errors
@pytest.mark.parametrize("wrong", [1.7, math.nan, math.inf])
def test_counts_that_are_not_whole(wrong):
    for counts in ((2, wrong), torch.tensor([2, wrong])):
        with pytest.raises(ValueError, match="counts must be whole numbers, got"):
            ClassTable(names=("oak", "beech"), counts=counts)
        with pytest.raises(ValueError, match="counts must be whole numbers, got"):
            ClassTable(names=("oak", "beech")).with_counts(counts)


@pytest.mark.errors
def test_a_bad_table_in_a_file_is_named(tmp_path):
    path = tmp_path / "classes.json"
    ClassTable(names=("oak", "beech")).save(path)
    path.write_text(path.read_text().replace("beech", "oak"))
    with pytest.raises(ValueError, match=r"classes.json is not a class table.*must all be different"):
        ClassTable.load(path)
