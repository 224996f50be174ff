"""Time and memory of ``shortlist data votes`` on many votes, from a file to the files of labels and users.

Votes are made up: activity of users and frequency of labels fall like 1/rank, three of four votes name the
label of their item. They are written as Parquet to a folder that is removed afterwards.

    python benchmarks/votes.py --votes 10000000   # as in docs/guides/loop.md
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from shortlist._tables import write_columns


def write_votes(path: Path, number: int, *, items: int, users: int, labels: int) -> None:
    """Write votes as text, as they come from a store of feedback."""
    rng = np.random.default_rng(0)

    def drawn(size: int) -> np.ndarray:
        shares = 1 / np.arange(1, size + 1)
        return rng.choice(size, number, p=shares / shares.sum())

    item, user, other = rng.integers(items, size=number), drawn(users), drawn(labels)
    true = rng.integers(labels, size=items)[item]
    label = np.where(rng.random(number) < 0.75, true, other)
    names = {"item": item, "user": user, "label": label, "author": item % users}
    write_columns(path, {name: np.char.add(f"{name[0]}", codes.astype(str)) for name, codes in names.items()})


def main() -> None:
    """Measure, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--votes", type=int, default=1_000_000)
    parser.add_argument("--rule", default="confirmed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = {"items": max(1, options.votes // 4), "users": max(1, options.votes // 20), "labels": 10_000}
        write_votes(folder / "votes.parquet", options.votes, **sizes)
        command = [sys.executable, "-m", "shortlist", "data", "votes", str(folder / "votes.parquet")]
        command += ["--rule", options.rule, "--out", str(folder / "l.csv"), "--users", str(folder / "u.csv")]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        clock, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = used.ru_utime + used.ru_stime
    print(
        f"{options.votes:,} votes: {clock:.1f} s by the clock, {processor:.1f} s of the processor,", end=" "
    )
    print(f"{used.ru_maxrss / 2**20:.1f} GB")


if __name__ == "__main__":
    main()
