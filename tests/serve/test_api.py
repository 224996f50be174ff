"""The routes of /v1, keys, limits and headers."""

import math
import re

import pytest
import torch

from shortlist.predictors import CalibrationRows
from shortlist.serve import schemas
from shortlist.serve.keys import Keys
from shortlist.serve.limits import Limits, RateLimit
from shortlist.serve.refusals import Refusal
from tests.serve.parts import TREES, files, picture, png, tree_model


def test_identify_answers_as_the_model_does(client, model):
    response = client.post("/v1/identify", params={"related_images": 1}, files=files(png(3)))
    assert response.status_code == 200
    body = response.json()
    schemas.IdentifyAnswer.model_validate(body)
    [expected] = model.short_lists([picture(3)], at_least=6)
    assert [c["id"] for c in body["candidates"]] == [c.id for c in expected]
    assert [c["probability"] for c in body["candidates"]] == pytest.approx([c.probability for c in expected])
    assert [c["in_set"] for c in body["candidates"]] == [c.in_set for c in expected]
    first = body["candidates"][0]["related_images"][0]
    assert first["thumbnail"] == f"/v1/images/{first['id']}" and first["author"] == "A. Person"
    assert client.get(first["thumbnail"]).headers["content-type"] == "image/jpeg"
    assert body["model"] == {"name": "trees", "version": "unsaved"} and body["images"] == 1
    assert "90 of 100" in body["promise"]["words"]


def test_options_are_heeded(client):
    body = client.post(
        "/v1/identify",
        params={"average": 1.7, "macro": True, "limit": 2, "classes": ["q1", "a/1", "b1"]},
        files=files(png(1), png(2)),
    ).json()
    assert len(body["candidates"]) == 2 and body["images"] == 2 and body["renormalized"]
    assert {c["id"] for c in body["candidates"]} <= {"q1", "a/1", "b1"}
    chosen = {name: value for name, value in body["choice"].items() if value is not None}
    assert chosen == {"average": 1.7, "macro": True, "at_least": 0, "place": ""}
    assert body["promise"]["size"] == 1.7 and not body["promise"]["holds"]


def test_a_batch_answers_each_and_names_the_bad_ones(client):
    contents = [png(1), b"no image", png(2), b""]
    response = client.post("/v1/identify/batch", params={"top": 1}, files=files(*contents))
    assert response.status_code == 200
    body = response.json()
    schemas.BatchAnswer.model_validate(body)
    assert [a["status"] == "bad_image" for a in body["answers"]] == [False, True, False, True]
    assert [a["error"]["code"] for a in body["answers"][1::2]] == ["unknown_format", "empty_image"]
    assert [a["image"] for a in body["answers"][1::2]] == [1, 3]
    alone = client.post("/v1/identify", params={"top": 1}, files=files(png(2))).json()
    for found, expected in zip(body["answers"][2]["candidates"], alone["candidates"], strict=True):
        assert found == {**expected, "probability": pytest.approx(expected["probability"], rel=1e-5)}


def test_classes_are_found_by_words(client):
    body = client.get("/v1/classes", params={"search": "quercus ROB"}).json()
    assert body["total"] == 1 and body["classes"][0]["id"] == "q1"
    assert client.get("/v1/classes", params={"search": "Betulaceae", "limit": 1, "offset": 1}).json() == {
        "total": 3,
        "classes": [
            {
                "id": "b2",
                "name": "Betula nana",
                "author": "",
                "common_names": [],
                "parents": {"family": "Betulaceae", "genus": "Betula"},
                "count": 30,
                "rare": False,
            }
        ],
    }
    body = client.get("/v1/classes/a/1").json()
    schemas.ClassDetails.model_validate(body)
    assert body["rare"] and body["count"] == 5 and len(body["example_images"]) == 2
    assert client.get("/v1/classes/none").status_code == 404


