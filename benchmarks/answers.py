"""Time and memory of what reads many answers of people: ``feedback export``, ``review``, ``drift``.

It also measures how long a server takes to find the next review, with all observations waiting.

    python -m benchmarks.answers [--events 500000] [--folder DIR]

Makes a store of random answers: five to an observation, lists of 20 classes, 1,000 people, a tenth audited.
"""

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shortlist.feedback import Event, FeedbackStore, Shown, observation_id, read_manifest, read_observation
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.review_queue import ReviewQueue

CLASSES = [f"species {number}" for number in range(1000)]


def make(folder: Path, number: int) -> None:
    """Fill a store."""
    draw = random.Random(0)
    with FeedbackStore(folder) as store:
        for place in range(number):
            observation = place // 5
            known = random.Random(observation)
            listed = known.sample(CLASSES, 20)
            shown = tuple(Shown(name, 0.5 / 2**rank, rank < 3) for rank, name in enumerate(listed))
            verb = draw.choices(("confirm", "none_of_these", "do_not_know"), (8, 1, 1))[0]
            label = draw.choice(listed[:2]) if verb == "confirm" else ""
            told = {"label": label, "shown": shown, "model": "m", "choice": {"promised": 0.9}}
            told |= {"images": (hashlib.sha256(b"%d" % observation).hexdigest(),), "consent": place % 5 == 0}
            owner = f"p{observation % 1000}"
            told |= {"person": owner if place % 5 == 0 else f"p{draw.randrange(1000)}"}
            told |= {"audit": observation % 10 == 0}
            told |= {"observation": observation_id(store.secret, owner, f"{observation}")}
            done = store.submit(Event(verb, f"{place}", **told))
            if place % 20_000 == 0 or place == number - 1:
                done.result()


def measure(*words: str) -> tuple[float, float, float]:
    """Run a command; return its seconds, those of the processor, and its largest memory in megabytes."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "shortlist", *words], stdout=subprocess.DEVNULL)
    _, code, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure_reviews(store: Path, number: int = 200) -> None:
    """Print how long the next review of a person takes who votes on each, with what is looked up for it."""
    queue, secret = ReviewQueue(FeedbackDesk(store)), bytes.fromhex(read_manifest(store)["secret"])
    start = time.perf_counter()
    while queue.find("reviewer", ()) is None:
        queue.wait()
    made, seconds = time.perf_counter() - start, []
    for _ in range(number):
        start = time.perf_counter()
        item = queue.find("reviewer", ())
        assert item is not None and read_observation(store, secret, item) is not None
        seconds.append(time.perf_counter() - start)
        queue.said("reviewer", item)
    seconds.sort()
    median, worst = 1e3 * seconds[number // 2], 1e3 * seconds[-1]
    print(f"queue of reviews  {made:5.1f} s, aside; {queue.number:,} observations wait")
    print(f"next review       {median:5.1f} ms, at most {worst:.1f} ms")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        store = asked.folder or Path(place) / "store"
        if not store.exists():
            make(store, asked.events)
        size = (store / "events.sqlite").stat().st_size / 1e6
        print(f"{asked.events:,} answers, {size:,.0f} MB")
        votes, photos = Path(place) / "votes.csv", Path(place) / "photos.csv"
        for words in (
            ("export", store, "--out", votes, "--images", photos),
            ("review", store, "--out", Path(place) / "review.csv"),
            ("drift", store),
            ("stats", store),
        ):
            seconds, busy, megabytes = measure("feedback", *map(str, words))
            print(
                f"feedback {words[0]:8} {seconds:6.1f} s, {busy:5.1f} s of a processor, {megabytes:4.0f} MB"
            )
        measure_reviews(store)


if __name__ == "__main__":
    main()
