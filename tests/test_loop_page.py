"""The commands of docs/loop.md, from the first photos to the second release, with answers over HTTP."""

import json
import random
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.test_own_photos import CORNERS, ENVIRONMENT, draw_photo

PAGE = Path(__file__).parents[1] / "docs/loop.md"
VERBS = [
    "data build",
    "init",
    "train",
    "index",
    "release",
    "serve",
    "feedback export",
    "data votes",
    "data build",
]


def commands() -> list[list[str]]:
    """The commands of the page in their order."""
    lines = re.findall(r"^shortlist (.*?)(?:\s+#.*)?$", PAGE.read_text(), flags=re.M)
    return [shlex.split(line) for line in lines]


def shortlist(folder: Path, words: list[str]) -> str:
    short = ["--set", "epochs=2", "--set", "data.image_size=32"] if words[0] == "train" else []
    command = [sys.executable, "-m", "shortlist", *words, *short]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    return done.stdout


def answer(address: str, photo: bytes, truth: str) -> None:
    """Three people look at the list of a photo and name what it is; the first one gives the photo."""
    for number, person in enumerate(("ann", "bea", "cem")):
        files = {"images": ("photo.jpg", photo, "image/jpeg")}
        given = httpx.post(f"{address}/v1/identify?receipt=true", files=files, timeout=60).json()
        said = {"verb": "other_class", "class_id": truth, "person": person, "receipt": given["receipt"]}
        event = json.dumps(said | {"consent": number == 0}).encode()
        form = {"event": ("event", event, "application/json")} | (files if number == 0 else {})
        done = httpx.post(f"{address}/v1/feedback", files=form, timeout=60)
        assert done.status_code == 201, done.text


def serve_and_answer(folder: Path, words: list[str]) -> None:
    """Run the server of the page until ten new photos of each class have answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "shortlist", *words, "--port", str(port)]
    server = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    address, chance, stop = f"http://127.0.0.1:{port}", random.Random(1), time.monotonic() + 120
    try:
        while True:
            assert server.poll() is None and time.monotonic() < stop
            try:
                httpx.get(f"{address}/v1/model")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        for name, corners in CORNERS.items():
            for _ in range(10):
                draw_photo(folder / "new.jpg", corners, chance)
                answer(address, (folder / "new.jpg").read_bytes(), name)
    finally:
        server.terminate()
        server.wait(60)


@pytest.mark.slow
def test_the_commands_of_the_page_make_two_releases(tmp_path):
    words = commands()
    verbs = [" ".join(one[: 2 if one[0] in ("data", "feedback") else 1]) for one in words]
    assert verbs == [*VERBS, "train", "index", "release"]
    chance = random.Random(0)
    for name, corners in CORNERS.items():
        (tmp_path / "my_photos" / name).mkdir(parents=True)
        for number in range(40):
            draw_photo(tmp_path / "my_photos" / name / f"{number}.jpg", corners, chance)
    for one in words[:-1]:
        if one[0] == "serve":
            serve_and_answer(tmp_path, one)
        else:
            shortlist(tmp_path, one)
    images = [
        {key: entry["split"] for key, entry in json.loads(path.read_text())["images"].items()}
        for path in (tmp_path / "data-1" / "metadata.json", tmp_path / "data-2" / "metadata.json")
    ]
    assert len(images[0]) == 160 and images[0].items() <= images[1].items() and len(images[1]) == 200
    judged = subprocess.run(
        [sys.executable, "-m", "shortlist", *words[-1], "--tolerance", "0.9", "--size-tolerance", "9"],
        **{"cwd": tmp_path, "env": ENVIRONMENT, "capture_output": True, "text": True},
    )
    assert judged.returncode == 0 and "top1.micro" in judged.stdout, judged.stdout + judged.stderr
    releases = json.loads(shortlist(tmp_path, ["releases", "releases", "--json"]))
    assert releases["current"] == 2 and [one["data"] for one in releases["releases"]] == ["data-1", "data-2"]
    assert [Path(one["index"]).parent.name for one in releases["releases"]] == ["first", "second"]
    assert releases["releases"][1]["against"] == releases["releases"][0]["version"]
