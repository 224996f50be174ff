"""The app as people use it: in a real browser, without a network after its first start."""

import io
import os
import threading
import time
from contextlib import contextmanager

import pytest
import torch
import uvicorn
from PIL import Image

from shortlist import ClassTable
from shortlist.feedback.store import read_events
from shortlist.model import Choice
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.app.sites import Quiet, made_site, runtime_or_skip, served
from tests.serve.parts import TREES, photographed_model, png, tree_model
from tests.serve.test_next_photo import told_apart_by_flowers

pytestmark = pytest.mark.slow
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "a\u2028b",
    "__proto__",
    "constructor",
    "{count}",
    '"><svg onload=alert(2)>',
)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    return runtime_or_skip(tmp_path_factory.mktemp("npm") / "runtime")


@pytest.fixture(scope="module")
def site(tmp_path_factory, runtime):
    folder = tmp_path_factory.mktemp("app")
    (folder / "garden.csv").write_text("id,weight\nq1,3\nb1,1\n")
    model = photographed_model()
    made = made_site(folder, model, runtime, places=[folder / "garden.csv"])
    with served(made) as address:
        yield model, address, made


@contextmanager
def opened(browser, address, *, online=False, width=390, scheme="light"):
    """The page of an app, kept by its service worker; there was no trouble and no foreign request."""
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, locale="en-US"
    )
    page = context.new_page()
    page.troubles, page.requests = [], []
    page.on("console", lambda message: page.troubles.append(message.text))
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("dialog", lambda dialog: dialog.accept())
    context.on("request", lambda request: page.requests.append(request.url))
    page.goto(f"{address}/")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    if not online:
        context.set_offline(True)
        page.reload()
    yield page
    assert page.troubles == []
    assert all(url.startswith((address, "blob:", "data:")) for url in page.requests)
    context.close()


def draw(page):
    box = page.locator("#canvas").bounding_box()
    for points in (((0.3, 0.2), (0.3, 0.8)), ((0.7, 0.2), (0.7, 0.8)), ((0.3, 0.5), (0.7, 0.5))):
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
        page.mouse.move(*places[0])
        page.mouse.down()
        page.mouse.move(*places[1], steps=4)
        page.mouse.up()


def upload(page, *contents):
    files = [{"name": f"{i}.png", "mimeType": "image/png", "buffer": c} for i, c in enumerate(contents)]
    page.locator("#files").set_input_files(files)
    page.wait_for_selector("#result:not([aria-busy]) li.candidate")


def names(page):
    return page.locator("li.candidate:not(.outside) h3").all_inner_texts()


def listed(model, choice, *contents):
    pictures = [Image.open(io.BytesIO(content)) for content in contents]
    [made] = model.short_lists(pictures, choice)
    return [candidate.name for candidate in made]


def status(page, text):
    page.wait_for_function(
        "text => document.getElementById('app-status').textContent.includes(text)", arg=text
    )


def test_an_app_lists_and_keeps_answers_without_a_network(browser, site, tmp_path):
    model, address, _ = site
    with opened(browser, address) as page:
        draw(page)
        page.wait_for_selector("li.candidate")
        assert (
            "90 of 100 lists made at this setting hold the right name"
            in page.locator("#setting").inner_text()
        )
        page.locator("#clear").click()
        one, two = png(80), png(90)
        upload(page, one)
        assert names(page) == listed(model, Choice(coverage=0.9, at_least=1), one)
        assert "were calibrated on 300 photos" in page.locator("#promise-words").text_content()
        upload(page, two)
        page.locator("#photos li:nth-child(2)").wait_for()
        assert names(page) == listed(model, Choice(coverage=0.9, at_least=1, photos=2), one, two)
        page.locator("#place").select_option("garden")
        page.wait_for_function("() => document.querySelectorAll('li.candidate').length <= 2")
        place = made_place(model)
        assert names(page) == listed(model, Choice(coverage=0.9, at_least=1, photos=2, place=place), one, two)
        assert "2 classes of garden" in page.locator("#promise-words").text_content()
        page.locator("#place").select_option("")
        page.locator("#kind-exactly").check()
        page.wait_for_function("() => document.querySelectorAll('li.candidate').length === 5")
        page.get_by_label("Yes").check()
        page.locator("li.candidate button.confirm").first.click()
        page.get_by_text("Thank you. Your answer is kept.").wait_for()
        assert "Answers on this device: 1. Not sent yet: 1." in page.locator("#app-count").inner_text()
        page.reload()
        page.get_by_text("Answers on this device: 1. Not sent yet: 1.").wait_for()
        page.locator("#language").select_option("de")
        page.get_by_text("Antworten auf diesem Gerät: 1.").wait_for()
        page.locator("#language").select_option("en")
        page.get_by_text("Answers on this device: 1.").wait_for()
        kept_answers_arrive_once(page, model, address, tmp_path)


