"""What an app meets in the field: odd photos, two tabs, a full device."""

import io
import json

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


def test_a_refused_answer_stops_no_other(browser, site):  # noqa: F811
    """A photo that a server does not take would else keep back all answers after it, for ever."""
    server = "https://plants.example.org"
    with opened(browser, site[1], online=True) as page:
        for number in (70, 120, 200):
            upload(page, png(number))
            page.locator("li.candidate button.confirm").first.click()
            page.locator("#again").click()
        page.get_by_text("Not sent yet: 3.").wait_for()
        taken = []

        def take(route):
            taken.append(1)
            error = {"error": {"code": "unknown_format", "message": "It is no image."}}
            headers = {"Access-Control-Allow-Origin": "*"}
            content = {"status": 415, "json": error} if len(taken) == 1 else {"status": 201, "json": {}}
            route.fulfill(**content, headers=headers)

        page.route(f"{server}/**", take)
        page.locator("#app-server").fill(server)
        page.locator("#app-send").click()
        status(page, "Answers that were sent now: 2. Then this went wrong: It is no image.")
        assert len(taken) == 3
        page.get_by_text("Answers on this device: 3. Not sent yet: 1.").wait_for()
        page.requests[:] = [url for url in page.requests if not url.startswith(server)]
        page.troubles[:] = [text for text in page.troubles if "status of 415" not in text]


def test_photos_of_formats_that_servers_refuse_are_refused(browser, site):  # noqa: F811
    file = io.BytesIO()
    Image.new("RGB", (30, 30), "green").save(file, "GIF")
    with opened(browser, site[1]) as page:
        photo = {"name": "moving.gif", "mimeType": "image/gif", "buffer": file.getvalue()}
        page.locator("#files").set_input_files([photo])
        page.get_by_text("This is not an image in JPEG, PNG or WebP format.").wait_for()
        file = io.BytesIO()
        Image.new("RGB", (30, 30), "green").save(file, "WEBP")
        page.locator("#again").click()
        upload(page, file.getvalue())


def test_many_photos_are_read_and_saved_one_answer_at_a_time(browser, site, tmp_path):  # noqa: F811
    """The photos of a day are more than the memory of a phone, and than the longest text of a browser."""
    with opened(browser, site[1]) as page:
        upload(page, png(70))
        page.get_by_label("Yes").check()
        page.locator("li.candidate button.confirm").first.click()
        page.get_by_text("Answers on this device: 1.").wait_for()
        page.evaluate(MANY)
        page.reload()
        page.get_by_text("Answers on this device: 5. Not sent yet: 3.").wait_for()
        page.evaluate("""() => {
            const written = JSON.stringify;
            window.longest = 0;
            JSON.stringify = (...given) => {
                const text = written(...given);
                window.longest = Math.max(window.longest, text.length);
                return text;
            };
        }""")
        with page.expect_download() as download:
            page.locator("#app-save").click()
        download.value.save_as(tmp_path / "answers.json")
        saved = json.loads((tmp_path / "answers.json").read_text())
        assert [len(answer["photos"][0]) for answer in saved["answers"]].count(400_000) == 4
        assert 400_000 < page.evaluate("window.longest") < 500_000


MANY = """async () => {
    const open = indexedDB.open(`shortlist ${location.pathname}`);
    const database = await new Promise((done) => (open.onsuccess = () => done(open.result)));
    const transaction = database.transaction("answers", "readwrite");
    const store = transaction.objectStore("answers");
    store.getAll().onsuccess = ({ target }) => [1, 2, 3, 4].forEach((number) => store.put({
        ...target.result[0], id: `more ${number}`, photos: [new ArrayBuffer(300_000)],
        sent: number > 2 ? "2026-01-01T00:00:00.000Z" : null,
    }));
    await new Promise((done) => (transaction.oncomplete = done));
    database.close();
}"""
