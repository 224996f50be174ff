"""One process appends and compacts, another searches; and one is killed at a moment that nobody chose."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from shortlist.index import ImageIndex
from shortlist.index.doctor import examine_index
from tests.index.small import CLASSES, check_equal_to_brute_force, make_rows, start

pytestmark = pytest.mark.slow

PARTS, ROWS = 60, 50
APPEND = f"""
import sys
from shortlist.index import IndexWriter
from tests.index.small import make_rows
for seed in range(1, {PARTS}):
    with IndexWriter.open(sys.argv[1]) as writer:
        writer.append(make_rows({ROWS}, seed))
        if seed % 10 == 0:
            writer.compact(segment_rows=1000)
    print(seed, flush=True)
"""


def appending(folder):
    return subprocess.Popen([sys.executable, "-c", APPEND, str(folder)], stdout=subprocess.PIPE, text=True)


def test_a_search_sees_whole_appends_only(tmp_path):
    parts = [make_rows(ROWS, seed) for seed in range(PARTS)]
    folder = start(tmp_path / "index", parts[0])
    index, sizes = ImageIndex.open(folder), set()
    query = torch.randn(index.dimension, generator=torch.Generator().manual_seed(0))
    with appending(folder) as writer:
        while writer.poll() is None:
            index.refresh()
            found = index.similar(query, range(CLASSES), 10_000)
            sizes.add(sum(map(len, found)))
            for one in (images[-1] for images in found if images):
                assert index.thumbnail(one.id).startswith(b"\xff\xd8")
    assert writer.returncode == 0
    assert sizes <= {ROWS * count for count in range(1, PARTS + 1)} and len(sizes) > 5
    index.refresh()
    check_equal_to_brute_force(index, parts)
    assert examine_index(folder) == []


def test_killed_now_and_then(tmp_path):
    parts = [make_rows(ROWS, seed) for seed in range(PARTS)]
    folder = start(tmp_path / "index", parts[0])
    for moment in range(3):
        done = 0
        with appending(folder) as writer:
            while done < 5 + 16 * moment:
                done = int(writer.stdout.readline())
            time.sleep(0.003 * moment)
            os.kill(writer.pid, signal.SIGKILL)
        index = ImageIndex.open(folder)
        assert len(index) % ROWS == 0 and len(index) >= ROWS * (done + 1)  # nothing that was said is lost
    with appending(folder) as last:
        last.communicate()
    assert last.returncode == 0
    check_equal_to_brute_force(ImageIndex.open(folder), parts)
    assert examine_index(folder) == []
