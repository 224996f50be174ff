"""``shortlist predict`` for people, for pipes and for arrays."""

import csv
import io
import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from typer.testing import CliRunner

from shortlist import ClassTable, Model, Preprocessing
from shortlist.cli import app
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import AverageK, CalibrationRows, Conformal, NoveltyDetector, TopK
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.sentences import promise_words

NAMES = ("oak", "beech", "birch", "ash")
HEAVY = ("lightning", "matplotlib", "scipy", "torchmetrics", "torchvision", "timm", "pyarrow", "pandas")
HEAVY += ("sklearn", "torch._dynamo", "yaml", "shortlist.training", "shortlist.recipes", "shortlist.report")


def small_model(shape, preprocessing=None):
    table = ClassTable(names=NAMES, counts=(6, 3, 1, 2))
    network = "linear" if len(shape) == 1 else "small_cnn"
    spec = NetworkSpec(name=network, num_classes=4, input_shape=shape)
    score_map = ScoreMap(4, contains=PriorRecord.training(table.class_counts))
    predictors = {"average2": AverageK(2).calibrate(torch.randn(50, 4)), "top2": TopK(2)}
    parts = {"spec": spec, "score_map": score_map, "predictors": predictors}
    return Model.from_parts(build_network(spec), table, preprocessing=preprocessing, **parts)


@pytest.fixture(scope="module")
def of_embeddings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    small_model((6,)).save(folder)
    return folder


@pytest.fixture(scope="module")
def of_images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    prepare = Preprocessing(height=32, width=32, resize=36, mean=(0.5,) * 3, std=(0.5,) * 3)
    small_model((3, 32, 32), prepare).save(folder)
    return folder


def predict(*words):
    result = CliRunner().invoke(app, ["predict", *map(str, words)])
    assert result.exception is None, result.exception
    return result


def test_people_read_names_probabilities_and_the_promise(of_embeddings, tmp_path):
    rows = torch.randn(2, 6)
    np.save(tmp_path / "rows.npy", rows.numpy())
    said = predict(of_embeddings, tmp_path / "rows.npy", "--predictor", "top2").stdout
    model = Model.load(of_embeddings)
    expected = []
    for number, candidates in enumerate(model.short_lists(rows, "top2")):
        expected.append(f"rows.npy:{number}: 2 classes")
        expected += [f"  {100 * c.probability:5.1f} %  {c.name}" for c in candidates]
    expected += ["", "2 items, 2.00 classes in a set on average"]
    assert said.splitlines() == [*expected, "top2: Such lists have 2 classes. (-v says more)"]
    more = predict(of_embeddings, tmp_path / "rows.npy", "--predictor", "top2", "-v").stdout
    assert more.splitlines() == [*expected, f"top2: {promise_words(model.promises['top2'])}"]
    longer = predict(of_embeddings, tmp_path / "rows.npy", "--predictor", "top2", "--top", 3).stdout
    assert [line.endswith("(not in the set)") for line in longer.splitlines()[1:4]] == [False, False, True]