def test_confusions_are_mean_probabilities_of_calibration_rows(client, model):
    generator = torch.Generator().manual_seed(2)  # the calibration rows of the model
    scores = model.scores(torch.rand(400, 1, 2, 2, generator=generator)).clone()
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    mean = {TREES.ids[j]: float(scores[target == 0].softmax(1)[:, j].mean()) for j in range(1, 6)}
    found = client.get("/v1/classes/q1").json()["confused_with"]
    assert [(c["id"], c["probability"]) for c in found] == [
        (id, pytest.approx(mean[id], rel=1e-3)) for id in sorted(mean, key=lambda id: -mean[id])
    ]


def test_the_card_says_what_can_be_asked_for(client, start):
    card = client.get("/v1/model").json()
    schemas.ModelCard.model_validate(card)
    assert card["classes"] == 6 and card["groups"] == {"few": 1, "medium": 2, "many": 3}
    assert [p["name"] for p in card["predictors"]] == ["conformal90", "top2", "average2_macro"]
    assert [p["macro"] for p in card["predictors"]] == [False, False, True]
    assert card["ladder"]["rows"] == 400 and card["ladder_macro"]["rows"] == 400
    sizes = [step["average_size"] for step in card["ladder"]["coverage"]]
    assert sizes == sorted(sizes) and card["index"] == {"images": 12}
    assert card["ladder"]["coverage"][0]["coverage"] == 0.9 and sizes[0] >= 1  # at 0.85 it is 0.945
    plain = start(made=tree_model(calibration_rows=None), index=None).get("/v1/model").json()
    assert plain["ladder"] is None and plain["choices"]["coverage"] is None and plain["index"] is None


@pytest.mark.parametrize(("skill", "expected"), [(0.5, 14), (4.0, 2), (9.0, 1), (40.0, 1)])
def test_steps_of_the_control_have_lists_of_one_name_or_more(start, skill, expected):
    """No step has fewer names than photos, none has all classes, and no two have the same lists."""
    generator = torch.Generator().manual_seed(3)
    target = torch.randint(6, (300,), generator=generator)
    scores = torch.randn(300, 6, generator=generator) + skill * torch.eye(6)[target]
    exact = CalibrationRows.of_rows(scores, target, dtype=torch.float64)
    started = start(made=tree_model(calibration_rows=exact), index=None)
    steps = started.get("/v1/model").json()["ladder"]["coverage"]
    misfit = (1 - scores.softmax(1)).tolist()
    true = sorted(row[i] for row, i in zip(misfit, target.tolist(), strict=True))
    best = {}
    for coverage in (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999):
        place = math.ceil(round(301 * coverage, 6))
        if place <= 300:
            size = sum(value <= true[place - 1] for row in misfit for value in row) / 300
            if 1 <= size < 6:
                best[size] = coverage
    assert {step["average_size"]: step["coverage"] for step in steps} == pytest.approx(best)
    assert len(steps) == expected


def test_health_and_counters(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    client.post("/v1/identify", files=files(png()))
    client.get("/no/such/place")
    text = client.get("/metrics").text
    assert 'shortlist_requests_total{route="/v1/identify",status="200"} 1.0\n' in text
    assert "/no/such" not in text and 'route="other",status="404"' in text
    assert "shortlist_batch_images_sum 1.0" in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|[a-z_]+(\{.*\})? -?[0-9.e+-]+", line), line


@pytest.mark.errors
@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"top": 0}, "bad_parameter"),
        ({"top": 2, "average": 2}, "bad_parameter"),
        ({"coverage": "nan"}, "bad_parameter"),
        ({"limit": 101}, "bad_parameter"),
        ({"classes": ["oak"]}, "bad_parameter"),
        ({"predictor": "../x"}, "bad_parameter"),
        ({"topk": 5}, "bad_parameter"),
    ],
)
def test_bad_options_are_named(client, params, code):
    response = client.post("/v1/identify", params=params, files=files(png()))
    assert response.status_code == 422 and response.json()["error"]["code"] == code


