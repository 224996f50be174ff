"""The page of reviews in a real browser: people, each in a profile, name the photos of somebody else."""

import json
import os
from pathlib import Path

import httpx
import pytest
from PIL import Image
from typer.testing import CliRunner

from shortlist.checklist import Checklist
from shortlist.cli import app as command_line
from shortlist.feedback import invite
from shortlist.feedback.store import read_events
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.feedback.test_darwin_core import check_terms
from tests.serve.parts import TREES, Index, encoded, picture, tree_model
from tests.serve.running import running
from tests.serve.test_page import upload, violations

TimedOut = pytest.importorskip("playwright.sync_api").TimeoutError
HOSTILE = "<img src=x onerror=alert(1)>"
NEW = "Tilia cordata"


def photo(seed: int) -> bytes:
    return encoded(picture(seed, (64, 48)), "JPEG", quality=95)


@pytest.fixture
def server(tmp_path):
    """A server with organs and a checklist; its address and the store of people's answers."""
    (tmp_path / "names.csv").write_text(f"id,name,author\n1,{NEW},Mill.\n2,Tilia platyphyllos,Scop.\n")
    names = Checklist.read(tmp_path / "names.csv")
    options = {"organs": ("leaf", "flower", "<b>"), "names": names, "feedback": tmp_path / "feedback"}
    about = {"name": "trees", "quality": {"keep_good": 0.99, "sharpness": 20.0, "side": 40.0}}
    service = Service(tree_model(about=about), index=Index(), kind="a tree", **options)
    with running(make_app(service)) as address:
        yield address, tmp_path / "feedback"


@pytest.fixture
def profile(browser, server):
    """Open a browser profile of a person; at the end no page had an error or asked another server."""
    opened = []

    def begin(path: str = "/", *, width: int = 390, scheme: str = "light", **options):
        context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme=scheme, **options
        )
        page = context.new_page()
        page.troubles, page.requests = [], []
        page.on("console", lambda message: page.troubles.append(message.text))
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("dialog", lambda dialog: page.troubles.append(dialog.message))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(server[0] + path)
        opened.append((context, page))
        return page

    yield begin
    for context, page in opened:
        assert page.troubles == []
        assert all(url.startswith((server[0], "blob:", "data:")) for url in page.requests)
        context.close()


def look(view, name: str) -> None:
    """Keep a picture of a page, where the environment says so, and check that everybody can use it."""
    view.wait_for_load_state("networkidle")
    width = view.viewport_size["width"]
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    if folder := os.environ.get("SHORTLIST_PICTURES"):
        scheme = view.evaluate("matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'")
        view.screenshot(path=f"{folder}/{name}_{scheme}_{width}.png", full_page=True)


def observe(view, *seeds: int, organs=()) -> None:
    """Upload photos of one object, say what they show, and let others name it."""
    upload(view, *map(photo, seeds))
    view.wait_for_selector("li.candidate")
    for number, organ in enumerate(organs):
        view.locator("#photos li").nth(number).get_by_role("button", name=organ, exact=True).click()
    view.get_by_role("button", name="Let others name it").click()
    view.get_by_text("Thank you. Others can name it now.").wait_for()


def shown(view) -> list[str]:
    return view.locator("#votes li strong").all_inner_texts()


def review(view, before: str | None = None) -> str:
    """Wait until the page shows an observation, another one than before; return the address of its photo."""
    changed = """(before) => {
        const image = document.querySelector("#pictures img");
        const isSeen = image?.offsetParent && image.naturalWidth > 0;
        return isSeen && image.getAttribute("src") !== before && image.getAttribute("src");
    }"""
    for _ in range(20):  # the server orders what waits anew from time to time
        try:
            return view.wait_for_function(changed, arg=before, timeout=3000).json_value()
        except TimedOut:
            view.reload()
    raise AssertionError(view.locator("#status").inner_text())


def observe_over_http(address: str, seed: int, **about) -> str:
    """Record an observation of a photo without a browser; return its id."""
    files = {"images": ("photo.jpg", photo(seed), "image/jpeg")}
    listed = httpx.post(f"{address}/v1/identify?receipt=true", files=files).json()
    said = {"person": "ann", "receipt": listed["receipt"], "consent": True, "about": about}
    form = {"event": ("event", json.dumps(said), "application/json"), **files}
    made = httpx.post(f"{address}/v1/observations", files=form)
    assert made.status_code == 201, made.text
    return made.json()["observation"]


