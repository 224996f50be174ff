"""An app that answers without a server: static files with the page, and an engine in JavaScript."""

from shortlist.app.build import write_app
from shortlist.app.runtime import VERSION as RUNTIME_VERSION

__all__ = ["RUNTIME_VERSION", "write_app"]
