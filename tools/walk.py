"""Trace which rooms of the package call which others while a command runs.

``python tools/walk.py predict RUN photo.jpg`` runs ``shortlist predict RUN photo.jpg``, and prints each pair
of rooms (caller, called) with the number of calls. Returns do not count, nor do imports. The ground floor,
which every room may use, is left out.
"""

import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import shortlist
from shortlist.cli import app

FOLDER = str(Path(shortlist.__file__).parent)


def room_of(frame: FrameType) -> str | None:
    """Return the room of a frame's code; ``None`` for other code and for the ground floor."""
    file = frame.f_code.co_filename
    if not file.startswith(FOLDER) or frame.f_code.co_name == "<module>":
        return None
    path = file[len(FOLDER) + 1 :].split("/")
    return path[0] if len(path) > 1 and not path[0].startswith("_") else None


class Walk:
    """Counts calls from room to room; code in between that is not of the package is passed over."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call."""
        if event != "call":
            return
        called = room_of(frame)
        if called is None:
            return
        caller, outer = None, frame.f_back
        while outer is not None and caller is None:
            if outer.f_code.co_name == "<module>" and outer.f_code.co_filename.startswith(FOLDER):
                return  # a room that is being imported
            caller, outer = room_of(outer), outer.f_back
        if caller is not None and caller != called:
            self.pairs[caller, called] += 1


def main(words: list[str]) -> None:
    """Run a command and print the pairs of rooms."""
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        app(words, standalone_mode=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    for (caller, called), calls in sorted(walk.pairs.items()):
        print(f"{caller:>12} -> {called:<12}{calls:>8,}", file=sys.stderr)
    print(f"{len(walk.pairs)} pairs of rooms", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
