"""Models with one class, or very many, and names that would break a page that trusts them."""

import pytest
import torch
from fastapi.testclient import TestClient
from torch import nn

from shortlist import ClassTable, Model
from shortlist.feedback import FeedbackStore
from shortlist.model import keep_rows
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.serve.parts import PREPARE, files, png, receipt_of
from tests.serve.running import running
from tests.serve.test_page import draw, names

ODD = (
    '<img src=x onerror="window.hacked=1">',
    "</script><script>window.hacked=1</script>",
    "'\"--><b>bold</b>",
    "\u202egnirts desrever",
    "שלום (Hebrew)",
    "x" * 400,
    "{name} {count} $& $1",
    "=HYPERLINK('http://example.com')",
)


def model_of(labels, **options) -> Model:
    number = len(labels)
    ids = options.pop("ids", [f"c{i}" for i in range(number)])
    table = ClassTable(labels, ids=ids, counts=[30] * number, **options)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, number))
    torch.manual_seed(0)
    network[1].weight.data = 2 * torch.randn(number, 4)
    score_map = ScoreMap(number, contains=PriorRecord.training(table.class_counts))
    scores = 2 * torch.randn(60, number)
    target = torch.multinomial(scores.softmax(1), 1).squeeze(1)
    summary = keep_rows(scores, target, score_map, table)
    about = {"name": labels[0][:50]}
    parts = {"preprocessing": PREPARE, "score_map": score_map, "calibration_rows": summary, "about": about}
    return Model.from_parts(network, table, **parts)


@pytest.fixture
def opened(browser, tmp_path):
    """Open the page of a model; at the end there was no error on it."""
    pages = []

    def open_page(address: str):
        view = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
        view.troubles = []
        view.on("console", lambda message: view.troubles.append(message.text))
        view.on("pageerror", lambda error: view.troubles.append(str(error)))
        view.goto(address)
        pages.append(view)
        return view

    yield open_page
    for view in pages:
        assert view.troubles == []
        view.context.close()


def app_of(model, tmp_path):
    return make_app(Service(model, feedback=tmp_path / "feedback"))


def test_a_class_is_found_in_both_forms_of_its_accents(tmp_path):
    composed_id, decomposed_id = "caf\u00e9", "cafe\u0301"
    model = model_of(["Coffee", "Tea", "Milk"], ids=[decomposed_id, "tea", "milk"])
    with TestClient(app_of(model, tmp_path)) as client:
        for id in (composed_id, decomposed_id):
            assert client.get(f"/v1/classes/{id}").json()["id"] == composed_id
            assert client.get("/v1/classes", params={"search": id}).json()["total"] == 1
            answer = client.post("/v1/identify", files=files(png()), params={"classes": [id, "tea"]}).json()
            assert {one["id"] for one in answer["candidates"]} == {composed_id, "tea"}
            said = {"verb": "other_class", "class_id": id, "id": f"request {len(id)}"}
            said |= {"receipt": receipt_of(client.post)}
            assert client.post("/v1/feedback", json=said).status_code in (200, 201)
    with FeedbackStore(tmp_path / "feedback") as store:
        assert [event.label for event in store.events()] == [composed_id] * 2


def test_names_are_text_and_nothing_else(opened, tmp_path):
    model = model_of(ODD, parents={"genus": tuple(reversed(ODD))})
    with running(app_of(model, tmp_path)) as address:
        view = opened(address)
        draw(view)
        view.wait_for_selector("li.candidate")
        view.locator("#slider").press("End")
        if view.locator("#less-likely").is_visible():
            view.locator("#less-likely").click()
        shown = view.locator("li.candidate h3").evaluate_all("all => all.map((one) => one.textContent)")
        assert sorted(shown) == sorted(ODD)
        assert view.evaluate("document.documentElement.scrollWidth") <= 390
        directions = view.locator("li.candidate h3").evaluate_all("all => all.map((one) => one.dir)")
        assert set(directions) == {"auto"}
        view.locator("#search").fill("<img")
        view.locator("#found button").first.click()
        view.get_by_text("Thank you. Your answer is kept.").wait_for()
        assert view.evaluate("window.hacked") is None


@pytest.mark.parametrize("number", [1, *(pytest.param(one, marks=pytest.mark.slow) for one in (2, 1000))])
def test_any_number_of_classes_has_a_page(opened, tmp_path, number):
    model = model_of([f"class {i}" for i in range(number)])
    with running(app_of(model, tmp_path)) as address:
        views = [opened(address), opened(address)]  # two tabs
        for view in views:
            draw(view)
            view.wait_for_selector("li.candidate")
        last = int(views[0].locator("#slider").get_attribute("max"))
        assert views[0].locator("#slider").is_visible() == (last > 0)  # one place cannot be moved
        for place in (0, last) if last else ():
            views[0].locator("#slider").fill(str(place))
            assert len(names(views[0])) <= min(number, 60)
        assert len(names(views[0])) >= 1
        views[1].locator("li.candidate button.confirm").first.click()
        views[1].get_by_text("Thank you. Your answer is kept.").wait_for()


@pytest.mark.parametrize("number", [1, 2, 1000])
def test_any_number_of_classes_has_answers(start, number):
    client = start(made=model_of([f"class {i}" for i in range(number)]), index=None)
    for query in ("", "top=1", "coverage=0.999", "coverage=0.001", "average=1", "limit=100"):
        answer = client.post(f"/v1/identify?{query}", files=files(png(1)))
        if number == 1 and "average" in query:
            assert answer.status_code == 422 and "where 1 class is possible: choose top" in answer.text
            assert client.get("/v1/model").json()["choices"]["average"] is None
            continue
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["candidates"]) == min(number, 100 if "limit" in query else 20)
    assert client.get("/v1/model").status_code == 200
    assert client.post("/v2/identify/all?nb-results=1000", files=files(png(1))).status_code == 200
