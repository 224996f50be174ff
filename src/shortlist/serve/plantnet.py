"""Routes in the form of Pl@ntNet's identification API, so that its clients work with any model.

The fields are those of its public documentation. Names of classes stand for those of species; ``genus`` and
``family`` are filled from levels of these names in the class table. What the table does not know is empty.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BeforeValidator
from starlette.requests import Request

from shortlist._names import split_author
from shortlist._text import folded
from shortlist.class_table import ClassTable
from shortlist.model import Choice
from shortlist.place import Place
from shortlist.sentences import language_for, speaking
from shortlist.serve import examples
from shortlist.serve.answer_form import promise_form
from shortlist.serve.exchange import Answer
from shortlist.serve.forms import Form, Upload, distinct, read_form
from shortlist.serve.limits import MAX_IMAGES, Held
from shortlist.serve.options import BatchOptions
from shortlist.serve.places import ALL, promise_at
from shortlist.serve.refusals import Refusal
from shortlist.serve.service import Service

Part = TypeVar("Part")
ORGANS = ("leaf", "flower", "fruit", "bark", "auto", "habit", "other")
UNLIMITED = 2**31 - 1
_RELATED = 5
_INDEX = re.compile(r"\[\d*\]$")  # some clients send images[0] or images[] for images
_ERRORS = {
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Payload Too Large",
    415: "Unsupported Media Type",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def _or(default: Any) -> BeforeValidator:
    """Take an empty option as if it was not there."""
    return BeforeValidator(lambda value: default if value == "" else value)


@dataclass(kw_only=True)
class _Asked:
    """Options in the address; no model of pydantic, since FastAPI 0.123 loses its fields with aliases."""

    key: Annotated[str | None, Query(alias="api-key", max_length=200)] = None
    lang: Annotated[str, Query(max_length=20), _or("en")] = "en"


@dataclass(kw_only=True)
class _Identify(_Asked):
    related: Annotated[bool, Query(alias="include-related-images"), _or(False)] = False
    results: Annotated[int, Query(alias="nb-results", ge=1), _or(20)] = 20
    no_reject: Annotated[bool, Query(alias="no-reject"), _or(False)] = False


@dataclass(kw_only=True)
class _IdentifyAddresses(_Identify):
    images: Annotated[
        list[str], Query(min_length=1, max_length=MAX_IMAGES, description="Addresses of photos.")
    ]
    organs: Annotated[list[str] | None, Query()] = None


@dataclass(kw_only=True)
class _Page(_Asked):
    prefix: Annotated[str, Query(max_length=200, description="How the name starts.")] = ""
    size: Annotated[int | None, Query(alias="pageSize", ge=1), _or(None)] = None
    page: Annotated[int | None, Query(ge=1, description="From 1; only with pageSize."), _or(None)] = None


def error_form(error: Refusal) -> Response:
    """Return a refusal in the form of that API, which has no 422."""
    status = 400 if error.status == 422 else error.status
    body = {"statusCode": status, "error": _ERRORS.get(status, "Error"), "message": error.message}
    return JSONResponse(body, status_code=status, headers=error.headers)


def plantnet_routes(service: Service) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter()
    refusals: dict[int | str, Any] = {
        status: examples.plantnet_refusal(status, words) for status, words in _ERRORS.items() if status != 405
    }
    _add_identify(router, service, refusals)
    _add_lists(router, service, {status: refusals[status] for status in (400, 401, 404, 429)})
    _add_state(router, service, {status: refusals[status] for status in (400, 401, 503)})
    return router


def _add_identify(router: APIRouter, service: Service, refusals: dict[int | str, Any]) -> None:
    described: dict[str, Any] = {"responses": {200: examples.plantnet_answer(), **refusals}}

    @router.post(
        "/v2/identify/{project}",
        **described,
        openapi_extra=examples.plantnet_body(MAX_IMAGES, ORGANS),
        summary="The short list of one object, in Pl@ntNet's form",
    )
    async def identify(request: Request, project: str, asked: Annotated[_Identify, Depends()]) -> Response:
        """Answer as Pl@ntNet's API does: the best classes with their scores."""

        async def photos(held: Held) -> tuple[list[Upload], list[str]]:
            return _checked(await read_form(request, service.limits, held, max_files=MAX_IMAGES))

        return await _identified(service, request, project, asked, photos)

    @router.get(
        "/v2/identify/{project}",
        **described,
        summary="The short list of one object whose photos are at addresses, in Pl@ntNet's form",
    )
    async def identify_addresses(
        request: Request, project: str, asked: Annotated[_IdentifyAddresses, Depends()]
    ) -> Response:
        """Fetch the photos, if their hosts are allowed, and answer as for photos that are sent."""

        async def photos(held: Held) -> tuple[list[Upload], list[str]]:
            organs = _organs(asked.organs or [], len(asked.images))
            return await service.fetcher.photos(asked.images, held), organs

        return await _identified(service, request, project, asked, photos)