def command(*words) -> dict:
    done = CliRunner().invoke(command_line, ["feedback", *map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.slow
def test_four_people_name_two_observations_and_the_archive_has_what_they_agree_on(profile, server, tmp_path):
    address, log = server
    ann = profile()
    upload(ann, photo(1), photo(2))
    ann.wait_for_selector("li.candidate")
    kept = "Kept are your answer, the list, what the photos show, and a random name of this browser."
    assert ann.locator("#kept p").inner_text().startswith(kept)
    ann.locator("#photos li").nth(0).get_by_role("button", name="leaf").click()
    ann.locator("#photos li").nth(1).get_by_role("button", name="leaf").click()
    ann.locator("#photos li").nth(1).get_by_role("button", name="flower").click()  # it was a mistake
    pressed = ann.locator("#photos [aria-pressed=true]").all_inner_texts()
    assert pressed == ["leaf", "flower"]
    assert not ann.locator("#about").is_visible()
    ann.get_by_role("button", name="Let others name it").click()  # only with consent
    ann.get_by_text("say yes above").wait_for()
    assert not log.exists() or list(read_events(log)) == []
    ann.get_by_label("Yes").check()
    ann.get_by_label("License of your photos").select_option("CC BY 4.0")
    ann.get_by_label("Name beside your photos").fill(f"Ann {HOSTILE}")
    ann.get_by_label("Date of the photos").fill("2026-05-01")
    where = ann.get_by_label("Latitude and longitude, if you like")
    where.fill("43.61, 388")
    ann.get_by_role("button", name="Let others name it").click()
    ann.get_by_text("Write latitude and longitude like this").wait_for()
    where.fill("43.6117, 3.8767")
    look(ann, "upload")
    ann.get_by_role("button", name="Let others name it").click()
    ann.get_by_text("Thank you. Others can name it now.").wait_for()
    ann.reload()  # license and author are asked once
    assert not ann.locator("#about").evaluate("(details) => details.open")
    assert ann.locator("#license").input_value() == "CC BY 4.0"
    (event,) = read_events(log)
    assert (event.verb, event.organs, event.consent) == ("observe", ("leaf", "flower"), True)
    assert event.about["date"] == "2026-05-01" and event.location.latitude == 43.65
    assert ann.goto(f"{address}/review") and ann.get_by_text("Nothing waits for you now.").wait_for() is None

    bob = profile("/review", width=1280)
    review(bob)
    assert bob.locator("#pictures figcaption").all_inner_texts() == ["leaf", "flower"]
    facts = bob.locator("#known").inner_text()
    assert facts == f"2026-05-01 · about 43.65, 3.85 (within 7 km) · Ann {HOSTILE} · CC BY 4.0"
    assert bob.locator("#said").is_hidden() and bob.locator("li.candidate .related img").count() >= 2
    look(bob, "review")
    chosen = bob.locator("li.candidate h3").first.inner_text()
    bob.keyboard.press("1")
    bob.get_by_text(f"Thank you. Your answer is kept. You said: {chosen}.").wait_for()
    assert shown(bob) == [chosen] and bob.locator("#votes .chosen").count() == 1
    look(bob, "said")

    cem = profile("/review", scheme="dark")
    review(cem)
    assert chosen not in cem.locator("#said").inner_text()  # hidden until he voted
    other = next(name for name in ("Betula nana", "Quercus robur") if name != chosen)
    cem.locator("#search").fill(other)
    cem.locator("#found button").first.click()
    cem.get_by_text(f"You said: {other}.").wait_for()
    assert sorted(shown(cem)) == sorted([chosen, other])
    look(cem, "said")
    cem.get_by_role("button", name=f"I agree: {chosen}").click()  # his last word counts
    cem.get_by_text(f"You said: {chosen}.").wait_for()
    assert shown(cem) == [chosen] and cem.locator("#votes").inner_text().count("2 people") == 1
    cem.get_by_role("button", name="Next").click()
    cem.get_by_text("Nothing waits for you now.").wait_for()

    ann.goto(address)
    observe(ann, 3, organs=["flower"])
    for person in (bob, cem):
        person.goto(f"{address}/review")
        review(person)
    bob.locator("#search").fill("Tilia cor")
    bob.get_by_role("button", name=f"Propose the new name: {NEW}").click()
    bob.get_by_text(f"You said: {NEW}.").wait_for()
    cem.keyboard.press("k")
    cem.get_by_text("You said: This is not a tree.").wait_for()
    assert sorted(shown(cem)) == ["This is not a tree", NEW]
    assert cem.locator("#votes .badge").all_inner_texts() == ["new name"]
    cem.get_by_role("button", name=f"I agree: {NEW}").click()
    cem.get_by_text(f"You said: {NEW}.").wait_for()
    waits = command("review", log)
    assert waits["waiting"] == 2 and waits["proposals"] == [{"name": NEW, "observations": 1, "valid": 0}]
    assert len(waits["first"][0]["photos"]) in (1, 2)

    dora = profile(f"/review#person={invite(log, 'dora')}", width=1280, scheme="dark")
    assert "person=" not in dora.url
    before = None
    for _ in range(2):
        before = review(dora, before)
        look(dora, "review")
        if dora.locator("#pictures img").count() == 2:
            dora.get_by_role("button", name=f"This is it: {chosen}").click()
        else:
            dora.locator("#search").fill(NEW)
            dora.get_by_role("button", name=f"Propose the new name: {NEW}").click()
        dora.locator("#votes").get_by_text("3 people").wait_for()
        dora.keyboard.press("ArrowRight")
    dora.get_by_text("Nothing waits for you now.").wait_for()
    invited = {(event.person, event.key) for event in read_events(log) if event.key}
    assert invited == {("dora", "invited")}
    assert command("review", log)["proposals"] == [{"name": NEW, "observations": 1, "valid": 1}]
    check_archive(log, tmp_path, chosen)


def tree(log: Path) -> str:
    """The id of the last observation."""
    return [event.item for event in read_events(log) if event.verb == "observe"][-1]


def check_archive(log: Path, folder: Path, name: str) -> None:
    """Export what people agreed on: one observation with two photos; the other has no class yet."""
    TREES.save(folder / "class_table.json")
    options = ("--form", "dwca", "--classes", folder, "--title", "Trees", "-o", folder / "trees.zip")
    content = command("export", log, *options)
    assert content["observations"] == 1 and content["left out: no date"] == 1
    ((data, photos),) = check_terms(folder / "trees.zip")
    row = {term.rsplit("/", 1)[-1]: value for term, value in data.items()}
    assert row["scientificName"] == name and row["eventDate"] == "2026-05-01" and len(photos) == 2
    assert row["identificationVerificationStatus"] == "verified"


@pytest.mark.slow
def test_keys_do_what_buttons_do_unless_they_are_turned_off(profile, server):
    address, log = server
    for seed in range(10, 16):
        observe_over_http(address, seed)
    bob = profile("/review", width=1280)
    keys = {"0": "none_of_these", "b": "bad_image", "K": "not_this_kind", "?": "do_not_know"}
    photo = review(bob)
    for key in keys:
        bob.keyboard.press(key)
        bob.locator("#own:not(:empty)").wait_for()
        bob.keyboard.press(key)  # is said once
        bob.wait_for_function("() => document.activeElement.id === 'next'")
        bob.keyboard.press("Enter")
        photo = review(bob, photo)
    assert said(log) == list(keys.values())
    bob.keyboard.press("ArrowRight")  # skipped: another one
    review(bob, photo)
    bob.keyboard.press("ArrowRight")
    bob.get_by_text("Nothing waits for you now.").wait_for()
    bob.get_by_role("button", name="Show what you skipped").click()
    review(bob)
    bob.keyboard.press("/")
    bob.keyboard.type("b1?")  # what is typed is no key
    assert bob.locator("#search").input_value() == "b1?"
    bob.get_by_label("Use the keyboard").uncheck()
    bob.reload()
    review(bob)
    bob.keyboard.press("b")
    bob.keyboard.press("1")
    bob.get_by_label("Use the keyboard").check()
    bob.keyboard.press("1")
    bob.locator("#own:not(:empty)").wait_for()
    assert said(log) == [*keys.values(), "confirm"]


def said(log: Path) -> list[str]:
    return [event.verb for event in read_events(log) if event.verb != "observe"]


def test_hostile_names_are_text(profile, server):
    """Names that strangers chose, of people, photos and classes, run nothing on the page of others."""
    address, _ = server
    id = observe_over_http(address, 20, author=f'"><script>alert(2)</script>{HOSTILE}', organs=["<b>"])
    vote = {"verb": "new_name", "name": f"'\"{HOSTILE}", "person": HOSTILE}
    hidden = vote | {"name": f"{vote['name']}\u202e"}
    assert httpx.post(f"{address}/v1/observations/{id}/votes", json=hidden).status_code == 422
    done = httpx.post(f"{address}/v1/observations/{id}/votes", json=vote)
    assert done.status_code == 201, done.text
    bob = profile("/review")
    review(bob)
    bob.keyboard.press("?")
    bob.locator("#votes li").nth(1).wait_for()
    assert (
        HOSTILE in "".join(shown(bob)) and bob.locator("#votes img, #known img, #votes script").count() == 0
    )
    bob.get_by_role("button", name="I agree").click()
    bob.locator("#votes").get_by_text("2 people").wait_for()
    policy = httpx.get(f"{address}/review").headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "light"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(390, "dark", marks=pytest.mark.slow),
        pytest.param(1280, "light", marks=pytest.mark.slow),
    ],
)
def test_everybody_can_review(profile, width, scheme):
    options = {"width": width, "scheme": scheme, "bypass_csp": True}
    ann = profile(**options)
    upload(ann, photo(30), photo(31))
    ann.wait_for_selector("li.candidate")
    ann.get_by_label("Yes").check()
    assert violations(ann) == []
    observe(ann, organs=["leaf"])
    bob = profile("/review", **options)
    review(bob)
    look(bob, "review")
    assert violations(bob) == []
    bob.locator("li.candidate .related button").first.click()
    assert violations(bob) == []
    bob.keyboard.press("Escape")
    bob.get_by_role("button", name="This is it").first.click()
    bob.locator("#votes li").first.wait_for()
    look(bob, "said")
    assert violations(bob) == []
    bob.get_by_role("button", name="Next").click()
    bob.get_by_text("Nothing waits for you now.").wait_for()
    assert violations(bob) == []


