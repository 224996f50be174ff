"""The page with places: choose one, send three photos, move every control, read the promise."""

from pathlib import Path

import pytest

from shortlist import Place
from shortlist.model import Choice
from shortlist.sentences import promise_words
from shortlist.serve.app import make_app
from shortlist.serve.card import ladder
from shortlist.serve.service import Service
from tests.serve.parts import Index, photographed_model, picture, png
from tests.serve.running import running
from tests.serve.test_page import names, upload, violations

ALPS = Place({"f1": 4, "b1": 2, "b2": 1}, "alps", {"en": "The Alps", "de": "Die Alpen"})
PARK = Place(
    {"q1": 1, "q2": 1, "a/1": 1, "f1": 1, "yeti": 1},
    "park",
    "The park <b> of the northern mountains and their lakes",
)
ONE = Place({"b1": 1}, "one", "The garden")
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def model():
    return photographed_model()


@pytest.fixture(scope="module")
def address(model, tmp_path_factory):
    feedback = tmp_path_factory.mktemp("places") / "feedback"
    with running(
        make_app(Service(model, index=Index(), feedback=feedback, places=[ALPS, PARK, ONE]))
    ) as found:
        yield found


@pytest.fixture
def view(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.troubles = []
    page.on("console", lambda message: page.troubles.append(message.text))
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.goto(address)
    yield page
    assert page.troubles == []
    context.close()


def settled(view):
    """Wait until the page has asked for the list and for the steps of the control."""
    view.wait_for_load_state("networkidle")
    view.locator("#result:not([aria-busy])").wait_for()


def check(view, model, choice: Choice, photos: int) -> None:
    """Require the names and the promise that the model itself gives."""
    settled(view)
    images = [picture(seed) for seed in SEEDS[:photos]]
    scores = model.scores(model.prepare(images))
    [listed] = model.lists(scores, choice)
    assert names(view) == [candidate.name for candidate in listed if candidate.in_set]
    assert view.locator("#promise-words").text_content() == promise_words(listed.promise)


@pytest.mark.slow
def test_every_control_changes_the_list_and_the_promise(view, model):
    setting, slider = view.locator("#setting"), view.locator("#slider")
    sentences = set()

    def now(choice: Choice, photos: int, *words: str) -> None:
        check(view, model, choice, photos)
        for text in words:
            assert text in setting.inner_text()
        said = view.locator("#promise-words").text_content()
        assert said not in sentences
        sentences.add(said)

    upload(view, png(SEEDS[0]))
    now(Choice(coverage=0.9, at_least=1), 1, "90 of 100 lists")
    upload(view, *map(png, SEEDS[1:]))
    now(Choice(coverage=0.9, at_least=1, photos=3), 3, "This is about objects with 3 photos.")
    view.locator("#place").select_option("alps")
    place = {"place": ALPS, "photos": 3}
    now(
        Choice(coverage=0.9, at_least=1, **place),
        3,
        "This is about the 3 classes of The Alps, and not about a class that does not occur there.",
    )
    assert "You changed the settings" in view.locator("#messages").inner_text()
    view.locator("#macro").check()
    now(Choice(coverage=0.9, at_least=1, macro=True, **place), 3, "Rare kinds count as much as others.")
    view.locator("#group").select_option("organ:leaf")
    place |= {"group": ("organ", "leaf")}
    now(Choice(coverage=0.9, at_least=1, macro=True, **place), 3, "photos that all have organ: leaf.")
    view.locator("#kind-about").check()
    now(Choice(average=2, at_least=1, at_most=4, macro=True, **place), 3, "About 2 names on average")
    view.locator("#kind-exactly").check()
    now(Choice(top=3, macro=True, **place), 3, "Always 3 names")
    slider.fill("0")
    now(Choice(top=1, macro=True, **place), 3, "Always 1 name")
    view.locator("#macro").uncheck()
    now(Choice(top=1, **place), 3)
    # a new photo is for the same place, and the browser remembers the place
    view.locator("#again").click()
    upload(view, png(SEEDS[0]))
    place["photos"] = 1
    now(Choice(top=1, **place), 1)
    view.reload()
    settled(view)
    assert view.locator("#place").input_value() == "alps" and "The Alps" in setting.inner_text()
    upload(view, png(SEEDS[0]))
    now(Choice(coverage=0.9, at_least=1, place=ALPS), 1, "classes of The Alps")
    view.locator("#place").select_option("")
    settled(view)
    assert "The Alps" not in setting.inner_text()


def test_the_slider_of_about_so_many_names_changes_the_list_and_the_promise(view, model):
    """Lists of all classes have 2, 3 or 5 names on average; at a place of four classes, 2 or 3."""
    upload(view, *map(png, SEEDS))
    view.locator("#kind-about").check()
    sentences = set()
    for place, steps in (("", (2, 3, 5)), ("park", (2, 3))):
        view.locator("#place").select_option(place)
        settled(view)
        assert view.locator("#slider").get_attribute("max") == str(len(steps) - 1)
        for step in (1, 0, *range(2, len(steps))):
            view.locator("#slider").fill(str(step))
            at = {"place": PARK if place else None, "photos": 3}
            check(view, model, Choice(average=steps[step], at_least=1, at_most=2 * steps[step], **at), 3)
            said = f"About {steps[step]} names on average, 1 at least and {2 * steps[step]} at most."
            assert said in view.locator("#setting").inner_text()
            sentences.add(view.locator("#promise-words").text_content())
    assert len(sentences) == 5


def test_a_list_is_never_empty_and_says_if_it_is_unsure(view, model):
    lowest = ladder(model, Choice())["coverage"][0]["coverage"]
    scores = model.scores(model.prepare(map(picture, range(3000))))  # few lists of these scores are empty
    lists = model.lists(scores, Choice(coverage=lowest))
    seed = next(seed for seed, listed in enumerate(lists) if not listed.members)
    upload(view, png(SEEDS[0]))
    settled(view)
    view.locator("#slider").fill("0")
    view.locator("#again").click()  # the next photo is asked about with this setting
    assert not view.locator("#slider").is_visible()
    upload(view, png(seed))
    settled(view)
    assert view.locator("li.candidate").count() == 1
    assert view.locator("#status").inner_text().startswith("Not sure. The best guess is ")
    assert "more names belong to the list" not in view.locator("#messages").inner_text()


def test_the_kind_of_list_that_was_chosen_comes_back_after_a_place_without_it(view, model):
    """A list of one possible class is the list of the one best; sure and about are there again later."""
    upload(view, png(SEEDS[0]))
    for kind, choice in (("sure", {"coverage": 0.9}), ("about", {"average": 2, "at_most": 4})):
        view.locator(f"#kind-{kind}").check()
        view.locator("#place").select_option("one")
        check(view, model, Choice(top=1, place=ONE), 1)
        assert view.locator("#kind-exactly").is_checked() and view.locator("#kind-sure").is_disabled()
        view.locator("#place").select_option("alps")
        check(view, model, Choice(at_least=1, place=ALPS, **choice), 1)
        assert view.locator(f"#kind-{kind}").is_checked()
        view.locator("#place").select_option("")
        settled(view)


@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "light"), (1280, "dark"), (390, "dark"), (1280, "light")]
)
def test_everybody_can_choose_a_place(browser, address, width, scheme, tmp_path, request):
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True
    )
    view = context.new_page()
    view.goto(address)
    view.locator("#place").select_option("park")
    upload(view, *map(png, SEEDS))
    for kind in ("sure", "about"):
        view.locator(f"#kind-{kind}").check()
        settled(view)
        view.locator("#slider").fill("1")
        settled(view)
        view.screenshot(path=Path(tmp_path) / f"{kind}_{scheme}_{width}.png", full_page=True)
        assert violations(view) == []
        assert view.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