async def _identified(
    service: Service,
    request: Request,
    project: str,
    asked: _Identify,
    photos: Callable[[Held], Awaitable[tuple[list[Upload], list[str]]]],
) -> Response:
    with service.entering(request, asked.key) as (held, left):
        place = _place_of(service, project)
        uploads, organs = await photos(held)
        options = BatchOptions(limit=min(asked.results, 100), related_images=_RELATED if asked.related else 0)
        top, group = min(asked.results, len(service.model.classes)), _group(service, organs)
        photographed = distinct(uploads)
        choice = await service.checked(Choice(top=top, place=place, group=group, photos=len(photographed)))
        answer = await service.answer_object(photographed, options, held, choice=choice)
    if not asked.no_reject and answer.status == "novel":
        raise Refusal(404, "rejected", "Species not found")
    query = {
        "project": project,
        "images": [upload.name for upload in uploads],
        "organs": organs,
        "includeRelatedImages": asked.related,
        "noReject": asked.no_reject,
    }
    shown = _results(answer, service, str(request.base_url).rstrip("/"), asked)
    body = {"query": query, "language": asked.lang, **_answer_form(answer, shown, service, left)}
    said = language_for(asked.lang)
    with speaking(said):
        body["promise"] = promise_form(promise_at(answer.listed.promise, place, said))
    return JSONResponse(body, headers=_rate_headers(service, left))


def _add_lists(router: APIRouter, service: Service, refusals: dict[int | str, Any]) -> None:
    table = service.model.classes

    @router.get("/v2/projects", summary="The lists of classes, in Pl@ntNet's form", responses=refusals)
    def projects(request: Request, asked: Annotated[_Asked, Depends()]) -> Response:
        """List the projects: one with all classes, and the places of the server."""
        service.rate.take(service.client(request, asked.key))
        about = {"title": service.name, "description": "All classes of the model"}
        places = [
            {"id": form["name"], "title": form["title"], "description": "", "speciesCount": form["classes"]}
            for form in service.places.forms(asked.lang)
        ]
        return JSONResponse([{"id": ALL, **about, "speciesCount": len(table)}, *places])

    @router.get("/v2/languages", summary="The languages of common names", responses=refusals)
    def languages(request: Request, asked: Annotated[_Asked, Depends()]) -> Response:
        """List the languages of the classes' common names; any other is taken too."""
        service.rate.take(service.client(request, asked.key))
        return JSONResponse(sorted(table.common_names) or ["en"])

    @router.get("/v2/species", summary="The classes, in Pl@ntNet's form", responses=refusals)
    def species(request: Request, asked: Annotated[_Page, Depends()]) -> Response:
        """List the classes, all of them or a page."""
        return project_species(request, ALL, asked)

    @router.get("/v2/projects/{project}/species", summary="The classes of a project", responses=refusals)
    def project_species(request: Request, project: str, asked: Annotated[_Page, Depends()]) -> Response:
        """List the classes of a project, all of them or a page."""
        service.rate.take(service.client(request, asked.key))
        place = _place_of(service, project)
        occurs = [True] * len(table) if place is None else place.vector(table).gt(0).tolist()
        names, start = table.scientific_names, folded(asked.prefix)
        listed = [i for i, (name, _) in enumerate(names) if occurs[i] and folded(name).startswith(start)]
        if asked.size and asked.page:
            listed = listed[(asked.page - 1) * asked.size : asked.page * asked.size]
        return JSONResponse([_species(table, index, asked.lang) for index in listed])


def _add_state(router: APIRouter, service: Service, refusals: dict[int | str, Any]) -> None:
    @router.get("/v2/_status", summary="Whether requests are answered", responses={503: refusals[503]})
    async def status() -> dict[str, str]:
        """Answer with 503 while the server starts or shuts down."""
        service.check_ready()
        return {"status": "ok"}

    def total() -> int:
        return service.limits.rate or UNLIMITED

    @router.get("/v2/quota", summary="The requests that a client has", responses=refusals)
    async def quota(request: Request, asked: Annotated[_Asked, Depends()]) -> Response:
        """Say how many requests a client has in a minute."""
        service.client(request, asked.key)
        return JSONResponse({"quota": {"identify": {"total": total()}}})

    @router.get("/v2/quota/daily", summary="The requests that a client has left", responses=refusals)
    async def daily_quota(request: Request, asked: Annotated[_Asked, Depends()]) -> Response:
        """Say how many requests a client has left; this takes none of them."""
        left = service.rate.left(service.client(request, asked.key))
        left = total() if left is None else left
        counts = {"count": total() - left, "total": total(), "remaining": left}
        day = datetime.now(timezone.utc).date().isoformat()
        return JSONResponse({"day": day, "quota": {"identify": counts}})


def _place_of(service: Service, project: str) -> Place | None:
    """Return the place of a project; ``None`` for all classes."""
    entry = service.places.get(project)
    if entry is None and project != ALL and not service.any_project:
        names = ", ".join(f"'{name}'" for name in [ALL, *(place.name for place, _ in service.places)][:20])
        raise Refusal(404, "unknown_project", f"Project not found: this server has the project {names}")
    return None if entry is None else entry[0]


