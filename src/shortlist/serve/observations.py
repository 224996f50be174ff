"""The routes of observations: they are recorded and shown, and other people vote on them."""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from shortlist.feedback import (
    NEW_NAME,
    OBSERVE,
    Event,
    Location,
    Observation,
    Shown,
    is_store,
    owns,
    read_observation,
)
from shortlist.serve import examples, people_schemas as schemas
from shortlist.serve.feedback import (
    check_class,
    check_listed,
    checked_facts,
    kept_answer,
    parsed,
    read_event,
    read_json,
    receipt_of,
    recorded,
    refusing_bad_events,
    refusing_store_errors,
)
from shortlist.serve.options import Language
from shortlist.serve.receipts import all_flags
from shortlist.serve.refusals import Refusal
from shortlist.serve.service import Service, language_of

_KINDS = {b"\xff\xd8": "image/jpeg", b"\x89P": "image/png", b"RI": "image/webp"}


def observation_routes(service: Service) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter()
    _add_post(router, service)
    _add_get(router, service)
    _add_photo(router, service)
    _add_vote(router, service)
    return router


def _add_post(router: APIRouter, service: Service) -> None:
    @router.post(
        "/v1/observations",
        response_model=schemas.FeedbackKept,
        status_code=201,
        responses=examples.responses("observe", 400, 401, 403, 408, 409, 413, 415, 422, 429, 503, 507),
        openapi_extra=examples.feedback_body(schemas.Observed),
        summary="Photos of one object, for others to name",
    )
    async def observe(request: Request) -> Response:
        """Record an observation without a vote: it is on disk when this returns."""
        client = service.client(request)
        service.rate.take(client)
        with service.replies.request(client) as held:
            body, copies = await read_event(request, service, held)
            said = parsed(schemas.Observed, body)
            store = await asyncio.to_thread(lambda: service.feedback.store)
            hashes = [hashlib.sha256(copy).hexdigest() for copy in copies]
            listed = receipt_of(said, store.secret)
            said.person, key = service.door.writer(request, client, said.person)
            facts = checked_facts(said, hashes, store.secret, key=key, listed=listed)
            with refusing_bad_events():
                event = Event(OBSERVE, shown=tuple(Shown(*entry) for entry in listed["shown"]), **facts)
            kept = await recorded(store, event, copies)
        service.review.changed()
        return kept_answer(kept, event)


def _add_get(router: APIRouter, service: Service) -> None:
    @router.get(
        "/v1/observations/{id}",
        response_model=schemas.ObservationForm,
        responses=examples.responses("observation", 401, 403, 404, 422, 429, 503, 507),
        summary="One observation",
    )
    async def observation(request: Request, id: str, lang: Language = None) -> Response:
        """Say what may be seen of an observation: to its owner all, to others what the owner consents to.

        The person who asks is named by the header ``X-Person``, or by the token of a personal
        link in ``X-Person-Token``. What others said is shown to the owner and to
        people who voted.
        """
        client = service.client(request)
        service.rate.take(client)
        person, key = await asyncio.to_thread(service.door.reader, request, client)
        seen, is_owner = await asyncio.to_thread(visible, service, id, person, key)
        form = observation_form(service, seen, language_of(request, lang)) | {"own": is_owner}
        answer = seen.answer_of(person)
        if answer is not None and answer.key != key:
            answer = None  # of somebody else who had the name first
        if answer is not None:
            form["vote"] = _vote(service, answer.verb, answer.label, 1)
        if answer is not None or is_owner:
            votes = sorted(seen.votes().items(), key=lambda pair: (-pair[1], pair[0]))
            form["votes"] = [_vote(service, *said, people) for said, people in votes]
        return JSONResponse(form)


def _add_photo(router: APIRouter, service: Service) -> None:
    @router.get(
        "/v1/observations/{id}/photos/{number}",
        response_class=Response,
        responses={
            200: {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}},
            **examples.responses(None, 401, 404, 422, 429, 503, 507),
        },
        summary="A photo of an observation",
    )
    def photo(
        request: Request, id: str, number: int, signature: Annotated[str | None, Query(max_length=100)] = None
    ) -> Response:
        """Return the copy of a photo that its owner allows to show; it has no metadata."""
        if not service.keys.is_signed(f"{id}/{number}", signature):
            service.rate.take(service.client(request))
        seen, _ = visible(service, id, "")
        images = list(seen.photos)
        copy = service.feedback.store.copy_of(images[number]) if 0 <= number < len(images) else None
        if copy is None or not seen.consent:
            raise _unknown()
        kind = _KINDS.get(copy[:2], "application/octet-stream")
        return Response(copy, media_type=kind, headers={"Cache-Control": "private, no-store"})


