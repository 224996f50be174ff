"""The route that gives a person the next observation to review."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from shortlist.feedback import Observation
from shortlist.serve import examples, people_schemas as schemas
from shortlist.serve.feedback import bad, refusing_store_errors
from shortlist.serve.forms import Upload
from shortlist.serve.observations import observation_form, visible
from shortlist.serve.options import BatchOptions, Language
from shortlist.serve.refusals import Refusal
from shortlist.serve.service import Service, language_of

_TRIES = 50  # observations that are looked at for one request
_SKIPPED = 200  # observations that a client may leave out


def review_routes(service: Service) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter()

    @router.get(
        "/v1/review/next",
        response_model=schemas.ReviewNext,
        responses=examples.responses("review", 401, 403, 422, 429, 503, 507),
        summary="An observation of somebody else that waits for votes",
    )
    async def next_review(
        request: Request,
        lang: Language = None,
        skip: Annotated[
            list[Annotated[str, Query(max_length=100)]],
            Query(max_length=_SKIPPED, description="Observations that the person does not want to see now."),
        ] = [],  # noqa: B006 - FastAPI copies it
        related_images: Annotated[int, Query(ge=0, le=10, description="Known images of each class.")] = 0,
    ) -> Response:
        """Give the observation for which a vote is most useful, without the votes of others.

        The header ``X-Person`` names the person who asks, or ``X-Person-Token`` has the token of a personal
        link. People do not get their own observations, nor observations that they voted on.
        """
        client = service.client(request)
        service.rate.take(client)
        person, _ = await asyncio.to_thread(service.door.reader, request, client)
        if not person:
            raise bad("the header X-Person, or X-Person-Token, must name the person who asks.")
        observation = await asyncio.to_thread(_find, service, person, set(skip))
        content: dict[str, Any] = {"waiting": service.review.number, "observation": None}
        if observation is not None:
            related = await _related(service, client, observation, related_images)
            language = language_of(request, lang)
            content["observation"] = observation_form(service, observation, language, related)
        return JSONResponse(content)

    return router


def _find(service: Service, person: str, left_out: set[str]) -> Observation | None:
    """Return the next observation for a person; if the queue has none, wait once for a new queue."""
    waited = False
    for _ in range(_TRIES):
        item = service.review.find(person, left_out)
        if item is None:
            if waited or not service.review.wait():
                return None
            waited = True
            continue
        observation = _reviewable(service, item, person)
        if observation is not None:
            return observation
        left_out.add(item)
    return None


def _reviewable(service: Service, item: str, person: str) -> Observation | None:
    """Return an observation if the person has not voted on it, and its photos can be shown."""
    try:
        observation, is_own = visible(service, item, person)
    except Refusal as refused:
        if refused.status != 404:
            raise
        return None
    if is_own or not observation.consent or observation.answer_of(person) is not None:
        return None
    with refusing_store_errors():
        has_copy = any(service.feedback.store.copy_of(image) is not None for image in observation.photos)
    return observation if has_copy else None


async def _related(
    service: Service, client: str, observation: Observation, number: int
) -> dict[str, Sequence[Any]]:
    """Return, for each class of the list, known images that are like the photos."""
    index_of_images = service.known_images()
    if not number or index_of_images is None:
        return {}
    copies = [service.feedback.store.copy_of(image) for image in observation.photos]
    uploads = [Upload("photo", copy) for copy in copies if copy is not None]
    listed = [entry.id for entry in observation.shown if entry.id in service.class_index]
    options = BatchOptions(related_images=number, limit=min(100, max(1, len(listed))))
    with service.admission.request(client) as held:
        answer = await service.answer_object(uploads, options, held)
    pairs = zip(answer.listed.candidates, answer.related_images, strict=True)
    similar = {candidate.id: images for candidate, images in pairs}
    return {id: similar.get(id) or index_of_images.examples(service.class_index[id], number) for id in listed}
