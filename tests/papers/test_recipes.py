import functools
import json
import math
import re
from pathlib import Path
from typing import get_args

import lightning.pytorch as pl
import pytest
import torch
import yaml

from shortlist.datasets.embeddings import save_embeddings
from shortlist.datasets.loaders import evaluation_loader, training_loader
from shortlist.metrics import Results
from shortlist.papers import recipe_path
from shortlist.recipes import TRAINABLE_LOSSES, sections
from shortlist.recipes.build import build_data, build_model, learning_rate_factor
from shortlist.recipes.parts import Parts
from shortlist.recipes.recipe import Recipe, load_recipe, make_recipe
from shortlist.training.fit import train
from shortlist.training.module import SetClassifier
from tests.conftest import vision_library
from tests.datasets import trees
from tests.training.small import silent

FOLDER = recipe_path("cifar100_average5").parent
DOCS = Path(__file__).parents[2] / "docs"
PAGE, KEYS = DOCS / "guides/recipes.md", DOCS / "reference/recipe_keys.md"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "variants")
VARIANTS: dict[str, dict[str, list[str]]] = yaml.safe_load((FOLDER / "variants.yaml").read_text())
BASELINES = VARIANTS["plantnet300k_baselines"]
each_recipe = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For steps of four images, threads cost more than they bring, many times so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.cache
def published(name: str, variant: str | None = None) -> Recipe:
    return load_recipe(FOLDER / f"{name}.yaml", variant=variant)


# The published settings, by hand: model, optimizer, rate, weight decay, epochs, batch, and the rate at chosen
# epochs (or steps).
SGD, NESTEROV, ADAM = ("sgd", 0.9, False), ("sgd", 0.9, True), ("adam",)
DENSENET = (
    "densenet40_40",
    NESTEROV,
    0.1,
    1e-4,
    300,
    64,
    {0: 0.1, 149: 0.1, 150: 0.01, 224: 0.01, 225: 0.001},
)
SETTINGS = {
    "cifar100_top5_noise": DENSENET,
    "cifar100_average5": DENSENET,
    "plantnet300k_macro_topk": (
        "torchvision:resnet50", NESTEROV, 2e-3, 1e-4, 30, 32, {0: 2e-3, 19: 2e-3, 20: 2e-4, 25: 2e-5}
    ),
    "plantnet300k_average_k": (
        "torchvision:resnet18", NESTEROV, 2e-3, 1e-4, 30, 32, {0: 2e-3, 24: 2e-3, 25: 2e-4}
    ),
    "plantnet300k_baselines": (
        "torchvision:resnet50", NESTEROV, 0.01, 1e-4, 30, 32, {0: 0.01, 20: 1e-3, 25: 1e-4}
    ),
    "imagenet_lt_topk": (
        "torchvision:resnet34", NESTEROV, 0.01, 2e-3, 100, 128, {59: 0.01, 60: 1e-3, 80: 1e-4}
    ),
    "imagenet_topk": (
        "torchvision:resnet18", NESTEROV, 0.1, 1.5e-4, 120, 256, {29: 0.1, 30: 0.01, 60: 1e-3, 90: 1e-4}
    ),
    "cifar10_lt_balanced": (
        "resnet32_cifar", SGD, 0.1, 1e-4, None, 128,
        {999: 0.1 * 1000 / 2001, 2000: 0.1, 59_999: 0.1, 60_000: 0.01, 90_000: 1e-3, 110_000: 1e-4},
    ),
    "imagenet_lt_balanced": (
        "torchvision:resnet50", NESTEROV, 0.4, 5e-4, 90, 512,
        {5: 0.4, 47.5: 0.2, 50: 0.2 * (1 + math.cos(math.pi * 45 / 85)), 90: 0.0},
    ),
    "inaturalist2018_balanced": (
        "torchvision:resnet50", SGD, 0.4, 1e-4, 90, 1024, {5: 0.4, 47.5: 0.2, 90: 0.0}
    ),
    "cifar100_ranked_topk": ("torchvision:resnet18", ADAM, 1e-3, 0.0, 200, 100, {0: 1e-3, 199: 1e-3}),
    "imagenet_head_ranked_topk": ("linear", ADAM, 10**-4.5, 0.0, 100, 500, {0: 10**-4.5, 99: 10**-4.5}),
    "imagenet21kp_head_ranked_topk": ("linear", ADAM, 1e-4, 0.0, 40, 500, {0: 1e-4, 39: 1e-4}),
}  # fmt: skip
SETTINGS["cifar100_lt_balanced"] = SETTINGS["cifar10_lt_balanced"]