def test_common_names_are_in_every_form(tmp_path):
    model = small_model((6,))
    common = {"fr": [["chêne", "rouvre"], [], ["frêne"], []], "de": [["Eiche"], [], [], []]}
    table = replace(model.classes, common_names=common)
    parts = {"spec": model.spec, "score_map": model.score_map, "predictors": dict(model.predictors)}
    Model.from_parts(model.network, table, **parts).save(tmp_path / "model")
    np.save(tmp_path / "rows.npy", np.zeros((1, 6), np.float32))
    words = (tmp_path / "model", tmp_path / "rows.npy", "--top", 4)
    expected = {NAMES[0]: ["chêne", "rouvre"], NAMES[1]: [], NAMES[2]: ["frêne"], NAMES[3]: []}
    (line,) = predict(*words, "--lang", "fr-CA", "--json").stdout.splitlines()
    assert {c["name"]: c["common_names"] for c in json.loads(line)["candidates"]} == expected
    first = {name: next(iter(names), "") for name, names in expected.items()}
    rows = list(csv.DictReader(predict(*words, "--lang", "fr", "-o", "-").stdout.splitlines()))
    assert {row["name"]: row["common_name"] for row in rows} == first
    predict(*words, "--lang", "fr", "-o", tmp_path / "a.parquet")
    columns = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert dict(zip(columns["name"], columns["common_name"], strict=True)) == first
    assert f"{NAMES[0]}  Eiche" in predict(*words, "--lang", "de").stdout
    assert "common_name" not in predict(*words, "-o", "-").stdout
    refused = CliRunner().invoke(app, ["predict", *map(str, words), "--lang", "it"])
    assert "--lang must be a language of the model's common names (fr, de), got 'it'" in str(
        refused.exception
    )


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "pt"])
def test_embeddings_of_every_format_have_the_lists_of_the_model(of_embeddings, tmp_path, suffix):
    from safetensors.torch import save_file

    rows, path = torch.randn(5, 6), tmp_path / f"rows.{suffix}"
    if suffix == "npy":
        np.save(path, rows.double().numpy())
    elif suffix == "npz":
        np.savez(path, embeddings=rows.numpy())
    else:
        (save_file if suffix == "safetensors" else torch.save)({"embeddings": rows}, path)
    said = predict(of_embeddings, path, "--json", "--batch-size", 2).stdout
    model = Model.load(of_embeddings)
    for line, candidates in zip(said.splitlines(), model.short_lists(rows, at_least=5), strict=True):
        found = [(c["name"], c["in_set"]) for c in json.loads(line)["candidates"]]
        assert found == [(c.name, c.in_set) for c in candidates]


def test_a_pipe_gets_what_a_file_would_and_words_go_to_stderr(of_embeddings, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(3, 6)).astype("float32"))
    for suffix, words in (("csv", ("-o", "-")), ("jsonl", ("--json",))):
        predict(of_embeddings, tmp_path / "rows.npy", "-o", tmp_path / f"a.{suffix}")
        piped = predict(of_embeddings, tmp_path / "rows.npy", *words)
        assert piped.stdout == (tmp_path / f"a.{suffix}").read_text()
        assert "3 items" in piped.stderr and "average2: " in piped.stderr
    columns = next(csv.reader(io.StringIO((tmp_path / "a.csv").read_text())))
    page = predict("--help").stdout
    assert all(column in page for column in columns)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (
            np.zeros((2, 5)),
            (),
            r"must hold embeddings of shape \(n, 6\), as the model takes them, got \(2, 5\)",
        ),
        (np.zeros(6), (), r"of shape \(n, 6\), as the model takes them, got \(6,\)"),
        (np.array(["a"]), (), "holds text"),
        (np.zeros((2, 6)), ("--json", "-o", "a.csv"), "--json writes to a pipe"),
        (np.zeros((2, 6)), ("--top", "0"), "top must be an integer >= 1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(of_embeddings, tmp_path, content, words, message):
    np.save(tmp_path / "rows.npy", content)
    result = CliRunner().invoke(app, ["predict", str(of_embeddings), str(tmp_path / "rows.npy"), *words])
    assert isinstance(result.exception, ValueError)
    with pytest.raises(ValueError, match=message):
        raise result.exception


def test_one_photo_is_answered_without_anything_that_trains_or_draws(of_images, tmp_path):
    """Most of the time of ``shortlist predict`` is the import of torch; what adds to it is not imported."""
    Image.new("RGB", (50, 40), "green").save(tmp_path / "photo.jpg")
    code = (
        f"import sys; sys.argv = ['shortlist', 'predict', {str(of_images)!r}, 'photo.jpg']\n"
        "from shortlist.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = run.stdout.splitlines()
    assert lines[0].startswith("photo.jpg: ") and lines[-1] == "[]", run.stdout
    assert any(line.startswith("average2: ") for line in lines)


def test_arrays_in_memory_are_pictures_or_prepared(of_images, of_embeddings):
    model = Model.load(of_images)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 40, 50, 3), dtype=np.uint8)
    pictures = [Image.fromarray(one) for one in pixels]
    expected = model.short_lists(pictures)
    assert model.short_lists(pixels) == model.short_lists(list(pixels)) == expected
    assert model.short_lists(model.prepare(pictures).numpy()) == expected
    gray = pixels[0, :, :, 0]
    assert model.short_lists([gray]) == model.short_lists([Image.fromarray(gray)])
    rows = np.random.default_rng(0).normal(size=(3, 6))
    model = Model.load(of_embeddings)
    assert model.short_lists(rows) == model.short_lists(torch.tensor(rows).float())
    assert len(model.short_lists(rows[::-1], batch_size=2)) == 3


