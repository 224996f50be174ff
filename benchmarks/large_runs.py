"""Time and memory of ``shortlist evaluate``, ``compare`` and ``report`` at very many classes and rows.

Two runs with made-up scores are written to a folder that is removed afterwards; each command then has a
process of its own. Time is by the clock, from the start of Python to its end, and of the processor over all
threads; memory is the whole peak of the process, with Python, PyTorch and what it has mapped of the files.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PREDICTORS = {
    "top5": {"name": "topk", "k": 5},
    "top5_macro": {"name": "topk", "k": 5, "macro": True},
    "average5": {"name": "average_k", "k": 5},
    "average5_macro": {"name": "average_k", "k": 5, "macro": True},
    "conformal90": {"name": "conformal", "coverage": 0.9},
}
GOALS = {"evaluate": 10, "compare": 15, "report": 30}  # seconds, on two cores
_GOAL_MB = 1024


def make_scores(n: int, c: int, *, skill: float, seed: int) -> tuple[Tensor, Tensor]:
    """Normal scores (n, c) of spread 3, those of the true class larger by ``skill``; and the classes (n,)."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(n) % c
    scores = torch.empty(n, c).normal_(0.0, 3.0, generator=generator)
    scores[torch.arange(n), target] += skill
    return scores, target


def make_run(path: Path, n: int, c: int, *, skill: float, seed: int) -> None:
    """Write a finished run whose network gave made-up scores of ``n`` test rows."""
    from shortlist.class_table import ClassTable
    from shortlist.recipes.recipe import make_recipe
    from shortlist.runs.folder import RunFolder
    from shortlist.runs.network import describe_model
    from shortlist.runs.scoring import calibrate_run, evaluate_run
    from shortlist.scores import PriorRecord, ScoreMap

    warnings.simplefilter("ignore")
    data, loss = {"name": "cifar100", "root": str(path.parent / "gone")}, ("cross_entropy", "focal")[seed]
    content = {"name": path.name, "data": data, "loss": {"name": loss}}
    run = RunFolder.create(path, make_recipe(content | {"predictors": PREDICTORS, "loggers": []}))
    table = ClassTable([f"class {i}" for i in range(c)], counts=[1 + 200 * i // c for i in range(c)])
    table.save(run.model_path / "class_table.json")
    for part, rows in (("val", max(1, n // 10)), ("test", n)):
        scores, target = make_scores(rows, c, skill=skill, seed=seed + (part == "test"))
        run.save_scores(part, {"set": scores}, target)
    run.save_declared({"set": ScoreMap(c, contains=PriorRecord.training(table.class_counts))})
    describe_model(run)
    calibrate_run(run.read())
    evaluate_run(run.read())
    run.set_state("finished")


def run_here(words: list[str]) -> None:
    """Run a command in this process; the last line printed says what it took."""
    from shortlist.cli import app

    app(words, standalone_mode=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"processor seconds": time.process_time(), "peak MB": peak}))


def in_its_own_process(*words: str) -> str:
    """What this script prints last, called with some words."""
    command = [sys.executable, __file__, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where to put the runs; of the system by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    parser.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        path, skill, seed = options.make
        make_run(Path(path), options.rows, options.classes, skill=float(skill), seed=int(seed))
        print("made")
    elif options.run:
        run_here(options.run)
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Make the runs, run each command, print and remove."""
    sizes = ["--rows", str(options.rows), "--classes", str(options.classes)]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        runs = [str(Path(folder) / name) for name in ("plain", "better")]
        for seed, (run, skill) in enumerate(zip(runs, ("6", "7"), strict=True)):
            in_its_own_process(*sizes, "--make", run, skill, str(seed))
        page = str(Path(folder) / "page.html")
        commands = {
            "evaluate": ["evaluate", runs[0]],
            "compare": ["compare", *runs],
            "report": ["report", *runs, "--out", page],
        }
        print(f"two runs of {options.rows} x {options.classes} test scores, evaluate: one of them")
        for name, words in commands.items():
            start = time.perf_counter()
            used = json.loads(in_its_own_process("--run", *words))
            found[name] = {"seconds": time.perf_counter() - start, **used}
            numbers = "  ".join(f"{key} {value:7.1f}" for key, value in found[name].items())
            print(f"{name:10}{numbers}  (goal {GOALS[name]} s, {_GOAL_MB} MB)", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
