"""A plain route answers as FastAPI's own way does."""

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from shortlist.serve import app as app_module
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.serve.parts import files, png

QUERIES = (
    "",
    "top=2&limit=3",
    "classes=q1&classes=b1&top=1",
    "top=2&top=3",
    "top=",
    "macro=maybe",
    "coverage=0.9&macro=1",
    "coverage=nan",
    "limit=0",
    "topk=3",
    "predictor=%FF%00",
    "a;b=&&=&top=1",
)


@pytest.fixture
def both(model, tmp_path, monkeypatch):
    """Two servers: one with plain routes, one without."""
    short = TestClient(make_app(Service(model, feedback=tmp_path / "f")))
    monkeypatch.setattr(app_module, "plain_route", lambda route: Route("/nothing", lambda request: None))
    long = TestClient(make_app(Service(model, feedback=tmp_path / "f")))
    with short, long:
        yield short, long


def test_both_ways_answer_alike(both):
    for path in ("/v1/identify", "/v1/identify/batch"):
        for query in QUERIES:
            answers = [client.post(f"{path}?{query}", files=files(png(1))) for client in both]
            bodies = [{**answer.json(), "seconds": 0} for answer in answers]
            assert bodies[0] == bodies[1], query
            assert answers[0].status_code == answers[1].status_code
            heads = [{k: v for k, v in a.headers.items() if k != "content-length"} for a in answers]
            assert heads[0] == heads[1]
        assert both[0].get(path).status_code == both[1].get(path).status_code == 405
    counted = ['route="/v1/identify",status="200"' in client.get("/metrics").text for client in both]
    assert counted == [True, True]
    assert both[0].get("/openapi.json").json() == both[1].get("/openapi.json").json()
