from pathlib import Path

import pytest
import yaml

from shortlist.recipes.content import recipe_hash
from shortlist.recipes.loss_use import NOT_FROM_A_RECIPE, TRAINABLE_LOSSES, needs_of
from shortlist.recipes.recipe import RecipeError, load_recipe, make_recipe
from shortlist.suites.plan import plan_suite, resolve, run_name
from shortlist.suites.state import SuiteState
from shortlist.suites.suite import Method, Suite, SuiteError, load_suite
from tests.suites.test_suite import BASE, SUITE, write

RECIPES = Path(__file__).parents[2] / "recipes"
SUITES = sorted([*RECIPES.glob("cpu/*.yaml"), *RECIPES.glob("real/*_*.yaml")])


def test_plan_has_every_combination(tmp_path):
    vary = {"data.label_noise": [0, 0.2], "size": {"small": ["data.num_rows=100"], "large": []}}
    suite = load_suite(write(tmp_path, vary=vary))
    cells = plan_suite(suite)
    assert len(cells) == 4 * len(SUITE["methods"])
    assert [dict(cell.axes) for cell in cells[:: len(SUITE["methods"])]] == [
        {"data.label_noise": noise, "size": size} for noise in ("0", "0.2") for size in ("small", "large")
    ]
    cell = cells[8]
    assert run_name(cell, cell.points[1], 3) == "data.label_noise=0.2/size=small/ce/lr=0.1/seed-3"
    recipe = resolve(suite, cell, cell.points[1], 3)
    assert (recipe.data.label_noise, recipe.data.options["num_rows"], recipe.seed) == (0.2, 100, 3)
    assert (recipe.optimizer.lr, recipe.name) == (0.1, "ce")
    total, done = SuiteState(suite, tmp_path).count()
    assert total == {"trained": 4 * (3 + 2), "of others": 4 * (3 + 2)}
    assert sum(done.values()) == 0


def test_hash_is_of_what_matters():
    recipe = make_recipe(BASE)
    assert recipe_hash(recipe) == recipe_hash(make_recipe(BASE, ["name=other", "about=text"]))
    assert recipe_hash(recipe) != recipe_hash(make_recipe(BASE, ["seed=1"]))
    assert recipe_hash(recipe, seed=False) == recipe_hash(make_recipe(BASE, ["seed=1"]), seed=False)
    assert recipe_hash(recipe) != recipe_hash(make_recipe(BASE, ["optimizer.lr=0.2"]))


@pytest.mark.errors
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {}}, r"method: unknown key"),
        ({"seeds": [0, 0]}, r"seeds must all differ, got \[0, 0\]"),
        ({"seeds": []}, r"seeds: .* at least 1 item"),
        ({"methods": {"a b": {}}}, r"methods.a b"),
        ({"methods": {"ce": {"overrides": ["loss=nois_topk"]}}}, r"did you mean 'noised_topk'"),
        (
            {"methods": {"ce": {"grid": {"loss.gamma": [1]}}}},
            r"ce/lr=0.001,gamma=1/seed-0: loss.gamma: unknown",
        ),
        ({"methods": {"a": {"from": "b"}}}, r"methods.a.from must be a method .* got 'b'"),
        ({"methods": {"a": {}, "b": {"from": "a"}, "c": {"from": "b"}}}, r"methods.c.from must be .*\(a\)"),
        ({"methods": {"a": {}, "b": {"from": "a", "posterior": True}}}, r"either from or posterior"),
        (
            {"methods": {"ce": {}, "b": {"from": "ce", "overrides": ["epochs=3"]}}},
            r"methods.b takes the scores of ce, .* got another epochs",
        ),
        ({"metrics": ["top5.marco"]}, r"got 'top5.marco'; did you mean 'top5.macro'"),
        ({"tune": {"metric": "sets.average3.coverage.micro"}}, r"got 'sets.average3.coverage.micro'"),
        ({"vary": {"data.label_noise": []}}, r"vary.data.label_noise must have at least one value"),
        ({"vary": {"seed": [0, 1]}}, r"vary.seed must be called otherwise"),
        ({"vary": {"method": {"a": []}}}, r"vary.method must be called otherwise"),
        ({"methods": {"ce": {"grid": {"seed": [5, 6]}}}}, r"those of the suite, got 'seed=5'"),
        ({"methods": {"ce": {"overrides": ["name=a"]}}}, r"those of the suite, got 'name=a'"),
        ({"base": "nowhere.yaml"}, r"nowhere.yaml"),
        ({"name": ".."}, r"name: String should match"),
        (
            {"methods": {"a": {"posterior": True}, "b": {"from": "a"}}},
            r"methods.b.from must be a method that",
        ),
        (
            {"base": BASE | {"data": {"name": "glyphs"}}, "methods": {"ce": {"posterior": True}}},
            r"methods.ce.posterior needs a data set whose distribution is known .* got glyphs",
        ),
        (
            {
                "vary": {"loss.label_smoothing": [0.1, 0.2]},
                "methods": {"ce": {"overrides": ["loss=focal"]}},
                "baseline": "ce",
            },
            r"'loss=focal' comes after 'loss.label_smoothing=0.1' of vary, and would replace it",
        ),
        (
            {"vary": {"optimizer.lr": [0.1, 0.2]}, "methods": {"ce": {"grid": {"optimizer.lr": [0.3]}}}},
            r"'optimizer.lr=0.3' comes after 'optimizer.lr=0.1' of vary",
        ),
        ({"baseline": "c"}, r"baseline must be one of the methods \(.*\), got 'c'"),
    ],
)
def test_bad_suites_are_refused_before_anything_runs(tmp_path, changes, message):
    file = write(tmp_path, **changes)
    with pytest.raises((SuiteError, FileNotFoundError), match=message):
        plan_suite(load_suite(file))
    assert list(tmp_path.iterdir()) == [file]


