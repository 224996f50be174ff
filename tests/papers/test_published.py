"""The published tables: their cells, beside the papers' texts where these are, and what a recipe finds."""

import math
import re
from collections import Counter
from pathlib import Path

import pytest

from shortlist._text import flatten
from shortlist.losses import LOSSES
from shortlist.ops.networks import network_depth
from shortlist.papers import recipe_path
from shortlist.papers.matching import find_published, own_values
from shortlist.papers.published import PublishedTable, load_published
from shortlist.recipes.recipe import load_recipe, make_recipe

RECIPES = recipe_path("cifar100_average5").parent
TEXTS = Path(__file__).parents[3] / "shared" / "seeds"  # the papers' texts, which are not ours to ship
CIFAR = {"name": "cifar100", "root": "."}


def found(*, data=CIFAR, **sections) -> dict[str, dict[str, float]]:
    """Numbers as printed, by table and metric; those of its group columns apart."""
    recipe = make_recipe({"data": data, **sections}).model_dump(mode="json")
    values: dict[str, dict[str, float]] = {}
    for value in find_published(recipe):
        values.setdefault(f"{value.table.paper} {value.table.table}", {})[value.metric] = value.number.value
    return values


def table(name: str) -> dict[str, list[tuple[float, ...]]]:
    (one,) = [t for t in load_published() if t.name == name]
    return {row.method: [tuple(n.value for n in cell) for cell in row.cells] for row in one.rows}


# How many numbers each printed table has, counted by hand in the papers: rows x columns x numbers of a cell.
CELLS = {
    ("garcin2021", "thesis 3.1"): 5,
    ("garcin2022", "2"): 8,
    ("garcin2022", "3"): 7,
    ("garcin2022", "section 4.3"): 5,
    ("garcin2022", "4"): 5 * 3,
    ("garcin2022", "5"): 3 * 6 * 4,
    ("garcin2022", "6"): 3 * 5 * 4,
    ("garcin2022", "7"): 5 * 3,
    ("garcin2022", "8"): 4 * 6,
    ("garcin2022", "9"): 2 * 3,
    ("garcin2023", "1"): 6,
    ("garcin2023", "2"): 5 * 4 * 4,
    ("menon2021", "2"): 10 * 4,
    ("menon2021", "section 6.2"): 1,
    ("menon2021", "3"): 11 * 5,
    ("menon2021", "4"): 6 * 2,
    ("menon2021", "appendix D.3"): 1,
    ("petersen2022", "1"): 10 * 2,
    ("petersen2022", "2"): 10 * 2 * 2,
    ("petersen2022", "3"): 8 * 4 * 2,
    ("petersen2022", "4"): 4 * 4 * 2,
    ("petersen2022", "5"): 18 * 2 - 5,  # five rows have no top-5
    ("petersen2022", "6"): 3 * (4 * 3 + 1) * 4,
    ("petersen2022", "7"): 4 * 17,
}


def test_every_table_has_all_its_cells():
    counts: Counter[tuple[str, str]] = Counter()
    for one in load_published():
        counts[one.paper, one.table] += sum(len(cell) for row in one.rows for cell in row.cells)
    assert counts == CELLS
    thesis = [t for t in load_published() if t.thesis and not t.thesis.startswith("section")]
    assert sum(len(cell) for t in thesis for row in t.rows for cell in row.cells) == 298


def test_every_row_is_complete_and_plausible():
    tables = load_published()
    assert len({t.name for t in tables}) == len(tables)
    for one in tables:
        assert one.source.count(":") == 1
        for row in one.rows:
            assert len(row.cells) == len(one.columns)
            numbers = [n for cell in row.cells for n in cell]
            assert numbers and all(math.isfinite(n.value) and n.value >= 0 for n in numbers)
            assert one.unit != "%" or all(n.value < 100 and (n.half or 0) < 1 for n in numbers)
            if one.compared:
                check_options(one, row.when | row.setting)


def check_options(one: PublishedTable, wanted: dict) -> None:
    """The loss and its options that a row names exist."""
    assert wanted["loss.name"] in LOSSES or wanted["loss.name"] == "cross_entropy"
    loss = {key.removeprefix("loss."): value for key, value in wanted.items() if key[:5] == "loss."}
    make_recipe({"loss": {key: value for key, value in loss.items() if value != "*" and key != "method"}})


