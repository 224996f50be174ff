"""The routes that record, count and delete people's answers."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from shortlist.feedback import (
    Erased,
    Event,
    FeedbackError,
    FeedbackStore,
    FullError,
    InviteError,
    Kept,
    Location,
    OwnerError,
    SameRequestError,
    Shown,
    StuckError,
    is_store,
    observation_id,
    observation_of,
    stats_of,
)
from shortlist.serve import examples, people_schemas as schemas
from shortlist.serve.desk import FeedbackDesk, aside
from shortlist.serve.forms import read_body, read_form
from shortlist.serve.keys import key_of
from shortlist.serve.limits import FEEDBACK_BYTES, MAX_IMAGES, Held
from shortlist.serve.people import refused_link
from shortlist.serve.receipts import all_flags, read_receipt
from shortlist.serve.refusals import Refusal
from shortlist.serve.service import Service

_LOG = logging.getLogger("shortlist.serve")
_WAIT_SECONDS = 30.0  # for the store
Body = TypeVar("Body", bound=BaseModel)


def feedback_routes(service: Service) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter()
    _add_post(router, service)
    _add_others(router, service)
    return router


def _add_post(router: APIRouter, service: Service) -> None:
    @router.post(
        "/v1/feedback",
        response_model=schemas.FeedbackKept,
        status_code=201,
        responses=examples.responses("feedback", 400, 401, 403, 408, 409, 413, 415, 422, 429, 503, 507),
        openapi_extra=examples.feedback_body(schemas.Feedback),
        summary="What a person says about a list",
    )
    async def feedback(request: Request) -> Response:
        """Record an answer of a person: it is on disk when this returns. Sent again, it is recorded once."""
        client = service.client(request)
        service.rate.take(client)
        with service.replies.request(client) as held:
            body, copies = await read_event(request, service, held)
            said = parsed(schemas.Feedback, body)
            store = await asyncio.to_thread(lambda: service.feedback.store)
            hashes = [hashlib.sha256(copy).hexdigest() for copy in copies]
            said.person, key = service.door.writer(request, client, said.person)
            if said.listed is not None and not service.app_answers:
                raise bad("listed must not be given: the server was started without --app-answers.")
            event = event_of(said, hashes, store.secret, service.class_index, key=key)
            kept = await recorded(store, event, copies)
        service.review.changed()
        return kept_answer(kept, event)


def kept_answer(kept: Kept, event: Event) -> Response:
    """Return the response for an event that is on disk."""
    content = {"kept": True, "number": kept.number, "new": kept.new, "observation": event.item}
    content["flags"] = all_flags(kept.flags, event.status)
    return JSONResponse(content, status_code=201)


async def _in_time(future: "Future[Any]") -> Any:
    """Wait for the store, at most 30 s; what it has begun goes on after that."""
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), _WAIT_SECONDS)
    except asyncio.TimeoutError:
        raise _slow() from None


def _slow() -> Refusal:
    words = "The store of answers is slow: send the same again later, with the same id."
    return Refusal(503, "log_slow", words, retry_after=5)


async def recorded(store: FeedbackStore, event: Event, copies: list[bytes]) -> Kept:
    """Record an event, or refuse it with the reason."""
    try:
        if copies:
            future = await asyncio.to_thread(store.submit, event, copies)
        else:
            future = store.submit(event)
        return await _in_time(future)
    except StuckError:
        raise _slow() from None
    except SameRequestError:
        raise Refusal(409, "other_answer", "Another answer was recorded with this id.") from None
    except OwnerError:
        words = "The person is known by another key: a name belongs to the key that used it first."
        raise Refusal(403, "other_person", words) from None
    except InviteError:
        raise refused_link() from None
    except FullError:
        raise Refusal(507, "log_full", "The store of answers is full: nothing was kept.") from None
    except (FeedbackError, OSError) as error:
        _LOG.error("an answer could not be kept: %s", error)
        raise Refusal(507, "log_failed", "The answer could not be kept: see the server's log.") from None


@contextmanager
def refusing_store_errors() -> Iterator[None]:
    """Turn errors of the store into refusals: 503 if it is slow, 507 if it fails."""
    try:
        yield
    except StuckError:
        raise _slow() from None
    except (FeedbackError, OSError) as error:
        _LOG.error("the store of feedback cannot be used: %s", error)
        raise Refusal(507, "log_failed", "The store of answers failed: see the server's log.") from None


def _add_others(router: APIRouter, service: Service) -> None:
    @router.get(
        "/v1/feedback/stats",
        response_model=schemas.FeedbackStats,
        responses=examples.responses("feedback_stats", 401, 429, 503, 507),
        summary="How many answers there are",
    )
    async def stats(request: Request) -> Response:
        """Count the answers by verb, the people, the photos, and what was deleted."""
        service.rate.take(service.client(request))
        with refusing_store_errors():
            return JSONResponse(await _in_time(aside(lambda: _stats(service.feedback))))

    @router.post(
        "/v1/feedback/deletions",
        response_model=schemas.FeedbackErased,
        responses=examples.responses("feedback_erased", 400, 401, 403, 408, 413, 415, 422, 429, 503, 507),
        openapi_extra=examples.json_body(schemas.Deletion, {"person": "p-41"}),
        summary="Delete all that is known of a person or a photo",
    )
    async def delete(request: Request) -> Response:
        """Delete the answers of a person or about a photo, and copies of photos that nobody else sent.

        The deletion is recorded. Names are in the body: an address cannot carry every name, and is logged.
        """
        _check_admin(request, service)
        with service.replies.request(service.address(request)) as held:
            body = await read_json(request, service, held)
        wanted = parsed(schemas.Deletion, body)
        if (wanted.person is None) == (wanted.image is None):
            raise bad("either person or image must be given.")
        with refusing_store_errors():
            erased = await _in_time(aside(lambda: _erase(service.feedback, wanted)))
        return JSONResponse(erased._asdict())


def _stats(desk: FeedbackDesk) -> dict[str, Any]:
    if not is_store(desk.location):
        desk.store  # noqa: B018 - makes the store
    return stats_of(desk.location)


def _erase(desk: FeedbackDesk, wanted: schemas.Deletion) -> Erased:
    if wanted.person is not None:
        return desk.store.erase_person(wanted.person)
    assert wanted.image is not None  # by the route
    return desk.store.erase_image(wanted.image)


def _check_admin(request: Request, service: Service) -> None:
    """Let only those in who have a key of the administrators."""
    service.rate.take(service.address(request))
    if not service.admin_keys.needed:
        words = "Nothing can be deleted over HTTP: the server was started without --admin-keys."
        raise Refusal(403, "no_admin_keys", words)
    service.admin_keys.client(key_of(request))


async def read_json(request: Request, service: Service, held: Held) -> bytes:
    """Read a body that must be JSON."""
    if _kind(request) != "application/json":
        raise Refusal(415, "not_json", "The body must be application/json.")
    return await read_body(request, service.limits, held, most=FEEDBACK_BYTES)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


async def read_event(request: Request, service: Service, held: Held) -> tuple[bytes, list[bytes]]:
    """Read JSON, or a form with JSON as the file ``event`` and photos as ``images``."""
    if _kind(request) != "multipart/form-data":
        return await read_json(request, service, held), []
    form = await read_form(request, service.limits, held, max_files=MAX_IMAGES + 1)
    events, images = form.files.pop("event", []), form.files.pop("images", [])
    if len(events) != 1 or form.files or form.fields:
        raise Refusal(400, "bad_form", "The form must have one file 'event', files 'images', nothing else.")
    if len(events[0].content) > FEEDBACK_BYTES:
        raise Refusal(413, "too_large", f"The event has more than {FEEDBACK_BYTES:,} bytes.")
    copies = [image.content for image in images]
    if copies:  # an image that cannot be read is refused, and not kept
        await service.decoder.object(copies, held)
    return events[0].content, copies


def parsed(form: type[Body], body: bytes) -> Body:
    """Return the values of a body in JSON, or refuse it with its first error."""
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise bad(f"{place[:80]}: {first['msg'][:200]}.") from None


def checked_facts(
    said: schemas.Observed, copies: list[str], secret: bytes, *, key: str, listed: dict[str, Any]
) -> dict[str, Any]:
    """Check what an event says about photos, their list and their observation; return arguments of `Event`.

    The location is made coarse here, before anything else reads it.
    """
    images, about = tuple(listed["images"]), said.about
    if set(copies) - set(images):
        raise bad("images of the form must be photos of the list, got an image with another SHA-256.")
    if copies and not said.consent:
        raise bad("consent must be true if photos are sent to be kept.")
    where = about.location
    facts = {name: getattr(about, name) for name in ("author", "license", "date")}
    person, request = said.person or "", said.id or secrets.token_hex(16)
    if about.observation and not person:
        raise bad("about.observation must be left out if no person is given.")
    with refusing_bad_events():
        # without a person, each request is a new observation, which no other request can change
        name = about.observation or (observation_of(images) if person else request)
        return {
            "request": request,
            "person": person,
            "images": images,
            "observation": observation_id(secret, person, name),
            "consent": bool(said.consent),
            "withdraws": said.consent is False and person != "",
            "choice": listed["choice"],
            "model": listed["model"],
            "status": listed["status"],
            "audit": bool(listed["audit"]),
            "flags": tuple(listed.get("flags", ())),
            "about": facts | {"note": said.note or ""},
            "organs": tuple(about.organs),
            "location": where
            and Location(where.latitude, where.longitude, where.uncertainty).coarse(where.degrees),
            "key": key,
        }


def receipt_of(said: schemas.Observed, secret: bytes) -> dict[str, Any]:
    """Return what the receipt of a list says, or refuse it."""
    with refusing_bad_events():
        return read_receipt(said.receipt or "", secret)


@contextmanager
def refusing_bad_events() -> Iterator[None]:
    """Turn a ``ValueError`` about an event into a refusal with 422."""
    try:
        yield
    except ValueError as error:
        raise bad(f"{error}.") from None


def check_class(said: schemas.Said, classes: Collection[str] | None) -> None:
    """Refuse an answer that lacks the class or name that its verb needs, or has one that it must not have.

    Args:
        said: The answer.
        classes: Ids of the classes that there are; any if ``None``.
    """
    if (said.class_id is not None) != (said.verb in ("confirm", "other_class")):
        raise bad("class_id must be given for confirm and other_class, and only there.")
    if said.class_id is not None and classes is not None and said.class_id not in classes:
        raise bad("class_id must be the id of one of the model's classes.")
    if (said.name is not None) != (said.verb == "new_name"):
        raise bad("name must be given for new_name, and only there.")


def check_listed(said: schemas.Said, listed: Iterable[Shown]) -> None:
    """Refuse to confirm a class that is not in the list."""
    if said.verb == "confirm" and said.class_id not in {entry.id for entry in listed}:
        raise bad("class_id of confirm must be in the list: use other_class for another class.")


def event_of(
    said: schemas.Feedback, copies: list[str], secret: bytes, classes: Collection[str] | None, *, key: str
) -> Event:
    """Return the checked answer of a person about the person's own photos.

    Args:
        said: The answer, with a receipt of this store or the list of an app.
        copies: SHA-256 of each photo that comes with the answer.
        secret: Secret that signs receipts.
        classes: Ids of all classes; any id if ``None``.
        key: Key of the client, or of the person's link.
    """
    check_class(said, classes)
    listed = receipt_of(said, secret) if said.listed is None else _app_list(said, said.listed)
    shown = _shown(said, [Shown(*entry) for entry in listed["shown"]], audit=bool(listed["audit"]))
    facts = checked_facts(said, copies, secret, key=key, listed=listed)
    with refusing_bad_events():
        return Event(said.verb, label=said.class_id or said.name or "", shown=shown, **facts)


def _app_list(said: schemas.Feedback, listed: schemas.AppList) -> dict[str, Any]:
    """Return the list of an app. Nobody signed it: its model is marked, and no audit counts it."""
    if said.receipt is not None:
        raise bad("at most one of receipt and listed must be given.")
    content = listed.model_dump()
    choice = {name: value for name, value in content["choice"].items() if value not in (None, False)}
    return {**content, "choice": choice, "model": f"app:{listed.model}", "audit": False}


def _shown(said: schemas.Feedback, listed: list[Shown], *, audit: bool) -> tuple[Shown, ...]:
    """Return the classes of the list. Those that the person saw are marked as the set.

    The set of an audited list stays as it was promised, whatever the person saw.
    """
    if said.shown is not None:
        if unknown := set(said.shown) - {entry.id for entry in listed}:
            raise bad(f"shown must be ids of the list, got {min(unknown)[:80]!r}.")
        if not audit:
            listed = [entry._replace(in_set=entry.id in said.shown) for entry in listed]
    check_listed(said, listed)
    return tuple(listed)


def bad(words: str) -> Refusal:
    """Return the refusal of an answer that cannot be recorded."""
    return Refusal(422, "bad_feedback", words)
