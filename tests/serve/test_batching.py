"""The queue and its thread."""

import asyncio
import threading
import time

import pytest
import torch

from shortlist.model import Choice
from shortlist.serve.batching import Batcher
from shortlist.serve.exchange import Query
from shortlist.serve.limits import Limits
from shortlist.serve.metrics import Metrics
from shortlist.serve.refusals import Refusal


def query(number: float, images: int = 1) -> Query:
    return Query(torch.full((images, 1), number), Choice(photos=images))


class Slow:
    """A model that waits until it is told to go on, and notes its batches."""

    def __init__(self) -> None:
        self.go, self.batches = threading.Event(), []

    def __call__(self, queries):
        assert self.go.wait(10)
        self.batches.append([float(q.images[0, 0]) for q in queries])
        if any(float(q.images[0, 0]) < 0 for q in queries):
            raise ArithmeticError("a bad query")
        return [f"answer {float(q.images[0, 0]):g}" for q in queries]


async def begun(model, *, arriving=lambda: 0, clock=time.perf_counter, **limits) -> Batcher:
    batcher = Batcher(model, Limits(batch_images=1, **limits), Metrics(), arriving, clock=clock)
    batcher.start()
    return batcher


def test_what_waits_goes_together_in_order():
    async def run():
        model = Slow()
        batcher = await begun(model, batch=4)
        futures = batcher.submit([query(0)])
        while batcher.waiting:  # the thread took it, and waits in the model
            await asyncio.sleep(0.001)
        for i in range(1, 7):
            futures += batcher.submit([query(i)])
        futures += batcher.submit([query(7, images=3)])
        model.go.set()
        answers = await asyncio.gather(*futures)
        batcher.close()
        assert answers == [f"answer {i}" for i in range(8)]
        assert model.batches == [[0], [1, 2, 3, 4], [5, 6], [7]]

    asyncio.run(run())


def test_time_in_which_others_are_taken_in_is_no_waiting():
    async def run():
        model, coming = Slow(), 1
        model.go.set()
        batcher = await begun(model, arriving=lambda: coming, batch=4)
        futures = batcher.submit([query(0)])
        await asyncio.sleep(0)  # the first look: another one is on its way
        time.sleep(0.05)  # five times as long as it may wait, but the event loop is at work
        for _ in range(3):
            await asyncio.sleep(0)  # the second look
        time.sleep(0.05)  # the thread would have taken it by now
        futures += batcher.submit([query(1)])
        coming = 0
        assert await asyncio.gather(*futures) == ["answer 0", "answer 1"]
        batcher.close()
        assert model.batches == [[0, 1]]

    asyncio.run(run())


def test_nobody_is_waited_for_too_long():
    async def run():
        model = Slow()
        model.go.set()
        batcher = await begun(model, arriving=lambda: 1, batch=4)  # one that never arrives
        assert await asyncio.gather(*batcher.submit([query(0)])) == ["answer 0"]
        batcher.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_full_queue_refuses_all_or_nothing():
    async def run():
        model = Slow()
        batcher = await begun(model, queue=3)
        first = batcher.submit([query(0)])
        while batcher.waiting:
            await asyncio.sleep(0.001)
        second = batcher.submit([query(1, images=2)])
        with pytest.raises(Refusal) as refused:
            batcher.submit([query(2), query(3)])
        assert refused.value.status == 503 and refused.value.retry_after == 1
        third = batcher.submit([query(4)])
        model.go.set()
        assert await asyncio.gather(*first, *second, *third) == ["answer 0", "answer 1", "answer 4"]
        batcher.close()

    asyncio.run(run())


def test_one_that_fails_takes_no_other_with_it():
    async def run():
        model = Slow()
        batcher = await begun(model)
        futures = batcher.submit([query(1), query(-1), query(2)])
        model.go.set()
        first, second, third = await asyncio.gather(*futures, return_exceptions=True)
        batcher.close()
        assert (first, third) == ("answer 1", "answer 2") and isinstance(second, ArithmeticError)

    asyncio.run(run())


