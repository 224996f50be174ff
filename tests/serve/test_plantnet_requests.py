"""Public clients of Pl@ntNet's API: what each sends, and what it reads of the answer.

The rows are facts from the clients' public code: method, address, fields of the form in their order (a field
with a file has its file's name), headers, and the values that the client reads. No code of a client is here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from tests.serve.parts import TREES_WITH_AUTHORS, png, tree_model
from tests.serve.running import running

KEY = "0123456789abcdef"
NUMBER = (int, float)
NAME = "results[].species.scientificNameWithoutAuthor"
AUTHORS = dict(
    zip(TREES_WITH_AUTHORS.names, ["L.", "(Matt.) Liebl.", "L.", "Roth", "L.", "(L.) Gaertn."], strict=True)
)


@dataclass(frozen=True)
class Client:
    """A request of a client and what it reads."""

    name: str
    method: str
    path: str
    query: str = ""
    form: tuple[tuple[str, str], ...] = ()  # a name of a file, or a text
    reads: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


ALL, IMAGE = "/v2/identify/all", "file:image_1.jpeg"
CLIENTS = (
    Client(
        "plantnet/my.plantnet examples/post/run.py",
        "POST",
        ALL,
        "api-key=KEY",
        (
            ("organs", "flower"),
            ("organs", "leaf"),
            ("images", "file:../data/image_1.jpeg"),
            ("images", IMAGE),
        ),
        {"bestMatch": str, NAME: str},
    ),
    Client(
        "plantnet/my.plantnet examples/post/js/run.js",
        "POST",
        ALL,
        "api-key=KEY",
        (("organs", "flower"), ("images", IMAGE), ("organs", "leaf"), ("images", IMAGE)),
        {"results": list},
    ),
    Client(
        "plantnet/my.plantnet examples/post/Run.java",
        "POST",
        ALL,
        "api-key=KEY",
        (("images", IMAGE), ("organs", "flower"), ("images", IMAGE), ("organs", "leaf")),
        {"results": list},
    ),
    Client(
        "plantnet/my.plantnet examples/web/index.php",
        "POST",
        ALL,
        "api-key=KEY&include-related-images=true&lang=fr",
        (("images", IMAGE), ("organs", "flower")),
        {
            "results[].score": NUMBER,
            NAME: str,
            "results[].species.scientificNameAuthorship": str,
            "results[].species.family.scientificNameWithoutAuthor": str,
            "results[].images[].license": str,
            "results[].images[].author": str,
            "results[].images[].date.string": str,
            "results[].images[].url.s": str,
        },
    ),
    Client(
        "plantnet/my.plantnet examples/post/run.R",
        "POST",
        ALL,
        "lang=fr&include-related-images=FALSE&api-key=KEY",
        (("images", IMAGE), ("images", IMAGE), ("organs", "flower"), ("organs", "leaf")),
        {"results": list},
    ),
    Client(
        "plantnet/my.plantnet examples/get/run.R",
        "GET",
        ALL,
        "images=PHOTO&organs=flower&lang=fr&include-related-images=FALSE&api-key=KEY",
        reads={"results": list},
    ),
    Client(
        "plantnet/my.plantnet benchmark/js, one photo",
        "POST",
        ALL,
        "api-key=KEY&nb-results=5",
        (("images", IMAGE), ("organs", "auto")),
        {
            NAME: str,
            "results[].species.scientificName": str,
            "results[].score": NUMBER,
            "predictedOrgans[].organ": str,
            "predictedOrgans[].score": NUMBER,
        },
    ),
    Client(
        "plantnet/my.plantnet benchmark/js, several photos",
        "POST",
        ALL,
        "api-key=KEY&nb-results=5&no-reject=true",
        (("images", IMAGE), ("images", IMAGE)),
        {NAME: str},
    ),
    Client(
        "plantnet/ai-taxonomist-webcomponent",
        "POST",
        ALL,
        "include-related-images=true&lang=en&api-key=KEY",
        (("organs", "auto"), ("images", IMAGE)),
        {
            "results[].score": NUMBER,
            NAME: str,
            "results[].species.scientificNameAuthorship": str,
            "results[].species.family.scientificName": str,
            "results[].species.commonNames": list,
            "results[].images[].url.m": str,
            "results[].images[].citation": str,
            "results[].images[].date.string": str,
        },
    ),
    Client(
        "BiologicalRecordsCentre/plantnet (R)",
        "GET",
        ALL,
        "images=PHOTO&images=PHOTO&organs=auto&organs=auto&no-reject=false&lang=en&api-key=KEY",
        reads={"results[].score": NUMBER, NAME: str, "results[].species.commonNames": list},
    ),
    Client(
        "kelesfatih/PlantNetAPI-Python identify",
        "POST",
        ALL,
        "api-key=KEY&include-related-images=false&no-reject=false&nb-results=10&lang=en&type=kt&organs=leaf",
        (("images", "file:photos/one plant.jpg"),),
        {
            "predictedOrgans": list,
            NAME: str,
            "results[].score": NUMBER,
            "results[].species.genus.scientificNameWithoutAuthor": str,
            "results[].species.family.scientificNameWithoutAuthor": str,
            "results[].species.commonNames": list,
        },
    ),
    Client("kelesfatih/PlantNetAPI-Python status", "GET", "/v2/_status", reads={"status": str}),
    Client(
        "kelesfatih/PlantNetAPI-Python languages", "GET", "/v2/languages", "api-key=KEY", reads={"[]": str}
    ),
    Client(
        "kelesfatih/PlantNetAPI-Python projects",
        "GET",
        "/v2/projects",
        "api-key=KEY&lang=en&type=kt&lat=43.6&lon=3.9",
        reads={"[].id": str, "[].title": str, "[].description": str, "[].speciesCount": int},
    ),
    Client(
        "kelesfatih/PlantNetAPI-Python species",
        "GET",
        "/v2/species",
        "api-key=KEY&lang=en&type=kt&pageSize=2&page=1&prefix=Quercus",
        reads={"[].id": str, "[].scientificNameWithoutAuthor": str},
    ),
    Client(
        "kelesfatih/PlantNetAPI-Python quota",
        "GET",
        "/v2/quota/daily",
        "api-key=KEY&day=2026-05-01",
        reads={"day": str},
    ),
    Client(
        "misteu/plantnet-swift identify",
        "POST",
        ALL,
        "api-key=KEY&lang=de",
        (("images", "file:123456.jpeg"),),
        {
            "query.project": str,
            "query.images[]": str,
            "query.organs[]": str,
            "query.includeRelatedImages": bool,
            "language": str,
            "preferedReferential": str,
            "bestMatch": str,
            "version": str,
            "remainingIdentificationRequests": int,
            "results[].score": NUMBER,
            NAME: str,
            "results[].species.scientificNameAuthorship": str,
            "results[].species.scientificName": str,
            "results[].species.commonNames": list,
            "results[].species.genus.scientificNameWithoutAuthor": str,
            "results[].species.genus.scientificNameAuthorship": str,
            "results[].species.genus.scientificName": str,
            "results[].species.family.scientificName": str,
        },
        {"X-User-Agent": "ios", "Accept-Language": "en", "Accept": "application/json"},
    ),
    Client(
        "OrHavraPerry/plantnet-mcp",
        "POST",
        "/v2/identify/k-world-flora",
        "api-key=KEY&lang=en&nb-results=5&include-related-images=false",
        (
            ("images", "file:image0.jpg"),
            ("organs", "leaf"),
            ("images", "file:image1.png"),
            ("organs", "auto"),
        ),
        {
            "remainingIdentificationRequests": int,
            NAME: str,
            "results[].species.scientificNameAuthorship": str,
            "results[].species.family.scientificNameWithoutAuthor": str,
            "results[].species.genus.scientificNameWithoutAuthor": str,
            "results[].species.commonNames": list,
        },
    ),
    Client(
        "danielbrendel/hortusfox-web, a file",
        "POST",
        ALL,
        "api-key=KEY",
        (("images", IMAGE),),
        {"results[].species.scientificName": str},
    ),
    Client(
        "danielbrendel/hortusfox-web, an address",
        "GET",
        ALL,
        "api-key=KEY&images=PHOTO",
        reads={"results[].species.scientificName": str},
    ),
    Client(
        "MapComplete",
        "GET",
        ALL,
        "api-key=KEY&images=PHOTO",
        reads={"results[].score": NUMBER, NAME: str, "results[].species.commonNames": list},
    ),
    Client(
        "a Qt app for Ubuntu Touch",
        "POST",
        ALL,
        "api-key=KEY&include-related-images=true&lang=de",
        (("organs", "leaf"), ("images", IMAGE), ("organs", "flower"), ("images", IMAGE)),
        {
            "results[].score": NUMBER,
            "results[].species.scientificName": str,
            "results[].species.commonNames": list,
            "results[].images[].url.m": str,
            "results[].images[].citation": str,
        },
    ),
    Client(
        "a Kotlin client by Retrofit, all fields of a species",
        "GET",
        "/v2/projects/k-world-flora/species",
        "lang=en&pageSize=3&page=2&prefix=&api-key=KEY",
        reads={
            "[].id": str,
            "[].scientificNameWithoutAuthor": str,
            "[].scientificNameAuthorship": str,
            "[].gbifId": type(None),
            "[].powoId": type(None),
            "[].iucnCategory": type(None),
            "[].commonNames": list,
            "[].genus": str,
            "[].family": str,
        },
    ),
    Client(
        "providers that show the quota (two TypeScript clients)",
        "GET",
        "/v2/quota/daily",
        "api-key=KEY",
        reads={
            "quota.identify.count": int,
            "quota.identify.total": int,
            "quota.identify.remaining": int,
        },
    ),
    Client("clients that test their key", "GET", "/v2/quota", "api-key=KEY", reads={"quota": dict}),
    Client(
        "a React Native client with the fields of another API",
        "POST",
        ALL,
        "api-key=KEY&include-related-images=",
        (
            ("images[0]", IMAGE),
            ("organs[0]", "Leaf"),
            ("modifiers", '["crops_fast"]'),
            ("lang", "en"),
            ("api-key", "KEY"),
        ),
        {NAME: str},
    ),
)


def read(value, path):
    """All values at a path such as ``results[].score``."""
    if not path:
        return [value]
    name, _, rest = path.partition(".")
    name, list_mark, _ = name.partition("[]")
    inner = value[name] if name else value
    if list_mark:
        assert isinstance(inner, list), path
        return [found for item in inner for found in read(item, rest)]
    return read(inner, rest)


def body_of(form, photo):
    """A form with its fields in order, as bytes."""
    parts = []
    for name, content in form:
        is_file = content.startswith("file:")
        filename = (
            f'; filename="{content.removeprefix("file:")}"\r\nContent-Type: image/jpeg' if is_file else ""
        )
        head = f'--boundary\r\nContent-Disposition: form-data; name="{name}"{filename}\r\n\r\n'
        parts.append(head.encode() + (photo if is_file else content.encode()) + b"\r\n")
    return b"".join(parts) + b"--boundary--\r\n"


@pytest.fixture(scope="module")
def photos():
    async def photo(_):
        return Response(png(3), media_type="image/png")

    with running(Starlette(routes=[Route("/leaf.png", photo)])) as address:
        yield address


@pytest.fixture
def server(start, tmp_path, photos):
    (tmp_path / "keys").write_text(KEY)
    return start(
        made=tree_model(TREES_WITH_AUTHORS),
        keys=tmp_path / "keys",
        any_project=True,
        allow_urls=[photos.removeprefix("http://")],
    )


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_answered_and_finds_what_it_reads(client, server, photos):
    query = client.query.replace("KEY", KEY).replace("PHOTO", f"{photos}/leaf.png")
    more = {"content": body_of(client.form, png(3))} if client.form else {}
    headers = {"Content-Type": "multipart/form-data; boundary=boundary"} if client.form else {}
    response = server.request(
        client.method, f"{client.path}?{query}", headers={**headers, **client.headers}, **more
    )
    assert response.status_code == 200, response.text
    body = response.json()
    for path, kind in client.reads.items():
        values = read(body, path)
        assert values or path.startswith("predictedOrgans"), path  # the model predicts no organs
        assert all(isinstance(value, kind) for value in values), (path, values)
    for species in read(body, "results[].species") if "results" in body else []:
        name, author = species["scientificNameWithoutAuthor"], species["scientificNameAuthorship"]
        assert (
            author == AUTHORS[species["scientificName"]] and f"{name} {author}" == species["scientificName"]
        )


def test_pl_ntnets_benchmark_counts_a_hit(server):
    """It compares the name of a folder, in small letters, with the name without author."""
    body = server.post(
        f"{ALL}?api-key={KEY}&nb-results=5",
        content=body_of((("images", IMAGE), ("organs", "auto")), png(3)),
        headers={"Content-Type": "multipart/form-data; boundary=boundary"},
    ).json()
    first = body["bestMatch"]
    folder = first.removesuffix(AUTHORS[first]).strip().replace(" ", "_")
    expected = folder.replace("_", " ").lower()
    assert body["results"][0]["species"]["scientificNameWithoutAuthor"].lower() == expected
