"""What the processes of a server share, tried within one process."""

import re
from itertools import groupby

import pytest

from shortlist.feedback import Event, FeedbackError
from shortlist.feedback.store import SameRequestError, read_events
from shortlist.serve.keys import Keys
from shortlist.serve.metrics import Metrics
from shortlist.serve.shared import Shared, SharedCounters, SharedStore

SHA = "0" * 64


def event(request: str, verb: str = "do_not_know", person: str = "") -> Event:
    return Event(verb, request, person=person, images=(SHA,))


def test_several_processes_use_one_store(tmp_path):
    shared = Shared(tmp_path / "feedback")
    address = shared.start()
    assert not (tmp_path / "feedback").exists()  # made when it is first needed
    first, second = (SharedStore(tmp_path / "feedback", address) for _ in range(2))
    assert first.secret == second.secret and len(first.secret) == 32
    kept = [store.submit(event(f"{i}", person="p")) for i in range(20) for store in (first, second)]
    numbers = [one.result(30) for one in kept]
    assert sorted({one.number for one in numbers}) == list(range(1, 21))
    assert sum(one.new for one in numbers) == 20  # each was sent by both
    with pytest.raises(SameRequestError):
        second.submit(event("3", verb="none_of_these")).result(30)
    assert len(list(read_events(tmp_path / "feedback"))) == 20
    assert second.erase_person("p").events == 20 and not list(read_events(tmp_path / "feedback"))
    first.close()
    second.close()
    shared.close()


def test_errors_of_the_store_reach_the_process_that_asked(tmp_path):
    (tmp_path / "feedback").mkdir()
    (tmp_path / "feedback" / "other").write_text("no store")
    address = Shared(tmp_path / "feedback").start()
    with pytest.raises(FeedbackError, match="is no store of feedback"):
        SharedStore(tmp_path / "feedback", address)


def test_counters_of_all_processes_have_their_numbers(tmp_path):
    address = Shared(tmp_path).start()
    processes = [Metrics(SharedCounters(number, address)) for number in range(2)]
    for number, metrics in enumerate(processes):
        metrics.gauges = {"images_waiting": ("Images.", lambda number=number: number)}
        for _ in range(number + 1):
            metrics.request("/v1/identify", 200, 0.002)
    processes[1].of_all()
    lines = processes[0].of_all().splitlines()
    labels = 'route="/v1/identify",status="200"'
    assert f'shortlist_requests_total{{process="0",{labels}}} 1' in lines
    assert f'shortlist_requests_total{{process="1",{labels}}} 2' in lines
    assert 'shortlist_images_waiting{process="0"} 0' in lines
    assert 'shortlist_images_waiting{process="1"} 1' in lines
    told = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    samples = [re.split(r"(?:_bucket|_sum|_count)?{", line)[0] for line in lines if not line.startswith("#")]
    # each metric is told about once, and its lines are together
    assert [name for name, _ in groupby(samples)] == told and len(set(told)) == len(told) == 5


def test_an_address_of_an_image_is_known_by_all_who_share_a_secret(tmp_path):
    path = tmp_path / "keys"
    path.write_text("0123456789abcdef\n")
    first, second, other = Keys(path, secret=b"s"), Keys(path, secret=b"s"), Keys(path)
    signature = first.sign("0-1").removeprefix("?signature=")
    assert second.is_signed("0-1", signature) and not other.is_signed("0-1", signature)
