"""A recipe with predictors of a taxonomy: trained, evaluated, listed in every format, exported."""

import csv
import json

import pytest
import torch
from safetensors.torch import save_file

from shortlist import ClassTable, Model
from shortlist.cli.predict import predict_files
from shortlist.metrics import Results
from shortlist.predictors import TaxonomyNodes
from shortlist.recipes.build import build_data, build_predictor
from shortlist.recipes.recipe import RecipeError, make_recipe
from shortlist.report.page import write_page
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.training.fit import train
from tests.training.small import RECIPE, silent

PREDICTORS = {
    "node80": {"name": "taxonomy_nodes", "coverage": 0.8},
    "few80": {"name": "taxonomy_nodes", "coverage": 0.8, "nodes": 2, "levels": ["genus"]},
    "top2": {"name": "topk", "k": 2},
}
LOSS = {"name": "logit_adjusted", "zero_counts": "floor"}  # whose scores are of other priors than is shown


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = make_recipe(RECIPE | {"predictors": PREDICTORS, "loss": LOSS, "epochs": 2})
    return train(recipe, tmp_path_factory.mktemp("runs") / "run", progress=silent)


def test_results_tell_the_levels(run):
    sets = Results.load(run.path / "results.json").sets
    assert list(sets["node80"].nodes) == ["class", "genus", "root"]
    assert sum(sets["node80"].nodes.values()) == pytest.approx(1)
    assert sets["few80"].size.micro.value <= sets["node80"].size.micro.value
    assert sets["top2"].nodes is None


def test_the_page_has_the_nodes_by_level(run, tmp_path):
    write_page([run.path], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count(">mean level<") == 2  # for two predictors of nodes
    sets = Results.load(run.path / "results.json").sets
    for name in ("node80", "few80"):
        table = page[page.index(f"{name}: share of sets") :].split("</table>")[0]
        for level, mean in sets[name].nodes.items():
            assert f">nodes: {level}<" in table and f"{mean:.2f}" in table
    assert "nodes:" not in page[page.index("top2: share of sets") :].split("</table>")[0]


def test_lists_have_the_node_with_the_mass_of_the_probabilities_shown(run):
    model, data = Model.load(run.path), build_data(run.recipe)
    inputs = data.test.inputs
    shown = model.probabilities(model.scores(inputs)).double()
    genus = run.class_table.parents["genus"]
    for name, most in (("node80", 1), ("few80", 2)):
        for row, candidates in enumerate(model.short_lists(inputs, name, at_least=3)):
            assert 1 <= len({c.node for c in candidates if c.in_set}) <= most
            for c in candidates:
                assert (c.node is not None) == c.in_set
                if c.node is None:
                    continue
                held = [i for i in range(12) if c.node.name in (genus[i], run.class_table.names[i])]
                held = list(range(12)) if c.node.level == "root" else held
                assert c.node.size == len(held) and c.index in held
                assert c.node.mass == pytest.approx(float(shown[row, held].sum()), abs=1e-6)
    assert all(c.node is None for c in model.short_lists(inputs, "top2")[0])


def test_every_format_has_the_nodes(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    model = Model.load(run.path)
    save_file({"scores": run.load_scores("test")[0][:40]}, tmp_path / "new.safetensors")
    written = {}
    for suffix in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"lists.{suffix}"
        predict_files(model, [tmp_path / "new.safetensors"], out, choice="few80", top=2)
        written[suffix] = out
    lines = list(csv.DictReader(written["csv"].read_text().splitlines()))
    table = parquet.read_table(written["parquet"]).to_pylist()
    assert {line["node"] == "" for line in lines if line["in_set"] == "0"} <= {True}
    for line, row in zip(lines, table, strict=True):
        assert (line["node"] or None, line["level"] or None) == (row["node"], row["level"])
        if row["node"] is not None:
            assert float(line["mass"]) == pytest.approx(row["mass"], abs=1e-5)
            assert int(line["node_size"]) == row["node_size"]
    for item in map(json.loads, written["jsonl"].read_text().splitlines()):
        of_item = [line for line in lines if line["item"] == item["item"] and line["node"]]
        named = dict.fromkeys((line["node"], line["level"], int(line["node_size"])) for line in of_item)
        assert [(n["name"], n["level"], n["size"]) for n in item["nodes"]] == list(named)
        assert 1 <= len(item["nodes"]) <= 2
    out = tmp_path / "plain.csv"
    predict_files(model, [tmp_path / "new.safetensors"], out, choice="top2")
    assert "node" not in out.read_text().splitlines()[0]


def test_one_node_is_exported_and_several_are_refused(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, data = Model.load(run.path), build_data(run.recipe)
    inputs = data.test.inputs[:50]
    model.export_onnx(tmp_path / "model.onnx", predictor="node80")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    sets = session.run(["sets"], {"inputs": inputs.numpy()})[0]
    assert torch.equal(torch.from_numpy(sets), model.sets(model.scores(inputs), "node80"))
    with pytest.raises(ValueError, match="nodes must be 1 in a graph that is compiled or exported, got 2"):
        model.export_onnx(tmp_path / "few.onnx", predictor="few80")
    assert not (tmp_path / "few.onnx").exists()


@pytest.mark.errors
def test_what_a_recipe_cannot_ask_for():
    def built(table, **options):
        recipe = make_recipe({"predictors": {"node": {"name": "taxonomy_nodes", **options}}})
        score_map = ScoreMap(len(table), contains=PriorRecord.training(table.class_counts))
        return build_predictor(recipe, "node", table, score_map)

    crossed = {"genus": list("AABB"), "script": list("xyxy")}
    table = ClassTable(list("abcd"), counts=[5, 5, 5, 5], parents=crossed)
    with pytest.raises(ValueError, match="must make a tree: the genus 'A' has classes in two parents"):
        built(table)
    made = built(table, levels=["script"], nodes=3)
    assert isinstance(made, TaxonomyNodes) and made.max_nodes == 3
    assert made.taxonomy.level_names == ("class", "script", "root")
    for section, message in (
        ({"name": "topk", "k": 2, "levels": ["genus"]}, "levels must be left out: topk takes no taxonomy"),
        ({"name": "taxonomy_nodes", "macro": True}, "macro must be false: taxonomy_nodes takes no class"),
        ({"name": "taxonomy_nodes", "taxonomy": {}}, "taxonomy: unknown key"),
    ):
        with pytest.raises(RecipeError, match=message):
            make_recipe({"predictors": {"sets": section}})
