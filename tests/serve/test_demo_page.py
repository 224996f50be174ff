"""``shortlist demo --serve`` from its first line to a confirmed list: train, index, serve, a real browser."""

import io
import socket
import subprocess
import sys
import time
from itertools import pairwise

import httpx
import pytest
from PIL import Image

from tests.serve.parts import encoded
from tests.serve.test_page import draw, names, upload

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of the page that the command opens, when its model is trained and its index is built."""
    place = tmp_path_factory.mktemp("demo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "shortlist", "demo", "--serve", "--port", str(port)]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
    try:
        stop, is_ready = time.monotonic() + 900, False
        while not is_ready:
            assert process.poll() is None and time.monotonic() < stop, (place / "log").read_text()
            time.sleep(0.5)
            try:
                is_ready = httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
            except httpx.TransportError:
                continue
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def view(browser, address):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.troubles, page.requests, page.refused = [], [], []
    page.on("console", lambda message: page.troubles.append(message.text))
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("response", lambda one: page.refused.append(one.url) if one.status >= 400 else None)
    page.goto(address)
    yield page
    assert page.troubles == [] and page.refused == []
    assert all(url.startswith((address, "blob:", "data:")) for url in page.requests)
    context.close()


def test_a_glyph_is_drawn_listed_compared_and_confirmed(view):
    draw(view)
    view.wait_for_selector("li.candidate")
    listed = names(view)
    assert listed and "of 100 lists made at this setting" in view.locator("#setting").inner_text()
    view.wait_for_function(
        "[...document.querySelectorAll('.related img')].slice(0, 3).every((one) => one.naturalWidth > 0)"
    )
    assert view.locator("li.candidate .related img").count() >= len(listed)
    lists = []
    for place in range(1 + int(view.locator("#slider").get_attribute("max"))):
        view.locator("#slider").fill(str(place))
        lists.append(names(view))
    assert all(set(few) <= set(more) for few, more in pairwise(lists)) and len(lists[0]) < len(lists[-1])
    assert listed in lists
    view.locator("li.candidate .related button").first.click()
    assert view.locator("#compare").is_visible()
    view.keyboard.press("Escape")
    view.locator("li.candidate button.confirm").first.click()
    view.get_by_text("Thank you. Your answer is kept.").wait_for()


def test_a_picture_of_a_known_glyph_is_found(view, address):
    [known] = httpx.get(
        f"{address}/v1/classes", params={"search": "latin capital letter h", "limit": 1}
    ).json()["classes"]
    image = httpx.get(f"{address}/v1/classes/{known['id']}").json()["example_images"][0]
    jpeg = httpx.get(f"{address}{image['thumbnail']}").content
    upload(view, encoded(Image.open(io.BytesIO(jpeg)), "PNG"))
    view.wait_for_selector("li.candidate")
    view.locator("#slider").press("End")
    assert known["name"] in names(view)


def test_a_broken_file_shows_a_plain_message(view):
    upload(view, b"\x89PNG\r\n\x1a\n and no more")
    view.get_by_text("That did not work").wait_for()
    assert "Traceback" not in view.locator("body").inner_text()
    assert len(view.refused) == 1 and len(view.troubles) == 1  # the browser itself tells of the refusal
    view.refused.clear()
    view.troubles.clear()