def _group(service: Service, organs: Sequence[str]) -> tuple[str, str] | None:
    """Return the group of calibration photos for the organ that all photos show, if there is one."""
    calibrated_organs = service.card["choices"]["groups"].get("organ", ())
    return ("organ", organs[0]) if len(set(organs)) == 1 and organs[0] in calibrated_organs else None


def _answer_form(
    answer: Answer, results: list[dict[str, Any]], service: Service, left: int | None
) -> dict[str, Any]:
    return {
        "predictedOrgans": [],
        "preferedReferential": service.name,
        "bestMatch": results[0]["species"]["scientificName"] if results else "",
        "results": results,
        "version": service.version,
        "remainingIdentificationRequests": UNLIMITED if left is None else left,
    }


def _checked(form: Form) -> tuple[list[Upload], list[str]]:
    """Return the images and as many organs; other fields, such as ``lang``, are not looked at."""
    files, fields = _by_name(form.files), _by_name(form.fields)
    if files.keys() - {"images"}:
        raise Refusal(400, "bad_form", "The form must have no files but those of 'images'")
    if not files:
        raise Refusal(400, "no_images", "At least one image must be given as a file 'images'")
    return files["images"], _organs(fields.get("organs", []), len(files["images"]))


def _by_name(parts: Mapping[str, Sequence[Part]]) -> dict[str, list[Part]]:
    """Return the parts of a form by name, without an index."""
    named: dict[str, list[Part]] = {}
    for name, values in parts.items():
        named.setdefault(_INDEX.sub("", name), []).extend(values)
    return named


def _organs(organs: Sequence[str], images: int) -> list[str]:
    """Return the organs of the images: as many, in small letters."""
    small = [organ.strip().lower() or "auto" for organ in organs] or ["auto"] * images
    if len(small) != images:
        raise Refusal(400, "bad_organs", "There must be as many 'organs' as 'images'")
    if not set(small) <= set(ORGANS):
        raise Refusal(400, "bad_organs", f"Each of 'organs' must be one of {', '.join(ORGANS)}")
    return small


def _results(answer: Answer, service: Service, base: str, asked: _Identify) -> list[dict[str, Any]]:
    table, results = service.model.classes, []
    common = table.common_names_in(asked.lang)
    for listed, images in zip(answer.listed, answer.related_images, strict=True):
        result: dict[str, Any] = {
            "score": round(listed.probability or 0.0, 5),
            "species": {
                **_class_name(table, listed.index),
                "genus": _name(listed.parents.get("genus", "")),
                "family": _name(listed.parents.get("family", "")),
                "commonNames": list(common[listed.index]),
            },
            **{
                place: {"id": id}
                for place in ("gbif", "powo")
                if (id := _external(table, place, listed.index))
            },
        }
        if asked.related:
            result["images"] = [_image(image, service, base) for image in images]
        results.append(result)
    return results


@lru_cache(maxsize=200_000)
def _name(text: str) -> dict[str, str]:
    name, author = split_author(text)
    return {"scientificNameWithoutAuthor": name, "scientificNameAuthorship": author, "scientificName": text}


def _class_name(table: ClassTable, index: int) -> dict[str, str]:
    (name, author), whole = table.scientific_names[index], table.names[index]
    whole = whole if whole.endswith(author) else f"{name} {author}"
    return {"scientificNameWithoutAuthor": name, "scientificNameAuthorship": author, "scientificName": whole}


def _external(table: ClassTable, place: str, index: int) -> str | None:
    return (table.external[place][index] or None) if place in table.external else None


def _species(table: ClassTable, index: int, language: str) -> dict[str, Any]:
    """Return a class in the form of the lists, where the parents are texts."""
    name, without = _class_name(table, index), "scientificNameWithoutAuthor"
    parents = {level: table.parents[level][index] for level in ("genus", "family") if level in table.parents}
    return {
        "id": table.ids[index],
        without: name[without],
        "scientificNameAuthorship": name["scientificNameAuthorship"],
        "gbifId": _external(table, "gbif", index),
        "powoId": _external(table, "powo", index),
        "iucnCategory": None,
        "commonNames": list(table.common_names_in(language)[index]),
        **{level: _name(parents.get(level, ""))[without] for level in ("genus", "family")},
    }


def _image(image: Any, service: Service, base: str) -> dict[str, Any]:
    address = base + service.thumbnail_address(image.id)
    parts = [part for part in (image.author, image.license) if part]
    return {
        "organ": image.organ,
        "author": image.author,
        "license": image.license,
        "date": {"timestamp": _timestamp(image.date), "string": image.date},
        "citation": ", ".join(parts),
        "url": {"o": address, "m": address, "s": address},
    }


def _timestamp(date: str) -> int | None:
    """Return the milliseconds of a date such as 2024-05-01; ``None`` if it is another text."""
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return None
    return int(moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp() * 1000)


def _rate_headers(service: Service, left: int | None) -> dict[str, str]:
    if left is None:
        return {}
    most = service.limits.rate
    return {"RateLimit": f'"minute";r={left};t=60', "RateLimit-Policy": f'"minute";q={most};w=60'}
