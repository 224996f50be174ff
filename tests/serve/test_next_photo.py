"""Which photo to take next, over HTTP."""

import pytest
import torch

from shortlist._row_facts import RowFacts
from shortlist.model import Model, keep_rows
from tests.serve.parts import PREPARE, TREES, Gray, files, png, tree_model


def told_apart_by_flowers() -> Model:
    """Leaves of all classes say nothing, flowers say all: 50 rows of each of 6 classes and both organs."""
    plain = tree_model(TREES)
    target = (torch.arange(600) % 6).long()
    flowers = torch.arange(600) % 2 == (torch.arange(600) // 6) % 2
    noise = torch.randn(600, 6, generator=torch.Generator().manual_seed(0))
    scores = (
        torch.where(flowers[:, None], 9.0 * torch.eye(6)[target], noise) + plain.score_map.now.priors.log()
    )
    organs = ["flower" if is_flower else "leaf" for is_flower in flowers.tolist()]
    rows = keep_rows(scores.float(), target, plain.score_map, TREES, RowFacts.of_columns({"organ": organs}))
    parts = {"preprocessing": PREPARE, "score_map": plain.score_map, "predictors": dict(plain.predictors)}
    return Model.from_parts(Gray(), TREES, calibration_rows=rows, about={"name": "trees"}, **parts)


@pytest.fixture
def client(start):
    return start(made=told_apart_by_flowers())


def test_the_flower_is_advised_for_leaves_and_not_for_flowers(client):
    def ask(**options):
        return client.post("/v1/identify", params={"top": 2} | options, files=files(png(1))).json()

    body = ask(organ="leaf")
    photo = body["next_photo"]
    best = [candidate["id"] for candidate in body["candidates"][:2]]
    names = [candidate["name"] for candidate in body["candidates"][:2]]
    assert photo["organ"] == "flower" and sorted(photo["classes"]) == sorted(best)
    assert photo["told_apart"] == 1.0 and 0.2 < photo["told_apart_now"] < 0.8 and photo["objects"] == 100
    now = round(100 * photo["told_apart_now"])
    assert all(name in photo["words"] for name in names)
    assert f"did so 100 times in 100, photos like yours {now} times" in photo["words"]
    assert ask()["next_photo"]["organ"] == "flower"  # which organ it is was not said
    assert ask(organ="flower")["next_photo"] is None
    assert ask(organ="leaf", top=1)["next_photo"] is None  # nothing to tell apart
