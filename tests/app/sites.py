"""An app for tests: a model of trees, exported, written as static files, and served by any file server."""

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shortlist.app import write_app
from shortlist.app.runtime import copy_runtime
from shortlist.model import export_lists


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Gives files as any web server does, and says nothing."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path, kind: type[Quiet] = Quiet) -> Iterator[str]:
    """Serve a folder of files on a free port of this machine; give its address."""
    handler = functools.partial(kind, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def runtime_or_skip(folder: Path) -> Path:
    """The files of onnxruntime-web, by npm; without a network the tests are left out."""
    if shutil.which("npm") is None:
        pytest.skip("no npm, which fetches onnxruntime-web")
    try:
        copy_runtime(folder)
    except ValueError as error:
        pytest.skip(str(error))
    return folder


def made_site(folder: Path, model, runtime: Path, **options) -> Path:
    """The app of a model in a new folder."""
    export_lists(model, folder / "bundle", version=options.pop("version", "0123456789ab"))
    write_app(folder / "bundle", folder / "site", model=model, runtime=runtime, **options)
    return folder / "site"