@each_recipe
def test_settings_are_the_published_ones(name):
    model, optimizer, lr, decay, epochs, batch, rates = SETTINGS[name]
    recipe = published(name)
    settings = recipe.optimizer
    assert recipe.name == name and recipe.model.name == model
    of_sgd = (settings.momentum, settings.nesterov) if settings.name == "sgd" else ()
    assert (settings.name, *of_sgd) == optimizer
    assert settings.lr == pytest.approx(lr) and settings.weight_decay == pytest.approx(decay)
    assert recipe.batch_size == batch
    assert (recipe.epochs, recipe.steps) == ((epochs, None) if epochs else (10, 120_000))
    per_epoch = 100 if epochs else 1
    factor = learning_rate_factor(recipe, 100, (recipe.steps or 100 * recipe.epochs))
    for time, rate in rates.items():
        assert settings.lr * factor(int(time * per_epoch)) == pytest.approx(rate, abs=1e-12), time


LOSSES = {
    ("cifar100_top5_noise", None): {"k": 5, "noise_std": 0.2, "num_samples": 10},
    ("cifar100_top5_noise", "smooth"): {"k": 5, "temperature": 1.0},
    ("cifar100_average5", None): {"k": 5, "alpha": 0.3},
    ("cifar100_average5", "expected_positive"): {"k": 5, "beta": 0.01},
    ("plantnet300k_macro_topk", None): {
        "k": 5,
        "noise_std": 0.01,
        "num_samples": 5,
        "max_margin": 0.2,
        "scale": 60,
    },
    ("plantnet300k_macro_topk", "noised_imbalanced_k1"): {"k": 1, "noise_std": 0.01, "scale": 60},
    ("plantnet300k_macro_topk", "ldam_k3"): {"max_margin": 0.2, "scale": 40},
    ("plantnet300k_macro_topk", "focal_k3"): {"gamma": 2.0},
    ("plantnet300k_macro_topk", "smooth_k3"): {"k": 3, "temperature": 0.1},
    ("plantnet300k_macro_topk", "noised_k5"): {"k": 5, "noise_std": 1.0, "num_samples": 5},
    ("plantnet300k_average_k", None): {"k": 5, "alpha": 5.0},
    ("plantnet300k_average_k", "two_head_k10"): {"k": 10, "alpha": 5.0},
    ("plantnet300k_average_k", "expected_positive_k2"): {"k": 2, "beta": 0.001},
    ("plantnet300k_average_k", "noised_k10"): {"k": 10, "noise_std": 1.0},
    ("imagenet_lt_topk", "focal_k1"): {"gamma": 1.0},
    ("imagenet_lt_topk", "ldam_k1"): {"max_margin": 0.4},
    ("imagenet_lt_topk", None): {"k": 5, "noise_std": 0.1, "num_samples": 5, "max_margin": 0.4},
    ("imagenet_topk", None): {"k": 5, "noise_std": 0.5, "num_samples": 10},
    ("imagenet_topk", "smooth_k5"): {"k": 5, "temperature": 0.1},
    ("cifar100_lt_balanced", None): {"tau": 1.0},
    ("cifar100_ranked_topk", None): {"distribution": [0.2] * 5, "candidates": None},
    ("cifar100_ranked_topk", "neuralsort_2575"): {
        "distribution": [0.25, 0, 0, 0, 0.75],
        "method": "neuralsort",
    },
    ("imagenet_head_ranked_topk", None): {"distribution": [0.5, 0, 0, 0, 0.5], "candidates": 16},
    ("imagenet21kp_head_ranked_topk", "networks_uniform"): {"distribution": [0.2] * 5, "candidates": 50},
}


@pytest.mark.parametrize(("name", "variant"), LOSSES)
def test_losses_have_the_published_options(name, variant):
    loss = published(name, variant).loss
    for option, value in LOSSES[name, variant].items():
        assert getattr(loss, option) == pytest.approx(value), option


