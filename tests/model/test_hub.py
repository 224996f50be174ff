"""Models on the Hugging Face hub, by the hub's real client and a hub on loopback."""

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from shortlist import ClassTable, Model, Preprocessing
from shortlist.metrics import evaluate
from shortlist.model import ModelError
from shortlist.models import NetworkSpec, build_network
from shortlist.predictors import AverageK, Conformal, TopK
from shortlist.scores import PriorRecord, ScoreMap
from tests.hub_server import TOKEN, running_hub

pytest.importorskip("huggingface_hub")
from huggingface_hub import ModelCard, constants

DATASETS = Path(sys.prefix) / "peers"  # where `make slow` puts the package datasets
# the client's own use of a deprecated argument of httpx
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
TABLE = ClassTable(("oak", "ash", "elm", "fir"), counts=(300, 120, 40, 8))
PREPARE = Preprocessing(height=16, width=16, resize=None, mean=(0.5,) * 3, std=(0.5,) * 3)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with running_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "cache"))
        yield server


def make_model(seed=0, **predictors):
    spec = NetworkSpec(name="small_cnn", options={"width": 4}, num_classes=4, input_shape=(3, 16, 16))
    torch.manual_seed(seed)
    network = build_network(spec)
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(400, 4, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    predictors = predictors or {
        "c90": Conformal(0.9).calibrate(scores[:200], target[:200]),
        "average2": AverageK(2).calibrate(scores[:200]),
    }
    results = evaluate(scores[200:], target[200:], predictors, TABLE)
    return Model.from_parts(
        network, TABLE, preprocessing=PREPARE, spec=spec, predictors=predictors,
        score_map=ScoreMap(4, contains=PriorRecord.training(TABLE.class_counts)),
        promises={name: found.promise for name, found in results.sets.items()},
        about={"name": "trees", "license": "MIT", "data": "trees of a park"},
    )  # fmt: skip


def images(rows=16):
    return torch.randn(rows, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def test_a_model_makes_the_same_lists_after_the_round_trip(hub, tmp_path):
    model = make_model()
    commit = model.push_to_hub("ada/trees", token=TOKEN)
    again = Model.from_pretrained("hf:ada/trees")
    assert torch.equal(again.scores(images()), model.scores(images()))
    for name in model.predictors:
        assert again.short_lists(images(), name) == model.short_lists(images(), name)
    assert again.promises == model.promises and again.about == model.about
    # what was pushed is what save writes, in one commit, with weights as linked files
    model.save(tmp_path / "saved")
    sha, files = hub.hub.files("ada/trees", "main")
    assert sha == commit and len(hub.hub.branches["ada/trees"]) == 1
    saved = {
        str(p.relative_to(tmp_path / "saved")): p for p in (tmp_path / "saved").rglob("*") if p.is_file()
    }
    assert set(files) == {*saved, ".gitattributes"}
    # names of states are drawn anew with each save; the network, the classes and the figure are the same
    for name in ("network.safetensors", "class_table.json", "score_map.json", "coverage.svg", "README.md"):
        assert files[name] == saved[name].read_bytes()
    assert ModelCard(files["README.md"].decode()).data.license == "mit"
    assert any(path.startswith("lfs/") for _, path in hub.hub.requests)


def test_a_second_push_replaces_the_model_and_a_revision_opens_the_first(hub):
    first, second = make_model(0), make_model(1, top2=TopK(2))
    old = first.push_to_hub("ada/trees", token=TOKEN)
    second.push_to_hub("ada/trees", token=TOKEN)
    _, files = hub.hub.files("ada/trees", "main")
    assert [name for name in files if name.startswith("predictors/") and name.endswith(".json")] == [
        "predictors/top2.json"
    ]
    assert torch.equal(Model.from_pretrained("hf:ada/trees").scores(images()), second.scores(images()))
    again = Model.from_pretrained("hf:ada/trees", revision=old)
    assert torch.equal(again.scores(images()), first.scores(images()))
    first.push_to_hub("ada/trees", revision="trial", token=TOKEN)
    assert (
        Model.from_pretrained("hf:ada/trees", revision="trial").predictors.keys() == first.predictors.keys()
    )
    assert Model.from_pretrained("hf:ada/trees").predictors.keys() == {"top2"}


def test_a_folder_opens_too_and_has_no_revision(tmp_path):
    model = make_model()
    model.save(tmp_path / "trees")
    again = Model.from_pretrained(tmp_path / "trees")
    assert torch.equal(again.scores(images()), model.scores(images()))
    with pytest.raises(ValueError, match="revision goes with a repository"):
        Model.from_pretrained(tmp_path / "trees", revision="main")


def test_a_private_model_needs_the_token(hub):
    make_model().push_to_hub("ada/secret", private=True, token=TOKEN)
    with pytest.raises(ModelError, match="hf:ada/secret cannot be fetched"):
        Model.from_pretrained("hf:ada/secret", token="hf_wrong")
    assert Model.from_pretrained("hf:ada/secret", token=TOKEN).classes == TABLE
    with pytest.raises(Exception, match="401"):
        make_model().push_to_hub("ada/trees", token="hf_wrong")


@pytest.mark.errors
@pytest.mark.parametrize(
    "name", ["network.safetensors", "class_table.json", "predictors/c90.json", "model.json"]
)
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_files_that_are_cut_changed_or_gone_are_refused(hub, name, damage):
    make_model().push_to_hub("ada/trees", token=TOKEN)
    _, files = hub.hub.files("ada/trees", "main")
    data = files[name]
    files = {**files, name: data[:-5] if damage == "cut" else data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]}
    if damage == "gone":
        del files[name]
    hub.hub.commit("ada/trees", "main", files)
    with pytest.raises(ModelError, match=name):
        Model.from_pretrained("hf:ada/trees")


class Trap:
    def __reduce__(self):
        return (os.mkdir, ("was run",))


@pytest.mark.errors
def test_a_strangers_repository_runs_no_code(hub, tmp_path, monkeypatch):
    """Neither a pickle, nor a module beside the model, nor a network that is named in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "strangers.py").write_text("import os\nos.mkdir('was run')\ndef make(**_): ...\n")
    model = make_model()
    named = NetworkSpec(name="strangers:make", num_classes=4, input_shape=(3, 16, 16))
    parts = {"preprocessing": PREPARE, "score_map": model.score_map, "predictors": model.predictors}
    Model.from_parts(model.network, TABLE, spec=named, **parts).push_to_hub("eve/trees", token=TOKEN)
    _, files = hub.hub.files("eve/trees", "main")
    evil = {"pytorch_model.bin": pickle.dumps(Trap()), "strangers.py": b"import os; os.mkdir('was run')"}
    hub.hub.commit("eve/trees", "main", {**files, **evil})
    with pytest.raises(ModelError, match="strangers:make"):
        Model.from_pretrained("hf:eve/trees")
    assert not (tmp_path / "was run").exists() and "strangers" not in sys.modules
    fetched = {path.name for path in (tmp_path / "cache" / "hub").rglob("*")}
    assert "model.json" in fetched and not fetched & set(evil)
    again = Model.from_pretrained("hf:eve/trees", network=make_model(5).network)  # the caller's own
    assert torch.equal(again.scores(images()), model.scores(images()))


@pytest.mark.errors
def test_what_is_no_model_is_refused_by_name(hub):
    hub.hub.branches["ada/other"] = {}
    hub.hub.commit("ada/other", "main", {"config.json": b"{}"})
    for source, message in (
        ("hf:ada/other", "holds no model of shortlist"),
        ("hf:ada/nothing", "cannot be fetched"),
        ("hf:trees", "user/name"),
        ("ada/trees", "a model of the hub is hf:ada/trees"),
        ("hf:../../etc/passwd", "user/name"),
    ):
        with pytest.raises(ValueError, match=message):
            Model.from_pretrained(source)
    with pytest.raises(ValueError, match="user/name"):
        make_model().push_to_hub("trees", token=TOKEN)
    with pytest.raises(ModelError, match="cannot be fetched"):
        Model.from_pretrained("hf:ada/other", revision="nowhere")


@pytest.mark.slow
def test_another_process_opens_it_by_the_address_of_the_hub(hub, tmp_path):
    model = make_model()
    model.push_to_hub("ada/trees", token=TOKEN)
    torch.save(images(), tmp_path / "images.pt")
    code = (
        "import json, sys, torch\nfrom shortlist import Model\n"
        "lists = Model.from_pretrained('hf:ada/trees').short_lists(torch.load(sys.argv[1]), 'c90')\n"
        "print(json.dumps([[(c.name, c.probability) for c in one] for one in lists]))"
    )
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
    command = [sys.executable, "-c", code, str(tmp_path / "images.pt")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = [[[c.name, c.probability] for c in one] for one in model.short_lists(images(), "c90")]
    assert json.loads(run.stdout) == expected


def test_models_of_ones_own_network_say_what_they_need(hub):
    parts = {"score_map": ScoreMap(4, contains=PriorRecord.training(TABLE.class_counts))}
    Model.from_parts(nn.Linear(3, 4), TABLE, **parts).push_to_hub("ada/linear", token=TOKEN)
    with pytest.raises(ModelError, match="make the network yourself"):
        Model.from_pretrained("hf:ada/linear")
    assert Model.from_pretrained("hf:ada/linear", network=nn.Linear(3, 4)).classes == TABLE


@pytest.mark.parametrize("form", ["images", "datasets"])
def test_the_guide_runs(hub, tmp_path, monkeypatch, form):
    """With a hub on loopback; its last block with the real package, where it is installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    make_model().save("runs/trees")
    pictures = [Image.new("RGB", (20, 20), (10 * number, 99, 0)) for number in range(5)]
    pictures[0].save("photo.jpg")
    if form == "datasets":
        if DATASETS.is_dir():
            monkeypatch.syspath_prepend(str(DATASETS))
        datasets = pytest.importorskip("datasets")
        features = datasets.Features({"image": datasets.Image()})
        dataset = datasets.Dataset.from_dict({"image": pictures}, features=features)
    else:
        dataset = {"image": pictures}
    page = Path(__file__).parents[2] / "docs" / "guides" / "hugging_face.md"
    names: dict = {"dataset": dataset}
    for code in re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(), flags=re.S):
        exec(code, names)
    assert names["lists"] == names["again"].short_lists(pictures)
    assert names["pinned"].classes == TABLE
