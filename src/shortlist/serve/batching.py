"""Micro-batching: the model answers the queries that wait together, up to a bound."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shortlist.serve.exchange import Answer, Query
from shortlist.serve.limits import Limits, busy
from shortlist.serve.metrics import Metrics
from shortlist.serve.turns import Turns

_LOG = logging.getLogger("shortlist.serve")
_LOOK = 0.001  # seconds between two looks for further queries
_QUICK = 0.020  # seconds of work that may be done in the event loop, where it delays all else
Future = asyncio.Future[Answer]


class Batcher:
    """A queue of queries, and the thread that answers them in batches.

    A batch has at most ``limits.batch`` images; clients take turns in it. Its first query waits for other
    queries at most ``limits.wait`` seconds. It waits while other requests are being read, or while more
    queries arrive and there are fewer than in the batch before. A single client never waits. The wait is
    counted in looks, a millisecond apart: the time in which the event loop reads requests does not count.

    Work that should take at most 20 ms is done in the event loop: with a small network, two threads would
    mostly wait for each other. Queries that may take longer, such as for similar images, go to the thread.

    Args:
        answer: Function from queries to their answers; see :class:`~shortlist.serve.answerer.Answerer`.
        limits: Limits of queue and batch.
        metrics: Counters.
        arriving: Function that tells how many requests are being read or decoded.
        clock: Function that tells the time, in seconds.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Query]], Sequence[Answer]],
        limits: Limits,
        metrics: Metrics,
        arriving: Callable[[], int],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._answer, self._limits, self._metrics, self._arriving = answer, limits, metrics, arriving
        # queries that wait in the event loop for others to join them
        self._gathering: Turns[tuple[Query, Future]] = Turns()
        self._looks: int | None = None  # looks since the first of them came
        self._seen = self._usual = 0  # images at the last look, and of the batch before
        self._waiting: Turns[tuple[Query, Future]] = Turns()  # queries for the thread
        self._working = False  # whether the thread is at work
        self._images = 0  # images in both queues
        self._coming = 0  # images that are still to be decoded, for which the queue keeps room
        self._pace = float("inf")  # seconds that an image of the last batch took
        self._clock, self._changed = clock, threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread is there to answer."""
        return self._thread.is_alive() and not self._closed

    @property
    def waiting(self) -> int:
        """Number of images in the queue."""
        return self._images

    @contextmanager
    def room(self, images: int) -> Iterator[None]:
        """Keep room for images until they are in the queue, so that no decoded image is refused.

        Raises:
            Refusal: With 503, if there is none.
        """
        if self._images + self._coming + images > self._limits.queue:
            raise busy("too many images wait for the model")
        self._coming += images
        try:
            yield
        finally:
            self._coming -= images

    def submit(self, queries: Sequence[Query], client: str = "") -> list[Future]:
        """Put queries of a client into the queue, all or none, and return the futures of their answers.

        Raises:
            Refusal: With 503, if the queue is full.
        """
        images = sum(query.size for query in queries)
        futures = [self._loop.create_future() for _ in queries]
        with self._changed:
            if self._closed:
                raise busy("it is shutting down")
            if self._images + images > self._limits.queue:
                raise busy("too many images wait for the model")
            self._images += images
            for pair in zip(queries, futures, strict=True):
                self._gathering.put(client, pair)
        if self._looks is None:
            self._looks = self._seen = 0
            self._loop.call_soon(
                self._gather
            )  # after events that are ready now, which may bring more queries
        return futures

    def _gather(self) -> None:
        """Answer the queries that are there, or wait a little for more."""
        assert self._looks is not None
        if self._waits_for_more(self._looks):
            self._looks += 1
            self._seen = self._images
            # by a timer: a request that is being read may be refused, and then no query comes
            self._loop.call_later(_LOOK, self._gather)
            return
        self._looks = None
        self._usual = self._images
        with self._changed:
            if self._working or self._waiting or not self._is_quick():
                self._hand_over()
        while batch := self._taken(self._gathering):
            self._deliver(*self._work(batch))

    def _waits_for_more(self, looks: int) -> bool:
        if self._closed or self._images >= self._limits.batch:
            return False
        if looks * _LOOK >= self._limits.wait:
            return False
        return bool(self._arriving()) or self._seen < self._images < self._usual

    def _is_quick(self) -> bool:
        """Whether what has come can be answered without the thread."""
        return self._pace * self._images < _QUICK and not any(
            query.related_images for _, (query, _) in self._gathering
        )

    def _hand_over(self) -> None:
        for client, pair in self._gathering:
            self._waiting.put(client, pair)
        self._gathering.clear()
        self._changed.notify()

    def close(self) -> None:
        """Answer what waits, then end the thread."""
        with self._changed:
            self._closed = True
            self._hand_over()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            done = self._work(self._taken(self._waiting))
            with self._changed:
                self._working = bool(self._waiting)
            self._loop.call_soon_threadsafe(self._deliver, *done)

    def _wait(self) -> bool:
        """Wait for queries; return whether there are any, or ``False`` at the end."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            self._working = True
            return bool(self._waiting)

    def _taken(self, queue: Turns[tuple[Query, Future]]) -> list[tuple[Query, Future]]:
        """Take a batch out of a queue, by turns of the clients; it may be empty."""
        batch: list[tuple[Query, Future]] = []
        with self._changed:
            left = self._limits.batch
            while pair := queue.take(lambda pair, left=left: not batch or pair[0].size <= left):
                batch.append(pair)
                left -= pair[0].size
            self._images -= self._limits.batch - left
        return batch

    def _work(
        self, batch: list[tuple[Query, Future]]
    ) -> tuple[Sequence[Future], Sequence[Answer | Exception]]:
        """Answer a batch, without the queries of clients that went away."""
        start = self._clock()
        wanted = [(query, future) for query, future in batch if not future.done()]
        results: Sequence[Answer | Exception]
        try:
            results = self._answer([query for query, _ in wanted])
        except Exception as error:
            results = self._one_by_one(wanted, error)
        images, seconds = sum(query.size for query, _ in wanted), self._clock() - start
        self._pace = seconds / max(images, 1)
        self._metrics.batch(images, seconds)
        return [future for _, future in wanted], results

    def _one_by_one(self, wanted: list[tuple[Query, Future]], error: Exception) -> list[Answer | Exception]:
        """Answer each query alone, so that a failing query does not fail the others."""
        if len(wanted) == 1:
            _LOG.error("a query failed: %s", type(error).__name__, exc_info=error)
            return [error]
        results: list[Answer | Exception] = []
        for query, _ in wanted:
            try:
                results += self._answer([query])
            except Exception as alone:
                _LOG.error("a query failed: %s", type(alone).__name__, exc_info=alone)
                results.append(alone)
        return results

    @staticmethod
    def _deliver(futures: Sequence[Future], results: Sequence[Answer | Exception]) -> None:
        for future, result in zip(futures, results, strict=True):
            if future.done():  # the client went away
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
