"""2,000 answers at once, and the server killed in between: what was acknowledged is there, nothing twice."""

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path

import httpx
import pytest

from shortlist.feedback._tables import request_key
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.store import read_events
from tests.serve.parts import png, receipt_of
from tests.serve.test_process import Server, folder

__all__ = ["folder"]  # the fixture

pytestmark = pytest.mark.slow

POSTS = 2000
VOTES = 300  # on one observation
AT_ONCE = 2000


async def post_all(
    address: str, names: list[str], kill_after: int | None, pid: int, observation: str | None = None
) -> set[str]:
    """Post the answers all at once; kill the server when so many were acknowledged. Returns those.

    They are answers to a list of one's own, or votes on an observation of somebody else.
    """
    kept: set[str] = set()
    limits = httpx.Limits(max_connections=AT_ONCE)
    more, path = {"receipt": receipt_of(httpx.post, address=address, timeout=60)}, "/v1/feedback"
    if observation is not None:
        more, path = {}, f"/v1/observations/{observation}/votes"
    async with httpx.AsyncClient(limits=limits, timeout=120) as client:

        async def post(name: str) -> None:
            event = {"verb": "do_not_know", "id": name, "person": f"p{name[-1]}"} | more
            try:
                answer = await client.post(f"{address}{path}", json=event)
            except httpx.TransportError:
                return
            if answer.status_code in (408, 503):  # a busy machine: refused, and sent again later
                return
            assert answer.status_code == 201, answer.text
            kept.add(name)
            if len(kept) == kill_after:
                os.kill(pid, signal.SIGKILL)

        await asyncio.gather(*map(post, names))
    return kept


def observe(address: str) -> str:
    """Record an observation that others may vote on; return its id."""
    receipt = receipt_of(httpx.post, address=address, timeout=60)
    said = {"person": "ann", "receipt": receipt, "consent": True, "id": "observation"}
    form = {"event": ("event", json.dumps(said), "application/json"), "images": ("1.png", png(1))}
    made = httpx.post(f"{address}/v1/observations", files=form, timeout=60)
    assert made.status_code == 201, made.text
    return made.json()["observation"]


def requests_in(store: Path) -> Counter[str]:
    """Count the answers by request, without the observation that they may be about."""
    return Counter(event.request for event in read_events(store) if event.verb != "observe")


@pytest.mark.parametrize(
    ("others", "posts", "kill_after"),
    [(False, POSTS, 1), (False, POSTS, 300), (True, VOTES, 1), (True, VOTES, 50)],
)
def test_acknowledged_answers_survive_a_kill_and_none_is_there_twice(
    folder, tmp_path, others, posts, kill_after
):
    names = [f"answer {number}" for number in range(posts)]
    store = tmp_path / "feedback"
    server = Server(folder, tmp_path, "--quiet", "--answer-rate", "0")
    observation = observe(server.address) if others else None
    kept = asyncio.run(post_all(server.address, names, kill_after, server.process.pid, observation))
    assert server.process.wait(30) == -signal.SIGKILL and len(kept) >= kill_after
    found = requests_in(store)
    assert {request_key(name).hex() for name in kept} <= found.keys() and set(found.values()) == {1}
    again = Server(folder, tmp_path, "--quiet", "--answer-rate", "0")
    try:
        left = set(names)  # all are sent again
        while left:
            left -= asyncio.run(post_all(again.address, sorted(left), None, 0, observation))
    finally:
        again.process.send_signal(signal.SIGTERM)
        again.process.wait(30)
    found = requests_in(store)
    assert found.keys() == {request_key(name).hex() for name in names} and set(found.values()) == {1}
    assert examine_store(store) == []
