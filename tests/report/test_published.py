import math
from pathlib import Path

import pytest

from shortlist.losses import LOSSES
from shortlist.recipes.content import flatten
from shortlist.recipes.recipe import load_recipe, make_recipe
from shortlist.report.published import find_published, load_published

RECIPES = Path(__file__).parents[2] / "recipes"
CIFAR = {"name": "cifar100", "root": "."}


def found(*, data=CIFAR, **sections) -> dict[str, dict[str, float]]:
    """Percentages by experiment and metric."""
    recipe = make_recipe({"data": data, **sections}).model_dump(mode="json")
    values: dict[str, dict[str, float]] = {}
    for value in find_published(recipe):
        values.setdefault(value.experiment.name, {})[value.metric] = round(100 * value.value, 2)
    return values


def table(name: str) -> dict[str, tuple[float, ...]]:
    experiment = next(e for e in load_published() if e.name == name)
    return {row.method: row.values for row in experiment.rows}


def test_every_row_is_complete_and_plausible():
    experiments = load_published()
    assert len({e.name for e in experiments}) == len(experiments) == 17
    for experiment in experiments:
        assert experiment.source.count(":") == 1
        for row in experiment.rows:
            assert len(row.values) == len(experiment.metrics)
            assert all(0 < value < 100 and math.isfinite(value) for value in row.values)
            assert row.when["loss.name"] in LOSSES or row.when["loss.name"] == "cross_entropy"
            loss = {key.removeprefix("loss."): value for key, value in row.when.items() if key[:5] == "loss."}
            plain = {key: value for key, value in loss.items() if value != "*" and key != "method"}
            make_recipe({"loss": plain})  # its options exist


def test_the_tables_as_printed():
    noise = [table(f"CIFAR-100, label noise {noise:g}") for noise in (0, 0.1, 0.2, 0.3, 0.4)]
    assert [row["cross-entropy"][0] for row in noise] == [94.2, 90.3, 87.6, 85.7, 83.6]
    assert [row["smooth top-5"][0] for row in noise] == [93.3, 92.2, 90.4, 88.8, 87.4]
    assert [row["noised top-5"][0] for row in noise] == [94.4, 91.9, 90.7, 89.7, 87.8]
    assert table("Pl@ntNet-300K, macro top-K")["noised top-K, imbalanced"] == (42.4, 64.9, 73.2)
    assert table("ImageNet-LT, top-K")["smooth top-K"] == (37.3, 42.0, 39.0)
    assert table("CIFAR-100, average-5")["two-head average-K"] == (97.35,)
    average = table("Pl@ntNet-300K, average-K")
    assert average["cross-entropy"] == (89.63, 92.64, 95.11, 97.11, 46.58)
    balanced = [table(f"{name}, balanced error") for name in ("CIFAR-10-LT", "CIFAR-100-LT", "ImageNet-LT")]
    assert [row["logit-adjusted"][0] for row in balanced] == [22.33, 56.11, 48.89]
    assert table("iNaturalist 2018, balanced error")["logit-adjusted and adaptive margins"] == (31.56,)
    assert table("CIFAR-100, differentiable top-k")["SinkhornSort"] == (61.89, 86.94)
    assert list(table("CIFAR-100, effect of the noise").values())[3:5] == [(93.36,), (94.46,)]


def test_a_recipe_finds_its_own_row():
    values = found(loss={"name": "noised_topk", "k": 5})
    assert values == {"CIFAR-100, label noise 0": {"top5.micro": 94.4}}
    average = {"five": {"name": "average_k", "k": 5}, "macro": {"name": "average_k", "k": 5, "macro": True}}
    values = found(loss={"name": "average_k", "k": 5}, predictors=average)
    assert values == {"CIFAR-100, average-5": {"average5.micro": 97.35}}
    for other in ({"rule": "strict"}, {"macro": True}, {"k": 4}):
        strict = {"five": {"name": "average_k", "k": 5, **other}}
        assert not found(loss={"name": "average_k", "k": 5}, predictors=strict)  # not the papers' sets
    midpoint = {"five": {"name": "average_k", "k": 5, "rule": "midpoint"}}
    assert found(loss={"name": "average_k", "k": 5}, predictors=midpoint) == values
    noisy = {**CIFAR, "label_noise": 0.2, "noise_level": "superclass"}
    assert found(data=noisy)["CIFAR-100, label noise 0.2"] == {"top5.micro": 87.6}
    assert found(data={**CIFAR, "noise": 0.2})["CIFAR-100, label noise 0.2"] == {"top5.micro": 87.6}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, 61.64),
        ({"loss": {"name": "cross_entropy", "class_balanced": 0.9999}}, 60.40),
        ({"loss": {"name": "ldam"}}, 60.40),
        ({"loss": {"name": "ldam", "weighting": "plain"}, "reweighting": {"after": 160}}, 57.96),
        ({"adjust": {"tau": 1.0}}, 58.24),
        ({"adjust": {"weight_normalization": 1.0}}, 58.89),
        ({"loss": {"name": "logit_adjusted"}}, 56.11),
    ],
)
def test_what_changes_the_method_changes_the_row(sections, expected):
    values = found(data={"name": "cifar100_lt", "root": "."}, **sections)
    assert values == {"CIFAR-100-LT, balanced error": {"balanced_error": expected}}