@pytest.mark.errors
def test_bad_forms_are_refused(client):
    kind = {"content-type": "multipart/form-data; boundary=b"}
    part = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\nx\r\n'
    cases = [
        ({"content": b"x", "headers": {"content-type": "image/png"}}, 415),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400),
        ({"content": b"", "headers": kind}, 400),
        ({"content": part, "headers": kind}, 400),  # cut off
        ({"content": b"--c\r\n", "headers": kind}, 400),
        ({"content": b"--b\r\n\r\nx\r\n--b--\r\n", "headers": kind}, 400),  # without a name
        ({"files": [("photo", ("a.png", png()))]}, 400),
        ({"files": files(png()), "data": {"extra": "1"}}, 400),
        ({"files": files(*[png()] * 6)}, 413),
        ({"files": files(png()), "data": {"extra": "x" * 5000}}, 413),
    ]
    for request, status in cases:
        response = client.post("/v1/identify", **request)
        assert response.status_code == status, (request, response.text)
        assert set(response.json()["error"]) == {"code", "message"}
    assert client.get("/v1/identify").status_code == 405
    admission = client.service.admission
    assert admission.bytes.used == admission.requests.used == admission.bodies.used == 0


def test_bytes_are_counted_while_they_are_read(start):
    client = start(limits=Limits(image_bytes=1000, request_bytes=3000, held_bytes=5000))
    assert client.post("/v1/identify", files=files(b"x" * 1001)).json()["error"]["code"] == "image_too_large"
    assert client.post("/v1/identify", files=files(b"x" * 3001)).json()["error"]["code"] == "too_large"

    def endless():  # without a length
        yield b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
        for _ in range(100):
            yield (
                b"x" * 900 + b'\r\n--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
            )

    kind = {"content-type": "multipart/form-data; boundary=b"}
    assert client.post("/v1/identify/batch", content=endless(), headers=kind).status_code == 413
    client.service.admission.bytes.take("another", 3000)
    client.service.admission.bytes.take("a third", 1500)
    response = client.post("/v1/identify", files=files(b"x" * 900))
    assert response.status_code == 503 and response.headers["retry-after"] == "1"
    assert client.service.admission.bytes.used == 4500


def test_too_many_requests_at_a_time_are_refused(start):
    client = start(limits=Limits(requests=1))
    client.service.admission.requests.take("another")
    response = client.post("/v1/identify", files=files(png()))
    assert response.status_code == 503 and response.json()["error"]["code"] == "busy"
    assert client.get("/health").status_code == 200


def test_a_client_has_a_rate():
    now = [0.0]
    rate = RateLimit(2, clients=2, clock=lambda: now[0])
    assert [rate.take("a"), rate.take("a"), rate.take("b")] == [1, 0, 1]
    with pytest.raises(Refusal) as refused:
        rate.take("a")
    assert refused.value.status == 429 and refused.value.retry_after == 30
    now[0] = 30.0
    assert rate.take("a") == 0
    rate.take("c")
    assert len(rate._buckets) == 2  # the one that was not seen for longest is forgotten
    assert RateLimit(0).take("a") is None


