"""Routes in the form of Pl@ntNet's identification API, so that its clients work with any model.

The fields are those of its public documentation. Names of classes stand for those of species; ``genus`` and
``family`` are filled from levels of these names in the class table. What the table does not know is empty.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from shortlist.serve import examples
from shortlist.serve.exchange import Answer, Choice
from shortlist.serve.forms import Form, Upload, read_form
from shortlist.serve.limits import MAX_IMAGES
from shortlist.serve.refusals import Refusal
from shortlist.serve.schemas import BatchOptions
from shortlist.serve.service import Service

__all__ = ["error_form", "plantnet_routes"]

ORGANS = ("leaf", "flower", "fruit", "bark", "auto", "habit", "other")
PROJECT = "all"
UNLIMITED = 2**31 - 1
_RELATED = 5
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
    _add_projects(router, service, refusals)
    _add_identify(router, service, refusals)
    return router


def _add_projects(router: APIRouter, service: Service, refusals: dict[int | str, Any]) -> None:
    @router.get(
        "/v2/projects", summary="The lists of classes, in Pl@ntNet's form", responses={401: refusals[401]}
    )
    def projects(
        request: Request,
        api_key: Annotated[str | None, Query(alias="api-key", max_length=200)] = None,
        lang: Annotated[str, Query(max_length=20)] = "en",
        type: Annotated[str | None, Query(max_length=50)] = None,
    ) -> Response:
        """List the projects: there is one, with all classes."""
        service.rate.take(service.client(request, api_key))
        project = {
            "id": PROJECT,
            "title": service.name,
            "description": "All classes of the model",
            "speciesCount": len(service.model.classes),
        }
        return JSONResponse([project])


def _add_identify(router: APIRouter, service: Service, refusals: dict[int | str, Any]) -> None:
    @router.post(
        "/v2/identify/{project}",
        responses={200: examples.plantnet_answer(), **refusals},
        openapi_extra=examples.plantnet_body(MAX_IMAGES, ORGANS),
        summary="The short list of one object, in Pl@ntNet's form",
    )
    async def identify(
        request: Request,
        project: str,
        api_key: Annotated[str | None, Query(alias="api-key", max_length=200)] = None,
        related: Annotated[bool, Query(alias="include-related-images")] = False,
        results: Annotated[int, Query(alias="nb-results", ge=1, le=1000)] = 20,
        lang: Annotated[str, Query(max_length=20)] = "en",
        no_reject: Annotated[bool, Query(alias="no-reject")] = False,
        type: Annotated[str | None, Query(max_length=50)] = None,
        detailed: Annotated[bool, Query()] = False,
    ) -> Response:
        """Answer as Pl@ntNet's API does: the best classes with their scores."""
        with service.entering(request, api_key) as (held, left):
            if project != PROJECT:
                raise Refusal(404, "unknown_project", "Project not found")
            form = await read_form(request, service.limits, held, max_files=MAX_IMAGES)
            uploads, organs = _checked(form)
            options = BatchOptions(limit=min(results, 100), related_images=_RELATED if related else 0)
            answer = await service.answer_object(uploads, options, held, choice=_choice(service, results))
        if not no_reject and answer.status == "novel":
            raise Refusal(404, "rejected", "Species not found")
        asked = {
            "project": project,
            "images": [upload.name for upload in uploads],
            "organs": organs,
            "includeRelatedImages": related,
            "noReject": no_reject,
        }
        shown = _results(answer, service, str(request.base_url).rstrip("/"), related)
        body = {"query": asked, "language": lang, **_answer_form(answer, shown, service, left)}
        return JSONResponse(body, headers=_rate_headers(service, left))


def _answer_form(
    answer: Answer, results: list[dict[str, Any]], service: Service, left: int | None
) -> dict[str, Any]:
    return {
        "predictedOrgans": [],
        "preferedReferential": service.name,
        "bestMatch": answer.candidates[0].name if answer.candidates else "",
        "results": results,
        "version": service.version,
        "remainingIdentificationRequests": UNLIMITED if left is None else left,
    }


def _choice(service: Service, results: int) -> Choice:
    return Choice(top=min(results, len(service.model.classes)))


def _checked(form: Form) -> tuple[list[Upload], list[str]]:
    """Return the images and as many organs."""
    uploads, organs = form.files.get("images", []), form.fields.get("organs", [])
    if set(form.files) - {"images"} or set(form.fields) - {"organs"}:
        raise Refusal(400, "bad_form", "The form must have 'images' and 'organs' and nothing else")
    if not uploads:
        raise Refusal(400, "no_images", "At least one image must be given as 'images'")
    organs = organs or ["auto"] * len(uploads)
    if len(organs) != len(uploads):
        raise Refusal(400, "bad_organs", "There must be as many 'organs' as 'images'")
    if not set(organs) <= set(ORGANS):
        raise Refusal(400, "bad_organs", f"Each of 'organs' must be one of {', '.join(ORGANS)}")
    return uploads, organs


def _results(answer: Answer, service: Service, base: str, related: bool) -> list[dict[str, Any]]:
    found = []
    for listed in answer.candidates:
        result: dict[str, Any] = {
            "score": round(listed.probability, 5),
            "species": {
                **_name(listed.name),
                "genus": _name(listed.parents.get("genus", "")),
                "family": _name(listed.parents.get("family", "")),
                "commonNames": [],
            },
        }
        if related:
            result["images"] = [_image(image, service, base) for image in listed.related_images]
        found.append(result)
    return found


def _name(name: str) -> dict[str, str]:
    return {"scientificNameWithoutAuthor": name, "scientificNameAuthorship": "", "scientificName": name}


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
    from datetime import datetime, timezone

    try:
        found = datetime.fromisoformat(date)
    except ValueError:
        return None
    return int(found.replace(tzinfo=found.tzinfo or timezone.utc).timestamp() * 1000)


def _rate_headers(service: Service, left: int | None) -> dict[str, str]:
    if left is None:
        return {}
    most = service.limits.rate
    return {"RateLimit": f"limit={most}, remaining={left}, reset=60", "RateLimit-Policy": f"{most};w=60"}
