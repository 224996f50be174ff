"""One client that sends much, beside another one that sends little: who waits, and for what."""

import asyncio
import socket
import threading

import httpx
import pytest
import torch

from shortlist.serve import connection, decoding
from shortlist.serve.app import make_app
from shortlist.serve.batching import Batcher
from shortlist.serve.decoding import Decoder
from shortlist.serve.exchange import Query
from shortlist.serve.limits import Admission, Held, Limits, Pool, network_of
from shortlist.serve.metrics import Metrics
from shortlist.serve.refusals import Refusal
from shortlist.serve.service import Service
from shortlist.serve.turns import Turns
from tests.serve.parts import files, png, tree_model
from tests.serve.running import running
from tests.serve.test_bad_uploads import png_of_size
from tests.serve.test_connection import FORM, opened, status, wait_for

KEYS = {"many": "the-key-of-who-sends-many", "few": "the-key-of-who-sends-few"}


def test_clients_take_turns():
    turns = Turns()
    for client, number in [("a", 0), ("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]:
        turns.put(client, number)
    taken = []
    while turns:
        taken.append(turns.take(lambda number: True))
    assert taken == [0, 2, 4, 1, 5, 3]


def test_who_does_not_fit_keeps_the_turn():
    turns = Turns()
    for client, number in [("a", 9), ("b", 1), ("b", 2)]:
        turns.put(client, number)
    assert [turns.take(lambda number: number < 5) for _ in range(3)] == [1, 2, None]
    assert list(turns) == [("a", 9)]


def test_one_client_can_have_three_quarters():
    pool = Pool.shared("it is full", 8)
    pool.take("a", 6)
    with pytest.raises(Refusal) as refused:
        pool.take("a")
    assert (refused.value.status, refused.value.retry_after) == (503, 1)
    pool.take("b", 2)
    with pytest.raises(Refusal):
        pool.take("c")
    pool.give_back("a", 6)
    pool.take("c", 6)
    assert pool.used == 8
    assert Pool.shared("", 4, largest=4).take("a", 4) is None  # one request is always let in


def test_a_network_of_ipv6_is_one_client():
    assert network_of("2001:db8:1:2:3::1") == network_of("2001:db8:1:2::9") != network_of("2001:db8:1:3::9")
    assert network_of("::ffff:192.0.2.7") == network_of("192.0.2.7") == "192.0.2.7"
    assert network_of("fe80::1%eth0") and network_of("testclient") == "testclient"


def helds(*clients: str, limits: Limits | None = None) -> list[Held]:
    admission = Admission(limits or Limits())
    return [Held(admission, client) for client in clients]


def test_the_threads_that_decode_serve_clients_in_turn(model, monkeypatch):
    """Who sends 40 images before another one sends 2 is not served before them."""
    order, go = [], threading.Event()

    def note(content, *_):
        order.append(content)
        assert go.wait(20)
        return torch.zeros(1, 1, 2, 2)

    monkeypatch.setattr(decoding, "decode", note)
    many = [png(number, (1200, 1000)) for number in range(40)]
    few = [png(100 + number, (1200, 1000)) for number in range(2)]

    async def run():
        decoder = Decoder(model, Limits(decoders=1))
        first, second = helds("a", "b")
        flood = asyncio.create_task(decoder.each(many, first))
        while not order:  # the first one is being decoded, and waits
            await asyncio.sleep(0)
        late = asyncio.create_task(decoder.each(few, second))
        await asyncio.sleep(0)  # in which its sizes are in the queue
        go.set()
        await late
        places = [order.index(content) for content in few]
        assert places[0] <= 8  # 4, or one or two more while the event loop takes over from the threads
        assert places[1] == places[0] + 2  # then the clients take turns
        await flood
        decoder.close()

    asyncio.run(run())
    assert [content for content in order if content in many] == many


def test_of_large_images_one_is_decoded_at_a_time_and_others_beside_it(model, monkeypatch):
    go, large, seen = threading.Event(), [], []

    def wait_if_large(content, *_):
        seen.append(content)
        if content in images:
            large.append(content)
            assert go.wait(20)
        return torch.zeros(1, 1, 2, 2)

    monkeypatch.setattr(decoding, "decode", wait_if_large)
    images, small = [png_of_size(3000, 3000), png_of_size(3001, 3000)], png(7, (600, 400))
    limits = Limits(pixels=10_000_000)

    async def run():
        decoder = Decoder(model, limits)
        first, second = helds("a", "b", limits=limits)
        flood = asyncio.create_task(decoder.each(images, first))
        while not large:
            await asyncio.sleep(0.001)
        await decoder.each([small, small], second)  # there is a thread for it
        assert large == images[:1] and seen.count(small) == 2
        go.set()
        await flood
        decoder.close()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert large == images


def test_what_a_client_that_went_away_sent_is_not_decoded(model, monkeypatch):
    go, seen = threading.Event(), []

    def wait(content, *_):
        seen.append(content)
        assert go.wait(20)
        return torch.zeros(1, 1, 2, 2)

    monkeypatch.setattr(decoding, "decode", wait)

    async def run():
        decoder = Decoder(model, Limits(decoders=1))
        (gone,) = helds("a")
        task = asyncio.create_task(decoder.each([png(i, (1200, 1000)) for i in range(5)], gone))
        while not seen:
            await asyncio.sleep(0.001)
        gone.gone()
        with pytest.raises(Refusal, match="went away"):
            await task
        go.set()
        (other,) = helds("b")
        await decoder.each([png(9, (1200, 1000))], other)
        decoder.close()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert seen == [png(0, (1200, 1000)), png(9, (1200, 1000))]


def test_a_batch_has_queries_of_each_client():
    batches = []

    def answer(queries):
        batches.append([int(query.images[0, 0]) for query in queries])
        return queries

    async def run():
        batcher = Batcher(answer, Limits(batch=2, batch_images=1), Metrics(), lambda: 0)
        batcher.start()
        futures = batcher.submit([Query(torch.full((1, 1), float(i))) for i in range(5)], "many")
        futures += batcher.submit([Query(torch.full((1, 1), 9.0))], "few")
        await asyncio.gather(*futures)
        batcher.close()

    asyncio.run(run())
    assert batches == [[0, 9], [1, 2], [3, 4]]


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text("\n".join(KEYS.values()))
    return path


@pytest.mark.errors
def test_pixels_are_counted_for_each_request_and_each_client(start, keys):
    image = png(1, (300, 300))
    limits = Limits(pixels=100_000, request_pixels=300_000, client_pixels=400_000)
    client = start(limits=limits, keys=keys)
    header = {"x-api-key": KEYS["many"]}
    pixels = client.service.admission.pixels

    def asked(number: int, who: str = "many"):
        return client.post(
            "/v1/identify/batch", files=files(*[image] * number), headers={"x-api-key": KEYS[who]}
        )

    assert asked(3).status_code == 200 and pixels.used == 0
    refused = asked(4)
    assert refused.status_code == 413 and refused.json()["error"]["code"] == "too_many_pixels"
    assert "300,000 pixels together" in refused.json()["error"]["message"]
    mixed = client.post("/v1/identify/batch", files=files(image, b"no image", png(2)), headers=header).json()
    assert [one["status"] == "bad_image" for one in mixed["answers"]] == [False, True, False]
    pixels.take(client.service.keys.client(KEYS["many"]), 200_000)  # by another request of the same client
    refused = asked(3)
    assert refused.status_code == 503 and "pixels of this client" in refused.json()["error"]["message"]
    assert asked(3, "few").status_code == 200 and pixels.used == 200_000


def begun(port: int, key: str, announced: int, sent: bytes = b"") -> socket.socket:
    """A request whose body does not come, or not to its end."""
    made = opened(port)
    lines = [
        *("POST /v1/identify HTTP/1.1", "Host: x", "Content-Type: multipart/form-data; boundary=b"),
        *(f"Content-Length: {announced}", f"X-API-Key: {key}", "", ""),
    ]
    made.sendall("\r\n".join(lines).encode() + sent)
    return made


@pytest.fixture
def served(keys, tmp_path):
    """A server that takes 4 requests at a time, and 4,000 bytes."""
    limits = Limits(requests=4, held_bytes=4000, request_bytes=3000, image_bytes=3000)
    service = Service(tree_model(), feedback=tmp_path / "f", keys=keys, limits=limits)
    with running(make_app(service), http=connection.connection_class()) as address:
        yield service, int(address.rsplit(":", 1)[1])


def answer(port: int, who: str) -> int:
    headers = {"x-api-key": KEYS[who]}
    return httpx.post(
        f"http://127.0.0.1:{port}/v1/identify", files=files(png(1)), headers=headers
    ).status_code


@pytest.mark.errors
def test_silent_bodies_of_one_client_stop_nobody_else(served):
    service, port = served
    silent = [begun(port, KEYS["many"], 2900) for _ in range(4)]  # of which two would be too many bytes
    wait_for(lambda: service.admission.bodies.used == 4)
    assert service.admission.requests.used == service.admission.bytes.used == 0
    assert answer(port, "few") == 200
    assert answer(port, "many") == 503  # who has as many bodies on their way as requests are worked on
    for one in silent:
        one.close()
    wait_for(lambda: service.admission.bodies.used == 0)
    assert answer(port, "many") == 200


@pytest.mark.errors
def test_bodies_that_stop_on_their_way_hold_what_came_and_stop_nobody_else(served):
    service, port = served
    first = begun(port, KEYS["many"], 2900, b"x" * 2000)
    second = begun(port, KEYS["many"], 2900, b"x" * 900)
    wait_for(lambda: service.admission.bytes.used == 2900)
    third = begun(port, KEYS["many"], 2900, b"x" * 500)  # more than three quarters of all
    assert status(third.recv(65536)) == 503
    assert answer(port, "few") == 200
    for one in (first, second, third):
        one.close()
    wait_for(lambda: service.admission.bytes.used == 0)


@pytest.mark.errors
def test_requests_of_one_client_leave_room_for_others(served):
    service, port = served
    go, seen, original = threading.Event(), [], service.batcher._answer

    def slow(queries):
        seen.append(len(queries))
        assert go.wait(20)
        return original(queries)

    service.batcher._answer = slow
    working = [begun(port, KEYS["many"], len(FORM), FORM) for _ in range(3)]
    wait_for(lambda: service.admission.requests.used == 3)
    assert answer(port, "many") == 503
    few = begun(port, KEYS["few"], len(FORM), FORM)
    wait_for(lambda: service.admission.requests.used == 4)
    go.set()
    assert [status(one.recv(65536)) for one in (*working, few)] == [200] * 4
    for one in (*working, few):
        one.close()


@pytest.mark.errors
def test_images_of_one_client_leave_room_in_the_queue(start, keys):
    client = start(limits=Limits(queue=8, batch_images=4), keys=keys)
    images = client.service.admission.images
    images.take(client.service.keys.client(KEYS["many"]), 4)  # by requests that are decoded
    asked = {"files": files(*[png(1)] * 3)}
    statuses = [
        client.post("/v1/identify/batch", headers={"x-api-key": key}, **asked).status_code
        for key in KEYS.values()
    ]
    assert statuses == [503, 200] and images.used == 4


@pytest.mark.errors
def test_connections_of_one_address_are_bounded(model, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "CONNECTIONS", 4)
    service = Service(model, feedback=tmp_path / "f")
    with running(make_app(service), http=connection.connection_class()) as address:
        port = int(address.rsplit(":", 1)[1])
        silent = [opened(port) for _ in range(3)]
        with opened(port) as fourth:
            assert status(fourth.recv(65536)) == 503
        for one in silent:
            one.close()

        def is_served() -> bool:
            try:
                return httpx.get(f"{address}/health").status_code == 200
            except httpx.TransportError:
                return False

        wait_for(is_served)


def test_a_request_is_under_way_while_its_body_comes():
    admission = Admission(Limits())
    with admission.request("one") as held:
        assert (admission.under_way, admission.requests.used) == (1, 0)
        held.begin()
        assert (admission.under_way, admission.requests.used) == (1, 1)
    assert (admission.under_way, admission.requests.used) == (0, 0)
