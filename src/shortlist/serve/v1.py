"""The routes of ``/v1``."""

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from shortlist._text import composed, folded
from shortlist.class_table import ClassTable
from shortlist.model import Choice
from shortlist.sentences import LANGUAGE, language_for
from shortlist.serve import examples, schemas
from shortlist.serve.card import ladder
from shortlist.serve.forms import Form, Upload, distinct, read_form
from shortlist.serve.limits import MAX_IMAGES
from shortlist.serve.metrics import CONTENT_TYPE
from shortlist.serve.options import BatchOptions, IdentifyOptions, LadderOptions, Language
from shortlist.serve.refusals import Refusal
from shortlist.serve.service import Service, language_of, sentence

_IMAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_JSON = "application/json"
_EXAMPLES = 12  # images of a class
_WIDE = 100  # classes of a list that is audited


def v1_routes(service: Service) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter()
    _add_classes(router, service)
    _add_class(router, service)
    _add_places(router, service)
    _add_model(router, service)
    _add_images(router, service)
    _add_watching(router, service)
    return router


def identify_routes(service: Service) -> APIRouter:
    """Return the routes that are called most."""
    router, limits, refused = APIRouter(), service.limits, (400, 401, 403, 408, 413, 415, 422, 429, 503)

    @router.post(
        "/v1/identify",
        response_model=schemas.IdentifyAnswer,
        responses=examples.responses("identify", *refused),
        openapi_extra=examples.images_body(MAX_IMAGES, "Photos of one object, in JPEG, PNG or WebP format."),
        summary="The short list of one object",
    )
    async def identify(request: Request, options: Annotated[IdentifyOptions, Query()]) -> Response:
        """Answer with the classes that photos of one object may show, best first, and what is promised."""
        start = time.perf_counter()
        with service.entering(request) as (held, _):
            form = await read_form(request, limits, held, max_files=MAX_IMAGES)
            uploads = distinct(images_of(form))
            signing = await service.signing(uploads) if options.receipt else None
            if signing is not None and signing.audit:
                options = options.model_copy(update={"limit": _WIDE})
            answer = await service.answer_object(uploads, options, held)
            more = {} if signing is None else await service.receipt(signing, answer, uploads, held)
        more = {**more, "start": start, "images": len(uploads)}
        return Response(service.written(answer, language_of(request, options.lang), **more), media_type=_JSON)

    @router.post(
        "/v1/identify/batch",
        response_model=schemas.BatchAnswer,
        responses=examples.responses("batch", *refused),
        openapi_extra=examples.images_body(limits.batch_images, "Photos of as many objects, one of each."),
        summary="The short lists of several objects",
    )
    async def identify_batch(request: Request, options: Annotated[BatchOptions, Query()]) -> Response:
        """Answer for each photo by itself; a bad one gets the status ``bad_image``."""
        start = time.perf_counter()
        with service.entering(request) as (held, _):
            form = await read_form(request, limits, held, max_files=limits.batch_images)
            results = await service.answer_each(images_of(form), options, held)
        wanted = language_of(request, options.lang)
        return Response(service.written_each(results, wanted, start=start), media_type=_JSON)

    return router


def images_of(form: Form) -> list[Upload]:
    """Return the images of a form, which has nothing else."""
    other = sorted((form.files.keys() | form.fields.keys()) - {"images"})
    if other or "images" in form.fields:
        raise Refusal(400, "bad_form", "The form must have files as 'images' and nothing else.")
    if not form.files:
        raise Refusal(400, "no_images", "The form must have at least one file as 'images', got none.")
    return form.files["images"]