def _unknown() -> Refusal:
    return Refusal(404, "unknown_observation", "There is no observation of this id that you may see.")


def visible(service: Service, id: str, person: str, key: str = "") -> tuple[Observation, bool]:
    """Return an observation that a person may see, and whether it is the person's own; or refuse with 404."""
    desk, seen, is_owner = service.feedback, None, False
    with refusing_store_errors():
        if is_store(desk.location):
            secret = desk.store.secret
            seen = read_observation(desk.location, secret, id)
            is_owner = seen is not None and person != "" and owns(secret, person, id) and seen.key == key
    if seen is None or not (seen.consent or is_owner):
        raise _unknown()
    return seen, is_owner


def _photo_address(service: Service, id: str, number: int) -> str:
    """Return the address of a photo; where keys are needed, a signature takes the place of one."""
    return f"/v1/observations/{id}/photos/{number}{service.keys.sign(f'{id}/{number}')}"


def observation_form(
    service: Service,
    seen: Observation,
    language: str,
    related: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """Return what anybody may see of an observation, with similar known images of some classes."""
    store, classes = service.feedback.store, service.form.classes(language)
    first = next(iter(seen.photos.values()))
    place = {name: float(first[name]) for name in Location._fields if name in first}
    return {
        "id": seen.id,
        "own": False,
        "photos": [
            {
                "address": _photo_address(service, seen.id, number),
                "organ": seen.photos[image].get("organ", ""),
            }
            for number, (image, facts) in enumerate(seen.photos.items())
            if seen.consent and store.copy_of(image) is not None
        ],
        **{name: first.get(name, "") for name in ("author", "license", "date")},
        "location": place or None,
        "candidates": [
            {
                **classes[service.class_index[entry.id]],
                "probability": entry.probability,
                "in_set": entry.in_set,
                "related_images": list(map(service.image_form, (related or {}).get(entry.id, ()))),
            }
            for entry in seen.shown
            if entry.id in service.class_index  # of an earlier model there may be others
        ],
        "status": seen.status,
        "flags": all_flags(seen.flags, seen.status),
        "model": seen.model,
        "vote": None,
        "votes": None,
    }


def _vote(service: Service, verb: str, label: str, people: int) -> dict[str, Any]:
    """Return what people said, in which a proposed name is no class, whatever it is called."""
    if verb == NEW_NAME:
        return {"verb": verb, "class_id": None, "name": label, "people": people}
    index = service.class_index.get(label)
    name = label if index is None else service.model.classes.names[index]
    return {"verb": verb, "class_id": label or None, "name": name or None, "people": people}


def _add_vote(router: APIRouter, service: Service) -> None:
    example = {"verb": "confirm", "class_id": "U+0041", "person": "p-42"}

    @router.post(
        "/v1/observations/{id}/votes",
        response_model=schemas.FeedbackKept,
        status_code=201,
        responses=examples.responses("vote", 400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503, 507),
        openapi_extra=examples.json_body(schemas.ReviewVote, example),
        summary="What a person says about somebody else's observation",
    )
    async def vote(request: Request, id: str) -> Response:
        """Record a vote: it is on disk when this returns. Of several votes of a person the last counts."""
        client = service.client(request)
        service.rate.take(client)
        with service.replies.request(client) as held:
            said = parsed(schemas.ReviewVote, await read_json(request, service, held))
            check_class(said, service.class_index)
            await asyncio.to_thread(lambda: service.feedback.store)
            said.person, key = service.door.writer(request, client, said.person)
            seen, _ = await asyncio.to_thread(visible, service, id, said.person)
            if owns(service.feedback.store.secret, said.person, id):
                words = "This observation is your own: answer to its list with /v1/feedback."
                raise Refusal(403, "own_observation", words)
            check_listed(said, seen.shown)
            with refusing_bad_events():
                event = _vote_event(said, seen, key)
            kept = await recorded(service.feedback.store, event, [])
        service.review.said(event.person, id)
        return kept_answer(kept, event)


def _vote_event(said: schemas.ReviewVote, seen: Observation, key: str) -> Event:
    """Return the event of a vote on somebody else's observation, with the list that its owner saw."""
    return Event(
        said.verb,
        said.id or secrets.token_hex(16),
        person=said.person,
        label=said.class_id or said.name or "",
        images=tuple(seen.photos),
        observation=seen.id,
        shown=seen.shown,
        choice=seen.choice,
        model=seen.model,
        status=seen.status,
        audit=seen.audit,
        flags=seen.flags,
        about={"note": said.note or ""},
        key=key,
    )
