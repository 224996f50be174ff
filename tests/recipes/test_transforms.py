import numpy as np
import pytest
import torch
from PIL import Image

from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import RecipeError, make_recipe
from shortlist.recipes.transforms import TRANSFORMS, RandomCrop
from tests.datasets import trees


def ramp(width: int, height: int) -> Image.Image:
    """Red grows to the right and green downwards, by one gray level a pixel."""
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    return Image.fromarray(np.stack([across, down, 0 * down], 2).astype(np.uint8))


def places(crop: torch.Tensor) -> tuple[float, float, float, float]:
    """Left, right, top, bottom of a crop of the ramp, by the centers of its outer pixels."""
    levels = crop * 255
    return levels[0, 0, 0].item(), levels[0, 0, -1].item(), levels[1, 0, 0].item(), levels[1, -1, 0].item()


def test_random_crop_cuts_squares_of_one_scale_anywhere():
    transform = RandomCrop(28, resize=32, mean=(0, 0, 0), std=(1, 1, 1))
    image = ramp(100, 64)  # its shorter side becomes 32: a crop is 56 wide and high in its own pixels
    found = torch.tensor([places(transform(image)) for _ in range(300)])
    left, right, top, bottom = found.T
    assert torch.allclose(right - left, torch.tensor(54.0), atol=1.1)  # 27 steps of 2 pixels
    assert torch.allclose(bottom - top, torch.tensor(54.0), atol=1.1)
    assert left.min() < 3 and right.max() > 96 and top.min() < 2 and bottom.max() > 61
    assert (left - 22).mean().abs() < 3 and (top - 4.5).mean().abs() < 1  # 0 to 44, 0 to 8: half of it


def test_random_crop_mirrors_half_of_the_time_if_asked():
    never = [places(RandomCrop(28)(ramp(64, 64))) for _ in range(50)]
    assert all(left < right for left, right, _, _ in never)
    transform = RandomCrop(28, flip=True)
    flipped = sum(left > right for left, right, _, _ in (places(transform(ramp(64, 64))) for _ in range(200)))
    assert 70 <= flipped <= 130


def test_random_crop_of_the_whole_is_the_image():
    image = ramp(40, 40)
    crop = RandomCrop(40, resize=40, mean=(0, 0, 0), std=(1, 1, 1))(image)
    assert (crop * 255).round().byte().permute(1, 2, 0).numpy().tolist() == np.asarray(image).tolist()


@pytest.mark.errors
def test_random_crop_checks_its_sizes():
    with pytest.raises(ValueError, match=r"resize must be >= size \(64\), got 32"):
        RandomCrop(64, resize=32)


def test_transforms_of_a_recipe_reach_the_images(tmp_path):
    trees.class_folders(tmp_path, {"a": 3, "b": 3})
    recipe = make_recipe(
        {
            "data": {
                "name": "image_folder",
                "root": str(tmp_path),
                "train_transform": {"name": "random_crop", "size": 12, "flip": True},
                "eval_transform": {"name": "center_crop", "size": 10, "resize": 10},
            }
        }
    )
    data = build_data(recipe)
    assert data.train[0][0].shape == (3, 12, 12) and data.val[0][0].shape == data.test[0][0].shape == (
        3,
        10,
        10,
    )
    assert make_recipe(recipe.model_dump(mode="json")) == recipe


def test_the_test_part_can_stand_in_for_validation(tmp_path):
    trees.cifar10(tmp_path, per_class=20)
    section = {"name": "cifar10_lt", "root": str(tmp_path)}
    with pytest.raises(ValueError, match="data must have validation rows, got none"):
        build_data(make_recipe({"data": section}))
    nothing_chosen = {"selection": {"metric": "last"}}
    data = build_data(make_recipe({"data": section | {"val_is_test": True}, **nothing_chosen}))
    assert data.val is data.test and len(data.test) == 200


@pytest.mark.errors
@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"name": "crop"}, rf"must be one of {', '.join(TRANSFORMS)}, got 'crop'"),
        ({"name": "random_crop", "sise": 3}, "options of random_crop must be among size, .*, got 'sise'"),
    ],
)
def test_unknown_transforms_are_named(transform, message):
    with pytest.raises(RecipeError, match=rf"data.train_transform.*{message}"):
        make_recipe({"data": {"name": "plantnet300k", "root": "x", "train_transform": transform}})


@pytest.mark.errors
def test_transforms_are_for_image_files(tmp_path):
    section = {"name": "cifar10", "root": str(tmp_path), "eval_transform": {"name": "center_crop"}}
    with pytest.raises(ValueError, match=r"data.eval_transform must be left out for cifar10"):
        build_data(make_recipe({"data": section}))
