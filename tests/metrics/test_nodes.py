import pytest
import torch

from shortlist import ClassTable, Taxonomy
from shortlist.metrics import (
    NodeSums,
    Results,
    evaluate,
    mean_level,
    node_accuracy,
    node_shares,
    node_sums,
    set_coverage,
)
from shortlist.metrics.names import check_metric, is_share, predictor_of
from shortlist.predictors import TaxonomyNodes
from tests.predictors.tree_oracle import leaves_of

GENUS = list("AAABBCDDDE")
FAMILY = list("XXXXXXYYYY")
TABLE = ClassTable([f"class {i}" for i in range(10)], parents={"genus": GENUS, "family": FAMILY})
TREE = Taxonomy.from_class_table(TABLE)


def rows(n=400):
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(n, 10, generator=generator)
    return scores, torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)


def test_one_node_by_loops():
    scores, target = rows()
    sets = TaxonomyNodes(TREE, coverage=0.8).calibrate(scores, target)(scores)
    leaves, hits, counts = leaves_of(TREE.parents, 10), [0] * 4, [0] * 4
    for row, true in zip(sets, target.tolist(), strict=True):
        node = leaves.index(frozenset(row.nonzero().squeeze(1).tolist()))
        level = ["class", "genus", "family", "root"].index(TREE.levels[node])
        counts[level] += 1
        hits[level] += true in leaves[node]
    sums = node_sums(sets, target, TREE)
    assert sums.hits.tolist() == hits and sums.nodes.tolist() == counts and int(sums.rows) == 400
    assert float(node_accuracy(sums)) == pytest.approx(float(set_coverage(sets, target)))
    assert node_shares(sums).tolist() == pytest.approx([count / 400 for count in counts])
    assert float(mean_level(sums)) == pytest.approx(sum(i * count for i, count in enumerate(counts)) / 400)


def test_sums_of_batches_add_up_and_ignored_rows_do_not_count():
    scores, target = rows()
    sets = TaxonomyNodes(TREE, coverage=0.9, nodes=2).calibrate(scores, target)(scores)
    whole = node_sums(sets, target, TREE)
    parts = [node_sums(*part, TREE) for part in zip(sets.split(70), target.split(70), strict=True)]
    added = NodeSums(*(sum(part) for part in zip(*parts, strict=True)))
    assert all(torch.equal(a, b) for a, b in zip(whole, added, strict=True))
    padded = target.where(torch.arange(400) < 300, -100)
    some = node_sums(sets, padded, TREE)
    assert all(
        torch.equal(a, b) for a, b in zip(some, node_sums(sets[:300], target[:300], TREE), strict=True)
    )


def test_evaluate_reports_levels_of_predictors_with_a_taxonomy():
    scores, target = rows()
    predictors = {
        "node80": TaxonomyNodes(TREE, coverage=0.8).calibrate(scores, target),
        "plain": lambda scores: scores > 0,
    }
    results = evaluate(scores, target, predictors, TABLE, num_resamples=0)
    sums = node_sums(predictors["node80"](scores), target, TREE)
    found = results.sets["node80"]
    assert found.promise.level == 0.8 and found.promise.about == "node"
    assert found.nodes == dict(zip(TREE.level_names, node_shares(sums).tolist(), strict=True))
    assert sum(found.nodes.values()) == pytest.approx(1)
    assert found.mean_level == pytest.approx(float(mean_level(sums)))
    assert found.coverage.micro.value == pytest.approx(float(node_accuracy(sums)))
    assert results.sets["plain"].nodes is None and results.sets["plain"].mean_level is None
    assert Results.from_json(results.to_json()) == results
    named = results.metrics()
    assert named["sets.node80.mean_level"].value == found.mean_level
    assert {f"sets.node80.nodes.{level}" for level in found.nodes} < set(named)
    assert "sets.plain.mean_level" not in named
    for name in ("sets.node80.mean_level", "sets.node80.nodes.genus"):
        check_metric(name, ["node80"])
        assert predictor_of(name) == "node80" and not is_share(name)
