"""Code that a recipe names runs when it is asked for, and never when somebody's run is merely used."""

import json
import sys
from collections import OrderedDict

import pytest
import torch
import yaml
from torch import nn

import shortlist.cli
from shortlist import Model
from shortlist._store.manifest import read_sealed, write_sealed
from shortlist.recipes import code
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.folder import RunFolder
from shortlist.runs.network import load_network
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_again, calibrate_run
from shortlist.suites.run import run_suite
from shortlist.suites.suite import Suite, SuiteError
from shortlist.training.fit import resume, train
from tests.run_factory import seal
from tests.training.small import RECIPE, silent, write_recipe

NETS = """
from collections import OrderedDict
from pathlib import Path
from torch import nn
Path(__file__).with_name("imported").touch()
def make(num_classes, width=8):
    return nn.Sequential(OrderedDict(body=nn.Linear(5, width), fc=nn.Linear(width, num_classes)))
class Notes:
    def __init__(self, folder):
        raise ValueError(f"no notes in {folder.name}")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A user's own package with a network, in the current folder and nowhere else; no settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "nets.py").write_text(NETS)
    yield tmp_path / "own_package"
    for name in [name for name in sys.modules if name.startswith("own_package")]:
        del sys.modules[name]


@pytest.fixture
def attack(tmp_path):
    """A model that runs a shell command when it is made, and the file that this would leave."""
    mark = tmp_path / "a stranger was here"
    return {"name": "os:spawnvp", "file": "touch", "args": ["touch", str(mark)]}, mark


def trust(tmp_path, *names):
    (tmp_path / "settings" / "shortlist").mkdir(parents=True)
    (tmp_path / "settings" / "shortlist" / "settings.yaml").write_text(
        yaml.safe_dump({"trusted_code": [*names]})
    )


def command(monkeypatch, capsys, *words):
    """Exit code and stderr of a command, in this process."""
    monkeypatch.setattr(sys, "argv", ["shortlist", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        shortlist.cli.main()
    return stop.value.code or 0, capsys.readouterr().err


def own_recipe(**changes):
    return make_recipe(RECIPE | {"model": {"name": "own_package.nets:make"}, "epochs": 1} | changes)


def test_a_shell_command_as_a_model_is_refused_before_anything_is_made(
    attack, package, tmp_path, monkeypatch, capsys
):
    model, mark = attack
    recipe = write_recipe(tmp_path, model=model, data={"name": "image_folder", "root": "is not read"})
    code, said = command(monkeypatch, capsys, "train", recipe, "--out", tmp_path / "run")
    assert code == 2 and said.count("\n") == 1
    assert "model.name is 'os:spawnvp'" in said and "--allow-code" in said
    assert not mark.exists() and not (tmp_path / "run").exists()


def test_a_strangers_run_never_runs_its_code(attack, package, tmp_path, monkeypatch, capsys):
    model, mark = attack
    run = train(make_recipe(RECIPE | {"epochs": 1}), tmp_path / "run", progress=silent)
    recipe = yaml.safe_load((run.path / "recipe.yaml").read_text())
    (run.path / "recipe.yaml").write_text(yaml.safe_dump(recipe | {"model": model}))
    description = read_sealed(run.path / "model" / "model.json")
    options = {key: value for key, value in model.items() if key != "name"}
    description["network"] |= {"name": model["name"], "options": options}
    write_sealed(run.path / "model" / "model.json", description)
    seal(run)  # as the stranger would
    scores = run.path / "scores" / "test.safetensors"
    inputs = tmp_path / "inputs.csv"
    inputs.write_text("path\nnothing.png\n")
    for words in (
        ("evaluate", run.path),
        ("calibrate", run.path),
        ("calibrate", run.path, "--set", "adjust.tau=cross_fit"),
        ("predict", run.path, inputs, "--out", tmp_path / "lists.csv"),
        ("predict", run.path, scores, "--out", tmp_path / "lists.csv"),
        ("compare", run.path),
        ("report", run.path, "--out", tmp_path / "page.html"),
    ):
        monkeypatch.setattr(sys, "argv", ["shortlist", *map(str, words)])
        with pytest.raises(SystemExit):
            shortlist.cli.main()
        assert not mark.exists(), words
    said = capsys.readouterr().err
    assert said.count("opening a model never runs code that is named in it") == 3, said
    info = Run.open(run.path).info
    for state in ("started", "trained"):
        changed = {key: value for key, value in info.items() if key != "training"} | {"state": state}
        write_sealed(run.path / "run.json", changed)
        code, said = command(monkeypatch, capsys, "train", "--resume", run.path)
        assert code == 2 and "model.name is 'os:spawnvp'" in said and not mark.exists()
    for opens in (Model.load, lambda path: load_network(Run.open(path))):
        with pytest.raises(ValueError, match=r"never runs code|go on with"):
            opens(run.path)
    assert not mark.exists()


def test_loggers_are_code_too(package, tmp_path, monkeypatch, capsys):
    with pytest.raises(ValueError, match=r"loggers is 'own_package.nets:Notes'.*--allow-code"):
        train(make_recipe(RECIPE, ["loggers=[csv, 'own_package.nets:Notes']"]), tmp_path / "run")
    assert not (package / "imported").exists() and not (tmp_path / "run").exists()
    recipe = write_recipe(tmp_path, loggers=["own_package.nets:Notes"])
    words = ("train", recipe, "--out", tmp_path / "run", "--allow-code")
    code, said = command(monkeypatch, capsys, *words)
    assert (
        code == 2 and "loggers: own_package.nets:Notes cannot be made (ValueError: no notes in logs)" in said
    )
    assert said.count("\n") == 1 and not (tmp_path / "run").exists()


@pytest.mark.errors
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Logger", "loggers needs no_such_module, which cannot be imported"),
        ("json:Logger", "loggers must be package.module:function, got 'json:Logger'"),
    ],
)
def test_a_wrong_logger_is_one_line_before_the_data_are_read(name, message, tmp_path, monkeypatch, capsys):
    recipe = write_recipe(tmp_path, loggers=[name], data={"name": "image_folder", "root": "is not read"})
    code, said = command(monkeypatch, capsys, "train", recipe, "--allow-code", "--out", tmp_path / "run")
    assert code == 2 and said.count("\n") == 1 and message in said


def test_the_flag_runs_code_from_the_current_folder(package, tmp_path, monkeypatch, capsys):
    recipe = write_recipe(tmp_path, model={"name": "own_package.nets:make", "width": 6}, epochs=1)
    monkeypatch.setattr(
        sys, "argv", ["shortlist", "train", str(recipe), "--out", str(tmp_path / "run"), "--allow-code"]
    )
    with pytest.raises(SystemExit) as stop:
        shortlist.cli.main()
    assert not stop.value.code, capsys.readouterr().err
    run = Run.open(tmp_path / "run")
    assert run.state == "finished" and (package / "imported").exists()
    with pytest.raises(ValueError, match="never runs code"):
        load_network(run)
    loaded = load_network(run, allow_code=True)
    assert loaded[0].out_features == 6
    RunFolder(run.path).set_state("trained")
    with pytest.raises(ValueError, match=r"model.name is 'own_package.nets:make'"):
        resume(run.path, progress=silent)
    assert resume(run.path, progress=silent, allow_code=True).state == "finished"


def test_folds_of_an_own_network_take_the_network_that_is_given(package, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    adjust = {"tau": "cross_fit"}
    run = train(own_recipe(adjust=adjust), tmp_path / "run", progress=silent, allow_code=True)
    folds = run.path / "scores" / "folds.safetensors"
    expected, _ = run.load_scores("folds")
    folds.unlink()
    with pytest.raises(ValueError, match="never runs code that is named in it"):
        calibrate_run(run)
    words = ("calibrate", run.path, "--network", "own_package.nets:make")
    code, said = command(monkeypatch, capsys, *words)
    assert code == 0, said
    assert torch.equal(run.load_scores("folds")[0], expected)


def test_a_trusted_package_needs_no_flag(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    trust(tmp_path, "own_package")
    assert train(own_recipe(), tmp_path / "run", progress=silent).state == "finished"
    with pytest.raises(ValueError, match="never runs code"):
        Model.load(tmp_path / "run")  # what is opened names its code, not the user
    network = nn.Sequential(OrderedDict(body=nn.Linear(5, 8), fc=nn.Linear(8, 12)))
    assert len(Model.load(tmp_path / "run", network=network).classes) == 12


@pytest.mark.errors
@pytest.mark.parametrize("name", ["own_package2.nets:make", "os:own_package", "own:make"])
def test_trust_does_not_spread(name, package, tmp_path):
    trust(tmp_path, "own_package")
    with pytest.raises(ValueError, match="can run code that does not come with shortlist"):
        train(own_recipe(model={"name": name}), tmp_path / "run")


@pytest.mark.parametrize(
    "options",
    [
        {"name": "timm:hf-hub:stranger/model"},
        {"name": "timm:local-dir:/somewhere"},
        {"name": "timm:resnet18", "checkpoint_path": "own_package:weights.pt"},
        {"name": "timm:resnet18", "pretrained": True, "pretrained_cfg_overlay": {"file": "weights.pt"}},
        {"name": "timm:resnet18", "pretrained": True, "pretrained_cfg": {"url": "http://stranger"}},
    ],
)
def test_files_and_addresses_that_timm_may_unpickle_are_code(options, package, tmp_path):
    trust(tmp_path, "own_package")
    key = "name" if len(options) == 1 else [*options][-1]
    with pytest.raises(ValueError, match=rf"model.{key} is .* --allow-code"):
        train(own_recipe(model=options), tmp_path / "run")
    for known in ({"name": "timm:resnet18", "pretrained": True}, {"name": "torchvision:resnet18"}):
        assert code.code_in_recipe(own_recipe(model=known)) == []


def suite_of(model):
    base = RECIPE | {"epochs": 1}
    base.pop("name")
    overrides = [f"model={json.dumps(model)}"]
    methods = {"plain": {}, "own": {"overrides": overrides}}
    return Suite.model_validate({"name": "two", "base": base, "seeds": [0], "methods": methods})


def test_a_suite_is_refused_before_its_first_run(attack, package, tmp_path):
    model, mark = attack
    with pytest.raises(SuiteError, match=r"two: model.name is 'os:spawnvp'.*--allow-code"):
        run_suite(suite_of(model), tmp_path / "out")
    assert not mark.exists() and not (tmp_path / "out").exists()


def test_a_suite_runs_code_with_the_flag(package, tmp_path, monkeypatch):
    file = tmp_path / "two.yaml"
    suite = suite_of({"name": "own_package.nets:make"})
    file.write_text(yaml.safe_dump(suite.model_dump(mode="json", by_alias=True, exclude_defaults=True)))
    words = ["suite", "run", str(file), "--out", str(tmp_path / "out"), "--allow-code", "--json"]
    monkeypatch.setattr(sys, "argv", ["shortlist", *words])
    with pytest.raises(SystemExit) as stop:
        shortlist.cli.main()
    assert not stop.value.code
    assert Run.open(tmp_path / "out" / "two" / "own" / "default" / "seed-0").state == "finished"


def test_a_lock_that_is_a_link_empties_no_file(package, tmp_path):
    run = train(make_recipe(RECIPE | {"epochs": 1}), tmp_path / "run", progress=silent)
    kept = tmp_path / "kept"
    kept.write_text("of value")
    for folder in (run.path, tmp_path / "out" / "two"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").unlink(missing_ok=True)
        (folder / ".lock").symlink_to(kept)
    calibrate_again(run, run.recipe)
    run_suite(suite_of({"name": "mlp", "hidden": [4]}), tmp_path / "out")
    assert kept.read_text() == "of value"
