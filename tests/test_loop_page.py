"""The commands of docs/guides/loop.md, from the page, for three rounds, with answers over HTTP."""

import hashlib
import json
import random
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from shortlist.class_table import ClassTable
from tests.test_own_photos import CORNERS, ENVIRONMENT, draw_photo

PAGE = Path(__file__).parents[1] / "docs/guides/loop.md"
FIRST = ["data build", "init", "train", "index", "release", "serve"]
ROUND = ["feedback export", "data grow", "train", "index", "release"]
NAMES = dict(
    zip(
        CORNERS,
        ("Trigonum régulare L.", "Quadrum album/nigrum", ".Hexagonum", "QUADRUM album/nigrum"),
        strict=True,
    )
)  # of classes whose ids are numbers
IDS = dict(zip(CORNERS, ("1355868", "1355869", "7", "10"), strict=True))
PEOPLE = ("ann", "bea", "cem")
NEW = "Bastonum élongatum"  # a class that people propose: a line


def commands() -> tuple[list[list[str]], list[list[str]]]:
    """The commands of the page in their order: those before the first round, and those of a round."""
    lines = re.findall(r"^shortlist (.*?)(?:\s+#.*)?$", PAGE.read_text(), flags=re.M)
    words = [shlex.split(line) for line in lines]
    return words[: len(FIRST)], words[len(FIRST) :]


def verb(words: list[str]) -> str:
    return " ".join(words[: 2 if words[0] in ("data", "feedback") else 1])


def later(words: list[str]) -> list[str]:
    """The command of the next round, as the page says: each number is higher by one."""
    return [re.sub(r"(?<=data-|runs/)\d+", lambda digits: str(int(digits[0]) + 1), word) for word in words]


def shortlist(folder: Path, words: list[str]) -> str:
    short = {
        "train": ["--set", "epochs=8", "--set", "data.image_size=32"],
        "release": ["--tolerance", "0.9", "--size-tolerance", "9"],  # of models that learned next to nothing
    }
    command = [sys.executable, "-m", "shortlist", *words, *short.get(words[0], [])]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    return done.stdout