def test_settings_that_change_with_the_loss():
    smooth = published("imagenet_topk", "smooth_k1").optimizer
    assert (smooth.lr, smooth.weight_decay) == (1.0, 2.5e-5)
    assert published("imagenet_topk", "cross_entropy_k1").optimizer.weight_decay == 1e-4
    assert published("cifar100_average5", "role").optimizer.estimates_factor == 1
    assert published("plantnet300k_macro_topk", "smooth_k3").selection.metric == "macro_top3"
    assert published("plantnet300k_average_k", "two_head_k2").selection.metric == "average2"
    drw = published("cifar100_lt_balanced", "adaptive_drw")
    assert (drw.reweighting.after, drw.epochs, drw.steps) == (160, 200, None)
    factor = learning_rate_factor(drw, 10, 2000)
    assert [factor(step) for step in (1599, 1600, 1800)] == pytest.approx([1, 0.01, 1e-4])
    for name in ("cifar10_lt", "cifar100_lt", "imagenet_lt", "inaturalist2018"):
        adjust = published(f"{name}_balanced", "weight_normalization").adjust
        assert (adjust.weight_normalization, adjust.normalized_offset, adjust.tau) == (1.0, "scaled", None)
        assert adjust.temperature == 1.0  # as published: nothing is fitted
        assert published(f"{name}_balanced", "post_hoc").adjust.tau == 1.0
    larger = published("inaturalist2018_balanced", "logit_adjusted_resnet152_200")
    assert (larger.epochs, larger.batch_size) == (200, 512)


def test_where_validation_is_test_nothing_is_chosen_by_it():
    found = []
    for name in NAMES:
        for recipe in (published(name), *(published(name, variant) for variant in VARIANTS[name])):
            if recipe.data.val_is_test or recipe.data.options.get("val_fraction") == 0:
                found.append(name)
                assert recipe.selection.metric == "last" and recipe.selection.patience is None
                assert "fit" not in (recipe.adjust.tau, recipe.adjust.temperature)
    assert set(found) == {"cifar10_lt_balanced", "cifar100_lt_balanced", "inaturalist2018_balanced"}


def test_27_architectures_with_their_rates():
    found = {variant: published("plantnet300k_baselines", variant) for variant in BASELINES}
    assert len(found) == len({recipe.model.name for recipe in found.values()}) == 27
    slow = {"vgg11", "alexnet", "mobilenet_v3_small", "squeezenet"}
    for variant, recipe in found.items():
        efficient, transformer = variant.startswith("efficientnet"), variant == "vit"
        assert recipe.optimizer.lr == (5e-4 if transformer else 1e-3 if variant in slow else 0.01)
        assert recipe.epochs == (20 if efficient or transformer else 30)
        assert recipe.schedule.milestones == ([15] if transformer else [10, 15] if efficient else [20, 25])


def test_every_recipe_has_variants_and_none_is_without_recipe():
    assert sorted(VARIANTS) == NAMES == sorted(SETTINGS)


@pytest.mark.parametrize(("name", "variant"), [(n, v) for n in NAMES for v in VARIANTS[n]])
def test_every_variant_parses(name, variant):
    recipe = published(name, variant)
    for text in VARIANTS[name][variant]:  # and is what it says: the value is there, under its key
        key, _, value = text.partition("=")
        place = recipe.model_dump(mode="json")
        for part in key.split("."):
            place = place[part]
        value = yaml.safe_load(value)
        assert (place["name"] if isinstance(place, dict) else place) == value, text


@each_recipe
def test_about_states_command_cost_and_metrics(name):
    about = published(name).about
    assert f"shortlist train papers:{name} --set data.root=DIR" in about
    assert re.search(r"^Cost: ", about, re.M) and re.search(r"^Expected", about, re.M)


@each_recipe
def test_options_that_follow_the_authors_code_are_there(name):
    named = re.findall(r"--set ([\w.]+=[\w.\[\],]+)", published(name).about)
    named = [text.rstrip(".") for text in named if not re.search(r"=(DIR|LISTS|\.\.\.)", text)]
    for text in named:
        assert load_recipe(FOLDER / f"{name}.yaml", [text]) is not None, text
    if "authors' code" in published(name).about and "differs" in published(name).about:
        assert named


# Data in the layouts on disk, small enough for a step.

WNIDS = [f"n{1440764 + i:08d}" for i in range(12)]
SPECIES = {str(1355868 + i): f"Genus{i // 3} species{i}" for i in range(12)}


