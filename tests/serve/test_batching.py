"""The queue and its thread."""

import asyncio
import threading

import pytest
import torch

from shortlist.serve.batching import Batcher
from shortlist.serve.exchange import Query
from shortlist.serve.limits import Limits
from shortlist.serve.metrics import Metrics
from shortlist.serve.refusals import Refusal


def query(number: float, images: int = 1) -> Query:
    return Query(torch.full((images, 1), number))


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


async def begun(model, *, arriving=lambda: 0, **limits) -> Batcher:
    batcher = Batcher(model, Limits(batch_images=1, **limits), Metrics(), arriving)
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
