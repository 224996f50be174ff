"""The service: what a running server holds, and how a request goes through it."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request

from shortlist._checks import check_number
from shortlist._recent import Recent
from shortlist.checklist import Checklist
from shortlist.index import ImageIndex
from shortlist.model import Choice, Model, model_version
from shortlist.place import Place
from shortlist.sentences import LANGUAGE
from shortlist.serve.answer_form import AnswerForm, to_json
from shortlist.serve.answerer import Answerer
from shortlist.serve.batching import Batcher, Future
from shortlist.serve.card import model_card, run_facts
from shortlist.serve.connection import GONE
from shortlist.serve.decoding import Decoder
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.exchange import Answer, Query
from shortlist.serve.fetching import Fetcher
from shortlist.serve.forms import Upload
from shortlist.serve.keys import Keys, key_of
from shortlist.serve.limits import REPLIES, Admission, Held, Limits, RateLimit, network_of
from shortlist.serve.metrics import Metrics
from shortlist.serve.options import BatchOptions, ScopeOptions
from shortlist.serve.people import Door
from shortlist.serve.places import ServedPlaces
from shortlist.serve.receipts import Signing
from shortlist.serve.refusals import BadImage, Refusal
from shortlist.serve.review_queue import ReviewQueue

_LOG = logging.getLogger("shortlist.serve")
_DRIFT_SECONDS = 60
_PREPARED = 64  # choices with a place that were resolved lately, as many as the model remembers


class Service:
    """What a server holds: model, index, store of answers, queue, limits, counters.

    A route calls :meth:`entering` with a request, reads its form, and then calls :meth:`answer_object` or
    :meth:`answer_each`. These check the choice, decode the photos, and wait in the queue for the model.

    Args:
        model: Model to serve, with a preprocessing and scores of known meaning.
        source: Folder of the run or model that it comes from, for its card and its version.
        index: Index of known images; see :class:`shortlist.index.ImageIndex`.
        keys: File with the keys that are allowed; none are needed if ``None``.
        feedback: Store of people's answers, a folder or an address, made when it is first needed; or a desk
            that several services share, which the service does not close.
        admin_keys: File with the keys by which people's data can be deleted over HTTP; none if ``None``.
        audit: Share of the requests with a receipt that are drawn for the audit, in [0, 1].
        limits: Limits of requests.
        any_project: Whether clients of Pl@ntNet's API may name any project; it then means all classes.
        allow_urls: Hosts from which photos may be fetched for such clients; see
            :class:`~shortlist.serve.fetching.Fetcher`. None by default.
        places: Places that requests can name; see :func:`~shortlist.serve.places.read_places`.
        names: Names that people can search; those of the model's classes if ``None``.
        people: Who may answer: ``open`` (anybody) or ``invited`` (people with a personal link).
        app_answers: Whether people may answer to lists that an app made, which nobody can check.
        kind: What the model knows, such as ``"a plant"``, for the page; empty if it is not said.
        organs: What photos may show, such as ``leaf``, which the page asks; those of the model's calibration
            rows if there are none.
        metrics: Counters, which a service takes over from the service before it; new ones if ``None``.

    Raises:
        ValueError: If the model does not say how a picture becomes an input, or what its scores mean.
    """

    def __init__(
        self,
        model: Model,
        *,
        source: str | Path | None = None,
        index: Any = None,
        keys: str | Path | Keys | None = None,
        feedback: str | Path | FeedbackDesk = "feedback",
        admin_keys: str | Path | Keys | None = None,
        audit: float = 0.0,
        limits: Limits | None = None,
        any_project: bool = False,
        allow_urls: Collection[str] = (),
        places: Sequence[Place] = (),
        names: Checklist | None = None,
        people: str = "open",
        app_answers: bool = False,
        kind: str = "",
        organs: Collection[str] = (),
        metrics: Metrics | None = None,
    ) -> None:
        if model.preprocessing is None:
            raise ValueError("the model must have a preprocessing, which says how a picture becomes an input")
        self.model, self.index, self.limits = model, index, limits or Limits()
        self.answerer = Answerer(model, index)
        self.places = ServedPlaces(places, model.classes)
        self.names, self.has_checklist = names or Checklist.of_classes(model.classes), names is not None
        self._prepared: Recent[bool] = Recent(_PREPARED)
        self.keys = keys if isinstance(keys, Keys) else Keys(keys)
        self.admin_keys = admin_keys if isinstance(admin_keys, Keys) else Keys(admin_keys)
        self._own_feedback = not isinstance(feedback, FeedbackDesk)
        self.feedback = feedback if isinstance(feedback, FeedbackDesk) else FeedbackDesk(feedback)
        self.door = Door(people, self.keys, self.feedback, self.limits.answer_rate)
        self.review = ReviewQueue(self.feedback)
        self.audit = check_number("audit", audit, low=0.0, below=1 + 1e-12)
        self._drift, self._drift_until = None, -1.0
        self.metrics, self.admission = metrics or Metrics(), Admission(self.limits)
        # people's answers are counted apart from photos: they are small, and none may be lost
        self.replies = Admission(replace(self.limits, requests=REPLIES))
        self.rate = RateLimit(self.limits.rate)
        self.any_project, self.fetcher = any_project, Fetcher(allow_urls, self.limits)
        self.kind, self.app_answers = kind, app_answers
        self.decoder = Decoder(model, self.limits)
        self.batcher = Batcher(self._answer, self.limits, self.metrics, lambda: self.admission.arriving)
        self.version = "unsaved" if source is None else model_version(source)
        folder = Path(source).resolve().name if source is not None else "model"
        self.name = str(model.about.get("name") or folder)
        self.named = {"name": self.name, "version": self.version}
        results, training = run_facts(source)
        self.card = model_card(model, **self.named, results=results, training=training, limits=self.limits)
        self.organs = list(dict.fromkeys(organs)) or list(self.card["choices"]["groups"].get("organ", ()))
        self.form = AnswerForm(model.classes, model.novelty, self.image_form)
        self.class_index = {id: number for number, id in enumerate(model.classes.ids)}
        watched = {
            "requests_under_way": ("Requests that are read or worked on.", lambda: self.admission.under_way),
            "images_waiting": ("Images that wait for the model.", lambda: self.batcher.waiting),
            "bytes_held": ("Bytes of requests that are held.", lambda: self.admission.bytes.used),
        }
        for name, (words, read) in watched.items():
            self.metrics.watch(name, words, read)

    def _answer(self, queries: Sequence[Query]) -> Sequence[Answer]:
        """Answer queries; refresh the index first, if a query asks for its images."""
        if any(query.related_images for query in queries):
            self.known_images()
        return self.answerer.answer(queries)

    def known_images(self) -> Any:
        """Return the index, refreshed, if there is one.

        Each caller refreshes: another process may have named an image that was just added.
        """
        if isinstance(self.index, ImageIndex):
            try:
                self.index.refresh()
            except (OSError, ValueError) as error:  # the index as it was read before still answers
                _LOG.error("the index cannot be read again: %s", error)
        return self.index

    def client(self, request: Request, key: str | None = None) -> str:
        """Return the name of a client, by key or address; refuse a request that lacks a needed key."""
        if not self.keys.needed:
            return self.address(request)
        return self.keys.client(key or key_of(request)) or "unknown"

    def address(self, request: Request) -> str:
        """Return the name of a client by its address alone."""
        address = request.scope["client"]
        return network_of(address[0]) if address else "unknown"

    @contextmanager
    def entering(self, request: Request, key: str | None = None) -> Iterator[tuple[Held, int | None]]:
        """Check key, rate and number of requests; give what the request holds, and the rest of the rate."""
        client = self.client(request, key)
        left = self.rate.take(client)
        with self.admission.request(client) as held:
            request.scope[GONE] = held.gone
            yield held, left

    async def choice_of(self, options: BatchOptions, *, images: int) -> Choice:
        """Return the choice that the options make for a number of photos, or refuse them with 422."""
        names = ("predictor", "top", "average", "coverage", "at_least", "at_most")
        chosen = {name: getattr(options, name) for name in names}
        return await self.checked(Choice(**chosen, **self.scope_of(options), photos=images))

    def scope_of(self, options: ScopeOptions) -> dict[str, Any]:
        """Return place, group and kind of average of the options, as arguments of :class:`Choice`."""
        if options.group is not None and options.organ is not None:
            raise Refusal(422, "bad_parameter", "At most one of group and organ must be given.")
        column, colon, value = (options.group or "").partition(":")
        if options.group and not (column and colon and value):
            message = f"group must be COLUMN:VALUE, such as organ:leaf, got {options.group[:80]!r}."
            raise Refusal(422, "bad_parameter", message)
        group = (column, value) if options.group else ("organ", options.organ) if options.organ else None
        return {
            "place": self.places.chosen(options.place, options.classes),
            "group": group,
            "macro": options.macro,
        }

    async def checked(self, choice: Choice) -> Choice:
        """Return a choice with all defaults filled in, or refuse it with 422.

        The first choice of a place may take long: a thread resolves it, so that other requests go on.
        """
        try:
            if choice.place is not None and choice not in self._prepared:
                await asyncio.to_thread(self.model.resolve, choice)
                self._prepared.get(choice, lambda: True)
            return self.model.resolve(choice)[0]
        except ValueError as error:
            raise Refusal(422, "bad_parameter", sentence(error)) from None

    async def answer_object(
        self, uploads: Sequence[Upload], options: BatchOptions, held: Held, *, choice: Choice | None = None
    ) -> Answer:
        """Answer about one object, of which there are one or more photos."""
        choice = choice or await self.choice_of(options, images=len(uploads))
        held.take(held.admission.images, len(uploads))
        with self.batcher.room(len(uploads)):
            images = await self.decoder.object([upload.content for upload in uploads], held)
            query = Query(images, choice, options.limit, options.related_images)
            (future,) = self._submit([query], held)
        return await future

    def _submit(self, queries: Sequence[Query], held: Held) -> list[Future]:
        """Put queries into the queue, unless the client is gone."""
        held.check()
        futures = self.batcher.submit(queries, held.client)
        held.awaits(futures)
        held.arrived()
        return futures

    async def answer_each(
        self, uploads: Sequence[Upload], options: BatchOptions, held: Held
    ) -> list[Answer | BadImage]:
        """Answer about each photo by itself; bad ones do not stop the others."""
        choice = await self.choice_of(options, images=1)
        held.take(held.admission.images, len(uploads))
        with self.batcher.room(len(uploads)):
            decoded = await self.decoder.each([upload.content for upload in uploads], held)
            queries = [
                Query(images, choice, options.limit, options.related_images)
                for images in decoded
                if not isinstance(images, BadImage)
            ]
            answers = iter(self._submit(queries, held))
        return [images if isinstance(images, BadImage) else await next(answers) for images in decoded]

    def image_form(self, image: Any) -> dict[str, Any]:
        """Return a known image as plain values, with the address of its thumbnail."""
        about = {name: getattr(image, name) for name in ("author", "license", "source", "date", "organ")}
        return {
            "id": str(image.id),
            "similarity": round(float(image.similarity), 6),
            "thumbnail": self.thumbnail_address(str(image.id)),
            **about,
        }

    def thumbnail_address(self, name: str) -> str:
        """Return the address of a thumbnail, with a signature in place of a key if keys are needed."""
        return f"/v1/images/{name}{self.keys.sign(name)}"

    def written(self, answer: Answer, language: str, *, start: float, images: int, **more: Any) -> bytes:
        """Return an answer as JSON, with the name of the model, the seconds it took, and ``more`` entries."""
        content = self.form(answer, language) | {"images": images, "model": self.named}
        return to_json(content | {"seconds": _since(start)} | more)

    def written_each(self, answers: Sequence[Answer | BadImage], language: str, *, start: float) -> bytes:
        """Return answers as JSON, one for each image."""
        forms = [a.to_dict() if isinstance(a, BadImage) else self.form(a, language) for a in answers]
        return to_json({"answers": forms, "model": self.named, "seconds": _since(start)})

    async def signing(self, uploads: Sequence[Upload]) -> Signing:
        """Return what a receipt for these photos needs."""

        def look() -> Signing:
            images = [hashlib.sha256(upload.content).hexdigest() for upload in uploads]
            return Signing(images, self.feedback.secret, self.audit)

        return await asyncio.to_thread(look)

    async def receipt(
        self, signing: Signing, answer: Answer, uploads: Sequence[Upload], held: Held
    ) -> dict[str, Any]:
        """Return the receipt of a list, and what may be wrong with its photos."""
        flags = await self.decoder.flags([upload.content for upload in uploads], held)
        return signing.receipt(answer, model=self.version, flags=flags)

    def drift(self) -> dict[str, Any] | None:
        """Return what the last answers say about this model's lists; looked up at most once a minute."""
        if time.monotonic() > self._drift_until:
            self._drift = self.feedback.drift(self.version)
            self._drift_until = time.monotonic() + _DRIFT_SECONDS
        return self._drift

    def start(self) -> None:
        """Start to answer requests; called in the event loop."""
        self.batcher.start()
        self.feedback.start()
        self.metrics.serves(**self.named)
        self.metrics.start()

    def check_ready(self) -> None:
        """Refuse with 503 while the server starts or shuts down."""
        if not self.batcher.alive:
            raise Refusal(503, "not_ready", "The server is starting or shutting down.", retry_after=1)

    def close(self) -> None:
        """Answer the queries that wait, and end all threads."""
        self.batcher.close()
        self.decoder.close()
        if self._own_feedback:
            self.feedback.close()


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 4)


def language_of(request: Request, chosen: str | None) -> str:
    """Return the language of a request: the chosen one, else the languages that its client prefers."""
    return chosen or request.headers.get("accept-language", "")[:200] or LANGUAGE


def sentence(error: Exception) -> str:
    """Return the message of an error as a sentence."""
    text = " ".join(str(error).split())[:500]
    return text if text.endswith(".") else f"{text}."
