"""Speed of every loss beside cross-entropy and beside peers: forward and backward, on one thread.

Each number is the median over calls made in turns with cross-entropy on the same scores; see ``--help``.
"""

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

import torch
from cases import GOAL_SHAPE, PEERS, Case, load_peer, make_cases
from dispatch import count_kernels
from measure import Batch, Timing, compare, make_pool, peak_memory

_NAME, _CELL = 40, 15
_MEMORY_K = 5

Shape = tuple[int, int]


@dataclass(frozen=True)
class Row:
    """What was measured for one line, shape and k."""

    case: Case
    shape: Shape
    k: int
    timing: Timing

    @property
    def goal(self) -> float | None:
        """The ratio to stay below, if there is one."""
        return self.case.goals.get(self.k) if self.shape == GOAL_SHAPE else None

    @property
    def ratio_cell(self) -> str:
        """The ratio, marked where it misses its goal."""
        missed = self.goal is not None and self.timing.ratio > self.goal
        return f"{self.timing.ratio:.1f}x{'!' if missed else ' '}"

    @property
    def ms_cell(self) -> str:
        """Milliseconds of the loss and of cross-entropy."""
        return f"{self.timing.ms:.2f}/{self.timing.cross_entropy_ms:.2f}"

    def as_json(self) -> dict:
        """For the file of results."""
        return {
            "name": self.case.name.strip(),
            "peer": self.case.peer,
            "shape": self.shape,
            "k": self.k,
            "ratio": self.timing.ratio,
            "ms": self.timing.ms,
            "cross_entropy_ms": self.timing.cross_entropy_ms,
            "repetitions": self.timing.repetitions,
            "goal": self.goal,
        }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    shapes = ["64x100", "256x1000", "256x10000"]
    parser.add_argument("--shapes", nargs="+", default=shapes, metavar="NxC", help="rows x classes")
    parser.add_argument("--k", nargs="+", type=int, default=[1, 5, 10, 50], help="sizes k of the short lists")
    parser.add_argument("--budget", type=float, default=0.8, help="seconds for each loss, shape and k")
    parser.add_argument("--only", help="measure only losses whose name contains this, and their peers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    arguments = parser.parse_args()
    try:
        arguments.shapes = [_parse_shape(text) for text in arguments.shapes]
    except ValueError:
        parser.error(f"--shapes wants rows x classes such as 256x1000, got {arguments.shapes}")
    return arguments


def _parse_shape(text: str) -> Shape:
    n, c = text.split("x")
    return int(n), int(c)


def select_cases(only: str | None) -> list[Case]:
    """The lines to measure; peers that are not installed are told of and left out."""
    peers = {name: load_peer(name) for name in PEERS}
    for name, module in peers.items():
        if module is None:
            print(f"peer {name} is not installed: left out")
    cases = make_cases(peers)
    if only is None:
        return cases
    chosen = [case for case in cases if only.lower() in f"{case.family} {case.name}".lower()]
    if not chosen:
        sys.exit(f"no line has {only!r} in its name; there are: {', '.join(case.name for case in cases)}")
    return chosen


def measure_shape(cases: Sequence[Case], shape: Shape, ks: Sequence[int], budget: float) -> list[Row]:
    """Measure and print all lines for one shape."""
    n, c = shape
    for k in ks:
        if k >= c:
            print(f"\nk={k} is skipped for {n}x{c}: a loss needs k < c")
    ks = [k for k in ks if k < c]
    print(f"\n{n} rows x {c} classes: times slower than cross-entropy")
    print(_line("", [f"k={k} " for k in ks], "goal" if shape == GOAL_SHAPE else ""), flush=True)
    pools: dict[float, list[Batch]] = {}
    rows: list[Row] = []
    notes: list[str] = []
    for case in cases:
        if case.scale not in pools:
            pools[case.scale] = make_pool(n, c, case.scale)
        of_case: dict[int, Row] = {}
        for k in ks:
            if not case.fits(c, k):
                continue
            try:
                loss = case.make(n, c, k)
                timing = compare(loss, pools[case.scale], budget=budget, at_least=case.at_least)
            except Exception as error:
                if case.peer is None:
                    raise
                notes.append(f"{case.name.strip()} does not run: {error}")
                break
            of_case[k] = Row(case, shape, k, timing)
        goals = "; ".join(f"{goal:g} at k={k}" for k, goal in case.goals.items())
        cells = [of_case[k].ratio_cell if k in of_case else "- " for k in ks]
        print(_line(case.name, cells, goals if shape == GOAL_SHAPE else ""), flush=True)
        rows += of_case.values()
    print("\n".join(notes), end="\n\n" if notes else "\n")
    print(f"{n} rows x {c} classes: milliseconds / those of cross-entropy beside it")
    print(_line("", [f"k={k}" for k in ks]))
    for case in cases:
        found = {row.k: row.ms_cell for row in rows if row.case is case}
        print(_line(case.name, [found.get(k, "-") for k in ks]))
    return rows


def _line(name: str, cells: Sequence[str], last: str = "") -> str:
    return (f"{name:<{_NAME}}" + "".join(f"{cell:>{_CELL}}" for cell in cells) + f"  {last}").rstrip()


def measure_memory(cases: Sequence[Case]) -> dict[str, float]:
    """Print the memory of this library's lines, for one shape and k."""
    n, c = GOAL_SHAPE
    print(
        f"\npeak memory beside the scores, gradient included, as a multiple of them ({n}x{c}, k={_MEMORY_K})"
    )
    peaks: dict[str, float] = {}
    for case in cases:
        if case.peer is None:
            loss, pool = case.make(n, c, _MEMORY_K), make_pool(n, c, case.scale)
            name = case.name.split(", against")[0]
            peaks[name] = peak_memory(loss, pool)
            print(_line(name, [f"{peaks[name]:.1f}x "]), flush=True)
    return peaks


def count_all_kernels(cases: Sequence[Case]) -> dict[str, tuple[int, int]]:
    """Print how many kernels a GPU would start for this library's lines, for one shape and k."""
    n, c = GOAL_SHAPE
    print(f"\nkernels on a GPU, forward + backward ({n}x{c}, k={_MEMORY_K}; counted without a GPU)")
    kernels: dict[str, tuple[int, int]] = {}
    for case in cases:
        if case.peer is None and "exact" not in case.name:  # its loops would be for the largest reach
            kernels[case.name] = count_kernels(partial(case.make, n, c, _MEMORY_K), n, c)
            print(_line(case.name, ["{} + {} ".format(*kernels[case.name])]), flush=True)
    return kernels


def describe_machine() -> dict[str, str]:
    """Where this ran and how it was called."""
    packages = {}
    for name in PEERS:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "platform": platform.platform(),
        "cpu": f"{_cpu_model()}, {os.cpu_count()} logical cores, 1 thread used",
        "python": platform.python_version(),
        "torch": torch.__version__,
        **packages,
        "command": shlex.join(sys.orig_argv),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"


def main() -> None:
    start = perf_counter()
    arguments = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cases = select_cases(arguments.only)
    rows: list[Row] = []
    for shape in arguments.shapes:
        rows += measure_shape(cases, shape, arguments.k, arguments.budget)
    measured = GOAL_SHAPE in arguments.shapes and _MEMORY_K in arguments.k
    memory = measure_memory(cases) if measured else {}
    kernels = count_all_kernels(cases) if measured else {}
    missed = [f"{row.case.name} k={row.k}" for row in rows if row.ratio_cell.endswith("!")]
    print(f"\n! misses its goal: {'; '.join(missed) or 'none'}")
    machine = describe_machine()
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    print(f"took {perf_counter() - start:.0f} s")
    if arguments.json:
        content = {"machine": machine, "rows": [row.as_json() for row in rows], "memory": memory}
        content["kernels"] = kernels
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
