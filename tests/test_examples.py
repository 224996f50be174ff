"""The examples that join other libraries run, and their sets are what is claimed of them."""

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
import torch

from shortlist import ClassTable
from shortlist.datasets.embeddings import embeddings, save_embeddings
from shortlist.inputs import read_list
from shortlist.predictors import CalibrationRows

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAINER = Path(sys.prefix) / "trainer"  # where `make slow` puts the Trainer of Hugging Face


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_three_domains_become_one_and_each_is_strange_to_the_others(tmp_path, monkeypatch, capsys):
    generator = torch.Generator().manual_seed(0)
    for place, name in enumerate("abc"):
        centers = 3 * torch.randn(5, 16, generator=generator) + 4 * place
        (tmp_path / name).mkdir()
        for part, rows in {"train": 60, "test": 35}.items():
            target = torch.arange(5).repeat(rows)
            inputs = centers[target] + torch.randn(len(target), 16, generator=generator)
            save_embeddings(tmp_path / name / f"{part}.safetensors", inputs, target)
        table = ClassTable([f"{name}{c}" for c in range(5)], parents={"genus": ["x", "x", "y", "y", "y"]})
        table.save(tmp_path / name / "class_table.json")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    folders = [str(tmp_path / name) for name in "abc"]
    monkeypatch.setattr(sys, "argv", ["three_domains.py", *folders, "--out", str(tmp_path / "all")])
    load("three_domains").main()
    lines = [line for line in capsys.readouterr().out.splitlines() if "distance" in line]
    assert len(lines) == 3 and all("power 100.0 %" in line for line in lines)  # far apart: nothing to miss
    found = embeddings(tmp_path / "all")
    assert found.class_table.parents["domain"] == ("a",) * 5 + ("b",) * 5 + ("c",) * 5
    assert found.class_table.parents["group"][5:7] == ("b: x", "b: x")
    assert found.test.targets.bincount().tolist() == [30] * 15


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
def test_sums_before_the_class_leave_no_set_empty_where_the_model_is_sure():
    generator = torch.Generator().manual_seed(0)
    parts = {}
    for part, rows in {"val": 300, "test": 400}.items():
        scores = 6 * torch.randn(rows, 20, generator=generator)  # often nearly certain, and as often right
        target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
        parts[part] = (scores, target)
    example = load("conformal_by_confidence")
    found = {
        name: example.by_quarter(form, *parts.values(), coverage=0.9) for name, form in example.FORMS.items()
    }
    for name, numbers in found.items():
        # ties at 0 may hold more, and MAPIE's rule holds more
        assert abs(numbers[8] - 90) < 6 or (numbers[8] > 90 and not name.endswith(("in", "ized")))
        assert torch.isclose(numbers[8], numbers[:8:2].mean())  # quarters of 100 rows each
    assert found["aps, own probability in"][-1] > 0 and found["aps"][-1] == 0
    assert found["aps"][7] >= 1  # the best class is in every set
    assert found["aps, as MAPIE"][8] > found["aps"][8] and found["aps, as MAPIE"][9] > found["aps"][9]