@pytest.mark.errors
def test_arrays_that_are_no_pictures_are_refused(of_images):
    model = Model.load(of_images)
    for array in (np.zeros((40, 50, 3)), np.zeros((40, 50, 5), dtype=np.uint8)):
        with pytest.raises(
            ValueError, match=r"uint8 of shape \(h, w\) or \(h, w, 3\), or prepared, of shape"
        ):
            model.short_lists([array])
    with pytest.raises(ValueError, match="must hold numbers"):
        Model.load(of_images).short_lists(np.full((1, 3, 32, 32), "a"))


def test_rows_without_numbers_are_named_keep_a_line_and_change_the_exit_code(of_embeddings, tmp_path):
    import pyarrow.parquet as pq

    rows = np.random.default_rng(0).normal(size=(20, 6)).astype("float32")
    rows[3:15] = np.nan  # twelve, of which ten are named
    np.save(tmp_path / "rows.npy", rows)
    files = {suffix: tmp_path / f"lists.{suffix}" for suffix in ("csv", "jsonl", "parquet")}
    said = [f"shortlist: not read: rows.npy:{row}: it holds NaN or infinity" for row in range(3, 13)]
    for words in (("-o", files["csv"]), ("-o", files["jsonl"]), ("-o", files["parquet"]), ()):
        command = ["predict", str(of_embeddings), str(tmp_path / "rows.npy"), "--predictor", "top2"]
        result = CliRunner().invoke(app, [*command, "--top", "2", *map(str, words)])
        assert result.exit_code == 1 and "12 could not be read" in result.stdout
        notes = [line for line in result.stderr.splitlines() if line.startswith("shortlist:")]
        assert notes == [*said, "shortlist: not read: and 2 more"]
    assert "rows.npy:14: no list, it could not be read" in result.stdout
    items = [f"rows.npy:{row}" for row in range(20)]
    lines = list(csv.reader(files["csv"].read_text().splitlines()))[1:]
    assert list(dict.fromkeys(line[0] for line in lines)) == items and len(lines) == 8 * 2 + 12
    assert [line[1:] for line in lines if line[0] == "rows.npy:3"] == [[""] * 6]
    objects = [json.loads(line) for line in files["jsonl"].read_text().splitlines()]
    assert [each["item"] for each in objects] == items
    assert objects[3] == {"item": "rows.npy:3", "error": "it holds NaN or infinity"}
    table = pq.read_table(files["parquet"]).to_pylist()
    assert [row["class"] is None for row in table if row["item"] in ("rows.npy:2", "rows.npy:3")] == [
        False,
        False,
        True,
    ]


def test_an_empty_list_is_a_list(tmp_path, of_embeddings):
    model = Model.load(of_embeddings)
    sharp = 9 * torch.eye(4).repeat(10, 1) + torch.rand(40, 4)  # all surer than a row of equal scores
    sets = {"none": Conformal(coverage=0.5).calibrate(sharp, torch.arange(4).repeat(10))}
    parts = {"spec": model.spec, "score_map": model.score_map, "predictors": sets}
    Model.from_parts(model.network, model.classes, **parts).save(tmp_path / "model")
    np.savez(tmp_path / "rows.npz", scores=np.zeros((2, 4), dtype="float32"))
    assert "rows.npz:1: no class is sure enough" in predict(tmp_path / "model", tmp_path / "rows.npz").stdout


