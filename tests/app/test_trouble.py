"""What an app meets in the field: odd photos, two tabs, a full device."""

import io

import pytest
import torch
from PIL import Image

from shortlist.model import Choice
from tests.app.test_browser import names, opened, runtime, site, status, upload  # noqa: F401 - fixtures
from tests.serve.parts import png

pytestmark = pytest.mark.slow


def test_transparent_photos_keep_their_colors(browser, site):  # noqa: F811
    """Opacity is dropped, as by Pillow: what is transparent has colors too, which a canvas forgets."""
    model, address, _ = site
    gray = torch.linspace(0, 255, 64).repeat(64, 1).to(torch.uint8)
    opacity = torch.where(gray > 128, 0, 90).to(torch.uint8)
    picture, file = Image.fromarray(torch.stack([gray, gray, gray, opacity], 2).numpy()), io.BytesIO()
    picture.save(file, "PNG")

    def listed_of(image):
        return [candidate.name for candidate in model.short_lists([image], Choice(top=5))[0]]

    forgotten = Image.fromarray((gray * (gray <= 128)).numpy())
    assert listed_of(picture) == listed_of(picture.convert("RGB")) != listed_of(forgotten)
    with opened(browser, address) as page:
        upload(page, file.getvalue())
        page.locator("#kind-exactly").check()
        page.wait_for_function("() => document.querySelectorAll('li.candidate').length === 5")
        assert names(page) == listed_of(picture)


def test_answers_that_are_forgotten_in_another_tab_stay_forgotten(browser, site):  # noqa: F811
    server = "https://plants.example.org"
    with opened(browser, site[1], online=True) as page:
        upload(page, png(70))
        page.locator("li.candidate button.confirm").first.click()
        page.get_by_text("Answers on this device: 1.").wait_for()
        other = page.context.new_page()
        other.on("dialog", lambda dialog: dialog.accept())
        other.goto(f"{site[1]}/")
        other.get_by_text("Answers on this device: 1.").wait_for()

        def take(route):
            other.locator("#app-forget").click()
            other.get_by_text("Answers on this device: 0.").wait_for()
            route.fulfill(status=201, json={}, headers={"Access-Control-Allow-Origin": "*"})

        page.route(f"{server}/**", take)
        page.locator("#app-server").fill(server)
        page.locator("#app-send").click()
        status(page, "Answers that were sent now: 1.")
        assert "Answers on this device: 0." in page.locator("#app-count").inner_text()
        page.requests[:] = [url for url in page.requests if not url.startswith(server)]


def test_a_full_device_says_that_an_answer_is_not_kept(browser, site):  # noqa: F811
    with opened(browser, site[1]) as page:
        upload(page, png(70))
        session = page.context.new_cdp_session(page)
        session.send("Storage.overrideQuotaForOrigin", {"origin": site[1], "quotaSize": 1})
        page.locator("li.candidate button.confirm").first.click()
        page.locator("#thanks:not(:empty)").wait_for()
        assert "not" in page.locator("#thanks").inner_text().lower()
        assert "Answers on this device: 0." in page.locator("#app-count").inner_text()
        session.send("Storage.overrideQuotaForOrigin", {"origin": site[1]})
        page.locator("li.candidate button.confirm").first.click()
        page.get_by_text("Thank you. Your answer is kept.").wait_for()
