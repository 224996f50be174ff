"""Answers to the lists of an app: a server takes them if it is told to; a file of them goes into a store."""

import base64
import hashlib
import json

import pytest
from fastapi.testclient import TestClient

from shortlist.feedback import FeedbackStore
from shortlist.feedback.store import read_events
from shortlist.serve import import_answers
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.commands import run
from tests.serve.parts import png, tree_model

PHOTO = png(80)
IMAGE = hashlib.sha256(PHOTO).hexdigest()


def an_answer(**changes):
    listed = {
        "images": [IMAGE],
        "shown": [["q1", 0.7, True], ["b2", 0.2, False]],
        "choice": {"coverage": 0.9, "at_least": 1, "promised": 0.9},
        "model": "0123456789ab",
        "status": "ok",
    }
    said = {"verb": "confirm", "class_id": "q1", "id": "r-1", "person": "page-1", "consent": False}
    return said | {"listed": listed | changes.pop("listed", {})} | changes


def a_server(folder, **options):
    return TestClient(
        make_app(Service(tree_model(), feedback=folder, **options)), base_url="http://127.0.0.1"
    )


def test_a_server_takes_answers_of_an_app_only_if_it_is_told_to(tmp_path):
    with a_server(tmp_path / "a") as client:
        refused = client.post("/v1/feedback", json=an_answer())
    assert refused.status_code == 422 and "--app-answers" in refused.text
    with a_server(tmp_path / "b", app_answers=True) as client:
        first, again = (client.post("/v1/feedback", json=an_answer()) for _ in range(2))
        both = client.post("/v1/feedback", json=an_answer(receipt="x"))
    assert first.status_code == 201 and first.json()["new"]
    assert again.status_code == 201 and not again.json()["new"]
    assert both.status_code == 422
    [event] = read_events(tmp_path / "b")
    # who reads it sees that no server signed the list, and it is no part of an audit
    assert event.model == "app:0123456789ab" and not event.audit
    assert event.images == (IMAGE,) and event.choice == {"coverage": 0.9, "at_least": 1, "promised": 0.9}
    assert [tuple(entry) for entry in event.shown] == [("q1", 0.7, True), ("b2", 0.2, False)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"class_id": "none"}, "class_id"),
        ({"class_id": "f1"}, "must be in the list"),
        ({"listed": {"images": ["../x"]}}, "images"),
        ({"listed": {"shown": [["q1", 1.5, True]]}}, "shown"),
        ({"listed": {"audit": True}}, "audit"),
        ({"listed": {"choice": {"by": "me"}}}, "choice"),
        ({"listed": {"status": "<script>"}}, "status"),
    ],
)
def test_bad_lists_of_an_app_are_refused(tmp_path, changes, words):
    with a_server(tmp_path / "store", app_answers=True) as client:
        refused = client.post("/v1/feedback", json=an_answer(**changes))
    assert refused.status_code == 422 and words in refused.json()["error"]["message"]


def a_file(path, *answers, **changes):
    path.write_text(json.dumps({"format": "shortlist answers 1", "answers": answers} | changes))
    return path


def test_a_file_of_answers_is_imported_once_with_its_photos(tmp_path):
    photo = base64.b64encode(PHOTO).decode()
    with_photo = an_answer(
        id="r-2", person="page-2", consent=True, photos=[photo], time="2026-05-01T10:00:00Z"
    )
    other = an_answer(id="r-3", verb="none_of_these", class_id=None, person="page-3", photos=[])
    file = a_file(tmp_path / "answers.json", with_photo, other)
    code, text, _ = run("feedback", "import", tmp_path / "store", file)
    assert code == 0 and "new" in text
    with FeedbackStore(tmp_path / "store") as store:
        assert import_answers(store, file) == (0, 2, [])
        first, second = store.events()
        assert store.copy_of(IMAGE) is not None
    assert (first.verb, first.model, first.consent) == ("confirm", "app:0123456789ab", True)
    assert (second.verb, second.consent) == ("none_of_these", False)


def test_answers_that_cannot_be_recorded_are_named_and_others_are_kept(tmp_path):
    wrong = [
        an_answer(id="a", photos=["no base64!"]),
        an_answer(id="b", consent=False, photos=[base64.b64encode(PHOTO).decode()]),
        an_answer(id="c", listed={"images": ["0" * 63]}),
        an_answer(id=None),
        an_answer(id="d") | {"listed": None},
        "text",
    ]
    file = a_file(tmp_path / "answers.json", *wrong, an_answer(id="right"))
    code, _, text = run("feedback", "import", tmp_path / "store", file)
    assert code == 1 and all(f"answer {number}:" in text for number in range(1, 7))
    assert [event.label for event in read_events(tmp_path / "store")] == ["q1"]


def test_a_file_of_something_else_is_refused(tmp_path):
    for content in (
        "{",
        "[]",
        '{"format": "shortlist answers 2", "answers": []}',
        '{"format": "shortlist answers 1"}',
    ):
        (tmp_path / "x.json").write_text(content)
        code, _, text = run("feedback", "import", tmp_path / "store", tmp_path / "x.json")
        assert code == 2 and "x.json" in text
