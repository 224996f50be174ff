"""Photos that are fetched from addresses: of listed hosts alone, from no private network, within limits."""

import asyncio
import socket

import pytest
from starlette.applications import Starlette
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from shortlist.serve import fetching
from shortlist.serve.fetching import Fetcher
from shortlist.serve.limits import Admission, Limits
from shortlist.serve.refusals import Refusal
from tests.serve.parts import png
from tests.serve.running import running

PUBLIC = "93.184.215.14"
PRIVATE = """
127.0.0.1 127.1.2.3 0.0.0.0 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.2.1
224.0.0.1 255.255.255.255 ::1 :: fe80::1 fc00::1 ff02::1 ::ffff:127.0.0.1 ::ffff:93.184.215.14 64:ff9b::7f00:1
2002:7f00:1:: 2001:0:7f00:1::1
""".split()


class Site:
    """A host of photos, and which of them were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        places = {"/leaf.png": self.leaf, "/moved": self.moved, "/large": self.large, "/slow": self.slow}
        self.app = Starlette(routes=[Route(path, self.noted(call)) for path, call in places.items()])

    def noted(self, call):
        async def answer(request):
            self.asked.append(request.url.path + ("?" + request.url.query if request.url.query else ""))
            self.headers = dict(request.headers)
            return call()

        return answer

    def leaf(self):
        return Response(png(3), media_type="text/plain")

    def moved(self):
        return RedirectResponse("/leaf.png")

    def large(self):
        async def pieces():  # without a length that is told before
            for _ in range(100):
                yield b"x" * 1000

        return StreamingResponse(pieces())

    def slow(self):
        async def pieces():
            while True:
                yield b"x"
                await asyncio.sleep(0.01)

        return StreamingResponse(pieces())


@pytest.fixture
def site():
    made = Site()
    with running(made.app) as address:
        made.address = address
        made.host = address.removeprefix("http://")
        yield made


def fetched(hosts, *addresses, held=None, **limits):
    limits = Limits(**limits)

    async def run():
        admission = Admission(limits)
        with admission.request("a client") as request:
            uploads = await Fetcher(hosts, limits).photos(addresses, request)
            if held is not None:
                held.append(admission.bytes.used)
            return uploads

    return asyncio.run(run())


def refused(hosts, *addresses, status=400, words=None, **limits):
    with pytest.raises(Refusal, match=words) as error:
        fetched(hosts, *addresses, **limits)
    assert error.value.status == status
    return error.value.message


def test_photos_of_a_listed_host_are_fetched(site):
    held: list[int] = []
    first, second = fetched(
        [site.host], f"{site.address}/leaf.png?size=a b&x=é", f"{site.address}/leaf.png", held=held
    )
    assert first.content == second.content == png(3)
    assert first.name == f"{site.address}/leaf.png?size=a b&x=é"
    assert site.asked == ["/leaf.png?size=a%20b&x=%C3%A9", "/leaf.png"]
    assert site.headers["host"] == site.host and "cookie" not in site.headers
    assert held == [2 * len(png(3))]


def test_no_host_is_asked_by_default(site):
    assert refused([], f"{site.address}/leaf.png") == "This server fetches no photos: send them by POST."


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://other.example/leaf.png", "may not ask its host"),
        ("http://photos.example.other.example/leaf.png", "may not ask"),
        ("http://xphotos.example/leaf.png", "may not ask"),
        ("http://photos.example:8080/leaf.png", "may not ask"),
        ("https://photos.example:80/leaf.png", "may not ask"),
        ("http://photos.example@other.example/leaf.png", "may not ask"),
        ("http://name:secret@photos.example/leaf.png", "may not ask"),
        ("http://other.example\\@photos.example/leaf.png", "may not ask"),
        ("http://other.example#@photos.example/", "may not ask"),
        ("file:///etc/passwd", "not of the form"),
        ("ftp://photos.example/leaf.png", "not of the form"),
        ("gopher://photos.example/", "not of the form"),
        ("//photos.example/leaf.png", "not of the form"),
        ("photos.example/leaf.png", "not of the form"),
        ("http://photos.example:port/", "not of the form"),
        ("http://[photos.example/", "not of the form"),
        ("http:///leaf.png", "may not ask"),
        ("", "not of the form"),
    ],
)
def test_other_addresses_are_refused_before_anything_is_asked(address, words, monkeypatch):
    monkeypatch.setattr(fetching, "_connected", pytest.fail)
    assert "secret" not in refused(["photos.example"], address, words=words)


@pytest.fixture
def names(monkeypatch):
    """Resolve names as a test wants, and note to which addresses connections were made."""
    table, calls = {}, []

    async def resolve(self, host, port, **_):
        calls.append(("resolve", host))
        family = socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for address in table[host]]

    async def connect(host, port, **secure):
        calls.append(("connect", host, port, secure.get("server_hostname")))
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio, "open_connection", connect)
    table["calls"] = calls
    return table


@pytest.mark.parametrize("private", PRIVATE)
def test_a_name_that_leads_to_a_private_network_is_refused(private, names):
    for addresses in ([private], [PUBLIC, private], [private, PUBLIC]):
        names["photos.example"] = addresses
        refused(["photos.example"], "http://photos.example/leaf.png", words="private network")
    assert not [call for call in names["calls"] if call[0] == "connect"]


def test_a_connection_is_made_to_the_address_that_was_checked(names):
    """A name that is resolved twice may lead to a public address first, and then to a private one."""
    names["photos.example"] = [PUBLIC]
    refused(["photos.example"], "https://photos.example/leaf.png", words="its host did not send it")
    assert names["calls"] == [("resolve", "photos.example"), ("connect", PUBLIC, 443, "photos.example")]


def test_a_name_of_this_machine_is_not_its_address(site):
    port = site.host.split(":")[1]
    refused([f"localhost:{port}"], f"http://localhost:{port}/leaf.png", words="private network")
    refused([f"localhost:{port}"], f"{site.address}/leaf.png", words="may not ask")
    assert site.asked == []


def test_a_redirect_is_not_followed(site):
    refused([site.host], f"{site.address}/moved", words="its host answered with the status 307")
    refused([site.host], f"{site.address}/nothing", words="the status 404")
    assert site.asked == ["/moved"]


def test_a_photo_may_not_be_too_large(site):
    refused([site.host], f"{site.address}/large", status=413, image_bytes=99_999)
    assert len(fetched([site.host], f"{site.address}/large", image_bytes=100_000)[0].content) == 100_000
    two = [f"{site.address}/large"] * 2
    refused([site.host], *two, status=413, request_bytes=199_999)
    refused([site.host], *two, status=503, held_bytes=199_999)


def test_photos_must_come_in_time(site):
    refused([site.host], f"{site.address}/slow", words="took over 0.2 s", body_seconds=0.2)


@pytest.mark.parametrize(
    "answer", [b"", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"]
)
def test_a_host_that_speaks_no_http_is_refused(answer):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = f"127.0.0.1:{listening.getsockname()[1]}"

        async def run():
            async def talk(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                writer.close()

            server = await asyncio.start_server(talk, sock=listening.dup())
            limits = Limits()
            try:
                with Admission(limits).request("a client") as held:
                    await Fetcher([host], limits).photos([f"http://{host}/"], held)
            finally:
                server.close()

        with pytest.raises(Refusal, match="its host did not send it"):
            asyncio.run(run())


@pytest.mark.parametrize(
    "host", ["http://photos.example", "photos.example/x", "a@photos.example", "", "x:port"]
)
def test_hosts_are_names(host):
    with pytest.raises(ValueError, match="allow_urls must be names of hosts, perhaps with a port, got"):
        Fetcher([host], Limits())
