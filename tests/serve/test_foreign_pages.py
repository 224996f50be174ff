"""Pages of other sites: what they send from a person's browser changes nothing."""

import pytest
from starlette.testclient import TestClient

from shortlist.feedback.store import is_store
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.serve.parts import Index, files, png, receipt_of, tree_model

SAID = {"verb": "do_not_know", "person": "p1", "consent": True}
HOST = "127.0.0.1:8000"
ROUTES = {
    "/v1/identify": {"files": files(png(1))},
    "/v1/identify/batch": {"files": files(png(1))},
    "/v2/identify/all": {"files": files(png(1))},
    "/v1/feedback": {"json": SAID},
    "/v1/feedback/deletions": {"json": {"person": "p1"}},
    "/v1/observations": {"json": {"person": "p1", "consent": True}},
}
FOREIGN = {
    "another site": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "a browser without Sec-Fetch-Site": {"origin": "http://evil.example"},
    "another port of this machine": {"origin": "http://127.0.0.1:9000", "sec-fetch-site": "same-site"},
    "another name of this machine": {"origin": "http://localhost:8000"},
    "a part of the name": {"origin": "http://127.0.0.1"},
    "a page that hides its origin": {"origin": "null"},
    "a header alone": {"sec-fetch-site": "cross-site"},
    "a name that holds ours": {"origin": "http://127.0.0.1:8000.evil.example"},
}
HOME = {
    "a program": {},
    "our page": {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"},
    "our page in an old browser": {"origin": f"http://{HOST}"},
    "our page behind a proxy with another Host": {
        "origin": "https://trees.example",
        "sec-fetch-site": "same-origin",
    },
    "a person who typed the address": {"sec-fetch-site": "none"},
}


@pytest.fixture
def start(tmp_path):
    (tmp_path / "keys").write_text("an-administrators-key")
    opened = []

    def begin(**options) -> TestClient:
        service = Service(
            tree_model(), index=Index(), feedback=tmp_path / "store", admin_keys=tmp_path / "keys"
        )
        app = make_app(service, **options)
        client = TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False).__enter__()
        opened.append(client)
        return client

    yield begin
    for client in opened:
        client.__exit__(None, None, None)


def sent(client, route: str, **headers: str) -> int:
    key = {"x-api-key": "an-administrators-key"}
    body = ROUTES[route]
    if route in ("/v1/feedback", "/v1/observations"):
        body = {"json": body["json"] | {"receipt": receipt_of(client.post)}}
    return client.post(route, headers={**key, **headers}, **body).status_code


@pytest.mark.errors
@pytest.mark.parametrize("who", FOREIGN)
@pytest.mark.parametrize("route", ROUTES)
def test_what_a_foreign_page_sends_is_refused(start, tmp_path, route, who):
    response = start().post(route, headers=FOREIGN[who], **ROUTES[route])
    assert (response.status_code, response.json()["error"]["code"]) == (403, "foreign_page")
    assert not is_store(tmp_path / "store")


@pytest.mark.parametrize("who", HOME)
def test_programs_and_our_own_page_are_served(start, who):
    client = start()
    assert [sent(client, route, **HOME[who]) for route in ROUTES] == [200, 200, 200, 201, 200, 201]


def test_pages_that_cors_names_are_served_and_no_others(start):
    client = start(origins=["https://page.example"])
    named = {"origin": "https://page.example", "sec-fetch-site": "cross-site"}
    assert [sent(client, route, **named) for route in ROUTES] == [200, 200, 200, 201, 200, 201]
    assert {sent(client, route, **FOREIGN["another site"]) for route in ROUTES} == {403}
    assert sent(start(origins=["*"]), "/v1/identify", **FOREIGN["another site"]) == 200


def test_reading_is_not_refused(start):
    assert start().get("/v1/model", headers=FOREIGN["another site"]).status_code == 200
