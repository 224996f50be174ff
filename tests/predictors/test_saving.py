import copy
import json
import pickle
import warnings

import pytest
import torch
from torch import nn

from shortlist.predictors import (
    AverageError,
    AverageK,
    CalibrationWarning,
    Conformal,
    PointwiseError,
    SetPredictor,
    TaxonomyNodes,
    TopK,
    load,
    make,
    save,
)
from shortlist.predictors.conformity import RAPS
from shortlist.predictors.thresholds import Clustered, Interpolated, Macro
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.taxonomy import Taxonomy

LEVELS = (*["class"] * 6, "genus", "genus", "root")
TREE = Taxonomy(tuple("abcdefGHR"), LEVELS, (6, 7, 6, 7, 6, 8, 8, 8, -1))
PRIORS = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
ALL = {
    "topk": lambda: TopK(2),
    "topk macro": lambda: TopK(2, priors=PRIORS, tau=0.5),
    "average_k": lambda: AverageK(1.5),
    "conformal never empty": lambda: Conformal(coverage=0.6, at_least=1),
    "conformal capped": lambda: Conformal(coverage=0.6, at_most=3),
    "conformal cap too low": lambda: Conformal(coverage=0.95, score="aps", at_least=1, at_most=1),
    "average_k bounded": lambda: AverageK(1.5, at_least=1, at_most=3),
    "average_k never empty": lambda: AverageK(1.5, at_least=1, priors=PRIORS),
    "average_k macro": lambda: AverageK(1.5, priors=PRIORS, rule="strict"),
    "pointwise": lambda: PointwiseError(coverage=0.8),
    "average error": lambda: AverageError(coverage=0.8),
    "lac": lambda: Conformal(),
    "raps by class": lambda: Conformal(score=RAPS(penalty=0.1, k_reg=2), rule=Interpolated(weight=0.3)),
    "aps clustered": lambda: Conformal(score="aps", rule=Clustered(num_clusters=2, share=0.5)),
    "one node": lambda: TaxonomyNodes(TREE, coverage=0.8),
    "few nodes": lambda: TaxonomyNodes(TREE, coverage=0.8, nodes=2),
    "prevalence": lambda: Conformal(score="prevalence_adjusted", priors=PRIORS, rule="marginal"),
    "macro": lambda: Conformal(priors=PRIORS, scores_priors=torch.full((6,), 1 / 6)),
    "macro aps by genus": lambda: Conformal(
        score="aps", rule=Macro(groups=[0, 0, 1, 1, 1, 2], level="genus")
    ),
}


def calibrated(name: str) -> SetPredictor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return ALL[name]().calibrate(*rows())


def rows():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(400, 6, generator=generator) * 2
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("name", ALL)
def test_saved_and_loaded_it_is_the_same(name, tmp_path):
    predictor, fresh = calibrated(name), torch.randn(50, 6)
    save(predictor, tmp_path / "sets")
    again = load(tmp_path / "sets.json")
    assert type(again) is type(predictor) and again.options() == predictor.options()
    assert again.report == predictor.report
    assert torch.equal(again(fresh), predictor(fresh))
    with pytest.raises(ValueError, match="must have 6 classes"):
        again(torch.randn(2, 7)) if not name.startswith("topk") else TopK(1, priors=PRIORS)(torch.randn(2, 7))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


@pytest.mark.parametrize("name", ALL)
def test_state_dict_pickle_and_copy(name):
    predictor, fresh = calibrated(name), torch.randn(50, 6)
    expected = predictor(fresh)
    other = ALL[name]()
    other.load_state_dict(predictor.state_dict())
    for same in (other, copy.deepcopy(predictor), pickle.loads(pickle.dumps(predictor))):
        assert torch.equal(same(fresh), expected)


@pytest.mark.parametrize("name", ALL)
def test_half_precision_leaves_thresholds_alone(name):
    predictor = calibrated(name)
    fresh = torch.randn(300, 6)
    model = nn.Sequential(nn.Identity(), predictor)
    expected = predictor(fresh)
    assert torch.equal(model.half()[1](fresh), expected)
    assert predictor(fresh.bfloat16()).shape == (300, 6)
    assert torch.equal(model.double()[1](fresh), expected)