def _add_classes(router: APIRouter, service: Service) -> None:
    table = service.model.classes
    words = [folded(" ".join(_names_of(table, index))) for index in range(len(table))]

    @router.get(
        "/v1/classes",
        response_model=schemas.ClassList,
        responses=examples.responses("classes", 401, 422, 429),
        summary="The classes",
    )
    def classes(
        request: Request,
        search: Annotated[str, Query(max_length=200, description="Part of names, id or parents.")] = "",
        lang: Language = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> Response:
        """List the classes that the model knows, in the order of its table."""
        service.rate.take(service.client(request))
        wanted, language = folded(search).split(), language_of(request, lang)
        matching = [i for i, text in enumerate(words) if all(word in text for word in wanted)]
        listed = [_class_form(service, i, language) for i in matching[offset : offset + limit]]
        return JSONResponse({"total": len(matching), "classes": listed})


def _add_class(router: APIRouter, service: Service) -> None:
    table = service.model.classes

    @router.get(
        "/v1/classes/{id:path}",
        response_model=schemas.ClassDetails,
        responses=examples.responses("class", 401, 404, 422, 429),
        summary="One class",
    )
    def one_class(request: Request, id: str, lang: Language = None) -> Response:
        """Say what is known about a class: its counts, the classes it is confused with, some images."""
        service.rate.take(service.client(request))
        index = service.class_index.get(composed(id))
        if index is None:
            raise Refusal(404, "unknown_class", "The model has no class of this id.")
        index_of_images = service.known_images()
        images = [] if index_of_images is None else index_of_images.examples(index, _EXAMPLES)
        return JSONResponse(
            {
                **_class_form(service, index, language_of(request, lang)),
                "synonyms": list(table.synonyms[index]) if table.synonyms else [],
                "common_names_by_language": _by_key(table.common_names, index),
                "external": _by_key(table.external, index),
                "confused_with": _confused_with(service, index),
                "example_images": [service.image_form(image) for image in images],
            }
        )


def _names_of(table: ClassTable, index: int) -> Iterator[str]:
    """Give the names by which a class can be searched."""
    yield from (table.names[index], *table.scientific_names[index], table.ids[index])
    yield from (column[index] for column in table.parents.values())
    yield from (name for column in table.common_names.values() for name in column[index])
    yield from table.synonyms[index] if table.synonyms else ()


def _by_key(columns: Mapping[str, Sequence[Any]], index: int) -> dict[str, Any]:
    return {key: column[index] for key, column in columns.items() if column[index]}


def _class_form(service: Service, index: int, language: str) -> dict[str, Any]:
    table = service.model.classes
    return {
        **service.form.classes(language)[index],
        "count": table.counts[index] if table.counts else None,
    }


def _confused_with(service: Service, index: int) -> list[dict[str, Any]]:
    rows, table = service.model.calibration_rows, service.model.classes
    return [
        {"id": table.ids[other], "name": table.names[other], "probability": round(share, 6)}
        for other, share in ([] if rows is None else rows.confused_with(index))
    ]


def _add_model(router: APIRouter, service: Service) -> None:
    @router.get(
        "/v1/model",
        response_model=schemas.ModelCard,
        responses=examples.responses("model", 401, 429),
        summary="The model card",
    )
    def model(request: Request) -> Response:
        """Say what the model is, what it can do, and how well it does it."""
        service.rate.take(service.client(request))
        index_of_images = service.known_images()
        index = None if index_of_images is None else {"images": len(index_of_images)}
        return JSONResponse(service.card | {"index": index, "feedback": service.drift()})


def _add_places(router: APIRouter, service: Service) -> None:
    @router.get(
        "/v1/places",
        response_model=schemas.PlaceList,
        responses=examples.responses("places", 401, 422, 429),
        summary="The places",
    )
    def places(
        request: Request,
        lang: Annotated[str, Query(max_length=20, description="Language of the titles.")] = LANGUAGE,
    ) -> Response:
        """List the places that lists can be for."""
        service.rate.take(service.client(request))
        return JSONResponse({"places": service.places.forms(lang)})

    @lru_cache(maxsize=64)  # of values that clients choose
    def steps(choice: Choice, language: str) -> dict[str, Any] | None:
        return ladder(service.model, choice, language)

    @router.get(
        "/v1/ladder",
        response_model=schemas.LadderForm | None,
        responses=examples.responses("ladder", 401, 422, 429),
        summary="The steps of a control from fewer to surer",
    )
    def show_ladder(request: Request, options: Annotated[LadderOptions, Query()]) -> Response:
        """Say what each step of the control means; null if the model kept no calibration photos."""
        service.rate.take(service.client(request))
        choice = Choice(**service.scope_of(options), photos=options.photos)
        try:
            return JSONResponse(steps(choice, language_for(language_of(request, options.lang))))
        except ValueError as error:
            raise Refusal(422, "bad_parameter", sentence(error)) from None


def _add_images(router: APIRouter, service: Service) -> None:
    @router.get(
        "/v1/images/{id}",
        response_class=Response,
        responses={
            200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}},
            **examples.responses(None, 401, 404, 422, 429),
        },
        summary="A known image",
    )
    def image(
        request: Request, id: str, signature: Annotated[str | None, Query(max_length=100)] = None
    ) -> Response:
        """Return a small JPEG of a known image, by its id in the index."""
        if not service.keys.is_signed(id, signature):
            service.rate.take(service.client(request))
        unknown = Refusal(404, "unknown_image", "The index has no image of this id.")
        index_of_images = service.known_images()
        if index_of_images is None or not _IMAGE_ID.fullmatch(id):
            raise unknown
        try:
            content = index_of_images.thumbnail(id)
        except (KeyError, ValueError):
            raise unknown from None
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400"})


def _add_watching(router: APIRouter, service: Service) -> None:
    """Add the routes for programs that watch the server."""

    @router.get("/health", summary="Whether the process is alive")
    async def health() -> dict[str, str]:
        """Answer while the process is alive."""
        return {"status": "ok"}

    @router.get("/ready", summary="Whether requests are answered", responses=examples.responses(None, 503))
    async def ready() -> dict[str, str]:
        """Answer with 503 while the server starts or shuts down."""
        service.check_ready()
        return {"status": "ready"}

    @router.get(
        "/metrics",
        response_class=Response,
        summary="Counters for Prometheus",
        responses={200: {"content": {"text/plain": {}}}, **examples.responses(None, 401)},
    )
    async def metrics(request: Request) -> Response:
        """Return counters in the text form of Prometheus."""
        service.client(request)
        text = await asyncio.to_thread(service.metrics.text)  # which reads files of other processes
        return Response(text, media_type=CONTENT_TYPE)
