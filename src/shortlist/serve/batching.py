"""Micro-batching: one thread runs the model on whatever queries wait, a bounded number of them."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shortlist.serve.exchange import Answer, Query
from shortlist.serve.limits import Limits, busy
from shortlist.serve.metrics import Metrics

__all__ = ["Batcher", "Future"]

_LOG = logging.getLogger("shortlist.serve")
Future = asyncio.Future[Answer]


class Batcher:
    """A queue of queries, and the thread that answers them in batches.

    A batch has at most ``limits.batch`` images. Its first query waits for others for ``limits.wait`` seconds
    at most, and only as long as other requests are on their way, so that a single client never waits.

    Args:
        answer: Function from queries to their answers; see :class:`~shortlist.serve.answerer.Answerer`.
        limits: Limits of queue and batch.
        metrics: Counters.
        arriving: Function that tells how many requests are being read or decoded.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Query]], Sequence[Answer]],
        limits: Limits,
        metrics: Metrics,
        arriving: Callable[[], int],
    ) -> None:
        self._answer, self._limits, self._metrics, self._arriving = answer, limits, metrics, arriving
        self._gathering: list[tuple[Query, Future]] = []  # in the event loop, for others to join
        self._since: float | None = None  # when the first of them came
        self._waiting: deque[tuple[Query, Future]] = deque()  # for the thread
        self._images = 0  # of both
        self._coming = 0  # images that have room in the queue, and are still to be decoded
        self._changed = threading.Condition()
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
        """Keep room for images until they are in the queue: none is decoded to be refused afterwards.

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

    def submit(self, queries: Sequence[Query]) -> list[Future]:
        """Put queries into the queue, all or none, and return what their answers will be in.

        Raises:
            Refusal: With 503, if the queue is full.
        """
        images = sum(len(query.images) for query in queries)
        made = [self._loop.create_future() for _ in queries]
        with self._changed:
            if self._closed:
                raise busy("it is shutting down")
            if self._images + images > self._limits.queue:
                raise busy("too many images wait for the model")
            self._images += images
            self._gathering.extend(zip(queries, made, strict=True))
        if self._since is None:
            self._since = self._loop.time()
            self._loop.call_soon(self._gather)  # after all else that is at hand, which may bring more
        return made

    def _gather(self) -> None:
        """Give the thread what has come, or wait a little for what is on its way."""
        assert self._since is not None
        early = self._loop.time() < self._since + self._limits.wait
        if early and self._images < self._limits.batch and self._arriving() and not self._closed:
            self._loop.call_later(0.001, self._gather)  # what arrives may be refused, of which nobody tells
            return
        self._since = None
        with self._changed:
            self._hand_over()

    def _hand_over(self) -> None:
        self._waiting.extend(self._gathering)
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
        while batch := self._next_batch():
            self._work(batch)

    def _next_batch(self) -> list[tuple[Query, Future]]:
        """Wait for a batch; an empty one says that all is done."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return []
                self._changed.wait()
            batch, images = [], 0
            while self._waiting:
                size = len(self._waiting[0][0].images)
                if batch and images + size > self._limits.batch:
                    break
                batch.append(self._waiting.popleft())
                images += size
            self._images -= images
            return batch

    def _work(self, batch: list[tuple[Query, Future]]) -> None:
        start = time.perf_counter()
        wanted = [
            (query, future) for query, future in batch if not future.done()
        ]  # but of clients that went away
        results: Sequence[Answer | Exception]
        try:
            results = self._answer([query for query, _ in wanted])
        except Exception as error:
            results = self._one_by_one(wanted, error)
        self._metrics.batch(sum(len(query.images) for query, _ in wanted), time.perf_counter() - start)
        futures = [future for _, future in wanted]
        self._loop.call_soon_threadsafe(_deliver, futures, results)

    def _one_by_one(self, wanted: list[tuple[Query, Future]], error: Exception) -> list[Answer | Exception]:
        """Answer each alone, so that one that fails does not take others with it."""
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


def _deliver(futures: Sequence[Future], results: Sequence[Answer | Exception]) -> None:
    for future, result in zip(futures, results, strict=True):
        if future.done():  # the client went away
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
