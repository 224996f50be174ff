"""The page for people that goes with each saved model."""

from xml.etree import ElementTree

import pytest
import torch

from shortlist import ClassTable, Model
from shortlist.metrics import evaluate
from shortlist.model.doctor import examine_model
from shortlist.model.files import read_manifest
from shortlist.predictors import Conformal, TopK
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.sentences import promise_words

NAMES = ("oak", "a *bold* | <b>name</b>\n# and a title", "birch")


MEASURED = []  # the results that the promises of the model were measured by


@pytest.fixture
def model():
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(300, 3, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    table = ClassTable(names=NAMES, counts=(500, 60, 7))
    predictors = {
        "conformal90": Conformal(coverage=0.9).calibrate(scores[:200], target[:200]),
        "top2": TopK(2),
    }
    results = evaluate(scores[200:], target[200:], predictors, table)
    MEASURED[:] = [results]
    return Model.from_parts(
        torch.nn.Identity(),
        table,
        score_map=ScoreMap(3, contains=PriorRecord.training(table.class_counts)),
        predictors=predictors,
        promises={name: found.promise for name, found in results.sets.items()},
        about={"name": "trees", "license": "CC BY 4.0"},
    )


def test_the_card_says_what_the_model_is_and_promises(model, tmp_path):
    model.save(tmp_path / "trees")
    card = (tmp_path / "trees" / "README.md").read_text()
    assert "\n---\n# trees\n" in card
    assert "567 training rows, 7 to 500 of a class" in card and "1 few, 1 medium, 1 many" in card
    assert f"- **conformal90**: {promise_words(model.promises['conformal90'])}" in card
    measured = model.promises["conformal90"].measured
    assert f"| 100 | {100 * measured.coverage:.1f} |" in card
    assert "- license: CC BY 4.0" in card and "- intended use: not stated" in card


def test_names_are_text_and_no_markup(model, tmp_path):
    model.save(tmp_path / "trees")
    card = (tmp_path / "trees" / "README.md").read_text()
    assert r"a \*bold\* \| \<b\>name\</b\> \# and a title" in card


def test_the_card_is_in_the_manifest(model, tmp_path):
    model.save(tmp_path / "trees")
    record = read_manifest(tmp_path / "trees")["README.md"]
    assert record["size"] == (tmp_path / "trees" / "README.md").stat().st_size


def test_a_changed_card_is_told_by_the_doctor_and_keeps_no_model_closed(model, tmp_path):
    model.save(tmp_path / "trees")
    (tmp_path / "trees" / "README.md").write_text("mine")
    assert [finding.file for finding in examine_model(tmp_path / "trees")] == ["README.md"]
    again = Model.load(tmp_path / "trees", network=torch.nn.Identity())
    assert again.classes == model.classes


def test_the_metadata_are_what_the_hub_reads(model, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    model.save(tmp_path / "trees", results=MEASURED[0])
    data = hub.ModelCard.load(tmp_path / "trees" / "README.md").data
    assert (data.license, data.library_name) == ("cc-by-4.0", "shortlist") and "shortlist" in data.tags
    assert data.model_name == "trees"
    values = {found.metric_name: found.metric_value for found in data.eval_results}
    measured = model.promises["conformal90"].measured
    assert values["coverage of conformal90, promised 0.9"] == round(measured.coverage, 4)
    assert values["classes in a list of conformal90"] == round(measured.mean_size, 3)
    assert values["top-1 accuracy"] == round(MEASURED[0].scores.topk[1].micro.value, 4)


def test_the_card_has_the_coverage_of_each_group_and_a_figure_of_it(model, tmp_path):
    results = MEASURED[0]
    model.save(tmp_path / "trees", results=results)
    card = (tmp_path / "trees" / "README.md").read_text()
    groups = results.sets["conformal90"].coverage.groups
    cells = " | ".join(f"{100 * groups[name].value:.1f}" for name in results.groups)
    assert f"| conformal90 | {cells} |" in card and "](coverage.svg)" in card
    drawn = ElementTree.parse(tmp_path / "trees" / "coverage.svg").getroot()
    dots = [float(dot.get("cx")) for dot in drawn.iter("{http://www.w3.org/2000/svg}circle")]
    shares = [model.promises["conformal90"].measured.coverage, *(each.value for each in groups.values())]
    shares += [model.promises["top2"].measured.coverage]
    shares += [each.value for each in results.sets["top2"].coverage.groups.values()]
    assert len(dots) == len(shares) == 8
    # one scale for all: places are a straight line of the shares
    scale = (dots[0] - dots[4]) / (shares[0] - shares[4])
    assert all(abs(dots[0] + scale * (s - shares[0]) - x) < 1 for s, x in zip(shares, dots, strict=True))


def test_a_model_without_measurements_has_no_figure_and_no_metrics(tmp_path):
    Model.from_parts(torch.nn.Identity(), ClassTable(NAMES), about={"license": "my own: ask"}).save(
        tmp_path / "trees"
    )
    card = (tmp_path / "trees" / "README.md").read_text()
    assert "model-index" not in card and "svg" not in card
    assert 'license: "other"\nlicense_name: "my-own-ask"\n' in card
    assert not (tmp_path / "trees" / "coverage.svg").exists()
