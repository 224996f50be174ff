"""What a recipe refuses, and in which words."""

import math

import pytest
import torch
import yaml

from shortlist.datasets import DATASETS
from shortlist.datasets.preparation import preprocessing_of
from shortlist.preprocessing import read_image
from shortlist.recipes.build import build_data, build_model
from shortlist.recipes.recipe import RecipeError, load_recipe, load_variant, make_recipe, save_recipe
from tests.datasets import trees
from tests.training.small import RECIPE

OF_FILES = ["plantnet300k", "imagenet", "imagenet_lt", "inaturalist2018", "image_folder", "image_list"]


@pytest.mark.errors
@pytest.mark.parametrize("name", OF_FILES)
def test_misspelt_image_options_are_errors_with_the_nearest_name(name):
    needed = {"path" if name == "image_list" else "root": "somewhere"}
    for wrong, right in {"image_sise": "image_size", "on_eror": "on_error", "verfy": "verify"}.items():
        with pytest.raises(RecipeError, match=rf"data.{wrong}: unknown key; did you mean '{right}'"):
            make_recipe({"data": {"name": name, **needed, wrong: 1}})
    with pytest.raises(RecipeError, match=r"data.image_size: .*integer"):
        make_recipe({"data": {"name": name, **needed, "image_size": "big"}})
    for inner in ("where", "parts", "class_table"):  # of the function that puts the parts together
        with pytest.raises(RecipeError, match=rf"data.{inner}: unknown key"):
            make_recipe({"data": {"name": name, **needed, inner: "x"}})
    right = make_recipe({"data": {"name": name, **needed, "image_size": 64, "on_error": "raise"}})
    assert right.data.options == {**needed, "image_size": 64, "on_error": "raise"}


def test_no_data_set_takes_anything():
    for name in DATASETS:
        with pytest.raises(RecipeError, match=r"data.no_such_option: unknown key"):
            make_recipe({"data": {"name": name, "no_such_option": 1}})


@pytest.mark.errors
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"loss": 5}, "loss: must be a name, or a mapping with a name and options, got 5"),
        ({"loss": {"name": ["focal"]}}, "loss.name must be one of"),
        ({"data": {"name": "cifar100"}}, "data.root: required"),
        ({"adjust": {"tau": math.nan}}, "adjust.tau"),
        ({"adjust": {"weight_normalization": math.inf}}, "adjust.weight_normalization.*finite number"),
        ({"optimizer": {"lr": math.inf}}, "optimizer.lr: Input should be a finite number"),
        ({"seed": 10**15}, "seed: Input should be less than 2147483648"),
        ({"epochs": True}, "epochs: must not be yes or no, got True"),
        ({"data": {"label_noise": True}}, "data.label_noise: must not be yes or no, got True"),
        ({"loss": {"name": "noised_topk", "k": True}}, "loss.k: must not be yes or no, got True"),
        ({"adjust": {"tau": False}}, "adjust.tau.*must not be yes or no, got False"),
        ({"predictors": {"a": {"name": "topk", "k": True}}}, "predictors.a.k: must not be yes or no"),
        ({"loss": {"label_smoothing": 5}}, "loss.label_smoothing: Input should be less than or equal to 1"),
        ({"loss": "role", "optimizer": "adam"}, "must be sgd without clip_norm for the loss role.* got adam"),
        ({"loss": "role", "optimizer": {"clip_norm": 1}}, "got sgd with clip_norm 1"),
        ({"validate_every": 0}, "validate_every: Input should be greater than or equal to 1, got 0"),
        ({"schedule": {"milestones": [20]}}, r"they are \[20\], the name is cosine"),
        ({"schedule": {"name": "milestones"}}, "they are none, the name is milestones"),
        ({"selection": {"metric": "top0"}}, "selection.metric"),
        ({"selection": {"metric": "last", "patience": 3}}, "patience must be left out .* got 3"),
        (
            {"loggers": ["tensorbord"]},
            "loggers must be csv, tensorboard, mlflow, wandb or .* got 'tensorbord'",
        ),
        ({"predictors": {"a/b": {"name": "topk", "k": 2}}}, "predictors.a/b"),
        ({"loss": "role", "reweighting": {"after": 1}}, "the loss role takes no class weights"),
        (
            {"loss": {"name": "focal", "class_balanced": 0.9}, "reweighting": {"after": 1}},
            "the loss focal has class_balanced weights from the start",
        ),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_an_error(content, message):
    with pytest.raises(RecipeError, match=message):
        make_recipe(content)


