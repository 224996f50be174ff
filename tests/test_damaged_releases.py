"""Every file of a folder of releases, damaged in every way, before every verb that reads it.

A verb ends with what it says of the undamaged folder, or in a line that names what is wrong; then the list
is as it was. A server that follows the list goes on with the model it has.
"""

import asyncio
import contextlib
import io
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

import shortlist.serve
from shortlist import Model
from shortlist.releases import Releases
from shortlist.serve.app import make_app
from shortlist.serve.following import Following, Served
from shortlist.serve.service import Service
from tests.commands import run
from tests.compare.pixels import C, pixel_model
from tests.test_damage import DAMAGES, IN_PLACE, spoil

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PIXELS = torch.linspace(-1, 1, 32).view(2, 1, 4, 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Iterator[Path]:
    """Three releases, a fourth model, test images, and a second folder with the same names of models."""
    folder = tmp_path_factory.mktemp("whole")
    for index in range(C):
        place = folder / "frozen" / f"c{index:02d}"
        place.mkdir(parents=True)
        for number in range(2):
            pixels = torch.full((16,), 40 * number, dtype=torch.uint8)
            pixels[index] = 200
            Image.fromarray(pixels.view(4, 4).numpy()).save(place / f"{number}.png")
    kinds = {"first": (1, 2), "second": (3,), "third": (), "fourth": (0,)}
    for name, wrong in kinds.items():
        pixel_model(wrong=wrong).save(folder / name)
        pixel_model(wrong=wrong, shift=0.1).save(folder / f"other {name}")
    for model in ("first", "second", "third"):
        Releases(folder / "releases").add(folder / model, who="ann")
        Releases(folder / "other").add(folder / f"other {model}", who="ann")
    for one, other in zip(*(Releases(folder / name).all() for name in ("releases", "other")), strict=True):
        goal = folder / "other" / "models" / one.version
        shutil.copytree(folder / "other" / "models" / other.version, goal, dirs_exist_ok=True)
    yield folder


def release(folder: Path, whole: Path) -> tuple[str, object]:
    words = ("--data", whole / "frozen", "--to", folder, "--who", "bob", "--tolerance", "0.5", "--json")
    code, out, err = run("release", whole / "fourth", *words)
    return out + err, (out, entries(folder)) if code == 0 else None


def back(folder: Path, whole: Path) -> tuple[str, object]:
    code, out, err = run("releases", folder, "--back", "--who", "bob")
    return out + err, entries(folder) if code == 0 else None


def listing(folder: Path, whole: Path) -> tuple[str, object]:
    code, out, err = run("releases", folder, "--json")
    return out + err, out if code == 0 and not err else None


def examine(folder: Path, whole: Path) -> tuple[str, object]:
    code, out, err = run("doctor", folder)
    return out + err, None if code else "well"


def followed(folder: Path) -> tuple[str, list]:
    """Start ``shortlist serve`` up to its sockets; returns what it printed and what would be followed."""
    caught, before = [], shortlist.serve.serve
    shortlist.serve.serve = lambda service, **_: caught.append(service)
    try:
        _, _, err = run("serve", folder, "--feedback", folder.parent / "feedback")
    finally:
        shortlist.serve.serve = before
    return err, caught


def serve(folder: Path, whole: Path) -> tuple[str, object]:
    said, caught = followed(folder)
    if not caught:
        return said, None
    try:
        service = caught[0].make()
    except ValueError as error:
        return str(error), None
    return said, (caught[0].version(), service.model.scores(PIXELS).tolist())


def follow(folder: Path, whole: Path) -> tuple[str, object]:
    """A server that has served another model before, and sees the damaged folder as the next release."""
    old = Service(pixel_model())
    log, turns = io.StringIO(), 0
    place = Releases(folder)

    def version() -> str:
        nonlocal turns
        turns += 1
        current = place.current() if turns > 1 else None
        return "" if current is None else current.version

    def make() -> Served:
        current = place.current() if turns > 1 else None
        service = old if current is None else Service(Model.load(place.model_path(current)))
        return Served(service, make_app(service))

    handler = logging.StreamHandler(log)
    logging.getLogger("shortlist.serve").addHandler(handler)
    try:
        found = asyncio.run(watch(Following(version, make, every=0.001), lambda: turns > 4))
    finally:
        logging.getLogger("shortlist.serve").removeHandler(handler)
    assert len(log.getvalue()) < 6000
    return log.getvalue(), None if found is old else found.model.scores(PIXELS).tolist()


async def watch(following: Following, done) -> Service:
    """Let it live until it has looked often enough; returns what it serves then."""
    to_app: asyncio.Queue = asyncio.Queue()

    async def send(_: object) -> None: ...

    await to_app.put({"type": "lifespan.startup"})
    life = asyncio.create_task(following({"type": "lifespan"}, to_app.get, send))
    while not done():
        await asyncio.sleep(0.001)
    await to_app.put({"type": "lifespan.shutdown"})
    await life
    return following.served.service


VERBS = (release, back, listing, examine, serve, follow)


def entries(folder: Path) -> object:
    """The list, without times."""
    content = json.loads((folder / "releases.json").read_text())
    for entry in (*content["releases"], *content["history"]):
        del entry["time"]
    return {key: value for key, value in content.items() if key != "checksum"}


def files(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.name != ".lock":
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def check(verb, name: str, whole: Path, tmp_path: Path) -> int:
    folder = Path(shutil.copytree(whole / "releases", tmp_path / "whole" / "releases"))
    expected = verb(folder, whole)[1]
    assert expected is not None
    shutil.rmtree(tmp_path / "whole")
    for damage in (*DAMAGES, *IN_PLACE):
        folder = Path(shutil.copytree(whole / "releases", tmp_path / damage / "releases"))
        spoil(folder, name, damage, whole / "other")
        before = files(folder)
        said, found = verb(folder, whole)
        case = f"{verb.__name__}, {name}, {damage}: {said[-600:]}"
        assert "Traceback" not in said, case
        if found is None:
            assert str(folder) in said and 0 < len(said) < 6000 and files(folder) == before, case
            named = Path(name).name in said or Path(name).parent.name in said
            assert named or damage == "of another run", case  # of such a list, the models that it names
        else:  # models that a verb does not read stay as they are
            assert found == expected, case
        shutil.rmtree(folder.parent)
    return len(DAMAGES) + len(IN_PLACE)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("place", ["the list", "models/first", "models/second", "models/third"])
def test_releases(verb, place, whole, tmp_path):
    names = ["releases.json"]
    if place != "the list":
        number = ["models/first", "models/second", "models/third"].index(place)
        model = f"models/{Releases(whole / 'releases').all()[number].version}"
        names = [f"{model}/{name}" for name in files(whole / "releases" / model)]
        assert len(names) >= 6
    assert sum(check(verb, name, whole, tmp_path / str(i)) for i, name in enumerate(names)) >= 12 * len(names)
