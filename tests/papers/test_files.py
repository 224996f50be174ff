"""Recipes and suites of the publications are found by name, from any folder."""

import pytest

from shortlist.papers import list_tables, load_published, recipe_path, recipes, suites
from shortlist.papers.figures import FIGURES
from tests.commands import invoke


def test_every_table_suite_recipe_and_figure_is_listed():
    said = invoke("papers").stdout
    for layout in list_tables():
        assert f"    {layout.name}: {layout.caption}" in said
    assert {suite for layout in list_tables() for suite in layout.suites} == {
        table.suite for table in load_published() if table.suite
    }
    assert {f"  {name}" for name in recipes()} <= set(said.splitlines())
    assert all(f"  {name}: {about}" in said for name, about in FIGURES.items())


def test_every_suite_belongs_to_a_file_and_every_table_to_a_suite():
    assert {table.suite for table in load_published()} - {""} <= set(suites())
    assert all(recipe_path(name).is_file() for name in [*recipes(), *suites()])
    assert not set(recipes()) & set(suites())  # one name, one file


def test_commands_take_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = invoke("train", "papers:cifar100_average5", "--set", "data.root=missing").exception
    assert isinstance(error, ValueError | OSError) and "missing" in str(error)
    assert "garcin2022_noise" in invoke("suite", "status", "papers:garcin2022_noise").stdout


@pytest.mark.errors
@pytest.mark.parametrize(
    "words", [("train", "papers:cifar100_average"), ("suite", "status", "papers:cifar100_average")]
)
def test_an_unknown_name_is_refused_with_the_nearest(words):
    with pytest.raises(ValueError, match=r"papers:cifar100_average must name .* perhaps cifar100_average5"):
        raise invoke(*words).exception


@pytest.mark.errors
def test_a_suite_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises((ValueError, OSError), match=r"none\.yaml"):
        raise invoke("suite", "run", tmp_path / "none.yaml").exception