def test_one_waits_for_others_only_while_they_are_on_their_way():
    async def run():
        model, on_their_way = Slow(), [1]
        model.go.set()
        batcher = await begun(model, arriving=lambda: on_their_way[0], wait=10.0)
        first = batcher.submit([query(1)])
        await asyncio.sleep(0.05)
        assert not model.batches
        second = batcher.submit([query(2)])
        on_their_way[0] = 0
        await asyncio.gather(*first, *second)
        assert model.batches == [[1, 2]]
        batcher.close()

    asyncio.run(run())


def test_closing_answers_what_waits_and_takes_no_more():
    async def run():
        model = Slow()
        batcher = await begun(model, batch=1)
        futures = batcher.submit([query(i) for i in range(3)])
        model.go.set()
        await asyncio.to_thread(batcher.close)
        assert await asyncio.gather(*futures) == ["answer 0", "answer 1", "answer 2"]
        with pytest.raises(Refusal):
            batcher.submit([query(9)])
        assert not batcher.alive

    asyncio.run(run())


def test_a_client_that_went_away_is_left_out():
    async def run():
        model = Slow()
        batcher = await begun(model)
        first, second = batcher.submit([query(0), query(1)])
        first.cancel()
        model.go.set()
        assert await second == "answer 1"
        batcher.close()

    asyncio.run(run())


def test_room_is_kept_for_what_is_still_decoded():
    async def run():
        model = Slow()
        batcher = await begun(model, queue=3)
        with batcher.room(2):
            with pytest.raises(Refusal) as refused, batcher.room(2):
                raise AssertionError("it is decoded in vain")
            assert refused.value.status == 503
            with batcher.room(1):
                pass
            first = batcher.submit([query(1, images=2)])
        with pytest.raises(Refusal), batcher.room(2):
            pass
        model.go.set()
        assert await asyncio.gather(*first) == ["answer 1"]
        with batcher.room(3):
            pass
        batcher.close()

    asyncio.run(run())


class Quick:
    """A model that notes its batches and the threads that they ran in, with a clock of its own."""

    def __init__(self) -> None:
        self.batches, self.seconds, self.now = [], 0.001, 0.0

    def __call__(self, queries):
        self.now += self.seconds
        self.batches.append((len(queries), threading.current_thread().name))
        return queries


def test_what_is_quick_is_done_in_the_event_loop_and_what_is_slow_in_the_thread():
    async def run():
        model = Quick()
        here, batcher = threading.current_thread().name, await begun(model, clock=lambda: model.now)
        for _ in range(2):
            await asyncio.gather(*batcher.submit([query(1)]))
        assert model.batches == [(1, "model"), (1, here)]  # at first nobody knows how long it takes
        similar = Query(torch.zeros(1, 1), related_images=1)  # which may have to be read from a disk
        await asyncio.gather(*batcher.submit([similar]))
        model.seconds = 0.03
        for _ in range(2):
            await asyncio.gather(*batcher.submit([query(1)]))
        assert model.batches[2:] == [(1, "model"), (1, here), (1, "model")]
        batcher.close()

    asyncio.run(run())


def test_a_batch_waits_for_as_many_as_the_one_before_while_they_come():
    async def run():
        model = Quick()
        batcher = await begun(model, wait=10.0)
        await asyncio.gather(*batcher.submit([query(i) for i in range(3)]))
        futures = batcher.submit([query(0)])
        await asyncio.sleep(0)
        futures += batcher.submit([query(1)])  # the first look is over, and found one
        futures += batcher.submit([query(2)])
        await asyncio.gather(*futures)
        await asyncio.gather(*batcher.submit([query(0)]))  # nobody else comes: ten seconds are not waited
        assert [size for size, _ in model.batches] == [3, 3, 1]
        batcher.close()

    asyncio.run(run())