@pytest.mark.slow
def test_the_trainer_of_hugging_face_takes_a_loss_and_gives_scores():
    """In a process of its own: libraries that others change with are not on this one's path."""
    if PathFinder.find_spec("transformers", [str(TRAINER), *sys.path]) is None:
        pytest.skip("transformers is not installed")
    code = (
        "from hugging_face_trainer import main\n"
        "results = main()\n"
        "print(results.scores.topk[3].micro.value, results.sets['conformal90'].coverage.micro.value)"
    )
    paths = [str(EXAMPLES), *([str(TRAINER)] if TRAINER.is_dir() else []), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    top3, coverage = map(float, run.stdout.splitlines()[-1].split())
    assert top3 > 0.95  # of 20 classes; by chance 0.15
    assert abs(coverage - 0.9) < 0.03  # 3 deviations of 2,000 rows and as many that calibrate


@pytest.mark.slow
def test_a_part_of_cross_entropy_keeps_the_first_place_of_an_untuned_loss():
    found = load("untuned_losses").main(seeds=2)
    worst = {way: min(first for first, _ in hits) for way, hits in found.items()}
    assert worst["noised_topk"] < 40 < 70 < worst["noised_topk + 0.2 cross_entropy"]
    assert min(inside for hits in found.values() for _, inside in hits) > 95


def test_signs_are_divided_as_a_whole_and_the_list_is_read(tmp_path):
    for kind, signs in {"00000": 7, "00013": 20}.items():
        (tmp_path / kind).mkdir()
        names = [f"{sign:05}_{frame:05}.ppm" for sign in range(signs) for frame in range(30)][:-3]
        rows = [f"{name};{20 + 2 * int(name[6:11])};30" for name in names]
        text = "\n".join(["Filename;Width;Height", *rows])
        (tmp_path / kind / f"GT-{kind}.csv").write_text(text, encoding="utf-8")
    rows = read_list(load("signs").lay_out(tmp_path), about=("observation", "organ"))
    parts = {}
    for row in rows:
        parts.setdefault(row.observation, set()).add(row.split)
    assert len(parts) == 27 and all(len(part) == 1 for part in parts.values())
    assert Counter(split for (split,) in parts.values()) == {"train": 2 + 6, "val": 3 + 7, "test": 2 + 7}
    assert len(rows) == 6 * 27 - 2  # the last frame of two signs is missing
    assert {row.label for row in rows} == {"20 km/h", "yield"}
    assert {(row.path[-8:-4], row.organ) for row in rows} == {
        *((f"00{frame:02}", "far") for frame in (2, 7, 12)),
        *((f"00{frame:02}", "near") for frame in (17, 22, 27)),
    }


def test_thresholds_of_several_frames_keep_the_promise_with_fewer_names():
    generator = torch.Generator().manual_seed(0)
    example = load("signs")
    target = torch.randint(20, (1200,), generator=generator)
    centers = 3 * torch.nn.functional.one_hot(target, 20) + torch.randn(1200, 20, generator=generator)
    scores = centers.repeat_interleave(5, 0) + torch.randn(6000, 20, generator=generator)
    frames = example.Frames(
        scores,
        target.repeat_interleave(5),
        torch.arange(1200).repeat_interleave(5),
        torch.arange(6000) % 2,
    )
    even = torch.full((20,), 0.05).double()
    draws = [example.one_draw(frames, even, 0.9, seed) for seed in range(10)]
    means = {name: torch.stack([numbers[name] for numbers in draws]).mean(0) for name in draws[0]}
    for (photos, name), (_, coverage, kinds, size) in means.items():
        if name != example.SINGLE or photos == "1":
            assert abs((kinds if name == example.EVEN else coverage) - 90) < 1.5
        if photos in ("2", "3", "5") and name == example.SINGLE:
            assert coverage > 91.5 and size > means[photos, example.OWN][3] + 0.1


def test_a_place_keeps_its_promise_where_a_cut_list_does_not(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = load("birds_places")
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([80] * 10 + [8] * 10)
    priors = counts / counts.sum()
    target = torch.arange(20).repeat(200)
    noise = 0.7 * torch.randn(4000, 20, generator=generator)
    scores = torch.nn.functional.one_hot(target, 20) * 2.0 + 2 * noise + priors.log()
    place = torch.tensor([0.0] * 10 + [0.1] * 10).double()
    found = []
    for seed in range(10):
        draw = torch.Generator().manual_seed(seed)
        calibration, (new, labels) = example.drawn(scores, target, counts, draw)
        assert calibration[1].bincount().tolist() == counts.tolist()
        rows = CalibrationRows.of_rows(*calibration, priors=priors)
        sets = example.sets_by(rows, new, place)
        assert not bool(sets["cut"][:, :10].any() or sets["place"][:, :10].any())
        assert bool((example.lists_by(rows, new, place)["three best, place"].sum(1) == 3).all())
        found.append(torch.stack([example.measured(sets[way], labels, place) for way in example.WAYS]))
        hits = sets["cut"][torch.arange(len(labels)), labels][labels >= 10]  # 192 rows of each class
        assert torch.isclose(found[-1][0, 0], 100 * hits.double().mean())
    cut, _, own = torch.stack(found)[:, :, 0].mean(0)
    assert abs(own - 90) < 2.5 and cut < 80