def test_without_a_name_the_predictor_with_a_promise_is_used_and_named(tmp_path):
    table, scores = ClassTable(names=NAMES, counts=(6, 3, 1, 2)), torch.randn(60, 4)
    score_map = ScoreMap(4, contains=PriorRecord.training(table.class_counts))
    target = scores.argmax(1)
    saved = {"average2": AverageK(2).calibrate(scores), "lac": Conformal(0.9).calibrate(scores, target)}
    saved["top2"] = TopK(2)
    with pytest.warns(UserWarning, match="needs at least 9 calibration rows, got 5"):
        idle = Conformal(0.9).calibrate(scores[:5], target[:5])
    spec = NetworkSpec(name="linear", num_classes=4, input_shape=(6,))
    network = build_network(spec)
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32))
    wanted = {
        "lac": (saved, "it is the first one that promises something about the true class"),
        # from 5 rows, 90 % are promised only by lists of all classes
        "average2": (saved | {"lac": idle}, "no predictor has a useful promise about the true class"),
    }
    for name, (predictors, why) in wanted.items():
        parts = {"spec": spec, "score_map": score_map, "predictors": predictors}
        model = Model.from_parts(network, table, **parts)
        model.save(tmp_path / name)
        said = predict(tmp_path / name, tmp_path / "rows.npy", "-v").stdout
        named = predict(tmp_path / name, tmp_path / "rows.npy", "--predictor", name, "-v").stdout
        others = ", ".join(other for other in predictors if other != name)
        last = said.splitlines()[-1]
        assert last.startswith(f"{name} was used: ") and why in last
        assert last.endswith(f"The others (--predictor NAME): {others}.")
        assert said.splitlines()[:-1] == named.splitlines()
        rows = torch.from_numpy(np.load(tmp_path / "rows.npy"))
        assert model.short_lists(rows) == model.short_lists(rows, name)
        lines = predict(tmp_path / name, tmp_path / "rows.npy", "--json").stdout.splitlines()
        assert [json.loads(line)["promise"]["predictor"] for line in lines] == [name] * 3


@pytest.mark.parametrize("strangeness", ["energy", "distance"])
def test_strangers_are_told_in_every_form(tmp_path, strangeness):
    """The oracle counts calibration rows that are as strange, one by one."""
    import pyarrow.parquet as pq

    table, spec = ClassTable(names=NAMES), NetworkSpec(name="linear", num_classes=4, input_shape=(4,))
    network = build_network(spec)
    with torch.no_grad():
        next(network.parameters()).copy_(torch.eye(4))
    generator = torch.Generator().manual_seed(0)
    known = 6 * torch.eye(4).repeat(25, 1) + torch.rand(100, 4, generator=generator)
    rows = torch.cat([known[:5], torch.zeros(2, 4), known[5:6], torch.full((1, 4), torch.nan)])
    means = 6 * torch.eye(4) if strangeness == "distance" else None
    detector = NoveltyDetector(strangeness=strangeness, level=0.05, means=means)
    detector.calibrate(**{"features" if means is not None else "scores": known})
    parts = {"spec": spec, "predictors": {"top1": TopK(1)}, "novelty": detector}
    Model.from_parts(network, table, **parts).save(tmp_path / "model")
    np.save(tmp_path / "rows.npy", rows.numpy())

    def strange(row):
        distance = min(float((row - 6 * mean).norm()) for mean in torch.eye(4))
        return distance if strangeness == "distance" else -math.log(sum(map(math.exp, row.tolist())))

    below = [sum(strange(one) >= strange(row) - 1e-6 for one in known) for row in rows[:8]]
    wanted = [(1 + count) / 101 <= 0.05 for count in below]
    assert sum(wanted) == 2 and wanted[5:7] == [True, True]
    command = ["predict", str(tmp_path / "model"), str(tmp_path / "rows.npy")]
    for suffix in ("csv", "jsonl", "parquet"):
        done = CliRunner().invoke(app, [*command, "-o", str(tmp_path / f"lists.{suffix}"), "--top", "1"])
        assert isinstance(done.exception, SystemExit), done.exception  # since a row is not read
    lines = list(csv.DictReader((tmp_path / "lists.csv").read_text().splitlines()))
    assert [line["novel"] for line in lines] == [*(str(int(one)) for one in wanted), ""]
    objects = [json.loads(line) for line in (tmp_path / "lists.jsonl").read_text().splitlines()]
    assert [one.get("novel") for one in objects] == [*wanted, None]
    assert pq.read_table(tmp_path / "lists.parquet")["novel"].to_pylist() == [*wanted, None]
    said = CliRunner().invoke(app, command).stdout.splitlines()
    flagged = [line for line in said if line.endswith("; stranger: it looks like none of the known classes")]
    assert [line.partition(": ")[0] for line in flagged] == ["rows.npy:5", "rows.npy:6"]
    assert "9 items, 1.00 classes in a set on average; 2 flagged as strangers; 1 could not be read" in said
    np.savez(tmp_path / "scores.npz", scores=rows[:8].numpy())
    CliRunner().invoke(app, [*command[:2], str(tmp_path / "scores.npz"), "-o", str(tmp_path / "lists.csv")])
    ranks = [
        line
        for line in csv.DictReader((tmp_path / "lists.csv").read_text().splitlines())
        if line["rank"] == "1"
    ]
    of_scores = [str(int(one)) for one in wanted] if strangeness == "energy" else [""] * 8
    assert [line["novel"] for line in ranks] == of_scores  # features are not in a file of scores