@pytest.fixture(scope="module")
def roots(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("data")
    trees.cifar100(root / "cifar100", per_class=120, classes=10)
    trees.cifar10(root / "cifar10", per_class=24)
    trees.inaturalist(root / "inaturalist2018")
    for part, count in {"train": 3, "val": 1, "test": 1}.items():
        trees.class_folders(root / "plantnet300k" / part, dict.fromkeys(SPECIES, count))
    (root / "plantnet300k" / "plantnet300K_species_id_2_name.json").write_text(json.dumps(SPECIES))
    for part, count in {"train": 3, "val": 2}.items():
        trees.class_folders(root / "imagenet" / part, dict.fromkeys(WNIDS, count), suffix=".JPEG")
    for part, folder, images in (("train", "train", (0, 1)), ("val", "train", (2,)), ("test", "val", (0,))):
        lines = [
            f"{folder}/{wnid}/image {i}.JPEG {index}" for index, wnid in enumerate(WNIDS) for i in images
        ]
        (root / "imagenet" / f"ImageNet_LT_{part}.txt").write_text("\n".join(lines) + "\n")
    generator = torch.Generator().manual_seed(0)
    for part, count in {"train": 180, "test": 60}.items():
        targets = torch.arange(count) % 60
        rows = torch.randn(count, 8, generator=generator)
        save_embeddings(root / "embeddings" / f"{part}.safetensors", rows, targets)
    of_set = {"cifar100_lt": "cifar100", "cifar10_lt": "cifar10", "imagenet_lt": "imagenet"}
    folders = {path.name: path for path in root.iterdir()}
    return folders | {name: folders[folder] for name, folder in of_set.items()}


def shrunk(name: str, variant: str | None, roots: dict[str, Path], *more: str, size: int = 32) -> Recipe:
    """The recipe with its data, batch and images made small, and no weights to download."""
    recipe = published(name, variant)
    overrides = [*(VARIANTS[name][variant] if variant else []), "workers=0", "accelerator=cpu", "loggers=[]"]
    overrides += [f"data.root={roots[recipe.data.name]}"]
    overrides += ["batch_size=4"]
    if recipe.data.name == "cifar100":
        overrides += ["data.val_size=20"]
    if "image_size" in recipe.data.options:
        overrides += [f"data.image_size={size}"]
    if recipe.data.train_transform is not None:
        overrides += [
            f"data.train_transform.size={size}",
            f"data.train_transform.resize={round(size / 0.875)}",
        ]
    for option in ("weights", "pretrained"):
        if option in recipe.model.options:
            overrides += [f"model.{option}={'null' if option == 'weights' else 'false'}"]
    return load_recipe(FOLDER / f"{name}.yaml", [*overrides, *more])


def one_step(recipe: Recipe) -> SetClassifier:
    """One step of training, as a run makes it; asserts that what learns has moved, to finite values."""
    if ":" in recipe.model.name:
        vision_library(recipe.model.name.partition(":")[0])
    torch.manual_seed(0)
    data = build_data(recipe)
    sample = data.train[0][0]
    model = build_model(recipe, len(data.class_table), sample)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    module = SetClassifier(recipe, Parts.of(recipe, data, sample, model))
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=1, limit_val_batches=0, num_sanity_val_steps=0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False,
    )  # fmt: skip
    settings = {"batch_size": recipe.batch_size, "workers": 0}
    loader = training_loader(data.train, seed=0, class_balanced=False, **settings)
    trainer.fit(module, loader, evaluation_loader(data.val, **settings))
    assert trainer.global_step == 1
    assert math.isfinite(float(trainer.callback_metrics["train_loss"]))
    after = dict(model.named_parameters())
    assert all(bool(value.isfinite().all()) for value in after.values())
    moved = [name for name, value in before.items() if not value.equal(after[name].detach())]
    assert len(moved) > 0.5 * len(before), f"only {len(moved)} of {len(before)} parameters moved"
    return module


QUIET = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*treespec.*deprecated")


@QUIET
@each_recipe
def test_a_step_of_every_recipe(name, roots):
    module = one_step(shrunk(name, None, roots))
    classes = {"inaturalist2018_balanced": 2, "cifar10_lt_balanced": 10}
    if name in classes:
        assert len(module.class_counts) == classes[name]


def each_loss() -> list[tuple[str, str]]:
    """One variant for each loss (and each way of ranking) of all tables."""
    found = {}
    for name in NAMES:
        for variant in VARIANTS[name]:
            loss = published(name, variant).loss
            found.setdefault((loss.name, getattr(loss, "method", None)), (name, variant))
    return list(found.values())


@QUIET
@pytest.mark.parametrize(("name", "variant"), each_loss())
def test_a_step_with_every_loss(name, variant, roots):
    small = "linear" if published(name).data.name == "embeddings" else "small_cnn"
    module = one_step(shrunk(name, variant, roots, f"model.name={small}"))
    assert module.recipe.loss.name == published(name, variant).loss.name


