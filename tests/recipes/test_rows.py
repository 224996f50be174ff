"""Data that nothing can be trained on is refused before the training."""

import numpy as np
import pytest
import torch

from shortlist.datasets.embeddings import save_embeddings
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import make_recipe
from shortlist.training.fit import train
from tests.datasets import trees
from tests.training.small import silent

pytestmark = pytest.mark.errors


def folder_recipe(root, counts):
    trees.class_folders(root, counts)
    return make_recipe({"data": {"name": "image_folder", "root": str(root), "image_size": 16}}, [])


def embeddings_recipe(root):
    return make_recipe({"data": {"name": "embeddings", "root": str(root)}, "model": {"name": "linear"}}, [])


@pytest.mark.filterwarnings("ignore:.* classes have no image in the")
@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"ash": 1, "oak": 1}, "data must have validation rows, got none"),
        ({"ash": 9}, r"data must have at least 2 classes, got 1 \(ash\)"),
    ],
)
def test_too_few_rows_or_classes(tmp_path, counts, message):
    recipe = folder_recipe(tmp_path / "data", counts)
    with pytest.raises(ValueError, match=message):
        train(recipe, tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_embeddings_that_are_no_numbers(tmp_path, odd):
    inputs = torch.randn(20, 4)
    inputs[3, 1] = odd
    save_embeddings(tmp_path / "train.safetensors", inputs, torch.arange(20) % 2)
    with pytest.raises(ValueError, match="'embeddings' must be finite numbers, got NaN or infinity in row 3"):
        train(embeddings_recipe(tmp_path), tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()


def test_labels_that_are_text(tmp_path):
    np.savez(tmp_path / "train.npz", embeddings=np.zeros((4, 2)), targets=np.array(["ash", "oak"] * 2))
    with pytest.raises(ValueError, match="the array 'targets' holds text: number the classes from 0"):
        build_data(embeddings_recipe(tmp_path))


def test_a_class_without_validation_rows_is_named_and_left_out_of_macro_metrics(tmp_path):
    target = torch.cat([torch.arange(40) % 2, torch.tensor([2])])  # the last class has one row, to train on
    save_embeddings(tmp_path / "train.safetensors", torch.randn(41, 4), target)
    recipe = make_recipe(embeddings_recipe(tmp_path).model_dump(), ["epochs=1", "loggers=[]"])
    with pytest.warns(UserWarning) as caught:  # others too: of so few rows no promise can be kept
        results = train(recipe, tmp_path / "run", progress=silent).results
    said = " ".join(str(warning.message) for warning in caught)
    assert "1 of 3 classes have no image in the val split (2)" in said
    assert results.absent_classes == 1 and results.class_rows[2] == 0