@pytest.mark.parametrize(
    "sections",
    [
        {"data": {"name": "glyphs"}},
        {"data": {**CIFAR, "noise": 0.25}},
        {"data": {**CIFAR, "long_tail": "exp"}},
        {"data": {"name": "cifar100_lt", "root": ".", "rho": 10.0}},
        {"loss": {"name": "noised_topk", "k": 3}},
        {"loss": {"name": "cross_entropy", "label_smoothing": 0.1}},
        {"loss": {"name": "logit_adjusted", "tau": 0.5}, "data": {"name": "cifar100_lt", "root": "."}},
        {"adjust": {"tau": 1.0}},
        {"adjust": {"temperature": "fit"}, "predictors": {"five": {"name": "average_k", "k": 5}}},
        {"adjust": {"weight_normalization": 0.5}, "data": {"name": "cifar100_lt", "root": "."}},
        {"sampler": {"name": "class_balanced"}},
        {"second_stage": {"name": "retrain_classifier"}},
    ],
)
def test_other_methods_and_data_find_nothing(sections):
    assert found(**sections) == {}


def test_departures_from_the_setting_are_listed():
    recipe = make_recipe(
        {
            "data": {"name": "plantnet300k", "root": "."},
            "loss": {"name": "noised_topk", "k": 5, "noise_std": 0.5, "num_samples": 5},
            "model": {"name": "timm:resnet50"},
            "optimizer": {"lr": 0.002},
            "epochs": 3,
            "batch_size": 32,
        }
    )
    values = {value.metric: value.departures for value in find_published(recipe.model_dump(mode="json"))}
    shared = ("epochs 3, there 30", "schedule.milestones [], there [20, 25]", "pretrained False, there True")
    shared += ("loss.noise_std 0.5, there 1.0",)
    assert values == {
        "top1.macro": (*shared, "loss.k 5, there 1"),
        "top3.macro": (*shared, "loss.k 5, there 3"),
        "top5.macro": shared,
    }


@pytest.mark.parametrize(
    ("recipe", "variant", "method"),
    [
        ("cifar100_top5_noise", "smooth", "smooth top-5"),
        ("cifar100_average5", "role", "ROLE"),
        ("plantnet300k_macro_topk", "ldam_k5", "LDAM"),
        ("plantnet300k_average_k", None, "two-head average-K"),
        ("imagenet_lt_topk", "focal_k3", "focal"),
        ("cifar10_lt_balanced", "adaptive_drw", "adaptive margins, deferred re-weighting"),
        ("cifar100_lt_balanced", "adaptive", "adaptive margins"),
        ("imagenet_lt_balanced", "weight_normalization", "weight normalization, tau 1"),
        ("inaturalist2018_balanced", "post_hoc", "logit adjustment after training"),
        ("cifar100_ranked_topk", None, "sorting networks"),
        ("cifar100_ranked_topk", "networks_uniform", "sorting networks"),
        ("cifar100_ranked_topk", "softsort_uniform", "SoftSort"),
    ],
)
def test_recipes_of_the_papers_find_their_row_and_nothing_that_differs(recipe, variant, method):
    read = load_recipe(RECIPES / f"{recipe}.yaml", variant=variant)
    values = find_published(read.model_dump(mode="json"))
    assert {value.method for value in values if not other_network(value)} == {method}
    departures = {line for value in values if not other_network(value) for line in value.departures}
    assert all(line.startswith("loss.k ") for line in departures)  # one network for each K


def other_network(value) -> bool:
    return any(line.startswith("model.name ") for line in value.departures)


def test_metrics_of_the_same_network_come_first():
    both = {"CIFAR-100, label noise 0": {"top5.micro": 94.2}}
    assert found(model={"name": "densenet40_40"}) == both | {
        "CIFAR-100, differentiable top-k": {"top1.micro": 61.27}
    }
    assert found(model={"name": "small_cnn"})["CIFAR-100, differentiable top-k"] == {
        "top1.micro": 61.27,
        "top5.micro": 85.31,
    }


def test_flatten_keeps_empty_sections():
    assert flatten({"a": {"b": {"c": 1}}, "d": {}}) == {"a.b.c": 1, "d": {}}
