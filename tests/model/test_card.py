"""The page for people that goes with each saved model."""

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
    card = (tmp_path / "trees" / "MODEL_CARD.md").read_text()
    assert card.startswith("# trees\n")
    assert "567 training rows, 7 to 500 of a class" in card and "1 few, 1 medium, 1 many" in card
    assert f"- **conformal90**: {promise_words(model.promises['conformal90'])}" in card
    measured = model.promises["conformal90"].measured
    assert f"| 100 | {100 * measured.coverage:.1f} |" in card
    assert "- license: CC BY 4.0" in card and "- intended use: not stated" in card


def test_names_are_text_and_no_markup(model, tmp_path):
    model.save(tmp_path / "trees")
    card = (tmp_path / "trees" / "MODEL_CARD.md").read_text()
    assert r"a \*bold\* \| \<b\>name\</b\> \# and a title" in card


def test_the_card_is_in_the_manifest(model, tmp_path):
    model.save(tmp_path / "trees")
    record = read_manifest(tmp_path / "trees")["MODEL_CARD.md"]
    assert record["size"] == (tmp_path / "trees" / "MODEL_CARD.md").stat().st_size


def test_a_changed_card_is_told_by_the_doctor_and_keeps_no_model_closed(model, tmp_path):
    model.save(tmp_path / "trees")
    (tmp_path / "trees" / "MODEL_CARD.md").write_text("mine")
    assert [finding.file for finding in examine_model(tmp_path / "trees")] == ["MODEL_CARD.md"]
    again = Model.load(tmp_path / "trees", network=torch.nn.Identity())
    assert again.classes == model.classes
