"""``shortlist export``: all formats, weights of fewer bits with a promise of their own, and refusals."""

import json

import pytest
import torch

from shortlist.model import Model, round_weights
from shortlist.predictors import Conformal
from shortlist.recipes import build_data
from shortlist.runs import Run, RunError
from shortlist.training import rounded_model, train
from tests.commands import output_of, run
from tests.training.small import silent, small


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Run:
    return train(small("optimizer.lr=0.3"), tmp_path_factory.mktemp("runs") / "small", progress=silent)


def test_torch_is_the_folder_that_load_opens(trained, tmp_path):
    assert "torch" in output_of("export", trained.path, "-o", tmp_path / "out", "--format", "torch")
    again, model = Model.load(tmp_path / "out"), Model.load(trained.path)
    rows = torch.randn(6, 5)
    assert torch.equal(again.scores(rows), model.scores(rows)) and again.promises == model.promises


@pytest.mark.parametrize("weights", ["float16", "int8"])
def test_rounded_weights_are_calibrated_from_their_own_scores(weights, trained):
    before = {path: path.read_bytes() for path in trained.path.rglob("*") if path.is_file()}
    model, plain = rounded_model(trained.path, weights), Model.load(trained.path)
    assert {path: path.read_bytes() for path in trained.path.rglob("*") if path.is_file()} == before
    own = round_weights(Model.load(trained.path).network, weights)
    for name, weight in own.state_dict().items():
        assert torch.equal(weight, model.network.state_dict()[name])
    data = build_data(trained.recipe)
    inputs, target = (torch.stack([data.val[i][0] for i in range(200)]), data.val.targets)
    scores = model.scores(inputs)
    assert (scores - plain.scores(inputs)).abs().max() > 1e-5
    fresh = Conformal(coverage=0.8, score="lac").calibrate(scores, target)
    tests = torch.stack([data.test[i][0] for i in range(300)])
    calibrated = model.predictors["conformal"]
    assert torch.equal(calibrated(model.scores(tests)), fresh(model.scores(tests)))
    inside = model.sets(model.scores(tests), "conformal")[torch.arange(300), data.test.targets]
    measured = model.promises["conformal"].measured
    assert measured is not None and measured.coverage == pytest.approx(float(inside.double().mean()))
    assert measured.p_value is None or measured.p_value > 0.001
    kept = model.calibration_rows
    assert kept is not None and torch.equal(kept.log_p, scores.log_softmax(1).half()[: len(kept)])


@pytest.mark.errors
def test_weights_need_the_data_of_the_run(trained, tmp_path, monkeypatch):
    import shortlist.training.rounded as rounded

    def lost(*_, **__):
        raise ValueError("there is no folder photos")

    Model.load(trained.path).save(tmp_path / "model")
    code, _, told = run("export", tmp_path / "model", "-o", tmp_path / "out", "--weights", "int8")
    assert code == 2 and "is not a run folder" in told and len(told.splitlines()) == 1
    monkeypatch.setattr(rounded, "build_data", lost)
    with pytest.raises(RunError, match=r"weights of int8 need the data of .*there is no folder photos"):
        rounded_model(trained.path, "int8")
    others = build_data(small("data.seed=5"))
    monkeypatch.setattr(rounded, "build_data", lambda *_, **__: others)
    with pytest.raises(RunError, match=r"are not those of|began with other data"):
        rounded_model(trained.path, "int8")


@pytest.mark.errors
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "pdf"), "--format must be one of onnx, app, torch"),
        (("--weights", "int4"), "--weights must be one of float32, float16, int8"),
        (("--server", "https://example.org"), "--server is for --format app, got it with onnx"),
        (("--thumbnails", "0"), "--thumbnails is for --format app, got it with onnx"),
        (("--kind", "a plant", "--format", "torch"), "--kind is for --format app, got it with torch"),
        (("--place", "alps.csv", "--format", "torch"), "--place is for --format app, got it with torch"),
        (("--index", "index"), "--index is for --format app, got it with onnx"),
        (("--runtime", "runtime"), "--runtime is for --format app, got it with onnx"),
        (("--data", "photos"), "--data is for --weights float16 and int8, got it with float32"),
        (("--format", "app"), "--format app must be of a model that takes photos"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(words, message, trained, tmp_path):
    import re

    code, _, told = run("export", trained.path, "-o", tmp_path / "out", *words)
    assert code == 2 and re.search(message, told) and len(told.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.errors
def test_a_folder_that_is_there_stays(trained, tmp_path):
    (tmp_path / "out").mkdir()
    code, _, told = run("export", trained.path, "-o", tmp_path / "out", "--format", "torch")
    assert code == 2 and "--out must not exist yet" in told and list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_the_onnx_file_of_a_run_gives_the_scores_of_its_model(weights, trained, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    told = json.loads(
        output_of("export", trained.path, "-o", tmp_path / "out", "--weights", weights, "--json")
    )
    assert told["format"] == "onnx" and bool(told["measured"]) == (weights == "int8")
    content = json.loads((tmp_path / "out" / "lists.json").read_text(encoding="utf-8"))
    assert content["weights"] == weights and content["version"].endswith("-int8") == (weights == "int8")
    model = Model.load(trained.path) if weights == "float32" else rounded_model(trained.path, weights)
    rows = torch.randn(9, 5)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    [scores, *_] = session.run(None, {"inputs": rows.numpy()})
    torch.testing.assert_close(torch.from_numpy(scores), model.scores(rows), rtol=1e-4, atol=1e-4)
    measured = next(each for each in content["predictors"] if each["name"] == "conformal")["promise"]
    assert measured == model.promises["conformal"].to_dict()
