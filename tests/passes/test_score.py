"""Scored rows in parts: what is kept of them, resumed, calibrated from and evaluated, against all scores."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
import torch

from shortlist import Model
from shortlist.datasets.embeddings import save_embeddings
from shortlist.metrics import evaluate
from shortlist.passes.local import run_local
from shortlist.passes.planning import find_shards
from shortlist.passes.reading import calibrate_from_scores, evaluate_scores, read_scores
from shortlist.passes.score import model_key, score_shards
from shortlist.predictors import AverageK, Conformal, TopK
from shortlist.predictors.kept import NotKeptError
from tests.commands import run
from tests.passes.scoring import ROWS, density_model, make_embeddings, make_rows, source_of


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "adjusted"])
def world(request, tmp_path_factory):
    """A model, embeddings, and the scores of their test rows with 16 of 50 classes kept."""
    folder = tmp_path_factory.mktemp("world")
    model = density_model(folder / "model", adjusted=request.param)
    make_embeddings(folder / "rows")
    shards = find_shards(folder / "rows", model.classes, shard_rows=300, split="test")
    score_shards(source_of(folder / "model"), shards, folder / "scores", keep=16, workers=1)
    inputs, target = make_rows(seed=4)
    return folder, model, model.scores(inputs.float()), target


def table_of(folder):
    parts = [parquet.read_table(folder / one["file"]) for one in read_scores(folder)["parts"]]
    return {
        name: [value for part in parts for value in part[name].to_pylist()] for name in parts[0].column_names
    }


def test_a_part_holds_the_best_classes_and_what_needs_all_scores(world):
    folder, model, scores, target = world
    found = table_of(folder / "scores")
    assert found["id"] == [f"test:{row}" for row in range(ROWS)] and found["target"] == target.tolist()
    logs = scores.double().log_softmax(1)
    order = logs.argsort(1, descending=True)[:, :16]
    assert found["classes"] == order.tolist()
    np.testing.assert_allclose(found["log_probabilities"], logs.gather(1, order), atol=2e-6)
    np.testing.assert_allclose(found["logsumexp"], scores.double().logsumexp(1), atol=2e-6)
    np.testing.assert_allclose(
        found["true_log_probability"], logs.gather(1, target[:, None])[:, 0], atol=4e-6
    )
    true = scores.gather(1, target[:, None])
    assert found["rank"] == (scores >= true).sum(1).tolist()
    assert found["first_rank"] == ((scores > true).sum(1) + 1).tolist()
    assert found["error"] == [None] * ROWS
    for name in model.predictors:
        sets = model.sets(scores, name)
        assert found[f"{name}.size"] == sets.sum(1).tolist()
        assert found[f"{name}.hit"] == sets.gather(1, target[:, None])[:, 0].tolist()
        for listed, row, best in zip(found[f"{name}.set"], sets, order.tolist(), strict=True):
            members = [index for index in best if row[index]]
            assert listed == (members if len(members) == int(row.sum()) else None)
    assert any(listed is None for listed in found["macro.set"])  # a path that the rows reach


def test_metrics_are_those_of_all_scores(world):
    folder, model, scores, target = world
    found = evaluate_scores(folder / "scores", model.predictors, model.classes, model=model_key(model))
    wanted = evaluate(scores, target, model.predictors, model.classes, shown=model.shown)
    assert found.sets == wanted.sets and found.rows == ROWS
    assert found.scores.topk == wanted.scores.topk and found.scores.topk_curve == wanted.scores.topk_curve
    assert found.scores.nll.value == pytest.approx(wanted.scores.nll.value, abs=1e-6)
    assert found.scores.calibration_error.value == pytest.approx(
        wanted.scores.calibration_error.value, abs=1e-6
    )
    with pytest.raises(ValueError, match="holds the scores of another model"):
        evaluate_scores(folder / "scores", model.predictors, model.classes, model="0" * 64)


def test_thresholds_are_those_of_all_scores_and_so_are_their_sets(world):
    folder, model, scores, target = world
    made = {"average2": AverageK(2), "conformal": Conformal(coverage=0.6), "top3": TopK(3)}
    calibrate_from_scores(folder / "scores", made)
    wanted = {
        "average2": AverageK(2).calibrate(scores),
        "conformal": Conformal(coverage=0.6).calibrate(scores, target),
    }
    for name, predictor in wanted.items():
        assert (
            torch.equal(made[name].threshold, predictor.threshold) and made[name].report == predictor.report
        )
    found = evaluate_scores(folder / "scores", made, model.classes, num_resamples=0)
    dense = evaluate(scores, target, wanted | {"top3": TopK(3)}, model.classes, num_resamples=0)
    assert found.sets == dense.sets


def test_what_is_not_kept_is_an_error_that_says_how_much_to_keep(world, tmp_path):
    folder, model, scores, target = world
    with pytest.raises(NotKeptError, match=r"k=15 .* --keep \d+"):
        calibrate_from_scores(folder / "scores", {"average15": AverageK(15)})
    wide = {"wide": AverageK(12).calibrate(scores)}
    with pytest.raises(
        NotKeptError, match=r"wide has sets of more classes than the 16 .* --keep (\d+)"
    ) as error:
        evaluate_scores(folder / "scores", wide, model.classes)
    enough = int(str(error.value).split("--keep ")[1])
    shards = find_shards(folder / "rows", model.classes, split="test")
    score_shards(source_of(folder / "model"), shards, tmp_path, keep=enough, workers=1)
    found = evaluate_scores(tmp_path, wide, model.classes, num_resamples=0)
    assert found.sets == evaluate(scores, target, wide, model.classes, num_resamples=0).sets
    with pytest.raises(NotKeptError, match="needs the scores of all classes"):
        calibrate_from_scores(folder / "scores", {"aps": Conformal(score="aps")})


@pytest.mark.parametrize("shard_rows", [1, 97, 10_000])
def test_any_size_and_order_of_shards_gives_the_same_bits(world, tmp_path, shard_rows):
    folder, model, *_ = world
    rows = find_shards(folder / "rows", model.classes, shard_rows=shard_rows, split="test")[:50]
    score_shards(source_of(folder / "model"), rows[::-1], tmp_path, keep=16, workers=1)
    found, wanted = table_of(tmp_path), table_of(folder / "scores")
    order = np.argsort([int(name.split(":")[1]) for name in found["id"]])
    for name, values in wanted.items():
        assert [found[name][row] for row in order] == values[: len(order)], name


def test_a_part_of_something_else_is_refused_and_what_is_finished_is_kept(world, tmp_path):
    folder, model, *_ = world
    shards = find_shards(folder / "rows", model.classes, shard_rows=300, split="test")
    source, out = source_of(folder / "model"), tmp_path / "out"
    score_shards(source, shards, out, keep=16, workers=1)
    before = {path.name: path.read_bytes() for path in out.glob("*.parquet")}
    assert before == {path.name: path.read_bytes() for path in (folder / "scores").glob("*.parquet")}
    (out / "test-00001.parquet").unlink()
    (out / "scores.json").unlink()
    with pytest.raises(ValueError, match=r"holds no finished scores, it has no scores.json"):
        evaluate_scores(out, {}, model.classes)
    counts = score_shards(source, shards, out, keep=16, workers=1)
    assert (counts.kept, counts.parts, counts.rows) == (2, 3, ROWS)
    assert before == {path.name: path.read_bytes() for path in out.glob("*.parquet")}
    with pytest.raises(ValueError, match=r"test-00000.parquet was made with --keep 16"):
        score_shards(source, shards, out, keep=17, workers=1)
    with pytest.raises(ValueError, match=r"was made of other rows"):
        score_shards(
            source, find_shards(folder / "rows", model.classes, shard_rows=200, split="test"), out, keep=16
        )
    model.predictors["top5"].k = 4
    try:
        model.save(tmp_path / "four")
    finally:
        model.predictors["top5"].k = 5
    with pytest.raises(ValueError, match=r"was made with other predictors"):
        score_shards(source_of(tmp_path / "four"), shards, out, keep=16, workers=1)
    with torch.no_grad():
        next(model.network.parameters())[0, 0] += 1
    model.save(tmp_path / "other")
    with torch.no_grad():
        next(model.network.parameters())[0, 0] -= 1
    with pytest.raises(ValueError, match=r"was made with another model"):
        score_shards(source_of(tmp_path / "other"), shards, out, keep=16, workers=1)
    (out / "test-00002.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"test-00002.parquet is damaged: remove it"):
        score_shards(source, shards, out, keep=16, workers=1)


def test_the_commands(world, tmp_path):
    folder, model, scores, target = world
    given = (
        "score",
        folder / "model",
        folder / "rows",
        "--split",
        "test",
        "-o",
        tmp_path / "out",
        "--workers",
        1,
    )
    code, out, err = run(*given, "--keep", 20)
    assert code == 0 and out == f"{tmp_path / 'out'}: 700 rows, 1 parts\n", err
    code, out, err = run(*given, "--keep", 20, "--json")
    assert json.loads(out)["kept"] == 1 and "scoring" not in err
    code, out, err = run("evaluate", folder / "model", "--scores", tmp_path / "out", "--json")
    wanted = evaluate(scores, target, model.predictors, model.classes)
    assert code == 0 and json.loads(out)["sets"] == json.loads(wanted.to_json())["sets"], err
    again = ("calibrate", folder / "model", "--scores", tmp_path / "out", "-o", tmp_path / "new")
    code, out, err = run(*again)
    assert code == 2 and "aps" not in err and "macro has class priors" in err
    code, out, err = run(*again, "--set", "predictors.macro=null")
    assert code == 2 and "needs the scores of all classes" in err
    sets = ("--set", "predictors.macro=null", "--set", "predictors.aps=null")
    code, out, err = run(*again, *sets, "--set", "predictors.average2={name: average_k, k: 2}")
    assert code == 0 and "average2: 700 rows, average size 2.000" in out, out + err
    new = Model.load(tmp_path / "new")
    assert list(new.predictors) == ["top5", "average3", "conformal", "average2"]
    assert torch.equal(new.predictors["average3"].threshold, AverageK(3).calibrate(scores).threshold)
    code, out, err = run("evaluate", tmp_path / "new", "--scores", tmp_path / "out")
    assert code == 0 and "average2" in out, err
    assert "These rows calibrated the predictors" in out and "Measured" not in out and "held-out" not in out
    code, out, err = run("evaluate", tmp_path / "new", "--scores", tmp_path / "out", "--json")
    assert all((one["promise"] or {}).get("measured") is None for one in json.loads(out)["sets"].values())
    run(*given[:4], "train", "-o", tmp_path / "others", "--workers", 1, "--keep", 20)
    code, out, err = run("evaluate", tmp_path / "new", "--scores", tmp_path / "others")
    assert code == 0 and "Measured on" in out and "These rows calibrated" not in out, out + err
    for words, said in [
        (("calibrate", folder / "model", "-o", tmp_path / "x"), "--out is for --scores"),
        (again[:-2], "--scores needs --out"),
        ((*again[:-1], tmp_path / "x", "--set", "loss.k=3"), "--set must be predictors.NAME="),
        ((*given, "--engine", "spark"), "--engine must be one of local, ray, got 'spark'"),
        ((*given, "--address", "here"), "--address is for --engine ray"),
    ]:
        code, _, err = run(*words)
        assert code == 2 and said in err


def test_rows_without_a_class_and_rows_of_no_numbers(world, tmp_path):
    folder, model, *_ = world
    inputs, target = make_rows(40, seed=8)
    inputs[3, 2], inputs[5, 0] = torch.nan, torch.inf
    save_embeddings(tmp_path / "rows.safetensors", inputs, target)
    counts = score_shards(
        source_of(folder / "model"),
        find_shards(tmp_path / "rows.safetensors", model.classes),
        tmp_path / "out",
        workers=1,
    )
    assert (counts.rows, counts.errors) == (40, 2)
    found = table_of(tmp_path / "out")
    assert [i for i, reason in enumerate(found["error"]) if reason] == [3, 5]
    assert found["classes"][3] is None and found["top5.set"][5] is None and found["rank"][3] is None
    # rows without a list: most versions of pyarrow cannot write them if the type says one length
    schema = parquet.read_schema(tmp_path / "out/rows-00000.parquet")
    assert all(pyarrow.types.is_list(schema.field(name).type) for name in ("classes", "probabilities"))
    good = [i for i in range(40) if i not in (3, 5)]
    scores = model.scores(inputs[good].float())
    assert [found["classes"][i][0] for i in good] == scores.argmax(1).tolist()
    results = evaluate_scores(tmp_path / "out", model.predictors, model.classes, num_resamples=0)
    assert (results.rows, results.ignored_rows) == (38, 2)
    assert json.loads((tmp_path / "out" / "scores.json").read_text())["examples"] == {
        f"rows:{row}": "it holds NaN or infinity" for row in (3, 5)
    }


@pytest.mark.parametrize("bad", [[2, 5], [0, 1, 2, 3, 4, 5]])
def test_rows_whose_scores_are_no_numbers_are_told_and_the_others_kept(world, tmp_path, bad):
    folder, model, scores, target = world
    inputs = make_rows(seed=4)[0][:6].float()
    inputs[bad] *= 1e38  # whose product with the weights is beyond the largest number
    assert not model.scores(inputs).isfinite()[bad].all(1).any()
    save_embeddings(tmp_path / "rows.safetensors", inputs, target[:6])
    shards = find_shards(tmp_path / "rows.safetensors", model.classes)
    counts = score_shards(source_of(folder / "model"), shards, tmp_path / "out", keep=16, workers=1)
    found = table_of(tmp_path / "out")
    assert (counts.rows, counts.errors) == (6, len(bad))
    assert found["error"] == ["its scores are not numbers" if row in bad else None for row in range(6)]
    true = scores[:6].gather(1, target[:6, None])
    ranks = (scores[:6] >= true).sum(1).tolist()
    assert found["rank"] == [None if row in bad else ranks[row] for row in range(6)]


@pytest.mark.parametrize("bad", [slice(0, 256), slice(512, 600)], ids=["first", "last"])
def test_a_block_without_any_good_row_has_the_same_columns(world, tmp_path, bad):
    folder, model, *_ = world
    inputs, target = make_rows(600, seed=6)  # three blocks
    inputs = inputs.float()
    inputs[bad] *= 1e38
    save_embeddings(tmp_path / "rows.safetensors", inputs, target)
    shards = find_shards(tmp_path / "rows.safetensors", model.classes)
    score_shards(source_of(folder / "model"), shards, tmp_path / "out", keep=16, workers=1)
    good = torch.ones(600, dtype=torch.bool)
    good[bad] = False
    found = evaluate_scores(tmp_path / "out", model.predictors, model.classes, num_resamples=0)
    wanted = evaluate(
        model.scores(inputs[good]),
        target[good],
        model.predictors,
        model.classes,
        shown=model.shown,
        num_resamples=0,
    )
    assert (found.rows, found.ignored_rows) == (int(good.sum()), int((~good).sum()))
    assert found.scores.nll.value == pytest.approx(wanted.scores.nll.value, abs=1e-6)
    assert found.scores.topk == wanted.scores.topk and found.sets == wanted.sets


def test_a_part_without_any_good_row_has_the_columns_of_the_others(world, tmp_path):
    folder, model, *_ = world
    inputs, target = make_rows(60, seed=6)
    inputs = inputs.float()
    inputs[:20] *= 1e38
    save_embeddings(tmp_path / "rows.safetensors", inputs, target)
    shards = find_shards(tmp_path / "rows.safetensors", model.classes, shard_rows=20)
    score_shards(source_of(folder / "model"), shards, tmp_path / "out", keep=16, workers=1)
    names = {tuple(parquet.read_schema(path).names) for path in (tmp_path / "out").glob("*.parquet")}
    assert len(names) == 1
    found = evaluate_scores(tmp_path / "out", model.predictors, model.classes, num_resamples=0)
    assert (found.rows, found.ignored_rows) == (40, 20)


def test_the_manifest_of_an_earlier_call_is_not_believed(world, tmp_path):
    folder, model, *_ = world
    save_embeddings(tmp_path / "rows.safetensors", *make_rows(100, seed=6))
    source, out = source_of(folder / "model"), tmp_path / "out"

    def score(shard_rows, engine=run_local):
        shards = find_shards(tmp_path / "rows.safetensors", model.classes, shard_rows=shard_rows)
        return score_shards(source, shards, out, keep=16, workers=1, engine=engine)

    def stopped(work, shards, *, workers):
        yield from list(run_local(work, shards[:2], workers=workers))
        raise KeyboardInterrupt

    score(50)
    manifest = (out / "scores.json").read_bytes()
    for part in out.glob("*.parquet"):
        part.unlink()
    with pytest.raises(KeyboardInterrupt):
        score(25, stopped)
    with pytest.raises(ValueError, match="holds no finished scores"):
        evaluate_scores(out, model.predictors, model.classes)
    (out / "scores.json").write_bytes(manifest)
    with pytest.raises(ValueError, match=r"other rows than those of scores.json \(25 rows, not 50\)"):
        evaluate_scores(out, model.predictors, model.classes)
    with pytest.raises(ValueError, match=r"other rows than those of scores.json"):
        calibrate_from_scores(out, {"average2": AverageK(2)})
    assert score(25).kept == 2
    assert evaluate_scores(out, model.predictors, model.classes, num_resamples=0).rows == 100


def test_a_bit_that_changed_in_a_part_is_found(world, tmp_path):
    folder, model, *_ = world
    shards = find_shards(folder / "rows", model.classes, split="test")
    score_shards(source_of(folder / "model"), shards, tmp_path, keep=16, workers=1)
    (part,) = tmp_path.glob("*.parquet")
    column = parquet.ParquetFile(part).metadata.row_group(0).column(4)
    content = bytearray(part.read_bytes())
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(ValueError, match=r"test-00000.parquet is damaged: remove it"):
        evaluate_scores(tmp_path, model.predictors, model.classes)


def test_a_part_of_as_many_other_rows_is_not_that_of_the_manifest(world, tmp_path):
    folder, model, *_ = world
    for name, rows in (("a", 60), ("b", 90)):
        save_embeddings(tmp_path / name / "rows.safetensors", *make_rows(rows))
        shards = find_shards(tmp_path / name / "rows.safetensors", model.classes, shard_rows=30)
        score_shards(source_of(folder / "model"), shards, tmp_path / name / "out", keep=16, workers=1)
    part = min((tmp_path / "b" / "out").glob("*.parquet"))
    (tmp_path / "a" / "out" / part.name).write_bytes(part.read_bytes())
    with pytest.raises(ValueError, match=r"other rows than those of scores.json"):
        evaluate_scores(tmp_path / "a" / "out", model.predictors, model.classes)