@contextmanager
def serving(folder: Path, words: list[str]) -> Iterator[str]:
    """Run the server of the page; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "shortlist", *words, "--port", str(port)]
    server = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}")
        assert server.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def wait_for(address: str, classes: int = 4) -> None:
    """Wait until the server answers with a model of so many classes."""
    stop = time.monotonic() + 120
    while time.monotonic() < stop:
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/v1/model").json()["classes"] == classes:
                return
        time.sleep(0.1)
    raise AssertionError(f"{address} has no model of {classes} classes")


def answer(address: str, photo: bytes, said: dict[str, str], observation: str) -> None:
    """One person looks at the list of a photo, gives the photo and says what it is; two others do so too."""
    files = {"images": ("photo.jpg", photo, "image/jpeg")}
    listed = httpx.post(f"{address}/v1/identify?receipt=true", files=files, timeout=60).json()
    about = {"observation": observation, "organs": ["leaf"], "license": "CC0 1.0"}
    event = said | {"person": PEOPLE[0], "receipt": listed["receipt"], "consent": True}
    content = json.dumps(event | {"about": about | {"author": f"A. {PEOPLE[0]}"}}).encode()
    form = {"event": ("event", content, "application/json"), **files}
    made = httpx.post(f"{address}/v1/feedback", files=form, timeout=60)
    assert made.status_code == 201, made.text
    for person in PEOPLE[1:]:
        votes = f"{address}/v1/observations/{made.json()['observation']}/votes"
        done = httpx.post(votes, json=said | {"person": person}, timeout=60)
        assert done.status_code == 201, done.text


def benchmark(folder: Path) -> dict[str, dict]:
    """The images of a benchmark by their bytes: two are never the same here."""
    images = json.loads((folder / "metadata.json").read_text())["images"]
    by_bytes = {
        hashlib.sha256((folder / name).read_bytes()).hexdigest(): entry for name, entry in images.items()
    }
    assert len(by_bytes) == len(images)
    return by_bytes


@pytest.mark.slow
def test_the_commands_of_the_page_for_three_rounds(tmp_path):
    first, of_round = commands()
    assert [verb(words) for words in first] == FIRST and [verb(words) for words in of_round] == ROUND
    chance = random.Random(0)
    for shape, corners in CORNERS.items():
        (tmp_path / "my_photos" / IDS[shape]).mkdir(parents=True)
        for number in range(40):
            draw_photo(tmp_path / "my_photos" / IDS[shape] / f"{number}.jpg", corners, chance)
    ClassTable([NAMES[shape] for shape in CORNERS], [IDS[shape] for shape in CORNERS]).save(
        tmp_path / "my_photos" / "class_table.json"
    )
    for words in first[:-1]:
        shortlist(tmp_path, words)
    with serving(tmp_path, first[-1]) as address:
        for number in (2, 3):
            for shape, corners in CORNERS.items():
                for photo in range(8):
                    draw_photo(tmp_path / "new.jpg", corners, chance)
                    said = {"verb": "other_class", "class_id": IDS[shape]}
                    answer(
                        address, (tmp_path / "new.jpg").read_bytes(), said, f"{shape} {number} {photo // 2}"
                    )
            for photo in range(6):  # of three observations each
                draw_photo(tmp_path / "new.jpg", 2, chance)
                said = {"verb": "new_name", "name": NEW}
                answer(address, (tmp_path / "new.jpg").read_bytes(), said, f"new {number} {photo // 2}")
            for words in of_round:
                printed = shortlist(tmp_path, words if number == 2 else later(words))
                if verb(words) == "data grow":
                    assert (f"waits: {NEW} has 3 of 5 observations" in printed) == (number == 2)
        draw_photo(tmp_path / "new.jpg", 2, chance)
        wait_for(address, classes=5)
        photo = {"images": ("photo.jpg", (tmp_path / "new.jpg").read_bytes(), "image/jpeg")}
        listed = httpx.post(f"{address}/v1/identify?top=5", files=photo, timeout=60).json()["candidates"]
    made = [benchmark(tmp_path / f"data-{number}") for number in (1, 2, 3)]
    assert [len(images) for images in made] == [160, 192, 236]
    assert (NEW, NEW) in {(candidate["id"], candidate["name"]) for candidate in listed}
    # with class, split, observation, organ, author and license
    assert made[0].items() <= made[1].items() <= made[2].items()
    frozen = {digest for digest, entry in made[0].items() if entry["split"] == "test"}
    assert len(frozen) > 10
    assert all({d for d, entry in images.items() if entry["split"] == "test"} == frozen for images in made)
    observations = {entry["observation"] for entry in made[2].values() if entry.get("organ") == "leaf"}
    assert len(observations) == 2 * 4 * len(CORNERS) + 2 * 3
    known = {IDS[shape]: NAMES[shape] for shape in CORNERS}
    tables = [ClassTable.load(tmp_path / f"data-{number}" / "class_table.json") for number in (1, 2, 3)]
    tables += [ClassTable.load(tmp_path / f"runs/{number}/model/class_table.json") for number in (1, 2, 3)]
    for table, new in zip(tables, [{}, {}, {NEW: NEW}] * 2, strict=True):
        assert dict(zip(table.ids, table.names, strict=True)) == known | new
    releases = json.loads(shortlist(tmp_path, ["releases", "releases", "--json"]))
    assert releases["current"] == 3
    assert [release["data"] for release in releases["releases"]] == ["data-1", "data-2", "data-3"]
    assert [Path(release["index"]).parent.name for release in releases["releases"]] == ["1", "2", "3"]
    assert releases["releases"][2]["against"] == releases["releases"][1]["version"]
