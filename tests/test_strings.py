"""The files of sentences: each language says what English says, with the same numbers in it."""

import json
import re
from importlib.resources import files
from string import Formatter

import pytest

from shortlist._text import flatten
from shortlist.promise import Measured, Promise, Scope
from shortlist.sentences import (
    LANGUAGES,
    language_for,
    promise_in_short,
    promise_words,
    speaking,
    strings,
)

OTHERS = [language for language in LANGUAGES if language != "en"]


def read(language: str) -> dict[str, str]:
    path = files("shortlist").joinpath(f"_strings/{language}.json")
    return flatten(json.loads(path.read_text(encoding="utf-8")))


def places(sentence: str) -> list[str]:
    """Return the names in braces, each once."""
    return sorted({name for _, name, _, _ in Formatter().parse(sentence) if name})


def test_there_is_a_file_for_each_language_and_no_other():
    names = {path.name for path in files("shortlist").joinpath("_strings").iterdir()}
    assert names == {f"{language}.json" for language in LANGUAGES}


@pytest.mark.parametrize("language", OTHERS)
def test_a_language_has_the_keys_and_placeholders_of_english(language):
    english, other = read("en"), read(language)
    assert list(other) == list(english)
    assert {key: places(text) for key, text in other.items()} == {
        key: places(text) for key, text in english.items()
    }


@pytest.mark.parametrize("language", OTHERS)
def test_sentences_are_translated_and_end_as_in_english(language):
    english, other = read("en"), read(language)
    same = [key for key, text in other.items() if text == english[key] and re.search("[a-z]{4}", text)]
    # words that both languages share
    assert all(len(re.sub(r"{.*?}", "", english[key])) < 15 for key in same), same
    for key, text in other.items():
        if english[key].endswith((".", "?")) and not key.startswith("number") and key != "page.waiting":
            assert text.endswith(english[key][-1]), key


@pytest.mark.parametrize(
    ("language", "said"),
    [
        (
            "fr",
            "Sur 100 listes de ce type, 99,5 contiennent la bonne classe. La promesse vaut globalement "
            "(toutes les photos ensemble), pas pour chaque classe. Les listes ont été calibrées avec "
            "12\u202f345 photos : la part réelle se situe donc probablement entre 99,3 et 99,7 %. Ces photos "
            "ont aussi servi à choisir l'époque et ajuster les scores : la promesse n'est donc pas exacte.",
        ),
        (
            "de",
            "Von 100 solchen Listen enthalten 99,5 die richtige Klasse. Das Versprechen gilt insgesamt (alle "
            "Fotos zusammen), nicht für jede Klasse einzeln. Grundlage der Kalibrierung: 12.345 Fotos. Der "
            "wahre Anteil liegt deshalb wahrscheinlich zwischen 99,3 und 99,7 %. Mit diesen Fotos wurde auch "
            "die Epoche gewählt und die Bewertung angepasst; das Versprechen ist deshalb nicht exakt.",
        ),
    ],
)
def test_a_promise_with_its_numbers_as_the_language_writes_them(language, said):
    also = "chose the epoch and fitted the score map"
    promise = Promise("rows", level=0.995, asked=0.995, rows=12345, has_law=True, rows_also=also)
    english = promise_words(promise)
    with speaking(language):
        assert promise_words(promise) == said
    assert promise_words(promise) == english and "12,345 photos" in english


@pytest.mark.parametrize(
    ("language", "size", "said"),
    [
        ("en", 1, "1 class "),
        ("en", 1.5, "1.5 classes "),
        ("fr", 1.5, "1,5 classe "),
        ("fr", 2, "2 classes "),
        ("pt", 1.5, "1,5 classe "),
        ("de", 1.5, "1,5 Klassen"),
        ("de", 1, "1 Klasse."),
        ("es", 1.5, "1,5 clases "),
        ("it", 1, "1 classe "),
    ],
)
def test_plurals(language, size, said):
    with speaking(language):
        assert said in promise_in_short(Promise("size", size=size))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_of_promise_can_be_said(language):
    measured = Measured(921, 0.85, 0.83, 0.87, 1.3, 0.001)
    scope = Scope(unknown=2, photos=3, column="organ", value="leaf")
    with speaking(language):
        for about in strings()["promise"]["whom"]:
            for more in ({}, {"place": "X", "classes": 1}, {"place": "X", "classes": 1200, "scope": scope}):
                options = {
                    "level": 0.9,
                    "asked": 0.95,
                    "rows": 84,
                    "left_out": 2,
                    "measured": measured,
                    **more,
                }
                text = promise_words(Promise(about, group="genus", **options))
                assert not re.search("[{}]", text) and text.endswith(".") and "  " not in text


@pytest.mark.parametrize(
    ("wanted", "language"),
    [("de-CH", "de"), ("nl,it;q=0.2,es;q=0.1", "it"), ("pt-BR", "pt"), ("", "en"), ("ja", "en"), ("*", "en")],
)
def test_the_language_that_is_best_for_somebody(wanted, language):
    assert language_for(wanted) == language