def text_of(name: str) -> str:
    found_files = sorted(TEXTS.glob(f"{name}_*.txt"))
    if not found_files:
        pytest.skip("the papers' texts are not here")
    return found_files[0].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("paper", "text"),
    [
        *(("garcin2022", "000"), ("garcin2022", "001"), ("garcin2023", "001"), ("garcin2023", "002")),
        *(("petersen2022", "003"), ("menon2021", "004")),
    ],
)
def test_every_number_stands_in_the_text(paper, text):
    """A number typed wrong mostly stands nowhere."""
    printed = Counter(re.findall(r"\d+(?:\.\d+)?", text_of(text)))
    tables = [t for t in load_published() if t.paper == paper and t.unit == "%"]
    numbers = [n for t in tables for row in t.rows for cell in row.cells for n in cell]
    wanted = {f"{n.value:.{n.digits}f}" for n in numbers}
    missing = {number for number in wanted if printed[number] == 0 and not footnoted(number, printed)}
    assert not missing


def footnoted(number: str, printed: Counter[str]) -> bool:
    """The sign of a footnote is read as a digit: 26.65 with a dagger is 26.651 in the text."""
    return any(printed[number + digit] for digit in "0123456789")


ROW = re.compile(r"^(?P<p>0\.\d) (?P<cells>(?:[\d.]+±[\d.]+ ?){3})$", re.M)


def test_tables_of_label_noise_as_the_text_has_them():
    """An independent reading of two whole tables, by lines of the text."""
    lines = [m["cells"].split() for m in ROW.finditer(text_of("000"))]
    assert len(lines) == 10
    for name, part in (("top-5", lines[:5]), ("top-1", lines[5:])):
        (one,) = [t for t in load_published() if t.name == f"CIFAR-100, {name} accuracy with label noise"]
        for row, column in zip(one.rows, zip(*part, strict=True), strict=True):
            shown = [f"{n.value:.1f}±{n.half:.1f}" for (n,) in row.cells]
            assert shown == list(column)


def test_tables_of_three_shots_as_the_text_has_them():
    pattern = r"[\d.]+±[\d.]+ \([\d.]+/[\d.]+/[\d.]+\)"
    lines = [re.findall(pattern, line) for line in text_of("000").splitlines()]
    lines = [line for line in lines if line]
    assert [len(line) for line in lines] == [6, 6, 6, 5, 5, 5]
    for name, part in (
        ("Pl@ntNet-300K, macro top-K accuracy", lines[:3]),
        ("ImageNet-LT, top-K accuracy", lines[3:]),
    ):
        (one,) = [t for t in load_published() if t.name == name]
        for row, column in zip(one.rows, zip(*part, strict=True), strict=True):
            assert [shown(cell) for cell in row.cells] == list(column)


def shown(cell) -> str:
    mean, *groups = cell
    return f"{mean.value:.1f}±{mean.half:.1f} ({'/'.join(f'{g.value:.1f}' for g in groups)})"


def test_tables_of_logit_adjustment_as_the_text_has_them():
    """Lines with tabs: the method, then its numbers; signs of footnotes are cut off."""
    text = text_of("004")
    start = text.index("Method\tImageNet-LT\t\tiNaturalist")
    lines = text[start:].splitlines()[2:13]
    parts = {name: table(name) for name in (t.name for t in load_published() if t.paper == "menon2021")}
    first = parts["ImageNet-LT, balanced error with larger networks"]
    second = parts["iNaturalist 2018, balanced error with larger networks"]
    assert len(lines) == 11
    for line, a, b in zip(lines, first.values(), second.values(), strict=True):
        printed = [float(re.search(r"\d\d\.\d\d", cell)[0]) for cell in line.split("\t")[1:]]
        assert printed == [cell[0] for cell in (*a, *b)], line


def test_tables_of_ranking_with_long_lists_as_the_text_has_them():
    """Lines with tabs and four numbers in a cell, of k up to 5, 10 and 20."""
    text = text_of("003")
    cells = [re.findall(r"\d\d\.\d\d", line) for line in text[text.index("(@5)") :].splitlines()]
    lines = [line for line in cells if len(line) == 12]
    assert len(lines) == 12
    for length, part in zip((5, 10, 20), (lines[:4], lines[4:8], lines[8:]), strict=True):
        rows = list(table(f"ImageNet-21K-P, k up to {length}").values())[1:]
        assert [[f"{n:.2f}" for cell in row for n in cell] for row in rows] == part


