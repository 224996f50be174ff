"""The server with a real index, by the example of a model of one's own."""

import importlib.util
import shutil
import threading
from pathlib import Path

import pytest
from PIL import Image
from starlette.testclient import TestClient

from shortlist.index import ImageIndex, IndexWriter, add_images
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


def test_answers_go_on_while_the_index_changes_and_after_it_is_gone(example, tmp_path, monkeypatch):
    """Appends, deletions and compactions by a writer beside the server; at the end the whole folder goes."""
    monkeypatch.chdir(tmp_path)
    images, index = tmp_path / "images", tmp_path / "index"
    example.make_images(images)
    service = example.my_service(images, index)
    photo = encoded(Image.new("RGB", (40, 30), "green"))
    failed, done = [], threading.Event()

    def change() -> None:
        try:
            for number in range(6):
                own = encoded(Image.new("RGB", (40, 30), (0, 100 + number, 3 * number)))
                add_images(service.model, index, [own], [1])
                with IndexWriter.open(index, model=service.model) as writer:
                    if number % 2:
                        known = ImageIndex.open(index, model=service.model).examples(1, 1)
                        writer.delete([known[0].id])
                    else:
                        writer.compact()
        except Exception as error:
            failed.append(error)
        finally:
            done.set()

    with TestClient(make_app(service)) as client:

        def ask() -> list[dict]:
            response = client.post("/v1/identify", params={"related_images": 3}, files=files(photo))
            assert response.status_code == 200, response.text
            related = response.json()["candidates"][0]["related_images"]
            assert len(related) == 3
            return related

        writer = threading.Thread(target=change)
        writer.start()
        while not done.is_set():
            thumbnails = [client.get(one["thumbnail"]).status_code for one in ask()]
            assert set(thumbnails) <= {200, 404}  # one may be deleted in between
        writer.join()
        assert failed == []
        last = [one["id"] for one in ask()]
        shutil.rmtree(index)
        assert [one["id"] for one in ask()] == last
        assert client.get("/v1/classes/green").status_code == 200


def test_a_process_shows_what_another_one_has_found_since(example, tmp_path, monkeypatch):
    """Addresses that one process gives out are asked of any: here of one that answered nothing meanwhile."""
    monkeypatch.chdir(tmp_path)
    images, index = tmp_path / "images", tmp_path / "index"
    example.make_images(images)
    service = example.my_service(images, index)
    with TestClient(make_app(service)) as client:
        photo = encoded(Image.new("RGB", (40, 30), (1, 128, 2)))
        (added,) = add_images(service.model, index, [photo], [1])
        assert client.get("/v1/model").json()["index"] == {"images": 41}
        shown = client.get(f"/v1/images/{added}")
        assert shown.status_code == 200 and shown.content[:2] == b"\xff\xd8"
        with IndexWriter.open(index, model=service.model) as writer:
            writer.delete([added])
        assert client.get(f"/v1/images/{added}").status_code == 404
        typical = client.get("/v1/classes/green").json()["example_images"][0]["id"]
        with IndexWriter.open(index, model=service.model) as writer:
            writer.delete([typical])
            writer.compact()
        left = client.get("/v1/classes/green").json()["example_images"]
        assert typical not in {one["id"] for one in left} and len(left) == 9
