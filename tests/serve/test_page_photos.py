"""The page's photos in a real browser: one's own, example photos, two candidates side by side, a link."""

import pytest
from PIL import Image

from shortlist import ClassTable
from shortlist.serve.lineage import Lineage
from tests.serve.parts import TREES, encoded, png
from tests.serve.test_page import names, server as server, upload, view as view, violations


def photo(seed: int = 90) -> bytes:
    return encoded(Image.new("RGB", (1200, 900), (seed, 120, 40)), "JPEG")


def test_ones_own_photo_is_large_beside_the_list(view):
    upload(view, photo())
    view.wait_for_selector("li.candidate")
    box = view.locator("#photos img").bounding_box()
    assert box["width"] > 0.8 * 390  # it fills a phone
    view.set_viewport_size({"width": 1280, "height": 900})
    own, result = (view.locator(one).bounding_box() for one in ("#photos img", "#result"))
    assert own["width"] > 450 and own["height"] > 300 and own["x"] + own["width"] < result["x"]


def test_photos_are_moved_by_buttons_only_where_there_are_more(view):
    view.set_viewport_size({"width": 1280, "height": 900})
    view.emulate_media(reduced_motion="reduce")
    upload(view, photo(10), photo(20), photo(30))
    view.wait_for_selector("li.candidate")
    own = view.locator("#photos-row")
    place = "document.getElementById('photos').scrollLeft"
    assert not own.get_by_label("Photos before these").is_visible() and view.evaluate(place) == 0
    own.get_by_label("More photos").click()
    own.get_by_label("Photos before these").wait_for()
    assert view.evaluate(place) > 300
    own.get_by_label("Photos before these").click()
    own.get_by_label("Photos before these").wait_for(state="hidden")
    upload(view)
    for _ in range(2):
        view.locator("#photos .remove").first.click()
        view.locator("#result:not([aria-busy])").wait_for()
    assert view.locator("#photos-row .swipe > button:visible").count() == 0


def test_an_example_photo_gets_a_list_and_no_answer(view):
    view.locator("#example-list li").nth(5).wait_for()
    shown = view.locator("#example-list img").evaluate_all("all => all.map(one => one.alt)")
    assert shown == [f"Known photo of {name}" for name in TREES.names]  # one of each of the six classes
    view.wait_for_function(
        "[...document.querySelectorAll('#example-list img')].every((one) => one.naturalWidth)"
    )
    assert not view.locator("#control").is_visible()
    view.locator("#example-list button").first.click()
    view.wait_for_selector("li.candidate")
    assert view.locator("#control").is_visible() and not view.locator("#examples").is_visible()
    for hidden in ("#consent", "#answer", "button.confirm"):
        assert view.locator(f"{hidden}:visible").count() == 0
    upload(view, png(80))  # one's own photo begins anew
    view.locator("button.confirm").first.wait_for()
    assert view.locator("#photos li").count() == 1 and view.locator("#earlier li").count() == 1
    view.locator("#again").click()
    assert view.locator("#examples").is_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_two_candidates_are_compared_and_one_is_chosen(view, width):
    view.set_viewport_size({"width": width, "height": 844})
    view.emulate_media(reduced_motion="reduce")
    upload(view, photo())
    view.locator("#kind-exactly").check()
    view.locator("#result:not([aria-busy])").wait_for()
    first, second = names(view)[:2]
    view.get_by_label(f"Compare {first} with another name").click()
    assert view.locator("#picked-words").inner_text() == f"Choose the name to compare with {first}."
    view.locator("#picked-cancel").click()
    assert not view.locator("#picked").is_visible()
    view.get_by_label(f"Compare {second} with another name").click()
    assert view.get_by_label(f"Compare {second} with another name").get_attribute("aria-pressed") == "true"
    view.get_by_label(f"Compare {first} with another name").click()
    sides = view.locator("#pair section")
    assert sides.locator("h3").all_inner_texts() == [second, first]
    assert sides.locator("img").count() == 4 and view.locator("#pair > figure img").count() == 1
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    sides.nth(1).get_by_role("button", name=f"This is it: {first}").click()
    view.get_by_text(f"You said: {first}.").wait_for()
    assert not view.locator("#compare").is_visible() and not view.locator("#picked").is_visible()


def test_a_link_shows_the_photos_to_others_who_answer(browser, view, server):
    upload(view, photo(33))
    view.wait_for_selector("li.candidate")
    assert not view.locator("#share").is_visible()
    view.get_by_label("No", exact=True).check()
    view.locator("button.confirm").first.click()
    view.get_by_text("Thank you.").wait_for()
    assert not view.locator("#share").is_visible()  # nobody else may see these photos
    view.locator("#again").click()
    upload(view, photo(34))
    view.wait_for_selector("li.candidate")
    view.get_by_label("Yes").check()
    view.locator("#ask-others").click()
    view.locator("#share").wait_for()
    link = view.locator("#share-link").input_value()
    assert link.startswith(f"{server[0]}/review#observation=")
    context = browser.new_context(viewport={"width": 390, "height": 844}, bypass_csp=True)
    other = context.new_page()
    other.goto(link)
    other.get_by_text("Somebody shared this observation with you.").wait_for()
    assert other.locator("#pictures img").count() == 1 and other.locator("#votes li").count() == 0
    other.locator("li.candidate .related img").first.wait_for()
    assert violations(other) == []
    other.locator("button.confirm").first.click()
    other.locator("#votes li").first.wait_for()
    other.reload()
    other.locator("#votes li").first.wait_for()  # with the answer that was given before
    other.locator("#next").click()
    other.wait_for_function("!location.hash")
    context.close()
    view.goto(link)
    view.get_by_text("This is your own observation.").wait_for()
    assert view.locator("#votes li").count() == 1 and view.locator("#answer:visible").count() == 0


def test_nothing_moves_for_those_who_want_that(browser, server):
    moving = """[".bar span", ".swipe > ul"].map((one) => {
        const style = getComputedStyle(document.querySelector(one));
        return [style.transitionDuration, style.scrollBehavior];
    })"""
    for motion, expected in (("reduce", ["0s", "auto"]), ("no-preference", ["0.2s", "smooth"])):
        context = browser.new_context(reduced_motion=motion)
        view = context.new_page()
        view.goto(server[0])
        upload(view, png(80))
        view.wait_for_selector("li.candidate")
        (bar, _), (_, row) = view.evaluate(moving)
        assert [bar, row] == expected
        context.close()


def test_groups_named_after_a_class_are_look_alikes():
    """What is called LATIN CAPITAL LETTER H is no genus; the oaks are one, and so is Ginkgo."""
    letters = ClassTable(
        names=("H", "ETA", "EN", "O", "OMICRON", "Z"),
        parents={"genus": ("H", "H", "H", "O", "O", "Z"), "script": ("L", "G", "C", "L", "G", "L")},
    )
    assert Lineage(letters).look_alikes == ["genus"]
    assert Lineage(TREES).look_alikes == []
    one = ClassTable(
        names=("Ginkgo", "Quercus robur", "Quercus petraea"),
        parents={"genus": ("Ginkgo", "Quercus", "Quercus")},
    )
    assert Lineage(one).look_alikes == []