def test_table_of_average_k_as_the_text_has_it():
    pattern = r"([\d.]+) \\pm ([\d.]+) \(([\d.]+)/([\d.]+)/ ?([\d.]+)\)"
    lines = [re.findall(pattern, line) for line in text_of("002").splitlines()]
    lines = [line for line in lines if line]
    (one,) = [t for t in load_published() if t.name == "Pl@ntNet-300K, average-K accuracy"]
    assert [len(line) for line in lines] == [4] * 5
    for row, line in zip(one.rows, lines, strict=True):
        for cell, (mean, half, *groups) in zip(row.cells, line, strict=True):
            assert [cell[0].value, cell[0].half] == [float(mean), float(half)]
            assert [n.value for n in cell[1:]] == list(map(float, groups))


def test_the_tables_as_printed():
    macro = table("Pl@ntNet-300K, macro top-K accuracy")["noised top-K, imbalanced"]
    assert macro[0] == (42.4, 23.9, 46.3, 72.1)
    assert table("ImageNet-LT, top-K accuracy")["smooth top-K"][2] == (39.0, 0.0, 20.7, 75.5)
    assert table("CIFAR-100, average-5 accuracy")["two-head average-K"] == [(97.35,)]
    assert table("CIFAR-LT, balanced error")["logit-adjusted"] == [(22.33,), (56.11,)]
    assert table("CIFAR-LT by steps, balanced error")["equalized"] == [(31.42,), (57.82,)]
    assert table("ImageNet-1K, distributions of k")["sorting networks"][3] == (86.21, 98.003)
    assert table("ImageNet-21K-P, k up to 20")["SoftSort"] == [
        *((), (38.04, 65.98, 77.17, 85.45), (34.30, 62.89, 76.03, 85.19), (24.02, 56.35, 74.32, 84.82))
    ]
    assert table("Pl@ntNet-300K, accuracy by images of the class")["cross-entropy"][0] == (9.0,)


def test_networks_have_the_published_depths():
    for n, row in table("Layers of sorting and selection networks").items():
        full, others, splitter = row[0][0], row[1:9], row[9:]
        if n != "10450":  # the depth of a full sort of 16,384 wires
            assert network_depth("bitonic", int(n), 5) == full
        for k in range(1, 9):
            assert network_depth("splitter", int(n), k) == splitter[k - 1][0], (n, k)
            assert network_depth("merge_selection", int(n), k) == others[k - 1][0], (n, k)


def test_a_recipe_finds_its_own_row():
    values = found(loss={"name": "noised_topk", "k": 5}, model={"name": "densenet40_40"})
    assert values["garcin2022 4"] == {"top5.micro": 94.4}
    assert values["garcin2022 7"] == {"top1.micro": 68.7}
    assert values["garcin2022 section 4.3"] == {"epoch_seconds": 68.0}
    average = {"five": {"name": "average_k", "k": 5}, "macro": {"name": "average_k", "k": 5, "macro": True}}
    values = found(loss={"name": "average_k", "k": 5}, predictors=average)
    assert values == {"garcin2023 1": {"average5.micro": 97.35}}
    for other in ({"rule": "strict"}, {"macro": True}, {"k": 4}):
        strict = {"five": {"name": "average_k", "k": 5, **other}}
        assert not found(loss={"name": "average_k", "k": 5}, predictors=strict)  # not the papers' sets
    midpoint = {"five": {"name": "average_k", "k": 5, "rule": "midpoint"}}
    assert found(loss={"name": "average_k", "k": 5}, predictors=midpoint) == values
    noisy = {**CIFAR, "label_noise": 0.2, "noise_level": "superclass"}
    assert found(data=noisy)["garcin2022 4"] == {"top5.micro": 87.6}
    assert found(data={**CIFAR, "noise": 0.2})["garcin2022 4"] == {"top5.micro": 87.6}


def test_noise_and_draws_find_the_best_validation_accuracy():
    for noise, value in ((0.0, 19.38), (0.01, 93.36), (100.0, 93.12)):
        loss = {"name": "noised_topk", "k": 5, "noise_std": noise, "num_samples": 10}
        assert found(loss=loss)["garcin2022 2"] == {"validation.top5": value}
    loss = {"name": "noised_topk", "k": 5, "noise_std": 0.2, "num_samples": 50}
    assert found(loss=loss)["garcin2022 3"] == {"validation.top5": 94.64}


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
    assert values == {"menon2021 2": {"balanced_error": expected}}


