"""A folder for lists without PyTorch: the same scores, sets and lists, and rows that can be read by NumPy."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from shortlist import ClassTable
from shortlist._row_facts import RowFacts
from shortlist.model import Choice, Model, export_lists, keep_rows
from shortlist.models import NetworkSpec, build_network
from shortlist.predictors import AverageK, Conformal, NoveltyDetector, TaxonomyNodes, TopK
from shortlist.preprocessing import Preprocessing
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.taxonomy import Taxonomy
from tests.model.test_picture_graph import photo

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
HOSTILE = '</script><img src=x onerror="alert(1)">\x1b[31m'  # what a stranger may call a class
TABLE = ClassTable(
    (HOSTILE, "oak", "ash", "elm", "fir", "yew"),
    counts=(9, 3, 8, 2, 5, 3),
    parents={"kind": ["a", "a", "b", "b", "c", "c"]},
)
PREPARE = Preprocessing(height=16, width=16, resize=18, mean=(0.5,), std=(0.25,), color="L")
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_lists.py"


def small_model(**parts) -> Model:
    """A network that was not trained, with predictors calibrated on its scores of random pictures."""
    torch.manual_seed(5)
    spec = NetworkSpec(name="small_cnn", options={"width": 4}, num_classes=6, input_shape=(1, 16, 16))
    network = build_network(spec)
    network(torch.randn(64, 1, 16, 16) * 2 + 1)  # statistics of the normalization
    nn.init.normal_(network.get_parameter("head.weight"))
    training = PriorRecord.training(TABLE.class_counts)
    score_map = ScoreMap(6, scale=2.0, contains=PriorRecord.balanced(6)).under(training)
    model = Model.from_parts(network, TABLE, spec=spec, preprocessing=PREPARE, score_map=score_map)
    inputs = torch.stack([PREPARE(Image.fromarray(photo(20 + n % 13, 18 + n % 17))) for n in range(300)])
    scores = model.scores(inputs).clone()
    target = torch.multinomial(scores.softmax(1), 1).squeeze(1)
    pairs = RowFacts(torch.arange(300) // 2)
    tree = Taxonomy.from_class_table(TABLE)
    predictors = {
        "top2": TopK(2),
        "conformal80": Conformal(coverage=0.8, score="lac").calibrate(scores, target),
        "average2": AverageK(2).calibrate(scores),
        "few80": TaxonomyNodes(tree, coverage=0.8, nodes=2).calibrate(scores, target),
        "node80": TaxonomyNodes(tree, coverage=0.8).calibrate(scores, target),
    }
    parts = {
        "predictors": predictors,
        "novelty": NoveltyDetector(strangeness="probability", level=0.1).calibrate(target, scores=scores),
        "calibration_rows": keep_rows(scores, target, score_map, TABLE, pairs),
        "about": {"name": HOSTILE},
    } | parts
    return Model.from_parts(network, TABLE, spec=spec, preprocessing=PREPARE, score_map=score_map, **parts)


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "lists"
    export_lists(model, out, version="abc")
    return out


def session_of(folder: Path):
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.slow
def test_the_folder_says_what_is_in_it(model, folder):
    content = json.loads((folder / "lists.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in folder.iterdir()) == ["lists.json", "model.onnx", "rows.safetensors"]
    for name, record in content["files"].items():
        held = (folder / name).read_bytes()
        assert record == {"size": len(held), "sha256": hashlib.sha256(held).hexdigest()}
    assert content["format"] == "shortlist lists 1" and content["version"] == "abc"
    assert content["classes"]["names"] == [HOSTILE, "oak", "ash", "elm", "fir", "yew"]
    assert content["name"] == HOSTILE and content["default"] == "conformal80"
    assert content["input"] == {"name": "picture", "type": "uint8", "shape": ["height", "width", 3]}
    session = session_of(folder)
    assert content["outputs"] == {each.name: each.shape for each in session.get_outputs()}
    assert content["priors"] == pytest.approx([count / 30 for count in TABLE.counts])
    by_name = {each["name"]: each for each in content["predictors"]}
    assert by_name["conformal80"]["promise"] == model.promises["conformal80"].to_dict()
    assert by_name["conformal80"]["choice"] | {"coverage": 0} == {
        "coverage": 0,
        "top": None,
        "average": None,
        "macro": False,
        "at_least": 0,
        "at_most": None,
    }
    assert by_name["average2"]["choice"]["average"] == 2 and by_name["top2"]["choice"]["top"] == 2
    assert by_name["few80"]["output"] is None and "nodes must be 1" in by_name["few80"]["why_not"]
    assert by_name["node80"]["choice"] is None and by_name["node80"]["output"] is not None
    [left_out] = content["left_out"]
    assert left_out.startswith("few80: ")


@pytest.mark.slow
def test_scores_sets_features_and_flags_are_those_of_the_model(model, folder):
    session, content = session_of(folder), json.loads((folder / "lists.json").read_text(encoding="utf-8"))
    names, outputs = [each.name for each in session.get_outputs()], []
    pictures = [photo(70 + 9 * n, 300 - 5 * n) for n in range(20)]
    for picture in pictures:
        outputs.append(dict(zip(names, session.run(None, {"picture": picture}), strict=True)))
    got = {name: torch.from_numpy(np.concatenate([each[name] for each in outputs])) for name in names}
    scores, features = model.scores_and_features(model.prepare(pictures))
    torch.testing.assert_close(got["scores"], scores, rtol=0, atol=0.05)
    torch.testing.assert_close(got["probabilities"], model.probabilities(scores), rtol=0, atol=0.01)
    torch.testing.assert_close(got["features"], features, rtol=0, atol=0.05)
    assert torch.equal(got["novel"], model.novelty.flag(scores=got["scores"])) and bool(got["novel"].any())
    for predictor in content["predictors"]:
        if predictor["output"] is not None:
            assert torch.equal(got[predictor["output"]], model.sets(got["scores"], predictor["name"]))
    assert got["scores"].argmax(1).unique().numel() > 1


@pytest.mark.slow
def test_calibration_rows_are_those_of_the_model(model, folder):
    from safetensors.numpy import load_file

    rows = load_file(folder / "rows.safetensors")
    assert np.array_equal(rows["target"], model.calibration_rows.target)
    assert rows["log_p"].dtype == np.float16 and np.array_equal(rows["log_p"], model.calibration_rows.log_p)
    assert np.array_equal(rows["priors"], model.calibration_rows.priors)


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [None, 0.6, 0.95, 0.9999])
def test_the_example_needs_no_torch_and_prints_the_same_list(coverage, model, folder, tmp_path):
    upright = Image.fromarray(photo(70, 50))
    turned, exif = upright.transpose(Image.Transpose.ROTATE_90), Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    turned.save(tmp_path / "photo.png", exif=exif)
    (tmp_path / "torch.py").write_text("raise ImportError('not here')\n")
    given = [] if coverage is None else [str(coverage)]
    done = subprocess.run(
        [sys.executable, EXAMPLE, folder, tmp_path / "photo.png", *given],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONIOENCODING": "utf-8"},
    )
    *lines, promise = done.stdout.rstrip("\n").split("\n")
    choice = "conformal80" if coverage is None else Choice(coverage=coverage)
    [wanted] = model.short_lists([upright], choice)
    assert lines == [f"{each.probability:7.1%}  {each.name}" for each in wanted]
    _, promised = model.resolve(choice)
    assert promised.rows == 300 if coverage is None else promised.rows < 300
    level = 80 if coverage is None else 100 * coverage
    assert (
        promise == f"{level:g} of 100 such lists hold the right class ({promised.rows} calibration photos)."
    )


@pytest.mark.slow
def test_a_network_on_features_takes_inputs(tmp_path):
    model = Model.from_parts(
        nn.Linear(4, 3), ClassTable(("a", "b", "c")), score_map=ScoreMap(3, contains=PriorRecord.balanced(3))
    )
    with pytest.raises(ValueError, match="batch must be given"):
        export_lists(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    batch = torch.randn(2, 4)
    content = export_lists(model, tmp_path / "out", batch=batch)
    assert content["input"] == {"name": "inputs", "type": "float32", "shape": ["batch", 4]}
    assert content["default"] is None and content["rows"] is None and content["predictors"] == []
    rows = torch.randn(5, 4)
    [scores, *_] = session_of(tmp_path / "out").run(None, {"inputs": rows.numpy()})
    torch.testing.assert_close(torch.from_numpy(scores), model.scores(rows))


@pytest.mark.errors
def test_refusals_write_nothing(model, tmp_path):
    plain = Model.from_parts(nn.Linear(4, 3), ClassTable(("a", "b", "c")))
    with pytest.raises(ValueError, match="nobody knows what the model's scores mean"):
        export_lists(plain, tmp_path / "out")
    with pytest.raises(ValueError, match="pictures must be false for a model without preprocessing"):
        small = ScoreMap(3, contains=PriorRecord.balanced(3))
        Model.from_parts(nn.Linear(4, 3), ClassTable(("a", "b", "c")), score_map=small).export_onnx(
            tmp_path / "a.onnx", batch=torch.zeros(2, 4), pictures=True
        )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("before")
    with pytest.raises(FileExistsError):
        export_lists(model, tmp_path / "full")
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "file"]
