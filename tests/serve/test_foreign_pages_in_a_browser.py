"""A page of another site in a real browser: it sends answers in somebody's name, and none is recorded."""

import http.server
import json
import threading

import pytest

from shortlist.feedback.store import is_store, read_events
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.serve.parts import Index, png, tree_model
from tests.serve.running import running
from tests.serve.test_connection import wait_for
from tests.serve.test_foreign_pages import SAID

ATTACK = """
<!doctype html><title>A foreign page</title>
<form id="f" method="post" action="TARGET/v1/feedback" enctype="multipart/form-data" target="t">
<input type="file" name="event" id="event"></form><iframe name="t"></iframe>
<script type="module">
const said = SAID;
const photo = Uint8Array.from(PHOTO);
const body = () => {
  const form = new FormData();
  form.append("event", new Blob([JSON.stringify(said)], { type: "application/json" }));
  form.append("images", new Blob([photo], { type: "image/png" }), "photo");
  return form;
};
const tries = [
  { mode: "no-cors", body: body() },
  { mode: "no-cors", body: body(), referrerPolicy: "no-referrer" },
  { mode: "no-cors", body: JSON.stringify(said), headers: { "Content-Type": "text/plain" } },
  { body: body() },
  { body: JSON.stringify(said), headers: { "Content-Type": "application/json" } },
];
for (const options of tries) {
  await fetch("TARGET/v1/feedback", { method: "POST", ...options }).catch(() => null);
}
navigator.sendBeacon("TARGET/v1/feedback", body());
const bag = new DataTransfer();
bag.items.add(new File([JSON.stringify(said)], "event", { type: "application/json" }));
document.getElementById("event").files = bag.files;
document.querySelector("iframe").addEventListener("load", () => { window.done = true; }, { once: true });
document.getElementById("f").submit();
</script>
"""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_foreign_page_in_a_browser_records_nothing(browser, tmp_path, name):
    """The page comes from another port, by the same and by another name; then our own page is used."""
    service = Service(tree_model(), index=Index(), feedback=tmp_path / "store")
    with running(make_app(service)) as address, serving(page(address)) as port:
        context = browser.new_context()
        view = context.new_page()
        view.goto(f"http://{name}:{port}/")
        view.wait_for_function("window.done")
        # all but JSON, for which the browser asks first, reach the server, whose answer they cannot read
        wait_for(
            lambda: 'shortlist_requests_total{route="other",status="403"} 6.0\n' in service.metrics.text()
        )
        assert not is_store(tmp_path / "store")
        view.goto(address)
        view.locator("#files").set_input_files([{"name": "a", "mimeType": "image/png", "buffer": png(1)}])
        view.wait_for_selector("li.candidate")
        view.locator("li.candidate button.confirm").first.click()
        view.get_by_text("Thank you").wait_for()
        context.close()
    assert [event.verb for event in read_events(tmp_path / "store")] == ["confirm"]


def page(target: str) -> bytes:
    text = ATTACK.replace("TARGET", target).replace("SAID", json.dumps(SAID))
    return text.replace("PHOTO", json.dumps(list(png(1)))).encode()


class serving:
    """Serve one page at a free port of this machine."""

    def __init__(self, content: bytes) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> int:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self._server.server_address[1]

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