def test_a_file_that_is_replaced_is_named(of_embeddings, tmp_path):
    np.save(tmp_path / "rows.npy", torch.randn(2, 6).numpy())
    out = tmp_path / "lists.csv"
    words = (of_embeddings, tmp_path / "rows.npy", "-o", out)
    replaced = f"{out} (in place of the file that was there)"
    assert replaced not in predict(*words).stdout
    first = out.read_text()
    out.write_text("other")
    assert replaced in predict(*words).stdout and out.read_text() == first


def place_sets(log_p, target, new, priors, weights, coverage):
    """Section 1 of places, by loops: the posterior at the place, and thresholds of weighted rows by class."""

    def posterior(rows):
        at_place = np.exp(rows) * weights / priors
        return at_place / at_place.sum(1, keepdims=True)

    counts = np.bincount(target, minlength=len(weights))
    share = np.where(counts > 0, weights, 0)
    share = share / share.sum()
    scores = 1 - posterior(log_p)[np.arange(len(target)), target]
    row_weights = share[target] / counts[target]
    thresholds = np.zeros(len(weights))
    for index in np.flatnonzero(weights):
        level = coverage + share[index] / counts[index] - 1e-12
        heavy = [score for score in np.sort(scores) if row_weights[scores <= score].sum() >= level]
        thresholds[index] = heavy[0] if heavy else np.inf
    return (1 - posterior(new) <= thresholds) & (weights > 0)


@pytest.fixture(scope="module")
def with_rows(tmp_path_factory):
    """A model of four classes with calibration rows in float64, and these rows."""
    generator = torch.Generator().manual_seed(1)
    table = ClassTable(names=NAMES, counts=(60, 30, 10, 20))
    priors = PriorRecord.training(table.class_counts)
    target = torch.arange(200) % 4
    scores = 2.0 * torch.nn.functional.one_hot(target, 4) + torch.randn(200, 4, generator=generator)
    rows = CalibrationRows.of_rows(scores.double(), target, priors=priors.priors, dtype=torch.float64)
    spec = NetworkSpec(name="linear", num_classes=4, input_shape=(4,))
    parts = {"score_map": ScoreMap(4, contains=priors), "predictors": {"top2": TopK(2)}, "spec": spec}
    folder = tmp_path_factory.mktemp("model") / "model"
    Model.from_parts(build_network(spec), table, calibration_rows=rows, **parts).save(folder)
    return folder, scores.double().log_softmax(1).numpy(), target.numpy(), np.array([60, 30, 10, 20]) / 120


def test_lists_are_made_for_a_place(with_rows, tmp_path):
    folder, log_p, target, priors = with_rows
    new = np.random.default_rng(2).normal(size=(60, 4))
    np.savez(tmp_path / "new.npz", scores=new.astype("float32"))
    (tmp_path / "garden.csv").write_text("id,weight\nbirch,3\nash,1\nyeti,2\n")
    made = predict(
        folder, tmp_path / "new.npz", "--coverage", 0.8, "--place", tmp_path / "garden.csv", "--json"
    )
    lists = [json.loads(line) for line in made.stdout.splitlines()]
    sets = [{c["name"] for c in each["candidates"] if c["in_set"]} for each in lists]
    weights = np.array([0.0, 0.0, 0.75, 0.25])
    expected = place_sets(log_p, target, new - new.max(), priors, weights, 0.8)
    assert sets == [{NAMES[index] for index in np.flatnonzero(row)} for row in expected]
    assert {frozenset(each) for each in sets} >= {frozenset({"birch"}), frozenset({"ash"})}
    assert "1 name of the place without a class of the model: yeti" in made.stderr
    assert "80" in made.stderr and "garden" in made.stderr


