"""The server with a real index, by the example of a model of one's own."""

import importlib.util
from pathlib import Path

import pytest
from PIL import Image
from starlette.testclient import TestClient

from shortlist.index import add_images
from shortlist.serve.app import make_app
from tests.serve.parts import encoded, files

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve_own_model.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("serve_own_model", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_model_of_ones_own_takes_less_than_20_lines():
    text = EXAMPLE.read_text()
    lines = text.split("# ---- from here")[1].split("# ---- to here")[0].splitlines()
    assert len([line for line in lines if line.strip()]) < 20


def test_it_answers_with_known_images_and_follows_the_index(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, index = tmp_path / "images", tmp_path / "index"
    example.make_images(images)
    service = example.my_service(images, index)
    photo = encoded(Image.new("RGB", (40, 30), "green"))
    with TestClient(make_app(service)) as client:

        def ask() -> dict:
            return client.post("/v1/identify", params={"related_images": 3}, files=files(photo)).json()

        body = ask()
        best = body["candidates"][0]
        assert best["name"] == "green" and best["in_set"] and len(best["related_images"]) == 3
        found = client.get(best["related_images"][0]["thumbnail"])
        assert found.headers["content-type"] == "image/jpeg" and found.content[:2] == b"\xff\xd8"
        assert client.get("/v1/model").json()["index"] == {"images": 40}
        assert len(client.get("/v1/classes/green").json()["example_images"]) == 10
        similar = [image["similarity"] for image in best["related_images"]]
        assert similar == sorted(similar, reverse=True) and similar[0] < 0.99999
        # the photo itself becomes a known image while the server runs
        add_images(service.model, index, [photo], [1])
        assert ask()["candidates"][0]["related_images"][0]["similarity"] == pytest.approx(1.0, abs=1e-3)
