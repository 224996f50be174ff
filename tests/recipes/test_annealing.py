"""Options of the loss that change over the epochs, and distributions over k by class, from a recipe."""

import pytest
import torch

from shortlist.class_table import ClassTable
from shortlist.losses import distribution_by_class, ranked_topk_loss
from shortlist.recipes.annealing import annealed_options
from shortlist.recipes.build import build_data, build_loss
from shortlist.recipes.recipe import Recipe, make_recipe
from shortlist.training.fit import resume, train
from shortlist.training.module import SetClassifier
from tests.training.small import RECIPE, same_numbers
from tests.training.test_epochs import stopped_after


def at_epochs(recipe: Recipe, option: str) -> list[float]:
    return [annealed_options(recipe, epoch, recipe.epochs)[option] for epoch in range(recipe.epochs)]


def test_numbers_by_epoch():
    change = ["loss.noise_std=0.8", "epochs=4"]
    recipe = make_recipe(RECIPE, [*change, "anneal.noise_std.end=0.1"])
    assert at_epochs(recipe, "noise_std") == pytest.approx([0.8, 0.4, 0.2, 0.1])
    linear = make_recipe(RECIPE, [*change, "anneal.noise_std.end=0.2", "anneal.noise_std.curve=linear"])
    assert at_epochs(linear, "noise_std") == pytest.approx([0.8, 0.6, 0.4, 0.2])
    short = make_recipe(RECIPE, [*change, "anneal.noise_std.end=0.2", "anneal.noise_std.over=2"])
    assert at_epochs(short, "noise_std") == pytest.approx([0.8, 0.2, 0.2, 0.2])
    steep = make_recipe(RECIPE | {"loss": "ranked_topk"}, ["anneal.steepness.end=100", "epochs=3"])
    assert at_epochs(steep, "steepness") == pytest.approx([1, 10, 100])
    neuralsort = {"name": "ranked_topk", "method": "neuralsort"}
    steep = make_recipe(RECIPE | {"loss": neuralsort}, ["anneal.steepness.end=30", "epochs=3"])
    assert at_epochs(steep, "steepness") == pytest.approx([0.3, 3, 30])


def test_a_training_and_its_resumption_use_them(tmp_path, monkeypatch):
    seen = []
    step = SetClassifier.training_step

    def watched(self, batch, index):
        seen.append(round(self.loss.noise_std, 6))
        return step(self, batch, index)

    monkeypatch.setattr(SetClassifier, "training_step", watched)
    overrides = ["loss.noise_std=0.8", "epochs=3", "anneal.noise_std.end=0.2"]
    whole = train(make_recipe(RECIPE, overrides), tmp_path / "whole")
    assert list(dict.fromkeys(seen)) == [0.8, 0.4, 0.2]
    parted = stopped_after(1, tmp_path / "parted", overrides)
    seen.clear()
    resume(parted.path)
    assert list(dict.fromkeys(seen)) == [0.4, 0.2]
    same_numbers(whole, parted)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["anneal.margin.end=1"], "anneal must be of noise_std, steepness, temperature, got 'margin'"),
        (["anneal.steepness.end=1"], "anneal.steepness needs a loss with steepness > 0 .* got noised_topk"),
        (["loss.noise_std=0", "anneal.noise_std.end=1"], "anneal.noise_std needs a loss .* noise_std 0"),
        (["anneal.noise_std.end=0"], "anneal.noise_std.end"),
        (
            ["anneal.noise_std.end=1", "second_stage.name=retrain_classifier"],
            "anneal must be left out with a second_stage",
        ),
    ],
)
def test_bad_annealing(overrides, message):
    with pytest.raises(ValueError, match=message):
        make_recipe(RECIPE, overrides)


TABLE = ClassTable(["oak", "elm", "fir"], counts=[200, 50, 3], parents={"kind": ["broad", "broad", "needle"]})


def test_distributions_by_class_level_and_frequency():
    default, first = [0.0, 0.0, 1.0], [1.0]
    by_class = distribution_by_class(TABLE, {"elm": first}, default=default)
    assert by_class.tolist() == [default, [1, 0, 0], default]
    by_kind = distribution_by_class(TABLE, {"broad": first}, default=default, level="kind")
    assert by_kind.tolist() == [[1, 0, 0], [1, 0, 0], default]
    by_count = distribution_by_class(
        TABLE, {"few": first, "many": [0.5, 0.5]}, default=default, level="frequency"
    )
    assert by_count.tolist() == [[0.5, 0.5, 0], default, [1, 0, 0]]


def test_a_recipe_gives_each_genus_its_distribution():
    section = {"level": "genus", "default": [0.0, 0.0, 1.0]}
    data = build_data(make_recipe(RECIPE))
    number, genera = data.class_table.parent_index("genus")
    loss = {"name": "ranked_topk", "distribution": {**section, "named": {genera[1]: [1.0]}}}
    recipe = make_recipe(RECIPE | {"loss": loss})
    made = build_loss(make_recipe(recipe.model_dump()), data)  # also as it is saved with the run
    table = torch.zeros(len(number), 3)
    table[:, 2] = 1.0
    table[number == 1] = torch.tensor([1.0, 0.0, 0.0])
    scores, target = torch.randn(30, len(number)), torch.randint(len(number), (30,))
    want = ranked_topk_loss(scores, target, distribution=table, per="class")
    torch.testing.assert_close(made(scores, target), want)


@pytest.mark.errors
def test_bad_distributions():
    with pytest.raises(
        ValueError, match=r"distribution must name .* level kind \(broad, needle\), got 'moss'"
    ):
        distribution_by_class(TABLE, {"moss": [1.0]}, default=[1.0], level="kind")
    with pytest.raises(ValueError, match=r"level must be one of the table's \(kind\), got 'genus'"):
        distribution_by_class(TABLE, {}, default=[1.0], level="genus")
    with pytest.raises(ValueError, match=r"loss\.distribution"):
        make_recipe(RECIPE | {"loss": {"name": "ranked_topk", "distribution": {"level": "genus"}}})