def test_few_rows_at_a_place_are_not_said_to_list_everything(with_rows, tmp_path):
    """A weight of 1 in 41: its class is in every list, the other one is not, so not every list has both."""
    folder, log_p, target, priors = with_rows
    new = np.random.default_rng(3).normal(size=(200, 4))
    np.savez(tmp_path / "new.npz", scores=new.astype("float32"))
    (tmp_path / "few.csv").write_text("birch,40\nash,1\n")
    made = predict(folder, tmp_path / "new.npz", "--coverage", 0.995, "--place", tmp_path / "few.csv")
    expected = place_sets(log_p, target, new - new.max(), priors, np.array([0, 0, 40, 1]) / 41, 0.995)
    assert expected[:, 2].all() and not expected[:, 3].all()
    assert "all classes" not in made.stdout and "99.5 of 100" in made.stdout


def test_what_is_not_promised_is_not_said_to_be(with_rows, tmp_path):
    """Lists that are too short for the coverage, and a predictor that no calibration rows stand in for."""
    folder = with_rows[0]
    np.savez(tmp_path / "new.npz", scores=np.zeros((3, 4), dtype="float32"))
    for verbose in ((), ("-v",)):
        capped = predict(folder, tmp_path / "new.npz", "--coverage", 0.99, "--at-most", 1, *verbose).stdout
        cannot = (
            "coverage: It cannot be promised that lists of at most 1 class contain the right class 99 times"
        )
        assert cannot in capped
        assert "of 100 have the right class in such a list" in capped and "99 of 100" not in capped
    lines = predict(folder, tmp_path / "new.npz", "--coverage", 0.99, "--at-most", 1, "--json").stdout
    assert {json.loads(line)["promise"]["holds"] for line in lines.splitlines()} == {False}
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(200, 4, generator=generator)
    raps = Conformal(0.8, score="raps").calibrate(scores, torch.arange(200) % 4)
    model = replace_predictors(folder, {"raps": raps}, tmp_path / "model")
    (tmp_path / "garden.csv").write_text("birch,3\nash,1\n")
    for verbose in ((), ("-v",)):
        said = predict(model, tmp_path / "new.npz", "--place", tmp_path / "garden.csv", *verbose).stdout
        assert "The promise is not about these lists: its predictor was calibrated for all classes" in said


def replace_predictors(folder, predictors, out):
    model = Model.load(folder)
    parts = {"score_map": model.score_map, "spec": model.spec, "calibration_rows": model.calibration_rows}
    Model.from_parts(model.network, model.classes, predictors=predictors, **parts).save(out)
    return out


def test_too_few_rows_and_a_largest_size_do_not_contradict_each_other(with_rows, tmp_path):
    np.savez(tmp_path / "new.npz", scores=np.zeros((3, 4), dtype="float32"))
    (tmp_path / "few.csv").write_text("birch,40\nash,1\noak,9\n")
    words = ("--coverage", 0.9999, "--place", tmp_path / "few.csv", "--at-most")
    for verbose in ((), ("-v",)):
        said = " ".join(predict(with_rows[0], tmp_path / "new.npz", *words, 2, *verbose).stdout.split())
        assert "It cannot be promised that lists of at most 2 classes" in said and "all classes" not in said
        said = " ".join(predict(with_rows[0], tmp_path / "new.npz", *words, 3, *verbose).stdout.split())
        assert "very list has all classes" in said and "cannot" not in said  # three are all that occur


def test_no_list_is_empty_on_the_screen(with_rows, tmp_path):
    np.savez(tmp_path / "new.npz", scores=np.zeros((3, 4), dtype="float32"))
    text = predict(with_rows[0], tmp_path / "new.npz", "--coverage", 0.05).stdout
    assert text.count("no class is sure enough") == 3 and text.count("(unsure)") == 3


@pytest.mark.errors
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--group", "leaf"), "--group must be COLUMN=VALUE, such as organ=leaf, got 'leaf'"),
        (("--group", "organ=leaf"), "group must be of a column of the calibration rows"),
        (("--coverage", "1.5"), "coverage must be .* got 1.5"),
        (("--coverage", "0.9", "--average", "2"), "at most one of .* got"),
        (("--place", "yeti.csv"), "yeti"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(with_rows, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    np.savez("new.npz", scores=np.zeros((3, 4), dtype="float32"))
    (tmp_path / "yeti.csv").write_text("yeti\n")
    result = CliRunner().invoke(app, ["predict", str(with_rows[0]), "new.npz", *words])
    assert isinstance(result.exception, ValueError) and re.search(message, str(result.exception)), result