@pytest.mark.parametrize(
    "language", [pytest.param(other, marks=pytest.mark.slow) for other in ("fr", "de", "es", "pt", "it")]
)
def test_a_review_is_in_the_language_of_the_browser(profile, server, language):
    observe_over_http(server[0], 40)
    bob = profile("/review", locale=language)
    review(bob)
    words = json.loads(bob.locator("#facts").text_content())["words"]
    assert bob.locator("#status").inner_text() == words["review_waiting_one"].format(count=1)
    bob.keyboard.press("?")
    bob.locator("#votes li").first.wait_for()
    look(bob, f"said_{language}")
    bob.locator("#language").select_option("en")
    bob.get_by_text("Thank you. Your answer is kept.").wait_for()
    assert bob.locator("h1").inner_text() == "Review photos of others"
    assert "1 person" in bob.locator("#votes").inner_text()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "light"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(390, "dark", marks=pytest.mark.slow),
        pytest.param(1280, "light", marks=pytest.mark.slow),
    ],
)
def test_a_flagged_photo_is_said_to_wait(profile, server, width, scheme):
    """On the page of who sent it, before and after the answer, and on the page of who reviews it."""
    words = "Marked as: blurred, small. It counts after other people have looked at it."
    ann = profile(width=width, scheme=scheme)
    upload(ann, encoded(Image.new("L", (300, 30), 90)))
    ann.get_by_text(words).wait_for()
    look(ann, "flagged")
    ann.locator("#consent-yes").check()
    ann.get_by_role("button", name="Let others name it").click()
    ann.get_by_text("Thank you. Others can name it now.").wait_for()
    bob = profile("/review", width=width, scheme=scheme)
    review(bob)
    assert words in bob.locator("#known").inner_text()
    look(bob, "flagged_review")
    assert violations(bob) == []
    (event,) = read_events(server[1])
    assert event.flags == ("blurred", "small")


@pytest.mark.slow
def test_who_says_no_to_the_same_photos_takes_them_back(profile, server):
    ann = profile()
    upload(ann, photo(50))
    ann.locator("#consent-yes").check()
    ann.get_by_role("button", name="Let others name it").click()
    ann.get_by_text("Thank you. Others can name it now.").wait_for()
    ann.get_by_role("button", name="Start again").click()
    upload(ann, photo(50))
    ann.wait_for_selector("li.candidate")
    assert "send the same photos again and say no" in ann.locator("main").text_content()
    ann.locator("#consent-no").check()
    ann.get_by_role("button", name="I do not know").click()
    ann.get_by_text("Your answer is kept.").wait_for()
    given, withdrawn = read_events(server[1])
    assert given.item == withdrawn.item and not given.consent and not withdrawn.consent
    assert [path for path in (server[1] / "images").rglob("*") if path.is_file()] == []
    bob = profile("/review")
    bob.get_by_text("Nothing waits for you now.").wait_for()
