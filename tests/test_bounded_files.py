"""YAML and JSON files that are too deep, too long or no files: refused at once, by name."""

import importlib.util
import json
import os
from itertools import pairwise

import pytest
import yaml

from shortlist._messages import MAX_MESSAGE, one_line, shortened
from shortlist._store import yaml as _yaml
from shortlist._store.files import read_text
from shortlist._store.json import MAX_DEPTH, parse_json, read_json
from shortlist._store.yaml import read_mapping
from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.predictors import load
from shortlist.recipes.recipe import RecipeError, load_recipe, make_recipe
from shortlist.suites.suite import SuiteError, load_suite

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghij")
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n" for before, name in pairwise("abcdefghij")
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 300))
BAD = {
    "flow": ("about: " + 5000 * "[" + 5000 * "]", "nested too deep: more than 100 levels"),
    "block": ("\n".join(" " * i + "a:" for i in range(1000)), "nested too deep"),
    "bomb": (BOMB, "too long: more than 100,000 values"),
    "merges": (MERGES, "too long"),
    "chain": (CHAIN, "nested too deep"),
    "itself": ("about: &a [*a]", "an alias stands inside of what it stands for"),
    "itself by key": ("about: &a {b: *a}", "an alias stands inside of what it stands for"),
    "long": ("about: [" + "1," * 100_001 + "]", "too long"),
    "large": ("about: " + "a" * 3_000_000, "too large: more than 2,000,000 bytes"),
    "no text": (b"\xff\xfe\x00", "is no text"),
    "object": ("about: !!python/object/apply:os.system [ls]", "is not YAML"),
}


SLOW = [pytest.param(case, marks=pytest.mark.slow) if case == "long" else case for case in BAD]


@pytest.mark.errors
@pytest.mark.parametrize("case", SLOW)
def test_yaml_is_refused_before_it_is_expanded(case, tmp_path):
    text, message = BAD[case]
    path = tmp_path / "odd.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for reads, kind in ((load_recipe, RecipeError), (load_suite, SuiteError), (read_mapping, ValueError)):
        with pytest.raises(kind, match=message) as error:
            reads(path)
        assert "odd.yaml" in str(error.value) and len(str(error.value)) < MAX_MESSAGE


@pytest.mark.errors
def test_settings_have_the_same_bounds():
    with pytest.raises(RecipeError, match="--set about, line 1: it is nested too deep"):
        make_recipe({}, ["about=" + 5000 * "["])
    with pytest.raises(RecipeError, match="--set about, line 1: 'a' is there twice"):
        make_recipe({}, ["about={a: 1, a: 2}"])


def test_aliases_within_the_bounds_are_values_as_any(tmp_path, monkeypatch):
    path = tmp_path / "fine.yaml"
    path.write_text("a: &a {x: [1, 2]}\nb: *a\nc: {<<: *a, y: *a}\n")
    expected = {"a": {"x": [1, 2]}, "b": {"x": [1, 2]}, "c": {"x": [1, 2], "y": {"x": [1, 2]}}}
    assert read_mapping(path) == expected
    # the mapping; of a: key, value, x, list, 1, 2; of b: key and the same 5; of c: key, value, <<, 5, y, 5
    monkeypatch.setattr(_yaml, "MAX_NODES", 27)
    assert read_mapping(path) == expected
    monkeypatch.setattr(_yaml, "MAX_NODES", 26)
    with pytest.raises(ValueError, match="line 3: it is too long"):
        read_mapping(path)
    monkeypatch.setattr(_yaml, "MAX_NODES", 27)
    monkeypatch.setattr(_yaml, "MAX_DEPTH", 5)  # the mapping, c, y, list, 1
    assert read_mapping(path) == expected
    monkeypatch.setattr(_yaml, "MAX_DEPTH", 4)
    with pytest.raises(ValueError, match="line 3: it is nested too deep"):
        read_mapping(path)


@pytest.mark.errors
@pytest.mark.parametrize("reads", [read_json, ClassTable.load, Results.load, load])
@pytest.mark.parametrize("text", ["[" * 5000, '{"a":' * 500 + "1" + "}" * 500, "{", b"\xff"])
def test_json_is_refused_by_name(reads, text, tmp_path):
    path = tmp_path / "odd.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r"odd.json") as error:
        reads(path)
    assert len(str(error.value)) < MAX_MESSAGE


def test_json_of_the_greatest_depth():
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH) == json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(ValueError, match="nested too deep: more than 100 levels"):
        parse_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert parse_json("3") == 3


@pytest.mark.errors
@pytest.mark.parametrize("reads", [read_text, read_json, read_mapping, ClassTable.load, load_recipe])
def test_pipes_and_devices_are_not_waited_for(reads, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match="is no regular file, but a pipe, a device or a socket"):
            reads(path)
    with pytest.raises(OSError, match="folder"):
        reads(tmp_path)


def test_messages_are_cut_in_the_middle():
    assert shortened("a" * MAX_MESSAGE) == "a" * MAX_MESSAGE
    cut = shortened("start " + "x" * 10**6 + " end")
    assert len(cut) <= MAX_MESSAGE and cut.startswith("start x") and cut.endswith("x end")
    left = 10**6 + 10 - (len(cut) - len(" ... (998054 characters left out) ... "))
    assert f" ... ({left} characters left out) ... " in cut
    assert one_line(ValueError("a\n  b")) == "a b" and one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize("compiled", [True, False])
def test_yaml_is_the_same_with_and_without_the_compiled_parser(compiled, monkeypatch):
    """A machine without libyaml reads the same values, and refuses the same texts."""
    if compiled and not yaml.__with_libyaml__:
        pytest.skip("libyaml is not here")
    monkeypatch.setattr(yaml, "__with_libyaml__", compiled)
    spec = importlib.util.find_spec("shortlist._store.yaml")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert issubclass(module._Loader, yaml.SafeLoader) != compiled
    text = "a: &x [1, 2.5, .inf, yes, null, '07', 2026-11-17]\nb: {c: *x, d: é}\ne: >\n  two\n  lines\n"
    assert module.parse_yaml(text) == yaml.safe_load(text)
    for bad, words in (
        (BOMB, "too long"),
        ("[" * 5000 + "]" * 5000, "nested too deep"),
        ("a: 1\nb: 2\na: 3", "line 3: 'a' is there twice"),
        ("a: &x [*x]", "an alias stands inside"),
    ):
        with pytest.raises(ValueError, match=words):
            module.parse_yaml(bad)
    for bad in ("a: [1, 2", "a: !!python/object/apply:os.system [ls]", "a: b: c"):
        with pytest.raises(yaml.YAMLError):
            module.parse_yaml(bad)