def test_a_name_alone_is_short_for_a_section_and_bits_may_be_a_number():
    recipe = make_recipe({"data": "glyphs", "loss": "focal", "schedule": "constant", "precision": 64})
    assert (recipe.loss.name, recipe.schedule.name, recipe.precision) == ("focal", "constant", "64")
    assert make_recipe({"loss": "noised_topk"}, ["loss.k=3", "precision=32"]).loss.k == 3


def test_options_have_the_types_that_are_asked_for(tmp_path):
    """YAML reads 1e-1 as text."""
    (tmp_path / "recipe.yaml").write_text("model: {name: mlp, dropout_rate: 1e-1}\n")
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert recipe.model.options == {"dropout_rate": 0.1}
    sample = build_data(make_recipe(RECIPE)).train[0][0]
    model = build_model(make_recipe(RECIPE, ["model.dropout_rate=1e-1"]), 12, sample)
    assert [part.p for part in model.layers if hasattr(part, "p")] == [0.1]
    save_recipe(recipe, tmp_path / "saved.yaml")
    assert load_recipe(tmp_path / "saved.yaml") == recipe


def test_variants_come_before_overrides(tmp_path):
    (tmp_path / "a b.yaml").write_text(yaml.safe_dump(RECIPE))
    variants = {"a b": {"focal": ["loss=focal", "epochs=7"]}, "other": {"x": []}}
    (tmp_path / "variants.yaml").write_text(yaml.safe_dump(variants))
    path = tmp_path / "a b.yaml"
    recipe = load_recipe(path, ["epochs=2", "loss.gamma=3"], variant="focal")
    assert (recipe.loss.name, recipe.loss.gamma, recipe.epochs) == ("focal", 3, 2)
    assert load_variant(path, "focal") == ["loss=focal", "epochs=7"]


@pytest.mark.errors
def test_variants_that_are_not_there(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("epochs: 3\n")
    with pytest.raises(RecipeError, match=r"--variant needs .*variants.yaml, which is missing"):
        load_recipe(path, variant="x")
    file = tmp_path / "variants.yaml"
    for content, message in {
        "other: {a: []}": "has no variants of recipe",
        "recipe: {smooth: [], focal: []}": "must be one of smooth, focal, got 'focall'; did you mean 'focal'",
        "recipe: {focall: epochs=3}": "recipe.focall must be a list of KEY=VALUE, got 'epochs=3'",
        "recipe: {focall: [epochs=x]}": "epochs: Input should be a valid integer",
        "[": "variants.yaml is not YAML",
        "- a": "variants.yaml must hold a mapping",
    }.items():
        file.write_text(content)
        with pytest.raises(RecipeError, match=message):
            load_recipe(path, variant="focall")


@pytest.mark.parametrize(
    "options",
    [{}, {"image_size": 48}, {"eval_transform": {"name": "center_crop", "size": 40, "resize": 44}}],
    ids=str,
)
def test_images_are_prepared_without_the_data_as_with_it(options, tmp_path):
    root = tmp_path / "images"
    trees.class_folders(root, {"a": 12, "b": 12})
    recipe = make_recipe({"data": {"name": "image_folder", "root": str(root), **options}})
    test = build_data(recipe).test
    prepare = preprocessing_of(test)
    for row in range(len(test)):
        assert torch.equal(prepare(read_image(test.paths[row])), test[row][0])
    assert preprocessing_of(build_data(make_recipe(RECIPE)).test) is None


def test_no_loss_is_built_to_read_a_recipe(monkeypatch):
    from shortlist.recipes.loss_use import NOT_FROM_A_RECIPE, TRAINABLE_LOSSES, needs_of

    def refuse(module, *args, **kwargs):
        raise AssertionError(f"a {type(module).__name__} was built")

    monkeypatch.setattr(torch.nn.Module, "__init__", refuse)
    for name in TRAINABLE_LOSSES:
        if needs_of(name) & NOT_FROM_A_RECIPE.keys():
            continue
        recipe = {"loss": {"name": name}}
        if name == "role":
            recipe["optimizer"] = {"name": "sgd"}
        if "label_sets" in needs_of(name):
            recipe |= {"labels": "several", "data": "several_glyphs"}
        assert make_recipe(recipe).loss.name == name
