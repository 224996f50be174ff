"""A model carries its detector of strangers: saved with it, checked with it, none where there is none."""

import pytest
import torch
from torch import nn

from shortlist.class_table import ClassTable
from shortlist.model import Model, ModelError
from shortlist.model.files import write_calibration
from shortlist.predictors import FeatureMeans, NoveltyDetector, TopK
from shortlist.sentences import novelty_words


def parts():
    generator = torch.Generator().manual_seed(0)
    inputs = 3 * torch.randn(400, 4, generator=generator)
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    return network, inputs, torch.arange(400) % 3


def model_with(strangeness):
    network, inputs, target = parts()
    table = ClassTable(names=("oak", "beech", "birch"))
    plain = Model.from_parts(network, table, classifier="2")
    scores, features = plain.scores(inputs), plain.features(inputs)
    means = FeatureMeans(num_classes=3, dim=6)
    means.update(features[:100], target[:100])
    detector = NoveltyDetector(
        strangeness=strangeness, rule="macro", means=means.means() if strangeness == "distance" else None
    )
    detector.calibrate(target[100:], scores=scores[100:], features=features[100:])
    return Model.from_parts(
        network, table, predictors={"top": TopK(1)}, novelty=detector, classifier="2"
    ), inputs


@pytest.mark.parametrize("strangeness", ["energy", "distance"])
def test_a_saved_model_has_its_detector(strangeness, tmp_path):
    model, inputs = model_with(strangeness)
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model", network=parts()[0])
    given = {"scores": loaded.scores(inputs), "features": loaded.features(inputs)}
    assert loaded.novelty is not None and novelty_words(loaded.novelty) == novelty_words(model.novelty)
    assert torch.equal(loaded.novelty.p_values(**given), model.novelty.p_values(**given))
    assert torch.equal(loaded.to("cpu").novelty.flag(**given), model.novelty.flag(**given))


def test_a_model_without_one_has_none(tmp_path):
    network, _, _ = parts()
    model = Model.from_parts(network, ClassTable(names=("oak", "beech", "birch")))
    model.save(tmp_path / "model")
    assert Model.load(tmp_path / "model", network=network).novelty is None


def test_a_calibration_without_one_takes_it_away(tmp_path):
    model, _ = model_with("energy")
    model.save(tmp_path / "model")
    write_calibration(tmp_path / "model", "set", model.score_map, {}, novelty=model.novelty)
    assert Model.load(tmp_path / "model", network=parts()[0]).novelty is not None
    write_calibration(tmp_path / "model", "set", model.score_map, {})
    assert Model.load(tmp_path / "model", network=parts()[0]).novelty is None
    assert not list((tmp_path / "model").glob("novelty*"))


@pytest.mark.errors
def test_damage_is_named(tmp_path):
    model, _ = model_with("energy")
    for name in ("novelty.json", "novelty.*.safetensors"):
        folder = tmp_path / name.replace("*", "state")
        model.save(folder)
        [path] = folder.glob(name)
        path.write_bytes(path.read_bytes()[:-2] + b"xx")
        with pytest.raises(ModelError, match=r"novelty\S* .*(is damaged|is not the file)"):
            Model.load(folder, network=parts()[0])
        path.unlink()
        with pytest.raises(ModelError, match=r"novelty.*(is missing|No such file)"):
            Model.load(folder, network=parts()[0])


@pytest.mark.errors
def test_a_detector_that_does_not_fit_is_refused():
    network, inputs, _ = parts()
    detector = NoveltyDetector(strangeness="energy")
    table = ClassTable(names=("oak", "beech", "birch"))
    with pytest.raises(ValueError, match="novelty must be calibrated"):
        Model.from_parts(network, table, novelty=detector)
    target = torch.zeros(400, dtype=torch.int64)
    detector.calibrate(target, scores=inputs)  # of 4 classes
    with pytest.raises(ValueError, match="novelty must be for the table's 3 classes, got 4"):
        Model.from_parts(network, table, novelty=detector)
