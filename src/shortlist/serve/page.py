"""The pages: routes ``/``, ``/review`` and ``/static/...``. Files are read once, when the server starts."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from itertools import pairwise
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request

from shortlist._spoken import as_count
from shortlist.promise import default_predictor
from shortlist.sentences import LANGUAGES, language_for, speaking, strings
from shortlist.serve.limits import MAX_IMAGES
from shortlist.serve.refusals import Refusal
from shortlist.serve.service import Service, language_of

_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_RELATED_IMAGES = 6
_EXAMPLES = 6
_TRIES = 20  # classes that are looked at for each example


def page_routes(service: Service) -> APIRouter:
    """Return the routes of the pages."""
    routes = APIRouter(include_in_schema=False)
    pages = {
        (script, language): page_text(service, language, script=script)
        for script in ("page", "review")
        for language in LANGUAGES
    }
    static = static_files()
    tags = {name: f'"{hashlib.sha256(content).hexdigest()[:16]}"' for name, (content, _) in static.items()}

    def show(script: str, request: Request, lang: str | None) -> HTMLResponse:
        page = pages[script, language_for(language_of(request, lang and lang[:20]))]
        return HTMLResponse(page, headers={"Cache-Control": "no-cache", "Vary": "Accept-Language"})

    @routes.get("/")
    def show_page(request: Request, lang: str | None = None) -> HTMLResponse:
        return show("page", request, lang)

    @routes.get("/review")
    def show_review(request: Request, lang: str | None = None) -> HTMLResponse:
        return show("review", request, lang)

    @routes.get("/static/{name}")
    def static_file(name: str, request: Request) -> Response:
        if name not in static:
            raise Refusal(404, "not_found", "There is nothing at this address.")
        headers = {"Cache-Control": "no-cache", "ETag": tags[name]}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        content, kind = static[name]
        return Response(content, media_type=kind, headers=headers)

    return routes


def page_text(
    service: Service, language: str, app: Mapping[str, Any] | None = None, *, script: str = "page"
) -> str:
    """Fill a template with what is known of the model, in a language; all else comes over the API.

    Args:
        service: What answers, or would answer if there were a server.
        language: Language of the page.
        app: For an app without a server: its ``policy`` of security, more ``facts``, and its ``version``.
        script: Name of the template and of its script.
    """
    with speaking(language):
        return _filled(service, language, app, script)


def _filled(service: Service, language: str, app: Mapping[str, Any] | None, script: str) -> str:
    words, card = strings()["page"], service.card
    facts: dict[str, Any] = {
        "words": words,
        "version": card["version"],
        "classes": card["classes"],
        "ladder": card["ladder"],
        "level": _level(service),
        "places": [
            {name: form[name] for name in ("name", "title")} for form in service.places.forms(language)
        ],
        "levels": service.answerer.lineage.levels,
        "alike": service.answerer.lineage.look_alikes,
        "examples": _example_classes(service) if script == "page" else [],
        "index": service.index is not None,
        "max_images": MAX_IMAGES,
        "related_images": _RELATED_IMAGES,
        "organs": service.organs,
        "checklist": service.has_checklist,
        **({} if app is None else app["facts"]),
    }
    return (
        _templates()
        .get_template(f"{script}.html")
        .render(
            script=script,
            words=words,
            facts=facts,
            language=language,
            languages=_languages(),
            name=card["name"],
            **_app_parts(app),
            classes=as_count(card["classes"]),
            examples=None if card["training_examples"] is None else as_count(card["training_examples"]),
            needs_key=service.keys.needed,
            kind=service.kind,
            drawing=_is_drawing(service),
            groups=card["choices"]["groups"],
            macro=card["choices"]["macro"],
        )
    )


def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("shortlist.serve"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _app_parts(app: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return where the files of the page are, and what only the page of an app has."""
    if app is None:
        return {"static": "/static/", "app": None}
    return {"static": "", "app": {**app, "says": strings()["app"]}}


def _languages() -> dict[str, str]:
    """Return the languages of the page, each by its own name."""
    names = {}
    for language in LANGUAGES:
        with speaking(language):
            names[language] = strings()["language"]
    return names


def _level(service: Service) -> float:
    """Return the coverage to begin with: what the model promises if nothing is chosen."""
    promises = service.model.promises
    level = promises[default_predictor(promises)].level if promises else None
    return 0.9 if level is None else level


def _example_classes(service: Service) -> list[str]:
    """Return the ids of a few classes with known images, from all over the list of classes."""
    if service.index is None:
        return []
    ids = service.model.classes.ids
    starts = [*sorted({len(ids) * part // _EXAMPLES for part in range(_EXAMPLES)}), len(ids)]
    tried = (range(low, min(low + _TRIES, high)) for low, high in pairwise(starts))
    found = (next((i for i in part if service.index.examples(i, 1)), None) for part in tried)
    return [ids[index] for index in found if index is not None]


def _is_drawing(service: Service) -> bool:
    """Return whether inputs are small gray pictures, such as glyphs, which a person can draw."""
    rule = service.model.preprocessing
    return rule is not None and rule.color == "L" and max(rule.height, rule.width) <= 64


def static_files() -> dict[str, tuple[bytes, str]]:
    """Read the files that the page loads, with their kinds."""
    contents = {}
    for entry in files("shortlist.serve").joinpath("static").iterdir():
        kind = _KINDS.get("." + entry.name.rsplit(".", 1)[-1])
        if kind is not None:
            contents[entry.name] = (entry.read_bytes(), kind)
    return contents