def test_saving_again_replaces_the_pair_and_foreign_files_stay(tmp_path):
    (tmp_path / "sets.notes.txt").write_text("keep")
    save(AverageK(2).calibrate(torch.randn(20, 5)), tmp_path / "sets")
    second = AverageK(2).calibrate(torch.randn(20, 5))
    save(second, tmp_path / "sets")
    assert len(list(tmp_path.iterdir())) == 3
    assert torch.equal(load(tmp_path / "sets").threshold, second.threshold)


def test_unfinished_predictors_travel_to_another_machine(tmp_path):
    logits, target = rows()
    for name in ("average_k", "average error", "raps by class", "one node"):
        first, second = ALL[name](), ALL[name]()
        first.update(logits[:150], target[:150])
        second.update(logits[150:], target[150:])
        save(first, tmp_path / "first")
        again = load(tmp_path / "first")
        assert not again.calibrated
        again.merge(second)
        assert torch.equal(again.finish().threshold, calibrated(name).threshold)


@pytest.mark.errors
def test_files_that_are_not_a_pair(tmp_path):
    path = tmp_path / "sets.json"
    save(AverageK(2).calibrate(torch.randn(20, 5)), path)
    content = json.loads(path.read_text())
    state = tmp_path / content["state"]
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    with pytest.raises(
        ValueError, match=r"sets.json is not a predictor.*not the file that was saved with it"
    ):
        load(path)
    path.write_text(json.dumps(content | {"format": "shortlist predictor 9"}))
    with pytest.raises(ValueError, match="its format is 'shortlist predictor 9'"):
        load(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a predictor"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")


@pytest.mark.errors
def test_make_names_what_it_knows():
    with pytest.raises(ValueError, match="name must be one of topk, average_k"):
        make("top", {})
    with pytest.raises(ValueError, match=r"score.name must be one of lac.*got 'las'"):
        make("conformal", {"score": {"name": "las"}})


class Recognizer(nn.Module):
    """Model, adjustment and predictor in one graph: images to scores and sets."""

    def __init__(self, predictor: SetPredictor) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 6))
        self.adjustment = ScoreMap(len(PRIORS), scale=1 / 1.3, contains=PriorRecord.given(PRIORS)).under(
            "balanced"
        )
        self.predictor = predictor

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.adjustment(self.features(images))
        return scores, self.predictor(scores)


@pytest.mark.parametrize("name", [name for name in ALL if name != "few nodes"])  # which is refused
def test_export_and_onnx_give_the_same_sets(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(1)
    model = Recognizer(calibrated(name)).eval()
    images = torch.randn(64, 3, 4, 4)
    scores, sets = model(images)
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (images[:8],), dynamic_shapes=({0: batch},))
    assert torch.equal(program.module()(images)[1], sets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own parts
        onnx = torch.onnx.export(program, dynamo=True, verbose=False)
        onnx.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    got_scores, got_sets = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    assert torch.allclose(torch.from_numpy(got_scores), scores, atol=1e-5)
    assert torch.equal(torch.from_numpy(got_sets), sets)


class Sets(nn.Module):
    """The predictor alone in a graph: scores to sets."""

    def __init__(self, predictor: SetPredictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return self.predictor(scores)


@pytest.mark.parametrize("name", ["prevalence", "macro"])
def test_onnx_differs_at_most_at_the_threshold(name, tmp_path):
    """A calibration row equals the threshold, and another runtime rounds its probability otherwise."""
    onnxruntime = pytest.importorskip("onnxruntime")
    predictor, (logits, _) = calibrated(name), rows()
    values = -predictor.values(logits)
    at_threshold = (values - predictor.threshold).abs() <= 16 * 2**-23 * predictor.threshold.abs()
    assert 1 <= int(at_threshold.sum()) <= 6  # a row for each different threshold
    batch = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(Sets(predictor).eval(), (logits[:8],), dynamic_shapes=(batch,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own parts
        torch.onnx.export(program, dynamo=True, verbose=False).save(tmp_path / "sets.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "sets.onnx", providers=["CPUExecutionProvider"])
    [found] = session.run(None, {session.get_inputs()[0].name: logits.numpy()})
    sets = predictor(logits)
    assert torch.equal(torch.from_numpy(found)[~at_threshold], sets[~at_threshold])
    assert bool(sets[at_threshold].all())  # here they are in, to the bit


def test_an_uncalibrated_predictor_is_not_exported():
    with pytest.raises(Exception, match="not calibrated"):
        torch.export.export(AverageK(2), (torch.randn(3, 4),))