@pytest.mark.parametrize(
    "sections",
    [
        {"data": {"name": "glyphs"}},
        {"data": {"name": "embeddings", "root": "."}},  # of what, it does not say
        {"data": {**CIFAR, "noise": 0.25}},
        {"data": {**CIFAR, "long_tail": "exp"}},
        {"data": {"name": "cifar100_lt", "root": ".", "rho": 10.0}},
        {"loss": {"name": "noised_topk", "k": 3}},
        {"loss": {"name": "cross_entropy", "label_smoothing": 0.1}},
        {"loss": {"name": "logit_adjusted", "tau": 0.5}, "data": {"name": "cifar100_lt", "root": "."}},
        {"adjust": {"tau": 1.0}},
        {"adjust": {"temperature": "fit"}, "predictors": {"five": {"name": "average_k", "k": 5}}},
        {"adjust": {"weight_normalization": 0.5}, "data": {"name": "cifar100_lt", "root": "."}},
        {
            "adjust": {"weight_normalization": 1.0, "normalized_by": "prior"},
            "data": {"name": "cifar100_lt", "root": "."},
        },
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
            "schedule": {"name": "milestones", "milestones": [2]},
            "selection": {"metric": "macro_top5"},
            "evaluation": {"few_below": 21},
            "epochs": 3,
            "batch_size": 32,
        }
    )
    values = {value.metric: value.departures for value in find_published(recipe.model_dump(mode="json"))}
    shared = ("pretrained False, there True", "schedule.milestones [2], there [20, 25]", "epochs 3, there 30")
    shared += ("evaluation.few_below 21, there 20",)
    noise = "loss.noise_std 0.5, there 1.0"
    assert values["top5.macro"] == values["top5.few"] == values["top5.micro"] == (*shared, noise)
    selected = "selection.metric macro_top5, there macro_top3"
    assert values["top3.macro"] == (*shared, selected, noise, "loss.k 5, there 3")
    assert len(values) == 3 * 4 + 4


@pytest.mark.parametrize(
    ("recipe", "variant", "overrides", "departure"),
    [
        ("cifar100_lt_balanced", "logit_adjusted_adaptive", ["loss.tau=2"], "loss.tau 2.0, there 1.0"),
        (
            "cifar100_lt_balanced",
            "logit_adjusted_adaptive",
            ["loss.margin=0.5"],
            "loss.margin 0.5, there 1.0",
        ),
        ("cifar100_lt_balanced", "equalized", ["loss.tau=0.5"], "loss.tau 0.5, there 1.0"),
        ("cifar100_lt_balanced", "adaptive", ["loss.max_margin=0.2"], "loss.max_margin 0.2, there 0.5"),
        ("cifar100_lt_balanced", "adaptive", ["loss.scale=10"], "loss.scale 10.0, there 30.0"),
        ("cifar100_top5_noise", None, ["loss.margin=3"], "loss.margin 3.0, there 1.0"),
        ("cifar100_top5_noise", None, ["loss.scale=2"], "loss.scale 2.0, there 1.0"),
        (
            "cifar100_average5",
            None,
            ["adjust.predict_from=proposal"],
            "adjust.predict_from proposal, there set",
        ),
        (
            *("cifar10_lt_balanced", "weight_normalization", ["adjust.normalized_offset=kept"]),
            "adjust.normalized_offset kept, there scaled",
        ),
        ("cifar100_ranked_topk", None, ["selection.metric=top5"], "selection.metric top5, there top1"),
        ("cifar100_ranked_topk", None, ["selection.metric=loss"], "selection.metric loss, there top1"),
        ("cifar100_ranked_topk", None, ["selection.metric=last"], "selection.metric last, there top1"),
        (
            *("cifar100_lt_balanced", "logit_adjusted"),
            ["data.val_is_test=false", "data.val_size=1000", "selection.metric=top1"],
            "selection.metric top1, there last",
        ),
        (
            *("inaturalist2018_balanced", "post_hoc", ["selection.metric=loss"]),
            "selection.metric loss, there last",
        ),
        ("cifar100_top5_noise", None, ["head.bias=false"], "head.bias False, there True"),
        ("cifar100_average5", None, ["optimizer.clip_norm=1"], "optimizer.clip_norm 1.0, there not set"),
        ("cifar100_average5", None, ["schedule.warm_up=5"], "schedule.warm_up 5.0, there 0.0"),
        ("cifar100_ranked_topk", None, ["steps=100"], "steps 100, there not set"),
    ],
)
def test_another_method_is_not_called_the_published_one(recipe, variant, overrides, departure):
    plain = load_recipe(RECIPES / f"{recipe}.yaml", variant=variant)
    changed = load_recipe(RECIPES / f"{recipe}.yaml", overrides, variant=variant)
    if "selection" not in departure:
        assert all(
            departure not in value.departures for value in find_published(plain.model_dump(mode="json"))
        )
    values = find_published(changed.model_dump(mode="json"))
    of_top1 = departure.startswith("selection") and departure.endswith("top1")
    printed = [value for value in values if not of_top1 or value.metric.startswith("top1.")]
    assert printed and all(departure in value.departures for value in printed)


