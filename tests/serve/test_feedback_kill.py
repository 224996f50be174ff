"""2,000 answers at once, and the server killed in between: what was acknowledged is there, nothing twice."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import httpx
import pytest

from shortlist.feedback._tables import request_key
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.store import read_events
from tests.serve.parts import receipt_of
from tests.serve.test_process import Server, folder

__all__ = ["folder"]  # the fixture

pytestmark = pytest.mark.slow

POSTS = 2000
AT_ONCE = 2000


async def post_all(address: str, names: list[str], kill_after: int | None, pid: int) -> set[str]:
    """Post the answers all at once; kill the server when so many were acknowledged. Returns those."""
    kept: set[str] = set()
    limits = httpx.Limits(max_connections=AT_ONCE)
    receipt = receipt_of(httpx.post, address=address, timeout=60)
    async with httpx.AsyncClient(limits=limits, timeout=120) as client:

        async def post(name: str) -> None:
            event = {"verb": "do_not_know", "id": name, "person": f"p{name[-1]}", "receipt": receipt}
            try:
                answer = await client.post(f"{address}/v1/feedback", json=event)
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


@pytest.mark.parametrize("kill_after", [1, 300])
def test_acknowledged_answers_survive_a_kill_and_none_is_there_twice(folder, tmp_path: Path, kill_after):
    names = [f"answer {number}" for number in range(POSTS)]
    store = tmp_path / "feedback"
    server = Server(folder, tmp_path, "--quiet")
    kept = asyncio.run(post_all(server.address, names, kill_after, server.process.pid))
    assert server.process.wait(30) == -signal.SIGKILL and len(kept) >= kill_after
    found = Counter(event.request for event in read_events(store))
    assert {request_key(name).hex() for name in kept} <= found.keys() and set(found.values()) == {1}
    again = Server(folder, tmp_path, "--quiet")
    try:
        left = set(names)  # all are sent again
        while left:
            left -= asyncio.run(post_all(again.address, sorted(left), None, 0))
    finally:
        again.process.send_signal(signal.SIGTERM)
        again.process.wait(30)
    found = Counter(event.request for event in read_events(store))
    assert found.keys() == {request_key(name).hex() for name in names} and set(found.values()) == {1}
    assert examine_store(store) == []
