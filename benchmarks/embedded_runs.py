"""Memory and time of a run whose test scores are too many for memory: a head on saved embeddings.

For each number of test rows, a data set of embeddings is written to a folder that is removed afterwards, and
each command has a process of its own: ``train`` (a few steps; then it scores, calibrates and measures),
``evaluate``, and ``score`` with ``evaluate --scores``, which keep a few classes of each row. Time is of the
processor over all threads and processes, memory is the peak of the largest process, with Python, PyTorch and
what it has mapped of files. What 522,500 rows would take is the line through the smallest and the largest
number of rows.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

GOAL_ROWS = 522_500  # test rows of ImageNet-21K-P


def make_data(root: Path, rows: int, classes: int, dim: int) -> None:
    """Write embeddings in half precision: two training and one validation row per class, and test rows."""
    from shortlist.datasets.embeddings import save_embeddings

    generator = torch.Generator().manual_seed(0)
    means = torch.randn(classes, dim, generator=generator)
    for part, count in (("train", 2 * classes), ("val", classes), ("test", rows)):
        found, targets = torch.empty(count, dim, dtype=torch.float16), torch.arange(count) % classes
        for some in torch.arange(count).split(4096):
            noise = torch.randn(len(some), dim, generator=generator)
            found[some] = (means[targets[some]] + 2 * noise).half()
        save_embeddings(root / f"{part}.safetensors", found, targets)


def write_recipe(path: Path, root: Path) -> None:
    """Write the recipe of a linear head."""
    content = {
        "data": {"name": "embeddings", "root": str(root), "as_stored": True},
        "model": {"name": "linear"},
        "optimizer": {"lr": 0.5},
        "epochs": 1,
        "batch_size": 500,
        "loggers": [],
        "predictors": {
            "top5": {"name": "topk", "k": 5},
            "average5": {"name": "average_k", "k": 5},
            "conformal90": {"name": "conformal", "coverage": 0.9},
        },
    }
    path.write_text(json.dumps(content))


def run_here(words: list[str]) -> None:
    """Run a command in this process; the last line printed says what it took."""
    from shortlist.cli import app

    app(words, standalone_mode=False)
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = sum(used.ru_utime + used.ru_stime for used in (own, others))
    print(json.dumps({"seconds": seconds, "MB": max(own.ru_maxrss, others.ru_maxrss) / 1024}))


def in_its_own_process(*words: str) -> dict[str, float]:
    """Run a command of shortlist; what it took."""
    command = [sys.executable, __file__, "--run", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def size_of(folder: Path) -> float:
    """Megabytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def measure(rows: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Make a data set, run each command, and remove all of it."""
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder = Path(place)
        data, run, scores = folder / "data", folder / "run", folder / "scores"
        data.mkdir()
        make_data(data, rows, options.classes, options.dim)
        write_recipe(folder / "recipe.yaml", data)
        commands = {
            "train": ["train", str(folder / "recipe.yaml"), "--out", str(run)],
            "evaluate": ["evaluate", str(run)],
            "score": ["score", str(run), str(data), "-o", str(scores), "--split", "test", "--workers", "1"],
            "evaluate --scores": ["evaluate", str(run), "--scores", str(scores)],
        }
        found = {name: in_its_own_process(*words) for name, words in commands.items()}
        found["train"]["disk MB"], found["score"]["disk MB"] = size_of(run / "scores"), size_of(scores)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--classes", type=int, default=10_450)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--folder", type=Path, help="where to put everything; of the system by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_here(options.run)
        return
    found = {}
    for rows in sorted(options.rows):
        found[rows] = measure(rows, options)
        for name, used in found[rows].items():
            numbers = "  ".join(f"{value:9.1f} {unit}" for unit, value in used.items())
            print(f"{rows:7} x {options.classes}  {name:18}{numbers}", flush=True)
    few, many = min(found), max(found)
    for name in found[few] if few < many else ():
        slope = {
            unit: (found[many][name][unit] - found[few][name][unit]) / (many - few)
            for unit in found[few][name]
        }
        line = {unit: found[many][name][unit] + (GOAL_ROWS - many) * slope[unit] for unit in slope}
        numbers = "  ".join(f"{value:9.1f} {unit}" for unit, value in line.items())
        print(f"{GOAL_ROWS:7} x {options.classes}  {name:18}{numbers}  (extrapolated)")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