def test_the_equalized_loss_is_that_of_tan_there():
    """Its threshold is not stated; a power of the priors is another form, with any tau."""
    path = RECIPES / "cifar100_lt_balanced.yaml"
    form = "loss.threshold not set, there a value that is not stated"
    wanted = {
        (): {form},
        ("loss.tau=0.5",): {form, "loss.tau 0.5, there 1.0"},
        ("loss.threshold=0.002",): set(),
        ("loss.threshold=0.002", "loss.rare_factor=0.3", "loss.weighting=plain"): {
            "loss.weighting plain, there consistent"
        },
    }
    for overrides, departures in wanted.items():
        recipe = load_recipe(path, overrides, variant="equalized").model_dump(mode="json")
        values = [value for value in find_published(recipe) if value.method == "equalized"]
        assert values and all(set(value.departures) == departures for value in values), overrides


@pytest.mark.parametrize(
    ("recipe", "variant", "method"),
    [
        ("cifar100_average5", "role", "ROLE"),
        ("cifar10_lt_balanced", "weight_normalization", "weight normalization, tau 1"),
        ("inaturalist2018_balanced", "post_hoc", "logit adjustment after training"),
        ("cifar100_ranked_topk", None, "sorting networks"),
        ("cifar100_ranked_topk", "softsort_uniform", "SoftSort"),
        ("imagenet_head_ranked_topk", "sinkhorn_top5", "SinkhornSort, k = 5"),
        ("imagenet21kp_head_ranked_topk", "neuralsort_k20_1090", "NeuralSort"),
    ],
)
def test_recipes_of_the_papers_find_their_row_and_nothing_that_differs(recipe, variant, method):
    read = load_recipe(RECIPES / f"{recipe}.yaml", variant=variant)
    values = find_published(read.model_dump(mode="json"))
    assert {value.method for value in values} == {method}
    # a run keeps the epoch of one metric
    selected = {f"selection.metric {read.selection.metric}, there top{k}" for k in (1, 10, 20)}
    assert {departure for value in values for departure in value.departures} <= selected
    assert () in {value.departures for value in values}


def test_numbers_of_the_same_network_come_alone():
    both = {"garcin2022 section 4.3": {"epoch_seconds": 65.0}, "garcin2022 4": {"top5.micro": 94.2}}
    both |= {"garcin2022 7": {"top1.micro": 76.6}}
    assert found(model={"name": "densenet40_40"}) == both
    other = found(model={"name": "small_cnn"})
    assert other["petersen2022 1"] == {"top1.micro": 61.27, "top5.micro": 85.31}
    assert other["garcin2022 4"] == {"top5.micro": 94.2}


def test_of_columns_that_differ_in_settings_the_nearest_is_taken():
    read = load_recipe(RECIPES / "inaturalist2018_balanced.yaml", variant="logit_adjusted_resnet152_200")
    (value,) = find_published(read.model_dump(mode="json"))
    assert (value.number.value, value.column, value.departures) == (30.12, "ResNet-152, 200 epochs", ())
    read = load_recipe(RECIPES / "inaturalist2018_balanced.yaml", variant="adaptive")
    values = find_published(read.model_dump(mode="json"))
    assert [value.number.value for value in values] == [33.31, 35.42]  # the paper has both


def test_flatten_keeps_empty_sections():
    assert flatten({"a": {"b": {"c": 1}}, "d": {}}) == {"a.b.c": 1, "d": {}}


@pytest.mark.parametrize("change", ["adjust.tau=0.5", "head.bias=false", "optimizer.clip_norm=1"])
def test_settings_of_a_method_of_ones_own_are_departures(change):
    """The scores of an own method are fitted, the head and the steps are the paper's: else it is said."""
    tables = [table for table in load_published() if table.paper == "menon2021" and table.table == "2"]

    def departures_of(*changes):
        recipe = load_recipe(recipe_path("cifar100_lt_balanced"), changes).model_dump(mode="json")
        values = [
            value
            for table in tables
            for column in table.columns
            if column.name == "CIFAR-100-LT"
            for value in own_values(recipe, table, column, ["balanced_error"])
        ]
        return values[0].departures

    (more,) = set(departures_of(change)) - set(departures_of())
    assert more.startswith(change.partition("=")[0])
