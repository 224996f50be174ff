"""A server that follows the current release, without a restart and without a lost request."""

import threading
import time

import httpx

from shortlist.serve.app import make_app
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.following import Following, Served
from shortlist.serve.service import Service
from tests.serve.parts import Index, files, png, tree_model
from tests.serve.running import running


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