def made_place(model):
    from shortlist.place import Place

    return Place({"q1": 3.0, "b1": 1.0}, "garden")


def kept_answers_arrive_once(page, model, address, folder):
    """A server that comes back gets the answers of the app, each once, also if they are sent again."""
    with running(model, folder / "store", address) as (server, store):
        page.context.set_offline(False)
        page.requests.clear()
        page.locator("#app-server").fill(server)
        page.locator("#app-send").click()
        status(page, "Answers that were sent now: 1.")
        assert "Not sent yet: 0." in page.locator("#app-count").inner_text()
        # as if the answer of the server had been lost
        page.evaluate(FORGET_SENT)
        page.reload()
        page.get_by_text("Not sent yet: 1.").wait_for()
        page.locator("#app-send").click()
        status(page, "Answers that were sent now: 1.")
        [event] = read_events(store)
        assert event.verb == "confirm" and event.model == "app:0123456789ab" and event.consent
        assert len(event.images) == 2 and len(event.shown) == 6
        assert sum(entry.in_set for entry in event.shown) == 5
        assert len(list(store.glob("images/*/*"))) == 2
        sent = [url for url in page.requests if url.startswith(server)]
        assert sent == [f"{server}/v1/feedback"] * 2
        page.requests[:] = [url for url in page.requests if url not in sent]


FORGET_SENT = """async () => {
    const open = indexedDB.open(`shortlist ${location.pathname}`);
    const database = await new Promise((done) => (open.onsuccess = () => done(open.result)));
    const store = database.transaction("answers", "readwrite").objectStore("answers");
    const asked = store.getAll();
    const all = await new Promise((done) => (asked.onsuccess = () => done(asked.result)));
    const last = all.map((one) => store.put({ ...one, sent: null })).at(-1);
    await new Promise((done) => (last.onsuccess = done));
    database.close();
}"""


@contextmanager
def running(model, store, origin):
    """A server that takes answers of the app at an origin."""
    app = make_app(Service(model, feedback=store, app_answers=True), origins=[origin])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", store
    server.should_exit = True
    thread.join(30)


def test_the_photo_to_take_next_is_advised(browser, runtime, tmp_path):
    site = made_site(tmp_path, told_apart_by_flowers(), runtime)
    with served(site) as address, opened(browser, address) as page:
        upload(page, png(1))
        page.locator("#kind-exactly").check()
        page.get_by_text("A photo of the flower would help to tell").wait_for()


def test_answers_are_saved_as_a_file_that_a_store_takes(browser, site, tmp_path):
    from shortlist.feedback import FeedbackStore
    from shortlist.serve import import_answers

    with opened(browser, site[1]) as page:
        upload(page, png(70))
        page.get_by_label("Yes").check()
        page.locator("#search").fill("nana")
        page.locator("#found button").first.click()
        page.get_by_text("You said: Betula nana.").wait_for()
        with page.expect_download() as download:
            page.locator("#app-save").click()
        download.value.save_as(tmp_path / "answers.json")
        with FeedbackStore(tmp_path / "store") as store:
            assert import_answers(store, tmp_path / "answers.json") == (1, 0, [])
            [event] = store.events()
            assert (event.verb, event.label) == ("other_class", "b2")
            assert store.copy_of(event.images[0]) is not None
        page.locator("#app-forget").click()
        page.get_by_text("Answers on this device: 0.").wait_for()


def test_the_app_is_accessible_and_installable(browser, site):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for scheme, width in (("light", 390), ("dark", 1280)):
        with opened(browser, site[1], online=True, width=width, scheme=scheme) as page:
            upload(page, png(70))
            page.evaluate("document.fonts.ready")
            found = axe.Axe().run(page).response["violations"]
            assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found] == []
            session = page.context.new_cdp_session(page)
            errors = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
            assert [error["errorId"] for error in errors] == ["in-incognito"]  # as every context of a test is
            manifest = session.send("Page.getAppManifest")
            assert manifest["errors"] == [] and '"standalone"' in manifest["data"]


def test_no_card_covers_another_on_a_wide_screen(browser, site):
    with opened(browser, site[1], width=1280) as page:
        draw(page)
        page.wait_for_selector("li.candidate")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        photo, app = (page.locator(name).bounding_box() for name in ("#photo", "#app"))
        assert photo["y"] + photo["height"] <= app["y"]


UPDATE = """async () => {
    const kept = await navigator.serviceWorker.getRegistration();
    await kept.update();
    while (!kept.waiting) await new Promise((done) => setTimeout(done, 50));
}"""


