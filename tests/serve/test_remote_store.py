"""A server whose store is a database elsewhere: lists never wait for it, whether it fails or hangs."""

import time

import pytest
from starlette.testclient import TestClient

from shortlist.feedback.store import stats_of
from shortlist.serve import feedback as routes
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.serve.parts import files, png, receipt_of


def listed(client, seed: int = 1) -> dict:
    answer = client.post("/v1/identify?receipt=true", files=files(png(seed)))
    assert answer.status_code == 200 and answer.json()["candidates"]
    return answer.json()


def until_there_is_a_receipt(client) -> str:
    """The store is opened aside, which takes a moment."""
    deadline = time.monotonic() + 60
    while (receipt := listed(client)["receipt"]) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return receipt


@pytest.fixture
def admin(tmp_path):
    (tmp_path / "keys").write_text("an-administrators-key")
    return tmp_path / "keys"


def statuses(client, said: dict) -> list[int]:
    key = {"x-api-key": "an-administrators-key"}
    return [
        client.post("/v1/feedback", json=said).status_code,
        client.get("/v1/feedback/stats").status_code,
        client.post("/v1/feedback/deletions", json={"person": "nobody"}, headers=key).status_code,
    ]


def test_servers_of_several_hosts_share_receipts_answers_and_deletions(model, postgres, monkeypatch):
    address = postgres.database()
    first, second = (Service(model, feedback=address, audit=0.5) for _ in range(2))
    with TestClient(make_app(first)) as here, TestClient(make_app(second)) as there:
        receipt = until_there_is_a_receipt(here)
        until_there_is_a_receipt(there)
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        said = {"verb": "bad_image", "receipt": receipt, "person": "p", "id": "r1"}
        answers = [client.post("/v1/feedback", json=said).json() for client in (here, there)]
        assert [(one["number"], one["new"]) for one in answers] == [(1, True), (1, False)]
        assert there.get("/v1/feedback/stats").json()["events"] == 1
        assert [listed(client, 5)["audit"] for client in (here, there)] == [listed(here, 5)["audit"]] * 2
        assert here.get("/v1/model").json()["feedback"]["lists"] == 1
        assert second.feedback.store.erase_person("p").events == 1
        assert here.get("/v1/feedback/stats").json()["erased_events"] == 1


def test_lists_go_on_while_the_database_is_down(model, postgres, admin):
    address = postgres.database()
    service = Service(model, feedback=address, admin_keys=admin)
    with TestClient(make_app(service)) as client:
        said = {"verb": "none_of_these", "receipt": until_there_is_a_receipt(client), "id": "r1"}
        assert statuses(client, said) == [201, 200, 200]
        postgres.stop()
        try:
            assert statuses(client, said | {"id": "r2"}) == [507, 507, 507]
            assert listed(client)["receipt"]  # the secret is known
            assert client.get("/v1/model").status_code == 200
        finally:
            postgres.start()
        assert statuses(client, said | {"id": "r2"}) == [201, 200, 200]
    assert stats_of(address)["events"] == 2


def test_a_server_starts_without_its_database_and_finds_it_later(model, postgres, admin):
    address = postgres.database()
    postgres.stop()
    try:
        service = Service(model, feedback=address, admin_keys=admin)
        client = TestClient(make_app(service)).__enter__()
        assert listed(client)["receipt"] is None and listed(client)["audit"] is False
        refused = client.post("/v1/feedback", json={"verb": "none_of_these"})
        assert (refused.status_code, refused.json()["error"]["code"]) in (
            (503, "log_opening"),
            (507, "log_failed"),
        )
    finally:
        postgres.start()
    said = {"verb": "none_of_these", "receipt": until_there_is_a_receipt(client)}
    assert client.post("/v1/feedback", json=said).status_code == 201
    client.__exit__(None, None, None)


@pytest.mark.slow
def test_lists_go_on_while_the_database_hangs(model, postgres, admin, monkeypatch):
    monkeypatch.setattr(routes, "_WAIT_SECONDS", 0.2)
    monkeypatch.setattr("shortlist.serve.desk._DRIFT_SECONDS", 0.2)
    address = postgres.database()
    service = Service(model, feedback=address, admin_keys=admin)
    with TestClient(make_app(service)) as client:
        said = {"verb": "none_of_these", "receipt": until_there_is_a_receipt(client)}
        frozen = postgres.freeze()
        try:
            for number in range(12):  # more than there are threads for what waits
                assert client.post("/v1/feedback", json=said | {"id": f"r{number}"}).status_code == 503
            assert statuses(client, said | {"id": "r0"}) == [503, 503, 503]
            assert [listed(client, seed)["receipt"] is not None for seed in range(12)] == [True] * 12
            assert client.get("/v1/model").status_code == 200
        finally:
            postgres.thaw(frozen)
        monkeypatch.setattr(routes, "_WAIT_SECONDS", 60)
        answers = [client.post("/v1/feedback", json=said | {"id": f"r{n}"}).json() for n in range(12)]
        assert {answer["new"] for answer in answers} == {False}  # what waited was kept, once
    assert stats_of(address)["events"] == 12


def test_a_server_that_starts_before_a_database_that_hangs_gives_lists(model, postgres, admin):
    address = postgres.database()
    service = Service(model, feedback=address)
    frozen = postgres.freeze()
    try:
        client = TestClient(make_app(service)).__enter__()
        assert [listed(client, seed)["receipt"] for seed in range(12)] == [None] * 12
        assert client.post("/v1/feedback", json={"verb": "none_of_these"}).status_code in (503, 507)
    finally:
        postgres.thaw(frozen)
    until_there_is_a_receipt(client)
    assert (
        client.post(
            "/v1/feedback", json={"verb": "bad_image", "receipt": receipt_of(client.post)}
        ).status_code
        == 201
    )
    client.__exit__(None, None, None)