def test_the_rate_is_answered_by_429(start):
    client = start(limits=Limits(rate=2))
    statuses = [client.get("/v1/model").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert client.get("/health").status_code == 200


def test_keys(start, tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text("# two\n0123456789abcdef\n\nfedcba9876543210\n")
    client = start(keys=path)
    assert client.get("/v1/model").status_code == 401
    assert (
        client.get("/v1/model", headers={"x-api-key": "0123456789abcdeX"}).json()["error"]["code"]
        == "key_wrong"
    )
    assert client.get("/v1/model", headers={"x-api-key": "0123456789abcdef"}).status_code == 200
    key = {"authorization": "Bearer fedcba9876543210"}
    body = client.post("/v1/identify", params={"related_images": 1}, files=files(png()), headers=key).json()
    image = body["candidates"][0]["related_images"][0]
    assert client.get(image["thumbnail"]).status_code == 200  # as a browser asks, by its signature
    assert client.get(f"/v1/images/{image['id']}").status_code == 401
    assert client.get(f"/v1/images/{image['id']}", params={"signature": "é"}).status_code == 401
    assert client.get("/health").status_code == 200 and client.get("/metrics").status_code == 401
    path.write_text("short\n")
    with pytest.raises(ValueError, match="at least 16 characters"):
        start(keys=path)
    path.write_text("# none\n")
    with pytest.raises(ValueError, match="at least one key"):
        start(keys=path)


def test_other_origins_are_shut_out_unless_named(client, start):
    asked = {"origin": "https://page.example"}
    assert "access-control-allow-origin" not in client.get("/v1/model", headers=asked).headers
    open_to = start(origins=["https://page.example"])
    found = open_to.get("/v1/model", headers=asked).headers
    assert found["access-control-allow-origin"] == "https://page.example"
    assert found["cross-origin-resource-policy"] == "cross-origin"
    other = open_to.get("/v1/model", headers={"origin": "https://other.example"}).headers
    assert "access-control-allow-origin" not in other


def test_every_answer_has_security_headers(client):
    for path in ("/v1/model", "/nothing", "/v1/classes?limit=x"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_only_names_of_the_server_are_answered(start):
    client = start(hosts={"localhost", "127.0.0.1", "::1"})
    for host, status in {
        "localhost:8000": 200,
        "127.0.0.1": 200,
        "[::1]:8000": 200,
        "evil.example": 421,
        "localhost.evil.example:8000": 421,
    }.items():
        assert client.get("/health", headers={"host": host}).status_code == status, host


@pytest.mark.parametrize("id", ["..%2F..%2Fetc%2Fpasswd", "9-9", "%00", "a" * 70, "0-0.jpg"])
def test_no_path_reaches_the_file_system(client, id):
    assert client.get(f"/v1/images/{id}").status_code == 404


def test_logs_have_neither_content_nor_keys(client, caplog):
    with caplog.at_level("INFO"):
        client.post("/v1/identify?classes=q1", files=files(png(), name="secret-name.png"))
        client.post("/v2/identify/all?api-key=secret-key", files=files(b"secret-content"))
    text = "\n".join(record.getMessage() for record in caplog.records if record.name == "shortlist.serve")
    assert "POST /v1/identify 200" in text and "secret" not in text and "q1" not in text


def test_a_model_that_takes_no_pictures_is_refused(model):
    from shortlist.serve.service import Service

    with pytest.raises(ValueError, match="must have a preprocessing"):
        Service(tree_model(preprocessing=None))


@pytest.mark.errors
@pytest.mark.parametrize(
    "key", ["ключ-ключ-ключ-ключ", "key with spaces in it", "\ufeffabcdefghijklmnopqrst"]
)
def test_keys_that_no_header_can_carry_are_refused(tmp_path, key):
    file = tmp_path / "keys"
    file.write_text(f"{key}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="printable ASCII"):
        Keys(file)


@pytest.mark.errors
def test_odd_keys_of_clients_are_wrong_and_no_more(start, tmp_path):
    file = tmp_path / "keys"
    file.write_text("0123456789abcdef\n")
    client = start(keys=file)
    for value in (b"\xff\xfe", "ключ".encode(), b"0123456789abcdef\x00", b" " * 100, b"a" * 60_000):
        for head in ({b"x-api-key": value}, {b"authorization": b"Bearer " + value}):
            assert client.get("/v1/model", headers=list(head.items())).status_code == 401
    for value in ("%00", "%FF", "%F0%9F%8C%B3", "%ED%A0%80", "a&api-key=b"):
        assert client.post(f"/v2/identify/all?api-key={value}", files=files(png())).status_code == 401
        assert client.get(f"/v1/images/0-0?signature={value}").status_code == 401
    assert client.get("/v1/model", headers={"x-api-key": "0123456789abcdef"}).status_code == 200


@pytest.mark.errors
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b'{"verb": "bad_image", "shown": [' + b'"q1",' * 12_000 + b'"q1"]}',
        b'{"verb": "bad_image", "note": 1' + b"0" * 60_000 + b"}",
        b'{"verb": "bad_image", "note": "\\ud800"}',
        b"\xff\xfe\x00",
        b'{"verb": "bad_image", "verb": NaN}',
    ],
)
def test_json_that_is_made_to_hurt_is_refused(client, body):
    response = client.post("/v1/feedback", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422 and len(response.text) < 1000
