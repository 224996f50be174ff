import json
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import shortlist
from shortlist import ClassTable, Model, Preprocessing
from shortlist._row_facts import RowFacts
from shortlist._store.manifest import read_sealed, write_sealed
from shortlist.model import (
    Choice,
    ModelError,
    examine_model,
    keep_rows,
    network_by_name,
    saved as saved_module,
)
from shortlist.model.files import read_description, write_calibration, write_description
from shortlist.models.heads import CosineHead
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import AverageK, Candidate, Conformal, EntersAt, TopK, load
from shortlist.scores import PriorRecord, ScoreMap, UnknownPriorError

TREES = ClassTable(
    names=("oak", "beech", "birch"),
    ids=("1", "2", "3"),
    counts=(60, 30, 10),
    parents={"family": ("Fagaceae", "Fagaceae", "Betulaceae")},
)
COUNTS = (50, 20, 15, 8, 5, 2)
SIX = ClassTable([f"class {i}" for i in range(6)], counts=COUNTS)
PREPARE = Preprocessing(height=16, width=16, resize=18, mean=(0.5,), std=(0.25,), color="L")
HEADS = ("linear", "cosine", "two_head")


def of_known_scores(table: ClassTable = TREES, **parts) -> Model:
    """A network that gives back its input: log-probabilities of rows whose classes are equally frequent."""
    parts = {
        "score_map": ScoreMap(3, contains=PriorRecord.balanced(3)),
        "predictors": {"top1": TopK(1)},
    } | parts
    return Model.from_parts(nn.Identity(), table, **parts)


def adjusted_map() -> ScoreMap:
    """Of scores with balanced priors, to scores with the training priors."""
    contained = PriorRecord.balanced(6)
    made = ScoreMap(6, scale=torch.linspace(1, 2, 6), shift=torch.linspace(-1, 1, 6), contains=contained)
    return made.under(PriorRecord.training(torch.tensor(COUNTS)))


def cnn_model(kind: str = "linear", /, **parts) -> Model:
    """A small network as a run would leave it, with predictors calibrated on its scores."""
    torch.manual_seed(5)
    spec = NetworkSpec(
        name="small_cnn", options={"width": 4}, head=kind, scale=9.0, num_classes=6, input_shape=(1, 16, 16)
    )
    network = build_network(spec)
    network(torch.randn(64, 1, 16, 16) * 2 + 1)  # statistics of the normalization
    parts = {"score_map": adjusted_map(), "preprocessing": PREPARE, "spec": spec} | parts
    scores = Model.from_parts(network, SIX, **parts).scores(torch.randn(300, 1, 16, 16)).clone()
    target = torch.multinomial(scores.softmax(1), 1).squeeze(1)
    predictors = {
        "average2": AverageK(2).calibrate(scores),
        "top2": TopK(2),
        "lac": Conformal(coverage=0.8, score="lac").calibrate(scores, target),
    }
    return Model.from_parts(network, SIX, predictors=predictors, **parts)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "saved"
    cnn_model(about={"name": "trees", "version": 3}).save(folder)
    return folder


# what it says


def test_short_lists_of_known_probabilities():
    """Of rows of equally frequent classes 1/4, 1/4, 1/2; of training rows these times 0.6, 0.3, 0.1."""
    probabilities = torch.tensor([[0.25, 0.25, 0.5], [0.01, 0.01, 0.98]])
    lists = of_known_scores().short_lists(probabilities.log(), at_least=2)
    first = [(2, 0.2 / 1.1, True), (0, 0.6 / 1.1, False)]  # the best score first; 0.15 + 0.075 + 0.05
    second = [(2, 0.098 / 0.107, True), (0, 0.006 / 0.107, False)]
    for listed, wanted in zip(lists, (first, second), strict=True):
        assert [(c.index, c.in_set) for c in listed] == [(i, inside) for i, _, inside in wanted]
        assert [c.probability for c in listed] == pytest.approx([p for _, p, _ in wanted], rel=1e-5)
    top = lists[1][0]
    assert top == Candidate(2, "3", "birch", {"family": "Betulaceae"}, top.probability, True, EntersAt(1))


def test_probabilities_are_those_of_the_training_rows_whatever_the_scores_contain():
    posterior = torch.tensor([[0.2, 0.3, 0.5]])  # of training rows
    training = PriorRecord.training(TREES.class_counts)
    for contains in (training, PriorRecord.balanced(3), PriorRecord.given(torch.tensor([0.2, 0.3, 0.5]))):
        raw = posterior.log() - training.log_priors.float() + contains.log_priors.float()
        for now in (contains, PriorRecord.balanced(3)):
            model = of_known_scores(score_map=ScoreMap(3, contains=contains, now=now))
            torch.testing.assert_close(model.probabilities(model.scores(raw)), posterior)
    no_counts = ClassTable(TREES.names)
    model = of_known_scores(no_counts, score_map=ScoreMap(3, contains=training).under("balanced"))
    wanted = torch.tensor([[0.2 / 0.6, 0.3 / 0.3, 0.5 / 0.1]])
    torch.testing.assert_close(model.probabilities(model.scores(posterior.log())), wanted / wanted.sum())


