"""Search of names by how they begin and with mistakes, against a table of edit distances."""

import random

import numpy as np
import pytest

from shortlist.name_search import NameSearch, mistakes_allowed, search_key

SYLLABLES = "a be ci do lu me ra so ti nu pe qua rho sca tri vi xan ze gra phy ster mon é ö -".split()


def a_name(rng: random.Random) -> str:
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 5))) for _ in range(rng.randint(1, 3))]
    return " ".join([words[0].capitalize(), *words[1:]])


def with_mistakes(rng: random.Random, text: str, count: int) -> str:
    letters = list(text)
    for _ in range(count):
        place, kind = rng.randrange(len(letters)), rng.randrange(4)
        if kind == 0:
            letters.insert(place, rng.choice("abcdefgqxyz ж"))
        elif kind == 1:
            letters[place] = rng.choice("abcdefgqxyz ж")
        elif kind == 2 and len(letters) > 1:
            del letters[place]
        elif place + 1 < len(letters):
            letters[place], letters[place + 1] = letters[place + 1], letters[place]
    return "".join(letters)


def distance_to_beginning(text: str, names: list[str]) -> np.ndarray:
    """Return the fewest mistakes from a text to a beginning of each name, by the textbook's table."""
    width = max(map(len, names))
    letters = np.array([[ord(c) for c in name.ljust(width, "\0")] for name in names])
    inside = np.array([[column <= len(name) for column in range(width + 1)] for name in names])
    above = [np.arange(width + 1)[None].repeat(len(names), 0)]
    for row, letter in enumerate(text, start=1):
        line = np.zeros_like(above[0])
        line[:, 0] = row
        for column in range(1, width + 1):
            same = letters[:, column - 1] == ord(letter)
            best = np.minimum(above[-1][:, column - 1] + ~same, above[-1][:, column] + 1)
            line[:, column] = np.minimum(best, line[:, column - 1] + 1)
            if row > 1 and column > 1:
                here, before = letters[:, column - 1], letters[:, column - 2]
                swapped = (before == ord(letter)) & (here == ord(text[row - 2]))
                turned = np.minimum(line[:, column], above[-2][:, column - 2] + 1)
                line[:, column] = np.where(swapped, turned, line[:, column])
        above.append(line)
    return np.where(inside, above[-1], 99).min(1)


@pytest.mark.parametrize(
    ("text", "name", "mistakes"),
    [("abcd", "abcd", 0), ("abdc", "abcd", 1), ("abd", "abcdef", 1), ("xbcd", "abcdef", 1), ("ca", "abc", 1)],
)
def test_the_table_of_distances_itself(text, name, mistakes):
    assert distance_to_beginning(text, [name]).tolist() == [mistakes]


@pytest.mark.parametrize("seed", range(3))
def test_names_with_mistakes_are_those_of_the_table(seed):
    rng = random.Random(seed)
    names = [a_name(rng) for _ in range(1500)]
    search = NameSearch(names, range(len(names)))
    keys = [search_key(search.name(place)) for place in range(len(names))]
    found = 0
    for _ in range(40):
        text = rng.choice(names)[: rng.choice((4, 6, 9, 12, 70))]
        key = search_key(with_mistakes(rng, text, rng.randint(0, 3)))[:60]
        expected = distance_to_beginning(key, keys) if key else np.zeros(0)
        allowed = mistakes_allowed(len(key))
        places = np.flatnonzero(expected <= allowed) if allowed else ()
        near = {int(place): int(expected[place]) for place in places}
        assert dict(search.near(key)) == near, key
        found += len(near)
    assert found > 50


def test_the_beginning_is_that_of_the_alphabet():
    rng = random.Random(7)
    names = [a_name(rng) for _ in range(2000)]
    search = NameSearch(names, range(len(names)))
    for _ in range(100):
        text = rng.choice(names)[: rng.randint(1, 6)]
        key = search_key(text)
        expected = sorted(search_key(name) for name in names if search_key(name).startswith(key))[:10]
        matches = [match for match in search.find(text) if search_key(match.name).startswith(key)]
        assert [search_key(match.name) for match in matches] == expected


NAMES = [
    "Quercus robur",
    "Quercus rubra",
    "Mentha × piperita",
    "×Cupressocyparis leylandii",
    "Pinus nigra subsp. laricio",
    "Drosera rotundifolia",
    "chêne pédonculé",
    "Дуб черешчатый",
    "オーク",
]


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("QUERCUS RO", "Quercus robur"),
        ("robur", "Quercus robur"),
        ("q. rob", "Quercus robur"),
        ("que rub", "Quercus rubra"),
        ("Quercus robur L.", "Quercus robur"),
        ("Qercus robrr", "Quercus robur"),
        ("Querucs", "Quercus robur"),
        ("mentha x piperita", "Mentha × piperita"),
        ("mentha piperita", "Mentha × piperita"),
        ("Cupressocyparis", "×Cupressocyparis leylandii"),
        ("pinus nigra laricio", "Pinus nigra subsp. laricio"),
        ("Pinus nigra J.F.Arnold subsp. laricio (Poir.) Maire", "Pinus nigra subsp. laricio"),
        ("rotundifolai", None),  # mistakes are looked for from the start of a name
        ("drosera rotondifola", "Drosera rotundifolia"),
        ("CHENE", "chêne pédonculé"),
        ("дуб ч", "Дуб черешчатый"),
        ("オー", "オーク"),
        ("  ", None),
        ("×", None),
        ("zzzz", None),
        ("a" * 500, None),
    ],
)
def test_people_find_what_they_mean(text, best):
    found = NameSearch(NAMES, range(len(NAMES))).find(text)
    assert (found[0].name if found else None) == best


def test_an_owner_is_found_once_and_no_more_than_asked_for():
    search = NameSearch(["oak", "oak tree", "oaken", "oakum"], [0, 0, 1, 2])
    assert [(match.owner, match.name) for match in search.find("oak")] == [
        (0, "oak"), (1, "oaken"), (2, "oakum"),
    ]  # fmt: skip
    assert len(search.find("oak", limit=2)) == 2
    assert NameSearch([], []).find("oakk") == []


def test_names_of_more_letters_than_are_compared_are_found():
    long = "a" * 61 + "bcd" + "e" * 40
    search = NameSearch([long, "b"], [0, 1])
    assert search.find(long)[0].owner == 0 and search.find("b" + long)[0].owner == 0
