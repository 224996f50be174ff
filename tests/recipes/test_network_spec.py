import pytest
import torch

from shortlist.models.heads import CosineHead
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.recipes.build import build_model, network_spec
from shortlist.recipes.recipe import make_recipe

CNN = {"name": "small_cnn", "num_classes": 5, "input_shape": (2, 16, 16), "options": {"width": 4}}
MODEL = {"model": {"name": "small_cnn", "width": 4}}


def test_a_recipe_says_what_its_network_is_built_from():
    recipe = make_recipe(MODEL | {"loss": "ldam", "head": {"scale": 2.0, "classifier": "head"}})
    spec = network_spec(recipe, 5, (2, 16, 16), scaled_head=True)
    head = {"head": "cosine", "scale": 2.0, "classifier": "head"}  # a cosine, as LDAM needs
    wanted = NetworkSpec(**CNN, **head, scaled_head=True)
    assert spec == wanted
    torch.manual_seed(3)
    built = build_model(recipe, 5, torch.zeros(2, 16, 16))
    assert isinstance(built.head, CosineHead)  # a second stage scales it, not the first
    torch.manual_seed(3)
    again = build_network(NetworkSpec(**CNN, head="cosine", scale=2.0)).state_dict()
    assert built.state_dict().keys() == again.keys()
    assert all(value.equal(again[key]) for key, value in built.state_dict().items())


@pytest.mark.errors
def test_what_cannot_be_built_is_said_with_the_recipes_keys():
    for content, message in [
        ({"model": {"name": "json:loads"}}, "model: json:loads with the options none cannot be made"),
        ({"model": {"name": "json:nothing"}}, "model.name must be package.module:function"),
        ({"model": {"name": "no_such_package:make"}}, "model.name needs no_such_package"),
        (MODEL | {"loss": "ldam", "head": "linear"}, "head.name must be cosine for the loss ldam"),
    ]:
        with pytest.raises(ValueError, match=message):
            build_model(make_recipe(content), 5, torch.zeros(2, 16, 16), allow_code=True)
