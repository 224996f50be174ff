"""Code that a file names: whose may run, and what is said of the rest."""

import sys

import pytest

from shortlist._named_code import code_error, find_code, is_trusted, settings_file, trusted_packages


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "shortlist").mkdir()
    return tmp_path / "shortlist" / "settings.yaml"


def test_settings_are_where_the_user_keeps_them(settings, monkeypatch, tmp_path):
    assert settings_file() == settings
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("", "relative/folder"):  # which its specification tells to ignore
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        assert settings_file() == tmp_path / "home" / ".config" / "shortlist" / "settings.yaml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert settings_file() == tmp_path / "home" / ".config" / "shortlist" / "settings.yaml"


def test_a_trusted_name_is_a_whole_package_or_module(settings):
    assert trusted_packages() == () and not is_trusted("my_package:make")
    settings.write_text("trusted_code: [my_package, other.nets]\n")
    for name in ("my_package:make", "my_package.nets:make", "my_package.a.b:make", "other.nets:make"):
        assert is_trusted(name), name
    for name in ("my_package2:make", "my_packag:make", "other:make", "other.nets2:make", "os:my_package", ""):
        assert not is_trusted(name), name


@pytest.mark.errors
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trusted: [a]", "must have no other key than trusted_code, got 'trusted'"),
        ("trusted_code: a", "trusted_code must be a list of packages or modules, got 'a'"),
        ("trusted_code: ['']", "must hold names such as my_package, got ''"),
        ("trusted_code: ['*']", r"must hold names such as my_package, got '\*'"),
        ("trusted_code: ['a.']", r"must hold names such as my_package, got 'a.'"),
        ("trusted_code: [3]", "must hold names such as my_package, got 3"),
        ("[a]", "must hold a mapping"),
        ("[", "is not YAML"),
    ],
)
def test_wrong_settings_are_named(text, message, settings):
    settings.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        is_trusted("a:b")
    assert str(settings) in str(error.value)


@pytest.mark.errors
def test_the_refusal_says_where_what_and_how(settings):
    said = str(code_error("model.name", "os:spawnvp"))
    for words in (
        "model.name is 'os:spawnvp'",
        "--allow-code",
        "allow_code=True",
        "trusted_code",
        str(settings),
    ):
        assert words in said


@pytest.mark.errors
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:f", "loggers needs no_such_module, which cannot be imported"),
        ("fails_when_imported:f", r"cannot be imported \(ZeroDivisionError: division by zero\)"),
        ("json:nothing", "loggers must be package.module:function, got 'json:nothing': json has no such"),
        ("json:__name__", "json has no such function"),
        *(
            (name, "loggers must be package.module:function, got")
            for name in (":", "json", ".json:x", "os:a.b")
        ),
    ],
)
def test_code_that_is_not_there_is_named(name, message, tmp_path, monkeypatch):
    (tmp_path / "fails_when_imported.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=message):
        find_code("loggers", name)
    assert "fails_when_imported" not in sys.modules