def test_a_new_version_takes_the_place_of_the_old_one(browser, runtime, tmp_path):
    first = made_site(tmp_path / "first", tree_model(), runtime, version="111111111111")
    second = made_site(tmp_path / "second", tree_model(), runtime, version="222222222222")
    place = tmp_path / "place"
    first.rename(place)
    with served(place) as address, opened(browser, address, online=True) as page:
        assert "version 111111111111" in page.locator("footer").inner_text()
        for file in second.rglob("*"):
            if file.is_file():
                (place / file.relative_to(second)).write_bytes(file.read_bytes())
        page.evaluate(UPDATE)
        for _ in range(20):  # the old version goes when the browser has closed its last page
            page.goto("about:blank")
            page.wait_for_timeout(500)
            page.goto(f"{address}/")
            if "version 222222222222" in page.locator("footer").inner_text():
                break
        assert "version 222222222222" in page.locator("footer").inner_text()
        upload(page, png(70))


class Tidy(Quiet):
    """A host that leads pages to shorter addresses, as some do."""

    def do_GET(self) -> None:
        if self.path.endswith("/index.html"):
            self.send_response(301)
            self.send_header("Location", "./")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().do_GET()


def test_an_app_starts_offline_from_a_host_that_redirects(browser, site):
    _, _, made = site
    with served(made, Tidy) as address, opened(browser, address) as page:
        upload(page, png(70))
        page.goto(f"{address}/")
        upload(page, png(90))


def test_half_a_new_version_is_not_kept(browser, runtime, tmp_path):
    place = made_site(tmp_path, tree_model(), runtime)
    right = (place / "words.json").read_bytes()
    (place / "words.json").write_bytes(right + b" ")
    with served(place) as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{address}/")
        states = """async () => {
            const kept = await navigator.serviceWorker.register("./sw.js").catch(() => null);
            const worker = kept && (kept.installing || kept.waiting || kept.active);
            while (worker && !["activated", "redundant"].includes(worker.state)) {
                await new Promise((done) => setTimeout(done, 50));
            }
            return worker && worker.state;
        }"""
        assert page.evaluate(states) in (None, "redundant")
        (place / "words.json").write_bytes(right)
        later = time.time() + 5  # the server of this test tells files apart by their second
        os.utime(place / "words.json", (later, later))
        page.goto(f"{address}/")
        assert page.evaluate(states) == "activated"
        context.close()


def test_an_app_of_a_strange_model_runs_none_of_its_texts(browser, runtime, tmp_path):
    names_of = HOSTILE
    table = ClassTable(
        names=names_of,
        ids=[f"{name} id" for name in names_of],
        counts=TREES.counts,
        parents={"__proto__": ["x"] * 3 + [HOSTILE[0]] * 3, "constructor": list(names_of)},
        common_names={"en": [[name] for name in names_of]},
        synonyms=[[name] for name in names_of],
    )
    model = tree_model(table, about={"name": HOSTILE[0]})
    place = tmp_path / f"{HOSTILE[2]}.csv"
    place.write_text(f"id\n{names_of[0]} id\n{names_of[2]} id\n")
    site = made_site(tmp_path, model, runtime, places=[place], kind=HOSTILE[5])
    with served(site) as address, opened(browser, address) as page:
        for code in ("en", "fr"):
            page.locator("#language").select_option(code)
            upload(page, png(70 if code == "en" else 90))
            page.locator("#less-likely").click()
            assert sorted(page.locator("li.candidate h3").all_text_contents()) == sorted(names_of)
            page.locator("#place").select_option("__proto__")
            page.wait_for_selector("#result:not([aria-busy]) li.candidate")
            page.locator("#search").fill("proto")
            page.locator("#found button").first.wait_for()
            page.locator("li.candidate button.confirm").first.click()
            page.locator("#thanks:not(:empty)").wait_for()
            page.locator("#again").click()
            page.locator("#place").select_option("")
        assert page.evaluate("document.querySelectorAll('img[src=x], svg[onload]').length") == 0
        assert page.evaluate("({}).x === undefined && !Object.keys(Object.prototype).length")


def test_photos_of_phones_are_upright(browser, site):
    """A photo that is stored lying, as phones do, gets the list of the upright one."""
    model, address, _ = site
    gradient = torch.linspace(0, 255, 64).repeat(48, 1).to(torch.uint8).numpy()
    upright, lying = Image.fromarray(gradient).convert("RGB"), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # stored a quarter turned
    upright.rotate(90, expand=True).save(lying, "JPEG", quality=100, exif=exif)
    wanted = [candidate.name for candidate in model.short_lists([upright], Choice(top=5))[0]]
    turned = [
        candidate.name for candidate in model.short_lists([upright.rotate(90, expand=True)], Choice(top=5))[0]
    ]
    assert wanted != turned
    with opened(browser, address) as page:
        page.locator("#files").set_input_files(
            {"name": "a.jpg", "mimeType": "image/jpeg", "buffer": lying.getvalue()}
        )
        page.wait_for_selector("#result:not([aria-busy]) li.candidate")
        page.locator("#kind-exactly").check()
        page.wait_for_selector("#result:not([aria-busy]) li.candidate")
        assert names(page) == wanted