@QUIET
@pytest.mark.slow
@pytest.mark.parametrize("variant", BASELINES)
def test_a_step_of_every_baseline(variant, roots):
    size = 96 if variant.startswith("inception") else 64  # the least that they take
    more = ["model.img_size=64"] if variant == "vit" else []
    one_step(shrunk("plantnet300k_baselines", variant, roots, *more, size=size))


STAGES = [("imagenet_lt_balanced", "retrain_classifier"), ("imagenet_lt_balanced", "weight_scaling")]
NORMALIZED = [("cifar10_lt_balanced", "weight_normalization")]
REWEIGHTED = [("cifar100_lt_balanced", "adaptive_drw")]


@QUIET
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant"), [*((name, None) for name in NAMES), *STAGES, *NORMALIZED, *REWEIGHTED]
)
def test_a_short_run_of_every_recipe_to_its_results(name, variant, roots, tmp_path):
    more = ["epochs=2"] if published(name, variant).steps is None else ["steps=3"]
    more += ["optimizer.lr=1.0e-4", "schedule.warm_up=0"]  # 4 images do not bear the published
    more += ["data.max_per_class=3"] if published(name).data.name == "cifar100" else []
    more += ["second_stage.epochs=1", "second_stage.lr=1.0e-4"] if (name, variant) in STAGES else []
    more += ["reweighting.after=1"] if (name, variant) in REWEIGHTED else []
    if published(name).model.name != "linear":
        more += ["model.name=small_cnn"]  # a step of the published network is tested above
    recipe = shrunk(name, variant, roots, *more)
    run = train(recipe, tmp_path / "run", progress=silent)
    assert run.state == "finished" and run.recipe == recipe
    assert set(run.predictors) == set(recipe.predictors)
    data = build_data(recipe)
    scores, target = run.load_scores("test")
    assert scores.shape == (len(data.test), len(data.class_table)) and target.equal(data.test.targets)
    if (name, variant) in NORMALIZED:
        norms, offsets = run.load_norms()
        scores = (scores - offsets) / norms + offsets
    top1 = float((scores.argmax(1) == target).double().mean())
    results = Results.load(run.path / "results.json")
    assert results.metrics()["top1.micro"].value == pytest.approx(top1)


# docs/guides/recipes.md and docs/reference/recipe_keys.md


def keys_of(section, prefix="") -> list[str]:
    found = []
    for name, field in section.model_fields.items():
        inner = sections_in(field.annotation)
        if inner is None:
            found.append(prefix + name)
        else:
            found += keys_of(inner, f"{prefix}{name}.")
    return found


def sections_in(annotation):
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, sections.Section | sections.NamedSection):
            return part
        if get_args(part) and part is not annotation and (found := sections_in(part)) is not None:
            return found
    return None


def test_every_key_is_documented_with_its_default():
    table = KEYS.read_text().partition("**Losses**")[0]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|", table, re.M))
    named = {"predictors.": "predictors.NAME.", "anneal.": "anneal.OPTION."}
    keys = {re.sub(r"^(predictors|anneal)\.", lambda part: named[part[0]], key) for key in keys_of(Recipe)}
    assert set(rows) == keys | {"predictors"}  # which may be left out as a whole
    plain = make_recipe({}).model_dump(mode="json")
    plain["reweighting"] = sections.ReweightingSection(after=0).model_dump()
    plain["second_stage"] = sections.SecondStageSection(name="weight_scaling").model_dump()
    plain["anneal"] = {"OPTION": sections.AnnealSection(end=1.0).model_dump()}
    plain["novelty"] = sections.NoveltySection().model_dump()
    for key, shown in rows.items():
        place = plain
        for part in key.split("."):
            place = place.get(part) if isinstance(place, dict) else None
        if shown == "required" or key == "loss" or key.startswith("predictors"):
            continue
        assert yaml.safe_load(shown.strip("`")) == place, key


def test_every_recipe_and_loss_is_listed_with_the_same_metrics():
    text, keys = PAGE.read_text(), KEYS.read_text()
    for loss in TRAINABLE_LOSSES:
        assert f"`{loss}`" in keys, loss
    for name in NAMES:
        (row,) = re.findall(rf"^\| `{name}` \|.*?\| (.*?) \|$", text, re.M)
        metrics = re.findall(r"\b\d\d\.\d+", row)
        assert len(metrics) >= 6 or name == "plantnet300k_baselines", name
        assert set(metrics) <= set(re.findall(r"\b\d\d\.\d+", published(name).about)), name
