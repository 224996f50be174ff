"""Scores are read from a run's file once and in pieces, by every command that looks at test rows."""

from collections import Counter

import pytest
import safetensors
import safetensors.torch
import torch
from typer.testing import CliRunner

from shortlist.class_table import ClassTable
from shortlist.cli import app
from shortlist.metrics import evaluate, rows as row_numbers
from shortlist.report.rows import NUM_LISTS
from shortlist.runs.run import Run, RunError
from tests.run_factory import save_scores, scored_run, seal

N, C, BLOCK = 83, 12, 10  # rows, classes, rows of a block
TABLE = ClassTable([f"class {i}" for i in range(C)], counts=[200 - 15 * i for i in range(C)])
PREDICTORS = {
    "two": {"name": "topk", "k": 2},
    "average": {"name": "average_k", "k": 2},
    "promise": {"name": "conformal", "coverage": 0.8},
}


def block_run(path, *, skill=1.0, n=N, **content):
    data = {"name": "cifar100", "root": str(path / "gone")}
    content = {"predictors": PREDICTORS, "name": path.name, "data": data, **content}
    targets = {part: torch.arange(rows) % C for part, rows in (("val", 2 * C), ("test", n))}
    return scored_run(path, TABLE, targets, content, draw=0, skill=skill)


class Reading:
    """Notes which rows of which file of test scores are read."""

    def __init__(self, monkeypatch):
        self.rows: dict[str, Counter[int]] = {}
        self.largest = 0
        opening = safetensors.safe_open

        class Slice:
            def __init__(slice, path, inner):
                slice.path, slice.inner = path, inner
                slice.get_shape = inner.get_shape

            def __getitem__(slice, some):
                found = slice.inner[some]
                self.largest = max(self.largest, len(found))
                self.rows.setdefault(slice.path, Counter()).update(range(some.start, some.stop))
                return found

        class File:
            def __init__(file, path, framework):
                file.path, file.inner = str(path), opening(path, framework)

            def __enter__(file):
                file.opened = file.inner.__enter__()
                return file

            def __exit__(file, *error):
                return file.inner.__exit__(*error)

            def keys(file):
                return file.opened.keys()

            def get_slice(file, key):
                return Slice(file.path, file.opened.get_slice(key))

            def get_tensor(file, key):
                assert key == "target", f"{key} of {file.path} was read whole"
                return file.opened.get_tensor(key)

        monkeypatch.setattr(safetensors, "safe_open", File)


@pytest.fixture
def runs(tmp_path):
    return [block_run(tmp_path / name, skill=skill) for name, skill in (("plain", 1.0), ("better", 1.5))]


def test_commands_read_each_row_once(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(row_numbers, "_BLOCK", BLOCK * C + 1)
    threads = torch.get_num_threads()
    paths = [str(run.path) for run in runs]
    page = str(tmp_path / "page.html")
    commands = (["evaluate", paths[0]], ["compare", *paths], ["report", *paths, "--out", page])
    for words in commands:
        with monkeypatch.context() as patch:
            reading = Reading(patch)
            done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert reading.largest == BLOCK
        assert len(reading.rows) == (1 if words[0] == "evaluate" else 2)
        for times in reading.rows.values():
            assert sorted(times) == list(range(N))
            again = sum(times.values()) - N
            assert again == (NUM_LISTS if words[0] == "report" else 0)  # the rows that lists are shown of
    torch.set_num_threads(threads)


@pytest.mark.parametrize("adjust", [{}, {"tau": 0.5}, {"temperature": "fit"}])
@pytest.mark.parametrize("n", [1, 20, N])
def test_blocks_are_the_mapped_scores(tmp_path, monkeypatch, n, adjust):
    run = block_run(tmp_path / "run", n=n, adjust=adjust)
    monkeypatch.setattr(row_numbers, "_BLOCK", BLOCK * C)
    scores, target = run.scored("test")
    blocks, same = run.score_blocks("test")
    assert torch.equal(target, same)
    assert (len(blocks), blocks.shape) == (n, (n, C))
    parts = list(blocks)
    assert [len(part) for part in parts] == [BLOCK] * (n // BLOCK) + [n % BLOCK] * (n % BLOCK > 0)
    assert torch.equal(torch.cat(parts), scores)
    assert torch.equal(torch.cat(list(blocks)), scores)  # and once more
    chosen = [n - 1, 0, n // 2]
    assert torch.equal(blocks.rows(chosen), scores[chosen])
    assert blocks.rows([]).shape == (0, C)
    whole = evaluate(scores, target, run.predictors, TABLE, shown=run.shown())
    assert run.results.to_json() == whole.to_json()


def test_a_file_without_rows(tmp_path):
    run = block_run(tmp_path / "run")
    save_scores(run, "test", torch.empty(0, C), torch.empty(0, dtype=torch.int64))
    blocks, target = Run.open(run.path).score_blocks("test")
    assert ([len(part) for part in blocks], len(target)) == ([0], 0)


@pytest.mark.errors
def test_files_that_lack_something(tmp_path):
    run = block_run(tmp_path / "run")
    path = run.path / "scores" / "test.safetensors"
    safetensors.torch.save_file({"set.scores": torch.zeros(2, C)}, path)
    seal(run)
    with pytest.raises(RunError, match=r"test.safetensors must hold target, got set.scores"):
        Run.open(run.path).score_blocks("test")
    path.write_bytes(b"no")
    seal(run)
    with pytest.raises(RunError, match=r"test.safetensors cannot be read"):
        Run.open(run.path).score_blocks("test")
    path.unlink()
    with pytest.raises(RunError, match=r"test.safetensors is missing"):
        Run.open(run.path).score_blocks("test")
