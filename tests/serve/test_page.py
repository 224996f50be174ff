"""The page, as people use it: in a real browser, against a real server."""

import json
import threading
import time
from itertools import pairwise

import pytest
import uvicorn
from PIL import Image

from shortlist.feedback import invite
from shortlist.feedback.store import read_events
from shortlist.sentences import strings
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.serve.parts import TREES, Index, encoded, png

axe = pytest.importorskip("axe_playwright_python.sync_playwright")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on a free port of this machine; its address and the store of people's answers."""
    from tests.serve.parts import tree_model

    log = tmp_path_factory.mktemp("page") / "feedback"
    app = make_app(Service(tree_model(), index=Index(), feedback=log))
    running = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    for _ in range(600):
        if running.started:
            break
        time.sleep(0.05)
    port = running.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", log
    running.should_exit = True
    thread.join(30)


@pytest.fixture
def view(browser, server):
    """The open page; at the end there was no error on it, and no request to anywhere else."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.troubles, page.requests = [], []
    page.on("console", lambda message: page.troubles.append(message.text))
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(server[0])
    yield page
    assert page.troubles == []
    assert all(url.startswith((server[0], "blob:", "data:")) for url in page.requests)
    context.close()


def draw(view):
    box = view.locator("#canvas").bounding_box()
    for points in (((0.3, 0.2), (0.3, 0.8)), ((0.7, 0.2), (0.7, 0.8)), ((0.3, 0.5), (0.7, 0.5))):
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
        view.mouse.move(*places[0])
        view.mouse.down()
        view.mouse.move(*places[1], steps=4)
        view.mouse.up()


def upload(view, *contents):
    files = [{"name": f"{i}.png", "mimeType": "image/png", "buffer": c} for i, c in enumerate(contents)]
    view.locator("#files").set_input_files(files)


def names(view):
    return view.locator("li.candidate:not(.outside) h3").all_inner_texts()


def is_in_view(view, selector):
    """Whether the first such element is wholly on the screen, once scrolling has ended."""
    inside = """(selector) => {
        const box = document.querySelector(selector)?.getBoundingClientRect();
        return box && box.height > 0 && box.top >= 0 && box.bottom <= innerHeight;
    }"""
    view.wait_for_function(inside, arg=selector)
    return True


def violations(view):
    found = axe.Axe().run(view).response["violations"]
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]


def test_a_drawing_gets_a_list_that_grows_with_the_control_and_is_confirmed(view, server):
    draw(view)
    view.wait_for_selector("li.candidate")
    assert "90 of 100 lists made at this setting hold the right name" in view.locator("#setting").inner_text()
    assert is_in_view(view, "li.candidate h3")
    before = names(view)
    images = view.locator("li.candidate .related img")
    assert images.count() >= len(before)
    requests = len(view.requests)
    lists = []
    for place in range(9):
        view.locator("#slider").fill(str(place))
        lists.append(names(view))
    # a surer list holds all of a shorter one, and is drawn without asking the server for another answer
    assert all(set(few) <= set(more) for few, more in pairwise(lists))
    assert len(lists[0]) < len(lists[-1]) and lists[0] == before
    assert not any("/v1/identify" in url for url in view.requests[requests:])
    assert "You changed the settings" in view.locator("#messages").inner_text()
    view.locator("#slider").fill("0")
    view.locator("li.candidate button.confirm").first.click()
    view.get_by_text("Thank you. Your answer is kept.").wait_for()
    kept = list(read_events(server[1]))[-1]
    assert kept.verb == "confirm" and sum(one.in_set for one in kept.shown) == len(before)
    assert kept.person.startswith("page-") and not kept.consent
    view.locator("#clear").click()
    assert view.locator("#earlier li").count() == 1 and names(view) == []
    assert view.locator("#thanks").inner_text() == ""
    view.locator("#earlier button").click()
    assert names(view) == before and view.locator("li.chosen").count() == 1
    assert view.locator("#thanks").inner_text().endswith(f"You said: {kept_name(kept)}.")


@pytest.mark.slow
def test_photos_are_compared_and_corrected(view, server):
    upload(view, png(80), png(90))
    view.wait_for_selector("li.candidate")
    assert view.locator("#photos li").count() == 2
    assert "there are several photos" in view.locator("#messages").inner_text()
    view.locator("li.candidate .related button").first.click()
    assert view.locator("#compare").is_visible()
    view.keyboard.press("Escape")
    assert not view.locator("#compare").is_visible()
    view.locator("#photos .remove").first.click()
    view.locator("#photos li:nth-child(2)").wait_for(state="detached")
    view.get_by_label("Yes").check()
    view.locator("#search").fill("nana")
    view.locator("#found button").first.click()
    view.get_by_text("Thank you. Your answer is kept. You said: Betula nana.").wait_for()
    kept = list(read_events(server[1]))[-1]
    assert (kept.verb, kept.label, kept.consent) == ("other_class", "b2", True)
    assert list(server[1].glob(f"images/*/{kept.images[0]}"))


def test_a_name_is_proposed_and_a_photo_is_of_no_such_kind(view, server):
    upload(view, png(81))
    view.wait_for_selector("li.candidate")
    view.locator("#search").fill("Betula NANA")  # which the model knows: there is nothing to propose
    view.locator("#found button").first.wait_for()
    assert view.locator("#found button").count() == 1
    view.locator("#search").fill("Tilia × europaea")
    view.get_by_text("The model does not know this name.").wait_for()
    view.get_by_text("Propose the new name: Tilia × europaea").click()
    view.get_by_text("You said: Tilia × europaea.").wait_for()
    view.locator("#again, #clear").first.click()
    upload(view, png(82))
    view.wait_for_selector("li.candidate")
    view.get_by_text("Something of another kind").click()
    view.get_by_text("You said: Something of another kind.").wait_for()
    kept = [(event.verb, event.label) for event in list(read_events(server[1]))[-2:]]
    assert kept == [("new_name", "Tilia × europaea"), ("not_this_kind", "")]


def test_a_personal_link_names_the_person_until_it_is_forgotten(view, server):
    address, log = server
    upload(view, png(83))
    view.wait_for_selector("li.candidate")
    view.evaluate("link => { location.hash = link }", f"#person={invite(log, 'ana')}")
    view.wait_for_function("location.hash === ''")  # it is not left where others see it
    for seed, person in ((84, "ana"), (85, "")):
        view.goto(address if person else f"{address}/#person=")
        view.reload()
        upload(view, png(seed))
        view.wait_for_selector("li.candidate")
        view.get_by_text("Something of another kind").click()
        view.get_by_text("You said: Something of another kind.").wait_for()
        last = list(read_events(log))[-1]
        assert (last.person, last.key) == ("ana", "invited") if person else last.person.startswith("page-")


@pytest.mark.slow
def test_the_audit_stands_beside_the_promise(view):
    """A line about the model: what people who know found, and what was promised."""
    told = {"lists": 90, "audited": 40, "coverage": 0.7, "low": 0.5347, "high": 0.8344, "promised": 0.9}

    def line(**found) -> str:
        content = json.dumps({"feedback": told | {"is_below": False, "has_shifted": False} | found})
        view.route("**/v1/model", lambda route: route.fulfill(body=content, content_type="application/json"))
        view.reload(wait_until="networkidle")
        return view.locator("#audit").inner_text()

    checked = "People who know checked 40 lists of this model: 70 of 100 held the right name (53.5 to 83.4,"
    assert line().startswith(checked) and line().endswith("95 % confidence). 90 were promised.")
    assert line(is_below=True, has_shifted=True).endswith(
        "The promise is broken. Recent photos are not like those of before."
    )
    # answers of people who chose to answer say nothing of all lists, and are not denied
    assert line(audited=0, coverage=None, low=None, high=None, lists=2955) == (
        "Recent lists of this model with an answer: 2,955. How many of all its lists hold the right name is "
        "not known: that needs answers to lists that were drawn at random."
    )
    view.unroute("**/v1/model")


def test_groups_of_names_are_said_in_words(view):
    """The answer of a taxonomy predictor, as /v1/identify gives it."""
    say = """async (found) => {
        const words = JSON.parse(document.getElementById("facts").textContent).words;
        return (await import("/static/list.js")).nodesWords(found, words);
    }"""
    oaks = {"name": "Quercus", "level": "genus", "mass": 0.9, "size": 8}
    one = {"name": "Fagus <b>sylvatica</b>", "level": "class", "mass": 0.05, "size": 1}
    found = {"predictor": "two", "nodes": [oaks, one], "promise": {"holds": True, "level": 0.9}}
    assert view.evaluate(say, found) == (
        "The model is sure of this much: Quercus (genus, 8 names), Fagus <b>sylvatica</b>. "
        "90 of 100 such answers hold the right name."
    )
    assert view.evaluate(say, {**found, "promise": {"holds": False}}).endswith("</b>.")
    assert view.evaluate(say, None) is None
    assert view.evaluate(say, {**found, "nodes": [one]}) is None  # it would seem to shorten the list
    root = {"name": "all classes", "level": "root", "mass": 1.0, "size": 99}
    assert view.evaluate(say, {**found, "nodes": [root]}) == "The model is not sure of any group of names."


def test_a_broken_file_gets_a_plain_sentence(view):
    upload(view, b"no image")
    view.get_by_text("That did not work").wait_for()
    assert names(view) == []
    # no broken image, but words
    view.locator("#photos .no-picture").wait_for()
    assert view.locator("#photos img").count() == 0 and is_in_view(view, "#status")
    assert view.locator("#photos .no-picture").inner_text() == "This picture cannot be shown."
    upload(view, png(80))  # and the page goes on, with the photo that can be read
    view.locator("#photos .remove").first.click()
    view.wait_for_selector("li.candidate")
    assert any("status of 415" in text for text in view.troubles)
    view.troubles.clear()  # the browser itself tells of a refused request


def kept_name(event):
    return TREES.names[TREES.ids.index(event.label)]


@pytest.mark.parametrize(("height", "motion"), [(844, "reduce"), (500, "no-preference")])
def test_answer_and_thanks_come_into_view_on_a_phone(browser, server, height, motion):
    """The names are on the screen when they are there; so are the thanks, and the name that was chosen."""
    context = browser.new_context(viewport={"width": 390, "height": height}, reduced_motion=motion)
    view = context.new_page()
    view.goto(server[0])
    behavior = view.evaluate("getComputedStyle(document.documentElement).scrollBehavior")
    assert behavior == ("auto" if motion == "reduce" else "smooth")
    upload(view, png(83))
    view.wait_for_selector("li.candidate")
    assert is_in_view(view, "li.candidate h3")
    view.locator("#slider").fill("8")
    chosen = names(view)[-1]
    view.locator("li.candidate:not(.outside) button.confirm").last.click()
    assert is_in_view(view, "#thanks") and is_in_view(view, "li.chosen")
    assert view.locator("#thanks").inner_text() == f"Thank you. Your answer is kept. You said: {chosen}."
    assert view.locator("li.chosen").all_inner_texts()[0].split("\n")[0] == chosen
    assert "Your answer" in view.locator("li.chosen").inner_text()
    assert view.locator("button.confirm").count() == 0
    view.locator("#again").click()
    upload(view, png(84))
    view.wait_for_selector("button.confirm")
    view.get_by_role("button", name="None of these").click()
    assert is_in_view(view, "#thanks") and view.locator("li.chosen").count() == 0
    assert view.locator("#thanks").inner_text().endswith("You said: None of these.")
    context.close()


@pytest.mark.slow
def test_consent_is_asked_before_the_answer_remembered_and_changed(view, server):
    def answer(seed):
        upload(view, png(seed))
        # both boxes at one moment: the page scrolls to its list
        view.wait_for_function("""() => {
            const [asked, confirm] = ["#consent", "button.confirm"].map(
                (selector) => document.querySelector(selector)?.getBoundingClientRect());
            return confirm && asked.height > 0 && asked.bottom <= confirm.top;
        }""")
        view.locator("button.confirm").first.click()
        view.get_by_text("Thank you. Your answer is kept.").wait_for()
        event = list(read_events(server[1]))[-1]
        copies = list(server[1].glob(f"images/*/{event.images[0]}"))
        assert event.consent == bool(copies)
        return event.consent

    assert not view.locator("#consent").is_visible()  # nothing to ask about yet
    assert not answer(101)  # who does not say yes has not agreed
    view.get_by_label("Yes").check()
    assert answer(102)
    view.reload()
    assert answer(103)
    view.get_by_label("No", exact=True).check()
    assert not answer(104)
    view.reload()
    assert not answer(105) and view.get_by_label("No", exact=True).is_checked()


def test_known_photos_are_not_enlarged_and_missing_ones_are_words(view):
    view.set_viewport_size({"width": 1280, "height": 900})
    photo = encoded(Image.new("RGB", (320, 200), (9, 90, 9)), "JPEG")
    view.route("**/v1/images/**", lambda route: route.fulfill(body=photo, content_type="image/jpeg"))
    upload(view, png(85))
    view.locator("li.candidate .related button").first.click()
    known = view.locator("#compare img").last
    view.wait_for_function("document.querySelector('#compare figure:last-child img').complete")
    assert known.bounding_box()["width"] == 320
    view.reload()  # of which the browser forgets the images
    view.route("**/v1/images/**", lambda route: route.fulfill(status=404, body="{}"))
    upload(view, png(86))
    view.locator("li.candidate .related .no-picture").first.wait_for()
    view.locator("li.candidate .related img").first.wait_for(state="detached")
    view.troubles.clear()  # the browser itself tells of refused requests


def test_a_model_without_useful_coverages_has_numbers_of_names(view):
    steps = """async ([ladder, kind, classes]) =>
        (await import("/static/list.js")).stepsOf(ladder, kind, classes)"""
    ladder = {
        "coverage": [{"coverage": 0.95, "average_size": 1.0}],
        "average": [{"average": size, "share": 0.9} for size in (1, 1.5, 2, 5, 30)],
        "top": [{"top": 1, "share": 0.9}],
    }
    assert view.evaluate(steps, [None, "sure", 4]) == view.evaluate(steps, [None, "about", 4]) == []
    assert view.evaluate(steps, [None, "exactly", 4]) == [{"top": 1}, {"top": 2}, {"top": 3}]
    assert view.evaluate(steps, [ladder, "sure", 9]) == [{"coverage": 0.95, "size": 1.0}]
    assert view.evaluate(steps, [ladder, "about", 9]) == [
        {"average": 2, "most": 4},
        {"average": 5, "most": 10},
    ]
    assert view.evaluate(steps, [ladder, "exactly", 9]) == ladder["top"]


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "light"),
        (1280, "dark"),
        pytest.param(390, "dark", marks=pytest.mark.slow),
        pytest.param(1280, "light", marks=pytest.mark.slow),
    ],
)
def test_everybody_can_use_it(browser, server, width, scheme):
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True
    )
    view = context.new_page()
    view.goto(server[0])
    assert violations(view) == []
    draw(view)
    view.wait_for_selector("li.candidate")
    view.locator("#slider").fill("8")
    view.locator("#less-likely").click() if view.locator("#less-likely").is_visible() else None
    assert violations(view) == []
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    view.locator("li.candidate .related button").first.click()
    assert violations(view) == []
    context.close()


def test_files_come_by_name_only_and_are_kept_by_the_browser(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html") and "<title>What is it? - trees" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    style = client.get("/static/page.css")
    assert style.headers["content-type"].startswith("text/css")
    again = client.get("/static/page.css", headers={"If-None-Match": style.headers["etag"]})
    assert again.status_code == 304 and again.content == b""
    for name in ("../page.py", "..%2fpage.py", "%2e%2e/page.py", "en.json", "page.css/", ""):
        assert client.get(f"/static/{name}").status_code == 404


def test_every_sentence_is_in_the_file_of_sentences(client):
    """No text on the page but from _strings/en.json, so that it can be translated."""
    import re
    from importlib.resources import files

    room = files("shortlist.serve")
    words = strings()["page"]
    templates, scripts = (
        "".join(file.read_text() for file in room.joinpath(folder).iterdir() if file.name.endswith(end))
        for folder, end in (("templates", ".html"), ("static", ".js"))
    )
    used = set(re.findall(r"words\.(\w+)", templates + scripts))
    assert used == set(words)
    shortened = re.sub(r"<script.*?</script>|<[^>]*>|{{.*?}}|{%.*?%}", "", templates, flags=re.S)
    assert re.findall(r"[A-Za-z]{3,}", shortened) == []