def test_base_may_be_a_file(tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))
    assert load_suite(write(tmp_path, base="base.yaml")).base == BASE


OF_RUNS = [file for file in SUITES if file.stem != "multi_label"]  # which has another baseline


@pytest.mark.parametrize("file", OF_RUNS, ids=lambda path: path.stem)
def test_suites_that_come_with_it(file, tmp_path):
    suite = load_suite(file)
    assert suite.name == file.stem
    assert len(suite.seeds) >= 3 or "One seed." in suite.about
    assert suite.baseline == "ce"
    assert suite.about
    total, _ = SuiteState(suite, tmp_path).count()
    assert f"{total['trained']} trained runs" in suite.about
    baselines = [
        m for m in suite.methods.values() if m.source == "ce" and "adjust.temperature=fit" in m.overrides
    ]
    assert baselines
    tuned = [len(cell.points) > 1 for cell in plan_suite(suite) if cell.method.trains]
    assert all(tuned) or (not any(tuned) and "No grid" in suite.about)


def test_the_suite_of_several_labels(tmp_path):
    suite = load_suite(next(file for file in SUITES if file.stem == "multi_label"))
    assert "15 trained runs" in suite.about
    assert SuiteState(suite, tmp_path).count()[0] == {"trained": 15, "of others": 0}
    recipes = [make_recipe(suite.base, cell.method.overrides) for cell in plan_suite(suite)]
    assert {recipe.loss.name for recipe in recipes} == {"binary_ce", "shared_ce", "sparse_top"}
    assert {recipe.labels for recipe in recipes} == {"several"}


def test_photographs_of_birds_have_a_recipe():
    assert load_recipe(RECIPES / "real" / "birds.yaml").data.options["root"] == "data/birds"


@pytest.mark.errors
def test_a_key_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "suite.yaml").write_text("name: a\nmethods:\n  ce: {}\n  ce: {overrides: [loss=focal]}\n")
    with pytest.raises(SuiteError, match=r"suite.yaml, line 4: 'ce' is there twice"):
        load_suite(tmp_path / "suite.yaml")
    (tmp_path / "recipe.yaml").write_text("epochs: 1\nloss: {name: focal, gamma: 1, gamma: 2}\n")
    with pytest.raises(RecipeError, match=r"recipe.yaml, line 2: 'gamma' is there twice"):
        load_recipe(tmp_path / "recipe.yaml")


@pytest.mark.errors
def test_nothing_is_chosen_on_test_rows():
    base = {"data": {"name": "cifar10_lt", "root": "x", "val_is_test": True}, "selection": {"metric": "last"}}
    suite = Suite(name="a", base=base, methods={"ce": Method(grid={"optimizer.lr": [0.1, 1.0]})})
    with pytest.raises(SuiteError, match=r"methods.ce has a grid of 2 points, but its validation rows are"):
        plan_suite(suite)
    plan_suite(Suite(name="a", base=base, methods={"ce": Method()}))


def test_the_check_of_scores_has_every_loss():
    suite = load_suite(RECIPES / "checks" / "scores.yaml")
    names = {cell.name for cell in plan_suite(suite) if cell.method.trains} - {"ce"} | {"cross_entropy"}
    others = {*NOT_FROM_A_RECIPE, "label_sets"}
    assert names == {name for name in TRAINABLE_LOSSES if not needs_of(name) & others}


@pytest.mark.errors
def test_a_suite_whose_base_was_not_read_is_refused():
    with pytest.raises(SuiteError, match=r"base must be a recipe here, .* got the file 'base.yaml'"):
        plan_suite(Suite(name="a", base="base.yaml", methods={"ce": Method()}))
