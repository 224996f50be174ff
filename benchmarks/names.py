"""How long a search among 400,000 made-up scientific names takes: by how they begin, and with mistakes.

With rapidfuzz installed, it also says how long its comparison with all names takes.
"""

import random
import statistics
import time
from collections.abc import Callable
from importlib import import_module

from shortlist.name_search import NameSearch, search_key

NAMES, TURNS, GOAL = 400_000, 100, 20
ROOTS = """querc acer betul astragal hierac rub euphorb senec solan pip carex campan gentian salvi menth thym
orchis dendrob bulbophyll epidendr psychotr begon ficus syzyg eucalypt acac lupin trifol vici potentill ros
prun sorb crataeg allium tulip crocus iris lili narciss anemon ranuncul aconit delphin clemat viol saxifrag
sedum crassul aeon drab cardam brassic sisymbr centaur cirs artemis anthem aster eriger solidag""".split()
FIRST = "macro micro lepto platy hetero poly mono tri brachy steno angusti lati longi brevi grandi albi nigri"
SECOND = "phyll flor caul foli carp sperm petal stachy anth rhiz trich lob dent ram spin cephal glos pod"
ENDS = "us a um is oides ensis iana ata osus inus"


def made_names(rng: random.Random) -> list[str]:
    """Return names of some 14,000 genera."""
    first, second, ends = FIRST.split(), SECOND.split(), ENDS.split()

    def genus() -> str:
        root = rng.choice(ROOTS)[: rng.randint(3, 8)] + rng.choice(["", "o", "i"])
        return (root + rng.choice([*second, *[""] * 10]) + rng.choice(["us", "a", "um", "is"])).capitalize()

    def epithet() -> str:
        if rng.random() < 0.5:
            return rng.choice(first) + rng.choice(second) + rng.choice(ends)
        pairs = (rng.choice("bcdfglmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 5)))
        return "".join(pairs) + rng.choice(ends)

    genera = sorted({genus() for _ in range(20_000)})
    names: dict[str, None] = {}
    while len(names) < NAMES:
        names[f"{rng.choice(genera)} {epithet()}"] = None
    return list(names)


def with_mistakes(rng: random.Random, text: str, count: int) -> str:
    """Return a text with letters added, changed, left out or swapped."""
    letters = list(text)
    for _ in range(count):
        place, kind = rng.randrange(len(letters)), rng.randrange(4)
        if kind == 0:
            letters.insert(place, rng.choice("abcdefghijklm"))
        elif kind == 1:
            letters[place] = rng.choice("abcdefghijklm")
        elif kind == 2:
            del letters[place]
        elif place + 1 < len(letters):
            letters[place], letters[place + 1] = letters[place + 1], letters[place]
    return "".join(letters)


def report(what: str, make: Callable[[], str], search: Callable[[str], object]) -> None:
    """Print the time of a search for texts that are made one by one."""
    times = []
    for _ in range(TURNS):
        text, start = make(), time.perf_counter()
        search(text)
        times.append(1e3 * (time.perf_counter() - start))
    high = sorted(times)[int(0.95 * TURNS)]
    words = f"median {statistics.median(times):6.2f} ms, 95 % within {high:6.2f} ms (goal: {GOAL} ms)"
    print(f"{what:32s} {words}")


def main() -> None:
    """Print the times of searches."""
    rng = random.Random(0)
    names = made_names(rng)
    start = time.perf_counter()
    search = NameSearch(names, range(len(names)))
    print(f"{len(names):,} names, made ready in {time.perf_counter() - start:.1f} s")
    one = lambda: rng.choice(names)  # noqa: E731
    report("a letter", lambda: one()[:1], search.find)
    report("three letters", lambda: one()[:3], search.find)
    report("the start of each word", lambda: " ".join(w[:3] for w in one().split()), search.find)
    report("four letters, 1 mistake", lambda: with_mistakes(rng, one()[:4], 1), search.find)
    report("nine letters, 2 mistakes", lambda: with_mistakes(rng, one()[:9], 2), search.find)
    report("a whole name, 2 mistakes", lambda: with_mistakes(rng, one(), 2), search.find)
    try:
        process, distance = import_module("rapidfuzz.process"), import_module("rapidfuzz.distance")
    except ImportError:
        print("rapidfuzz is not installed: no comparison")
        return
    keys = list(map(search_key, names))

    def compare_all(text: str) -> object:
        return process.extract(search_key(text), keys, scorer=distance.OSA.distance, score_cutoff=2, limit=10)

    report("rapidfuzz: a whole name", lambda: with_mistakes(rng, one(), 2), compare_all)


if __name__ == "__main__":
    main()