def test_scores_go_through_the_map_and_half_precision_comes_back_as_float32():
    score_map = ScoreMap(3, scale=torch.tensor([1.0, 2.0, 3.0]), shift=-1.0, contains=PriorRecord.balanced(3))
    model = of_known_scores(score_map=score_map)
    rows = torch.tensor([[1.0, 1.0, 1.0], [0.5, -1.0, 2.0]])
    kept = rows.clone()
    wanted = torch.tensor([[0.0, 1.0, 2.0], [-0.5, -3.0, 5.0]])
    assert torch.equal(model.scores(rows), wanted) and torch.equal(rows, kept)
    assert torch.equal(model.scores(rows.half()), wanted)
    assert model.scores(rows.double()).dtype == torch.float32


@pytest.mark.parametrize("head", ["set", "proposal"])
def test_two_heads_predict_from_the_chosen_one(head):
    model, batch = cnn_model("two_head", head=head), torch.randn(7, 1, 16, 16)
    with torch.no_grad():
        output = model.network(batch)
    raw = output.set_logits if head == "set" else output.proposal_logits
    torch.testing.assert_close(model.scores(batch), adjusted_map()(raw), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", HEADS)
def test_features_are_what_the_head_sees(head):
    model, batch = cnn_model(head), torch.randn(7, 1, 16, 16)
    calls = []
    model.network.blocks.register_forward_hook(lambda *_: calls.append(1))
    features = model.features(batch)
    assert calls == [1] and features.shape == (7, 32)
    with torch.no_grad():
        torch.testing.assert_close(features, model.network.features(batch), rtol=1e-4, atol=1e-5)
        output = model.network.head(features.clone())
    raw = output.set_logits if head == "two_head" else output
    torch.testing.assert_close(model.scores(batch), adjusted_map()(raw), rtol=1e-4, atol=1e-4)
    assert not model.network.head._forward_pre_hooks


def test_features_of_two_threads_do_not_mix():
    class Waiting(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.both = nn.Linear(2, 3), threading.Barrier(2, timeout=30)

        def forward(self, rows):
            self.both.wait()  # both hooks are there when both run
            scores = self.fc(rows)
            self.both.wait()
            return scores

    model, got = Model.from_parts(Waiting(), TREES), {}

    def run(value: float) -> None:
        got[value] = model.features(torch.full((1, 2), value))

    threads = [threading.Thread(target=run, args=(value,)) for value in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {value: rows.tolist() for value, rows in got.items()} == {1.0: [[1.0, 1.0]], 2.0: [[2.0, 2.0]]}


def test_sets_are_those_of_the_predictor_of_that_name():
    model = cnn_model()
    scores = model.scores(torch.randn(20, 1, 16, 16))
    assert torch.equal(model.sets(scores), model.predictors["lac"](scores))  # the one with a promise
    assert torch.equal(model.sets(scores, "average2"), model.predictors["average2"](scores))
    assert torch.equal(model.sets(scores, "lac"), model.predictors["lac"](scores))
    assert model.sets(scores, "top2").sum(1).tolist() == [2] * 20
    assert not torch.equal(model.sets(scores), model.sets(scores, "top2"))


# pictures


def photos(folder: Path) -> list[Path]:
    pixels = np.random.default_rng(1)
    modes = {"a.png": "RGB", "b.png": "L", "c.png": "RGBA", "d.jpg": "RGB", "e.png": "P"}
    for name, mode in modes.items():
        image = Image.fromarray(pixels.integers(0, 256, (40, 50, 3), dtype=np.uint8))
        image.convert(mode).save(folder / name)
    Image.fromarray(pixels.integers(0, 2**16, (30, 30), dtype=np.uint16)).save(folder / "f.png")
    return [folder / name for name in [*modes, "f.png"]]


def test_pictures_may_be_paths_pillow_images_or_tensors(tmp_path):
    model, paths = cnn_model(), photos(tmp_path)
    batch = model.prepare(paths)
    assert batch.shape == (6, 1, 16, 16)
    gray = Image.open(paths[1])  # of 50 x 40, the shorter side to 18, 16 of it
    half = 16 * 40 / 18 / 2
    box = (25 - half, 20 - half, 25 + half, 20 + half)
    cut = gray.resize((16, 16), Image.Resampling.BILINEAR, box=box)
    wanted = (torch.from_numpy(np.array(cut)) / 255 - 0.5) / 0.25
    torch.testing.assert_close(batch[1, 0], wanted)
    assert torch.equal(model.prepare([Image.open(path) for path in paths]), batch)
    assert torch.equal(model.prepare([str(paths[0]), batch[1], Image.open(paths[2])]), batch[:3])
    assert model.prepare(batch) is batch
    lists = model.short_lists(paths, "top2", at_least=3)
    assert lists == model.short_lists(iter(paths), "top2", at_least=3, batch_size=4)
    assert lists == model.short_lists(batch, "top2", at_least=3)
    assert [len(each) for each in lists] == [3] * 6
    scores = model.scores(batch)
    order = scores.argsort(1, descending=True)[:, :3].tolist()  # the scores contain the training priors
    assert [[c.index for c in each] for each in lists] == order
    chance = scores.softmax(1)
    got = [[c.probability for c in each] for each in lists]
    assert np.allclose(got, chance.gather(1, torch.tensor(order)), atol=1e-6)
    assert model.short_lists([]) == [] == model.short_lists(batch[:0])


def test_scores_that_are_no_numbers_have_no_list_and_all_else_has_the_same(tmp_path):
    model, paths = cnn_model(), photos(tmp_path)
    expected = model.short_lists(paths, "top2", at_least=3)
    for bad in (torch.nan, torch.inf, -torch.inf):
        scores = model.scores(model.prepare(paths)).clone()
        scores[2] = bad
        lists = model.lists(scores, "top2", at_least=3)
        assert lists[2] is None and [*lists[:2], *lists[3:]] == [*expected[:2], *expected[3:]]
    scores = model.scores(model.prepare(paths)).clone()
    scores[:, 1] = torch.nan  # of one class alone
    assert model.lists(scores) == [None] * len(paths)
    assert model.lists(scores[:0]) == []
    with pytest.raises(ValueError, match="scores must be numbers, got others for image 0"):
        of_known_scores().short_lists(torch.full((1, 3), torch.nan))


def test_candidates_of_scores_without_a_meaning_have_no_probability():
    model = Model.from_parts(nn.Identity(), TREES, predictors={"top1": TopK(1)})
    ((first, second),) = model.lists(torch.tensor([[0.3, 0.1, 0.2]]), at_least=2)
    assert (first.index, first.in_set, first.probability) == (0, True, None)
    assert (second.index, second.in_set, second.probability) == (2, False, None)


def test_batches_are_of_the_size_that_is_asked_for():
    model, sizes = cnn_model(), []
    model.network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    batch = torch.randn(10, 1, 16, 16)
    model.short_lists(batch, batch_size=4)
    model.short_lists(list(batch), batch_size=7)
    assert sizes == [4, 4, 2, 7, 3]


# what is refused


@pytest.mark.errors
def test_scores_of_unknown_meaning_give_no_probabilities(tmp_path):
    model = Model.from_parts(nn.Identity(), TREES, predictors={"top1": TopK(1)})
    rows = torch.tensor([[0.3, 0.1, 0.2]])
    assert torch.equal(model.scores(rows), rows)
    assert model.sets(model.scores(rows)).tolist() == [[True, False, False]]
    for refused in (
        lambda: model.probabilities(rows),
        lambda: model.short_lists(rows),
        lambda: model.export_onnx(tmp_path / "model.onnx", batch=rows),
    ):
        with pytest.raises(UnknownPriorError, match=r"score_map=ScoreMap\(3, contains=PriorRecord"):
            refused()
    assert not list(tmp_path.iterdir())


@pytest.mark.errors
def test_parts_that_do_not_go_together():
    spec = NetworkSpec(name="linear", num_classes=4, input_shape=(3,))
    for parts, message in [
        ({"head": "third"}, "head must be one of set, proposal, got 'third'"),
        ({"score_map": ScoreMap(4, contains=None)}, "score_map must be for the table's 3 classes, got 4"),
        ({"spec": spec}, "spec must be for the table's 3 classes, got 4"),
        ({"predictors": {"a": AverageK(2)}}, r"predictors\['a'\] must be calibrated"),
        (
            {"predictors": {"a": AverageK(2, activation="none").calibrate(torch.rand(9, 3))}},
            r"predictors\['a'\] must have activation='softmax', since the score map gives log-posteriors",
        ),
        (
            {"predictors": {"a": AverageK(2).calibrate(torch.randn(9, 4))}},
            r"predictors\['a'\] must be for the table's 3 classes, got 4",
        ),
        ({"predictors": {"a/b": TopK(1)}}, "predictors must have names of letters.* got 'a/b'"),
        ({"classifier": "fc"}, "name must be that of a module of the model, got 'fc'"),
        ({"about": {"when": object()}}, "about must have plain values for JSON"),
    ]:
        with pytest.raises(ValueError, match=message):
            of_known_scores(**parts)


@pytest.mark.errors
def test_bad_calls(tmp_path):
    model, plain = cnn_model(), of_known_scores(predictors={})
    batch = torch.randn(2, 1, 16, 16)
    scores = model.scores(batch)
    (tmp_path / "no image.png").write_text("no")
    for call, message in [
        (lambda: model.sets(scores, "top3"), "must be one of average2, top2, lac, got 'top3'"),
        (lambda: model.short_lists(batch, "top3"), "must be one of average2, top2, lac, got 'top3'"),
        (
            lambda: plain.sets(torch.randn(2, 3)),
            "predictor must be given to the model: it has none, got None",
        ),
        (lambda: model.short_lists(batch, batch_size=0), "batch_size must be an integer >= 1, got 0"),
        (lambda: model.prepare("a.png"), "images must be a sequence of images, got one str"),
        (lambda: model.short_lists(tmp_path), "images must be a sequence of images, got one PosixPath"),
        (lambda: model.prepare([]), "images must be at least one, got none"),
        (lambda: model.prepare([3]), "images must be paths, Pillow images, arrays or tensors, got a int"),
        (lambda: model.prepare([batch]), r"prepared, of shape \(1, 16, 16\), got \(2, 1, 16, 16\)"),
        (lambda: model.prepare([tmp_path / "no image.png"]), "no image.png cannot be read as an image"),
        (lambda: plain.prepare([tmp_path / "a.png"]), "got a PosixPath: the model has no preprocessing"),
        (
            lambda: plain.features(torch.randn(2, 3)),
            "name must be given where the classifier cannot be found",
        ),
        (
            lambda: plain.export_onnx(tmp_path / "a.onnx"),
            "batch must be given for a model that knows no shape",
        ),
        (lambda: plain.scores(torch.randn(2, 4)), "scores must have 3 classes, got 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()

    class Tupled(nn.Module):
        def forward(self, rows):
            return rows, rows

    with pytest.raises(ValueError, match=r"network must return scores .* got tuple"):
        Model.from_parts(Tupled(), TREES).scores(torch.randn(2, 3))


def test_the_model_is_in_evaluation_mode_and_moves_with_its_parts():
    model = cnn_model()
    assert not any(module.training for module in model.network.modules())
    assert model.device == torch.device("cpu") and model.to("cpu") is model
    model.to("meta")
    assert model.device == model.score_map.scale.device == torch.device("meta")
    assert model.predictors["average2"].threshold.device == torch.device("meta")
    scores = model.scores(torch.randn(3, 1, 16, 16))
    assert scores.device == model.probabilities(scores).device == torch.device("meta")
    assert model.probabilities(torch.randn(3, 6)).device == torch.device("meta")  # scores kept elsewhere
    elsewhere = Model.from_parts(nn.Linear(4, 3, device="meta"), TREES, score_map=ScoreMap(3, contains=None))
    assert elsewhere.scores(torch.randn(2, 4)).device == elsewhere.score_map.scale.device == model.device
    assert repr(model) == "Model(small_cnn, 6 classes, predictors: average2, top2, lac)"


# on disk


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("head", HEADS)
def test_saved_and_loaded_it_is_the_same_to_the_bit(head, tmp_path):
    model = cnn_model(head, head="proposal" if head == "two_head" else "set", about={"name": "birds", "n": 3})
    model.save(tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    state = torch.random.get_rng_state()
    again = Model.load(tmp_path / "saved")
    assert torch.equal(torch.random.get_rng_state(), state)  # opening a model draws nothing
    batch = torch.randn(9, 1, 16, 16)
    scores = model.scores(batch)
    assert torch.equal(again.scores(batch), scores)
    assert torch.equal(again.probabilities(scores), model.probabilities(scores))
    assert torch.equal(again.features(batch), model.features(batch))
    assert list(again.predictors) == ["average2", "top2", "lac"]
    for name in model.predictors:
        assert torch.equal(again.sets(scores, name), model.sets(scores, name))
    assert again.short_lists(batch, at_least=2) == model.short_lists(batch, at_least=2)
    assert again.score_map.to_dict() == model.score_map.to_dict()
    assert (again.classes, again.preprocessing, again.spec) == (SIX, PREPARE, model.spec)
    assert (again.head, again.classifier, again.about) == (model.head, None, {"name": "birds", "n": 3})
    assert not again.network.training


def test_the_folder_has_what_it_should(saved):
    states = {f"predictors/{load(path).__class__.__name__}" for path in (saved / "predictors").glob("*.json")}
    assert states == {"predictors/AverageK", "predictors/TopK", "predictors/Conformal"}
    names = {name for name in files_of(saved) if not name.startswith("predictors/")}
    tables = {"class_table.json", "score_map.json"}
    assert names == {"model.json", "README.md", "network.safetensors", *tables}
    content = json.loads((saved / "model.json").read_text())
    assert content["format"] == "shortlist model 6" and content["predictors"] == ["average2", "top2", "lac"]
    assert content["about"] == {"name": "trees", "version": 3}


def test_a_run_folder_has_its_model_inside(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "run" / "model")
    batch = torch.randn(4, 1, 16, 16)
    assert torch.equal(Model.load(tmp_path / "run").scores(batch), Model.load(str(saved)).scores(batch))


def test_a_network_of_ones_own_is_given_back_to_the_model(tmp_path):
    torch.manual_seed(1)
    table, batch = ClassTable(("a", "b")), torch.randn(5, 4)
    make = lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), CosineHead(4, 2))  # noqa: E731
    network = make()
    network.add_module("alias", network[0])  # under two names
    network.forward = lambda rows: network[2](network[1](network[0](rows)))
    model = Model.from_parts(network, table, classifier="2")
    model.save(tmp_path / "saved")
    with pytest.raises(ModelError, match=r"model.json .* pass it, Model.load\(folder, network=...\)"):
        Model.load(tmp_path / "saved")
    other = make()
    other.add_module("alias", other[0])
    other.forward = lambda rows: other[2](other[1](other[0](rows)))
    again = Model.load(tmp_path / "saved", network=other)
    assert again.network is other and torch.equal(again.scores(batch), model.scores(batch))
    assert again.features(batch).shape == (5, 4) and again.score_map.now is None
    with pytest.raises(ModelError, match=r"does not fit the weights in .*network.safetensors: the \w+ has"):
        Model.load(tmp_path / "saved", network=nn.Linear(4, 2))


def test_a_strangers_code_is_not_run(tmp_path, monkeypatch):
    code = 'from pathlib import Path\nPath(__file__).with_name("was run").touch()\n'
    (tmp_path / "strangers_code.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    cnn_model().save(tmp_path / "saved")
    description = read_sealed(tmp_path / "saved" / "model.json")
    description["network"]["name"] = "strangers_code:make"
    write_sealed(tmp_path / "saved" / "model.json", description)
    with pytest.raises(ModelError, match=r"model.json .* opening a model never runs code"):
        Model.load(tmp_path / "saved")
    assert not (tmp_path / "was run").exists() and "strangers_code" not in sys.modules
    given = cnn_model().network
    for parameter in given.parameters():
        nn.init.zeros_(parameter)
    batch = torch.randn(3, 1, 16, 16)
    assert torch.equal(Model.load(tmp_path / "saved", network=given).scores(batch), cnn_model().scores(batch))


CARD = {"README.md"}  # for people: a model opens without it, and the doctor looks at it


@pytest.mark.errors
def test_every_missing_file_is_named(saved, tmp_path):
    for number, name in enumerate(sorted(files_of(saved) - CARD)):
        copy = shutil.copytree(saved, tmp_path / str(number))
        (copy / name).unlink()
        with pytest.raises(ModelError) as error:
            Model.load(copy)
        wanted = copy if name == "model.json" else copy / name
        assert str(wanted) in str(error.value), name
        assert "model.json" in str(error.value) or name != "model.json"


@pytest.mark.errors
def test_every_damaged_file_is_named(saved, tmp_path):
    for number, name in enumerate(sorted(files_of(saved) - CARD)):
        for damage in ("cut short", "other"):
            copy = shutil.copytree(saved, tmp_path / f"{number} {damage}")
            content = (copy / name).read_bytes()
            (copy / name).write_bytes(content[: len(content) // 2] if damage == "cut short" else b"{}")
            with pytest.raises(ModelError) as error:
                Model.load(copy)
            assert Path(name).name in str(error.value), (name, damage)


@pytest.mark.errors
def test_other_formats_and_parts_of_other_models(saved, tmp_path):
    with pytest.raises(ModelError, match="nowhere is not a folder with a saved model: there is none"):
        Model.load(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"is not a folder with a saved model: it has no model.json"):
        Model.load(tmp_path)
    description = read_sealed(saved / "model.json")
    smaller = of_known_scores()
    smaller.save(tmp_path / "smaller")
    changes = {
        "model.json": [
            ({"format": "shortlist model 9"}, "its format is 'shortlist model 9', not 'shortlist model 6'"),
            ({"predictors": ["../../x"]}, r"got '../../x'"),
            ({"predictors": "average2"}, "predictors must be a list, got str"),
            ({"extra": 1}, "it must have about, classifier"),
            ({"head": "both"}, "head must be one of set, proposal, got 'both'"),
            ({"network": description["network"] | {"num_classes": 5}}, "network.safetensors"),
            ({"preprocessing": {"height": 3}}, "preprocessing must have exactly"),
        ],
    }
    for number, (change, message) in enumerate(changes["model.json"]):
        copy = shutil.copytree(saved, tmp_path / str(number))
        write_sealed(copy / "model.json", description | change)
        with pytest.raises(ModelError, match=message):
            Model.load(copy)
    for name in ("class_table.json", "score_map.json"):
        copy = shutil.copytree(saved, tmp_path / name)
        shutil.copy(tmp_path / "smaller" / name, copy / name)
        with pytest.raises(ModelError, match=rf"{name} is damaged or was changed"):
            Model.load(copy)
        write_description(copy, read_description(copy)[0])
        with pytest.raises(ModelError, match=r"parts that do not go together: .* must be for the table's"):
            Model.load(copy)


@pytest.mark.errors
def test_a_model_is_saved_to_a_new_folder_or_not_at_all(saved, tmp_path, monkeypatch):
    before = {name: (saved / name).read_bytes() for name in files_of(saved)}
    with pytest.raises(ModelError, match="saved exists: a model is saved to a new folder"):
        cnn_model("cosine").save(saved)
    assert {name: (saved / name).read_bytes() for name in files_of(saved)} == before

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("shortlist.model.files.save", fail)
    with pytest.raises(OSError, match="disk full"):
        cnn_model().save(tmp_path / "below" / "new")
    assert not list((tmp_path / "below").iterdir())


def test_parts_are_written_again_alone(saved, tmp_path):
    """As a run does that is calibrated again."""
    copy = shutil.copytree(saved, tmp_path / "copy")
    model = Model.load(copy)
    batch = torch.randn(8, 1, 16, 16)
    plain = ScoreMap(6, scale=3.0, contains=PriorRecord.training(SIX.class_counts))
    predictors = {"average3": AverageK(3).calibrate(torch.randn(50, 6)), "top2": TopK(1)}
    write_calibration(copy, "set", plain, predictors)
    again = Model.load(copy)
    assert list(again.predictors) == ["average3", "top2"] == read_description(copy)[0]["predictors"]
    raw = model.score_map.invert(model.scores(batch))
    torch.testing.assert_close(again.scores(batch), 3 * raw, rtol=1e-3, atol=1e-4)
    assert again.sets(again.scores(batch), "top2").sum(1).tolist() == [1] * 8
    assert len(list((copy / "predictors").iterdir())) == 4  # nothing of the old ones is left
    assert torch.equal(again.predictors["average3"].threshold, predictors["average3"].threshold)
    (copy / "network.safetensors").write_bytes(b"damaged")
    write_calibration(copy, "set", plain, predictors)  # which does not take it into the manifest
    with pytest.raises(ModelError, match=r"network.safetensors is damaged or was changed"):
        Model.load(copy)


HEAVY = "lightning pydantic yaml torchmetrics matplotlib torchvision timm PIL pyarrow".split()


def test_loading_imports_nothing_that_trains(saved):
    code = (
        "import sys, torch, shortlist; from shortlist.model import Model; "
        f"model = Model.load({str(saved)!r}); lists = model.short_lists(torch.zeros(2, 1, 16, 16)); "
        f"print(len(lists), [name for name in {HEAVY} if name in sys.modules], "
        "[name for name in sys.modules if name.startswith('shortlist.training')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "2 [] []"


def test_what_trains_comes_when_it_is_asked_for():
    code = (
        "import sys, shortlist; print(set(shortlist.__all__) <= set(dir(shortlist)), "
        "'pydantic' in sys.modules, shortlist.Recipe.__module__, 'pydantic' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False", "shortlist.recipes.recipe", "True"]
    with pytest.raises(AttributeError, match="shortlist attribute nothing"):
        _ = shortlist.nothing


# ONNX


QUICK = [("linear", "top2"), ("cosine", "average2"), ("two_head", "lac")]
PAIRS = [(head, predictor) for head in HEADS for predictor in ("average2", "top2", "lac")]


@pytest.mark.parametrize(
    ("head", "predictor"),
    [pytest.param(*pair, marks=[] if pair in QUICK else [pytest.mark.slow]) for pair in PAIRS],
)
def test_onnx_says_the_same(head, predictor, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = cnn_model(head)
    model.export_onnx(tmp_path / "model.onnx", predictor=predictor)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["inputs"]
    assert [each.name for each in session.get_outputs()] == ["scores", "probabilities", "sets"]
    for rows in (1, 33):
        batch = torch.randn(rows, 1, 16, 16)
        scores, probabilities, sets = (
            torch.from_numpy(each) for each in session.run(None, {"inputs": batch.numpy()})
        )
        wanted = model.scores(batch)
        torch.testing.assert_close(scores, wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(probabilities, model.probabilities(wanted), rtol=1e-4, atol=1e-5)
        assert torch.equal(sets, model.sets(wanted, predictor))
    assert wanted.std() > 0.5 and 0 < sets.float().mean() < 1


def test_onnx_of_vectors_without_sets(tmp_path):
    """Scores under balanced priors, probabilities under the training priors; one row shows the shape."""
    onnxruntime = pytest.importorskip("onnxruntime")
    training = PriorRecord.training(TREES.class_counts)
    model = Model.from_parts(
        nn.Linear(4, 3), TREES, score_map=ScoreMap(3, contains=training).under("balanced")
    )
    model.export_onnx(tmp_path / "model.onnx", batch=torch.randn(1, 4))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    batch = torch.randn(5, 4)
    scores, probabilities = (torch.from_numpy(each) for each in session.run(None, {"inputs": batch.numpy()}))
    with torch.no_grad():
        raw = model.network(batch)
    torch.testing.assert_close(probabilities, raw.softmax(1))
    log_balanced = raw - torch.tensor([0.6, 0.3, 0.1]).log()
    torch.testing.assert_close(scores.log_softmax(1), log_balanced.log_softmax(1))


@pytest.mark.errors
def test_onnx_of_an_own_head_takes_an_array_that_shows_the_shape(tmp_path):
    pytest.importorskip("onnxscript")
    head = nn.Linear(4, 3)
    model = Model.from_parts(head, TREES, score_map=ScoreMap(3, contains=PriorRecord.balanced(3)))
    with pytest.raises(ValueError, match=r"export_onnx\(path, batch=inputs\[:2\]\)"):
        model.export_onnx(tmp_path / "a.onnx")
    with pytest.raises(ValueError, match="with 4 values in a row"):
        model.export_onnx(tmp_path / "a.onnx", batch=np.zeros((2, 5)))
    model.export_onnx(tmp_path / "a.onnx", batch=np.zeros((2, 4)))
    onnx = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "a.onnx")
    rows = torch.randn(5, 4)
    torch.testing.assert_close(torch.tensor(onnx.run(None, {"inputs": rows.numpy()})[0]), model.scores(rows))


def test_onnx_is_written_whole_or_not_at_all(tmp_path):
    class Refuses(nn.Module):
        def forward(self, rows):
            return rows * float(rows.sum())  # not known before it runs

    (tmp_path / "model.onnx").write_text("before")
    model = Model.from_parts(Refuses(), TREES, score_map=ScoreMap(3, contains=PriorRecord.balanced(3)))
    with pytest.raises(Exception):  # noqa: B017  of whatever kind the exporter's is
        model.export_onnx(tmp_path / "model.onnx", batch=torch.ones(2, 3))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


# networks of one's own, named by the caller


def make_tiny(num_classes: int = 6, **_) -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, num_classes))


def test_a_network_that_the_caller_names_is_made_and_filled(tmp_path):
    network = make_tiny()
    nn.init.normal_(network[1].weight)
    Model.from_parts(network, SIX, score_map=adjusted_map()).save(tmp_path / "model")
    with pytest.raises(ModelError, match="does not say how the network is built"):
        Model.load(tmp_path / "model")
    made = network_by_name(tmp_path / "model", "tests.model.test_model:make_tiny")
    loaded = Model.load(tmp_path / "model", network=made)
    batch = torch.randn(5, 1, 4, 4)
    assert torch.equal(
        loaded.scores(batch), Model.from_parts(network, SIX, score_map=adjusted_map()).scores(batch)
    )


@pytest.mark.errors
@pytest.mark.parametrize(
    "name", ["tests.model.test_model:nothing", "tests.test_model", "no_such_module:f", ":"]
)
def test_a_network_that_cannot_be_made_is_named(name, tmp_path):
    Model.from_parts(make_tiny(), SIX).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"network must be package.module:function|cannot be imported"):
        network_by_name(tmp_path / "model", name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_of_any_precision_take_images_as_they_come(dtype):
    network = make_tiny().to(dtype)
    batch = torch.randn(5, 1, 4, 4)
    expected = network(batch.to(dtype)).float()
    assert torch.equal(Model.from_parts(network, SIX).scores(batch), expected)


# what is kept of calibration rows


def some_rows() -> tuple[torch.Tensor, torch.Tensor]:
    scores = 2 * torch.randn(80, 6)
    return scores, torch.multinomial(scores.softmax(1), 1).squeeze(1)


def test_calibration_rows_are_saved_with_the_model(tmp_path):
    scores, target = some_rows()
    columns = {"observation": [f"o{i // 2}" for i in range(80)], "organ": ["leaf", "bark"] * 40}
    rows = keep_rows(scores, target, adjusted_map(), SIX, RowFacts.of_columns(columns))
    cnn_model(calibration_rows=rows).save(tmp_path / "with")
    cnn_model().save(tmp_path / "without")
    again = Model.load(tmp_path / "with").calibration_rows
    assert again.to_tensors().keys() == rows.to_tensors().keys()
    for name, tensor in rows.to_tensors().items():
        assert torch.equal(again.to_tensors()[name], tensor), name
    assert again.facts.groups["organ"][1] == ("bark", "leaf")
    assert Model.load(tmp_path / "without").calibration_rows is None
    (tmp_path / "with" / "calibration_rows.safetensors").unlink()
    with pytest.raises(ModelError, match=r"calibration_rows\.safetensors is missing"):
        Model.load(tmp_path / "with")


def test_calibration_rows_are_read_when_they_are_first_needed(tmp_path, monkeypatch):
    rows = keep_rows(*some_rows(), adjusted_map(), SIX)
    cnn_model(calibration_rows=rows).save(tmp_path / "m")
    path, checked = tmp_path / "m" / "calibration_rows.safetensors", []
    check = saved_module.check_file
    monkeypatch.setattr(saved_module, "check_file", lambda *words: checked.append(words[1]) or check(*words))
    model = Model.load(tmp_path / "m")
    assert "network.safetensors" in checked and path.name not in checked
    model.lists(torch.randn(2, 6), Choice(top=2))
    assert checked.count(path.name) == 1
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # as long as before
    damaged = Model.load(tmp_path / "m")
    for lists in (Choice(top=2), Choice(coverage=0.5)):
        with pytest.raises(ModelError, match=r"calibration_rows\.safetensors is damaged or was changed"):
            damaged.lists(torch.randn(2, 6), lists)
    assert [finding.file for finding in examine_model(tmp_path / "m")] == [path.name]
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelError, match=r"calibration_rows\.safetensors is damaged or was changed"):
        Model.load(tmp_path / "m")
    path.write_bytes(whole)
    again = pickle.loads(pickle.dumps(Model.load(tmp_path / "m")))
    assert torch.equal(again.calibration_rows.log_p, rows.log_p)


def test_rows_know_the_priors_of_their_scores():
    scores, target = some_rows()
    rows = keep_rows(scores, target, adjusted_map(), SIX)
    assert torch.allclose(rows.priors, adjusted_map().now.priors)
    assert torch.allclose(rows.frequencies, SIX.class_counts.double() / sum(SIX.counts))
    assert keep_rows(scores, torch.full((80,), -100), adjusted_map(), SIX) is None


@pytest.mark.parametrize("kind", HEADS)
def test_scores_and_features_come_from_one_pass(kind):
    model, batch = cnn_model(kind), torch.randn(5, 1, 16, 16)
    calls = []
    model.network.register_forward_hook(lambda *_: calls.append(1))
    scores, features = model.scores_and_features(batch)
    assert len(calls) == 1
    assert torch.equal(scores, model.scores(batch)) and torch.equal(features, model.features(batch))


@pytest.mark.errors
def test_calibration_rows_must_be_of_the_same_classes():
    rows = keep_rows(*some_rows(), adjusted_map(), SIX)
    with pytest.raises(ValueError, match="calibration_rows must be for the table's 3 classes, got 6"):
        of_known_scores(calibration_rows=rows)


def test_a_network_that_is_missing_or_does_not_fit_is_no_damage(tmp_path):
    Model.from_parts(nn.Linear(4, 3), TREES).save(tmp_path / "m")
    for network, said in (
        (None, "model.json alone does not make a network: the file does not say how the network is built"),
        (nn.Linear(5, 3), r"weight has the shape \(3, 5\) in the network, and \(3, 4\) in the file"),
        (nn.Linear(4, 3, bias=False), r"the file has bias of shape \(3,\), the network does not"),
        (nn.Sequential(nn.Linear(4, 3)), r"the network has 0.weight of shape \(3, 4\), the file does not"),
    ):
        with pytest.raises(ModelError, match=said) as caught:
            Model.load(tmp_path / "m", network=network)
        assert "damaged" not in str(caught.value)


def test_arrays_are_taken_by_every_method(tmp_path):
    model, rows = cnn_model(), np.random.default_rng(0).normal(size=(5, 1, 16, 16))
    batch = torch.tensor(rows).float()
    scores = model.scores(batch)
    array = scores.numpy()
    assert torch.equal(model.scores(rows), scores)
    assert torch.equal(model.features(rows), model.features(batch))
    assert torch.equal(model.scores_and_features(rows)[0], scores)
    assert torch.equal(model.sets(array, "lac"), model.sets(scores, "lac"))
    assert torch.equal(model.probabilities(array), model.probabilities(scores))
    assert torch.equal(model.shown(array), model.shown(scores))
    assert model.lists(array, "top2") == model.short_lists(rows, "top2")


@pytest.mark.errors
def test_inputs_of_another_shape_are_refused_with_both_shapes():
    parts = {"score_map": ScoreMap(3, contains=PriorRecord.balanced(3)), "predictors": {"top1": TopK(1)}}
    of_vectors = Model.from_parts(nn.Sequential(nn.Linear(8, 3)), TREES, **parts)
    rows = torch.randn(4, 8)
    for batch, said in (
        (rows[0], r"inputs must be a batch \(n, ...\), got \(8,\): one input is batch\[:1\]"),
        (rows[:3, :5], r"inputs must be \(n, ...\) with 8 values in a row, .* got \(3, 5\)"),
    ):
        for given in (batch, batch.numpy()):
            for method in (of_vectors.scores, of_vectors.short_lists):
                with pytest.raises(ValueError, match=said):
                    method(given)
    network = nn.Sequential(nn.Conv2d(1, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    parts = {"preprocessing": PREPARE, "score_map": adjusted_map(), "predictors": {"top2": TopK(2)}}
    of_images = Model.from_parts(network, SIX, **parts)
    with pytest.raises(ValueError, match=r"a batch \(n, 1, 16, 16\), got \(1, 16, 16\)"):
        of_images.scores(torch.zeros(1, 16, 16))
    with pytest.raises(
        ValueError, match=r"must be \(n, 1, 16, 16\), as the model takes them, got \(2, 3, 16, 16\)"
    ):
        of_images.short_lists(torch.zeros(2, 3, 16, 16))
    with pytest.raises(ValueError, match=r"got one picture \(20, 20, 3\): put it in a list"):
        of_images.short_lists(np.zeros((20, 20, 3), dtype=np.uint8))
    assert of_images.scores(torch.zeros(2, 1, 32, 32)).shape == (2, 6)  # a network of any size of image


@pytest.mark.errors
def test_a_network_of_another_number_of_classes_is_refused_where_that_is_sure():
    for network in (
        nn.Linear(8, 2),
        nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(8, 2))),
        CosineHead(8, 2),
    ):
        with pytest.raises(ValueError, match="network must give scores of the table's 3 classes, got 2"):
            Model.from_parts(network, TREES)
    Model.from_parts(nn.Sequential(nn.Linear(8, 2), nn.ReLU()), TREES)  # who knows


def test_the_hint_on_unknown_scores_can_be_pasted():
    model = Model.from_parts(nn.Linear(8, 3), TREES, predictors={"top1": TopK(1)})
    with pytest.raises(UnknownPriorError) as caught:
        model.short_lists(torch.zeros(1, 8))
    hint = "ScoreMap(3, contains=PriorRecord.training(class_counts))"
    assert hint in str(caught.value) and "fit_temperature_and_prior" in str(caught.value)
    made = eval(hint, {"ScoreMap": ScoreMap, "PriorRecord": PriorRecord, "class_counts": TREES.class_counts})
    known = Model.from_parts(model.network, TREES, score_map=made, predictors=model.predictors)
    assert len(known.short_lists(torch.zeros(1, 8))) == 1
