"""A server that follows the current release, without a restart and without a lost request."""

import threading
import time

import httpx
import pytest

from shortlist import ClassTable, Model
from shortlist.releases import Releases
from shortlist.serve.app import make_app
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.following import Following, Served
from shortlist.serve.service import Service
from shortlist.serve.source import ServiceSource
from tests.serve.parts import TREES, Gray, Index, files, photographed_model, picture, png, tree_model
from tests.serve.running import running
from tests.serve.test_places import inside, population

PARK = {"f1": 4.0, "b1": 2.0, "b2": 1.0, "yew": 3.0}
RELEASED = {  # ids of the classes of each release: the place loses one and gains one, and all others move
    "first": TREES.ids,
    "second": ("yew", "b1", "q1", "f1", "a/1", "q2"),
    "without": ("n1", "n2", "n3", "n4", "n5", "n6"),
    "last": ("f1", "b1", "b2", "yew", "q1", "q2"),
}


def test_another_release_is_served_while_requests_run(tmp_path):
    now, desk = ["one"], FeedbackDesk(tmp_path / "feedback")

    def make() -> Served:
        if now[0] == "broken":
            raise ValueError("this model cannot be loaded")
        service = Service(tree_model(about={"name": now[0]}), index=Index(), feedback=desk)
        return Served(service, make_app(service))

    def name() -> str:
        return httpx.get(f"{address}/v1/model").json()["name"]

    def wait_for(expected: str) -> None:
        stop = time.monotonic() + 30
        while name() != expected:
            assert time.monotonic() < stop
            time.sleep(0.02)

    following = Following(lambda: now[0], make, close=desk.close, every=0.05)
    with running(following) as address:
        first = following.served.service
        assert name() == "one"
        said = httpx.post(f"{address}/v1/identify?receipt=true", files=files(png(1))).json()
        statuses, stop = [], threading.Event()

        def ask() -> None:
            with httpx.Client() as client:
                while not stop.is_set():
                    statuses.append(client.post(f"{address}/v1/identify", files=files(png(2))).status_code)

        askers = [threading.Thread(target=ask) for _ in range(2)]
        for asker in askers:
            asker.start()
        now[0] = "two"
        wait_for("two")
        now[0] = "broken"
        time.sleep(0.3)
        assert name() == "two"  # the one before goes on
        now[0] = "three"
        wait_for("three")
        stop.set()
        for asker in askers:
            asker.join()
        assert len(statuses) > 5 and set(statuses) == {200}
        # a receipt of the first model is good for all
        event = {"verb": "none_of_these", "receipt": said["receipt"], "person": "p"}
        assert httpx.post(f"{address}/v1/feedback", json=event).status_code == 201
        assert not first.batcher.alive
    assert not following.served.service.batcher.alive


def model_of(ids: tuple[str, ...]) -> Model:
    table = ClassTable(names=tuple(f"tree {id}" for id in ids), ids=ids, counts=TREES.counts)
    return photographed_model(table)


def check_park(address: str, model: Model) -> None:
    """Require sets and promises of the place as they are made from the rows of this model alone."""
    here = {id: weight for id, weight in PARK.items() if id in model.classes.ids}
    [listed] = httpx.get(f"{address}/v1/places").json()["places"]
    assert listed["classes"] == len(here)
    assert listed["unknown_names"] == [id for id in PARK if id not in here]
    for photos in (1, 3):
        rows = population(model, place=here, photos=photos)
        values = rows.values(model.scores(model.prepare(map(picture, range(photos)))))

        def ask(photos: int = photos, **choice):
            sent, params = files(*map(png, range(photos))), {"place": "park", **choice}
            return httpx.post(f"{address}/v1/identify", params=params, files=sent).json()

        for coverage in (0.51, 0.83, 0.93):
            body = ask(coverage=coverage)
            [members] = rows.sets_of_coverage(values, coverage)
            assert inside(body) == {model.classes.ids[index] for index in members.nonzero()[0]}
            assert {candidate["id"] for candidate in body["candidates"]} == here.keys()
            promise = body["promise"]
            assert promise["holds"] and promise["level"] == coverage and promise["rows"] == rows.size
        assert ask(top=1)["promise"]["share"] == pytest.approx(rows.coverage_of_top(1))


def test_a_place_is_that_of_the_current_release(tmp_path):
    models = {name: model_of(ids) for name, ids in RELEASED.items()}
    for name, model in models.items():
        model.save(tmp_path / name)
    (tmp_path / "places").mkdir()
    (tmp_path / "places" / "park.csv").write_text("".join(f"{id},{weight}\n" for id, weight in PARK.items()))
    releases = Releases(tmp_path / "releases")
    version = releases.add(tmp_path / "first", who="ann").version
    network, desk = f"{Gray.__module__}:Gray", FeedbackDesk(tmp_path / "feedback")
    source = ServiceSource(str(releases.folder), places=str(tmp_path / "places"), network=network)
    follow, refused = source.follow(desk), threading.Event()

    def make() -> Served:
        try:
            service = follow.make()
        except ValueError as error:
            assert "place park must name at least 1 class of the model" in str(error)
            refused.set()
            raise
        return Served(service, make_app(service))

    def wait_for(version: str) -> None:
        stop = time.monotonic() + 30
        while httpx.get(f"{address}/v1/model").json()["version"] != version:
            assert time.monotonic() < stop
            time.sleep(0.02)

    with running(Following(follow.version, make, close=follow.close, every=0.05)) as address:
        wait_for(version)
        check_park(address, models["first"])
        wait_for(releases.add(tmp_path / "second", who="ann").version)
        check_park(address, models["second"])
        releases.add(tmp_path / "without", who="ann")
        assert refused.wait(30)
        check_park(address, models["second"])  # the one before goes on
        wait_for(releases.add(tmp_path / "last", who="ann").version)
        check_park(address, models["last"])
