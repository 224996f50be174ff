import json
import math
import warnings

import pytest
import torch

from shortlist import ClassTable, Taxonomy
from shortlist.predictors import CalibrationWarning, TaxonomyNodes, load, make, save, taxonomy_nodes
from tests.conftest import GOLDEN
from tests.predictors import tree_oracle as oracle


def tree_of(*columns, names=None):
    """The taxonomy of some columns of parents, from the lowest level up."""
    names = names or [f"class {i}" for i in range(len(columns[0]))]
    parents = {f"level {i + 1}": [f"{i + 1}.{one}" for one in column] for i, column in enumerate(columns)}
    return Taxonomy.from_class_table(ClassTable(names, parents=parents))


def random_tree(c=12, seed=0):
    """Genera of one to many classes, some families of one genus, classes in no order."""
    generator = torch.Generator().manual_seed(seed)
    genus = torch.randint(c // 2, (c,), generator=generator)
    family = torch.randint(3, (c // 2,), generator=generator)[genus]
    return tree_of(genus.tolist(), family.tolist())


def rows(n, c, seed=0, *, step=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, c, generator=generator, dtype=torch.float64)
    target = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return (logits if step is None else (logits / step).round() * step).to(dtype), target


def golden_tree():
    """The tree of the reference file, and by its numbers the leaves of its nodes."""
    given = json.loads((GOLDEN / "hierarchy.json").read_text())["shared_inputs"]["parent"]
    genus = given[:10]
    family = [given[v] for v in genus]
    return tree_of(genus, family), oracle.leaves_of(given, 10)


def test_scores_thresholds_and_nodes_of_the_reference(golden):
    shared, (tree, leaves) = golden("hierarchy").shared, golden_tree()
    own = oracle.leaves_of(tree.parents, 10)
    for case in golden("hierarchy").cases:
        nodes = case["params"].get("r", 1)
        predictor = TaxonomyNodes(tree, coverage=1 - case["params"]["alpha"], nodes=nodes)
        predictor.update(shared["cal_logits"], shared["cal_labels"])
        if case["cal_scores"] is not None:
            found = predictor.rows.state()["scores"]
            assert found.tolist() == pytest.approx(case["cal_scores"], abs=1e-12, rel=0)
        assert float(predictor.finish().threshold) == pytest.approx(case["threshold"], abs=1e-12)
        answers = predictor.nodes(shared["test_logits"])
        for answer, expected in zip(answers, case["nodes"], strict=True):
            # the reference names the genus of one species, and here it is the species: the same leaves
            wanted = [leaves[v] for v in ([expected] if isinstance(expected, int) else expected)]
            assert {own[node.index] for node in answer} == set(wanted) and len(answer) == len(wanted)
        assert predictor(shared["test_logits"]).sum(1).tolist() == case["leaves"]


def test_the_example_by_hand():
    tree = tree_of([0, 0, 1, 1])
    p = torch.tensor([[0.5, 0.2, 0.2, 0.1]], dtype=torch.float64)
    predictor = TaxonomyNodes(tree, coverage=0.5, activation="none")
    predictor.update(p.repeat(4, 1), torch.arange(4))
    assert predictor.rows.state()["scores"].tolist() == pytest.approx([0, 0.5, 0.7, 0.7])
    predictor.finish().threshold.fill_(0.6)
    [[node]] = predictor.nodes(p)
    assert (node.name, node.level, node.size) == ("1.0", "level 1", 2) and node.mass == pytest.approx(0.7)


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
@pytest.mark.parametrize("step", [None, 1.0], ids=["spread", "ties"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_against_loops(seed, nodes, step):
    tree = random_tree(seed=seed)
    logits, target = rows(60, 12, seed, step=step)
    p = logits.softmax(1).tolist()
    predictor = TaxonomyNodes(tree, coverage=0.8, nodes=nodes)
    predictor.update(logits[:40], target[:40])
    for found, one, y in zip(predictor.rows.state()["scores"].tolist(), p, target.tolist(), strict=False):
        of_loops = oracle.climb_score(one, y, tree.parents)
        if nodes > 1:
            of_loops = oracle.few_score(one, y, tree.parents, nodes)
        assert found == pytest.approx(of_loops, abs=1e-12)
    threshold = float(predictor.finish().threshold) + 1e-13
    for found, one in zip(predictor.nodes(logits[40:]), p[40:], strict=True):
        expected = oracle.climb_answer(one, threshold, tree.parents)
        if nodes > 1:
            expected = oracle.few_answer(one, threshold, tree.parents, nodes)
        assert sorted(node.index for node in found) == expected
        masses = [oracle.mass_of(one, oracle.leaves_of(tree.parents, 12)[node.index]) for node in found]
        assert [node.mass for node in found] == pytest.approx(masses, abs=1e-12)
        assert masses == sorted(masses, reverse=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nodes", [1, 3])
def test_sets_are_the_classes_whose_score_is_at_most_the_threshold(nodes, dtype):
    """To the bit: the calibration rows are covered exactly as the report says, ties and all."""
    tree = random_tree(40, seed=5)
    for step in (None, 0.5):
        logits, target = rows(500, 40, 5, step=step, dtype=dtype)
        predictor = TaxonomyNodes(tree, coverage=0.85, nodes=nodes).calibrate(logits, target)
        hits = predictor(logits).gather(1, target[:, None]).double().mean()
        assert float(hits) == pytest.approx(predictor.report.coverage, abs=1e-12) and hits >= 0.85
        sets = torch.cat([predictor(row) for row in logits[:30].split(1)])
        assert torch.equal(sets, predictor(logits)[:30])
        assert len(predictor.nodes(logits)) == 500
        assert max(map(len, predictor.nodes(logits))) <= nodes


@pytest.mark.parametrize("step", [None, 2.0], ids=["spread", "ties"])
def test_many_classes_put_in_order_a_few_at_a_time(step):
    """More classes than are put in order at first, and rows that need more than these."""
    tree = random_tree(90, seed=2)
    logits, target = rows(80, 90, 2, step=step)
    target = torch.randint(90, (80,), generator=torch.Generator().manual_seed(1))  # far from likely
    predictor = TaxonomyNodes(tree, coverage=0.5, nodes=3)
    predictor.update(logits, target)
    expected = [
        oracle.few_score(p, y, tree.parents, 3)
        for p, y in zip(logits.softmax(1).tolist(), target.tolist(), strict=True)
    ]
    assert predictor.rows.state()["scores"].tolist() == pytest.approx(expected, abs=1e-12)


def test_rows_whose_unions_grow_later_change_no_bit(monkeypatch):
    """Rows whose first guess is wrong wait until there are many; those of a merge and of a state too."""
    tree = random_tree(40, seed=5)
    logits, target = rows(300, 40, 5, dtype=torch.float32)
    found = {}
    for many in (1, 900, 2**22):  # each row, some rows, all rows at the end
        monkeypatch.setattr(taxonomy_nodes, "_MANY", many)
        first, second = (TaxonomyNodes(tree, coverage=0.85, nodes=3) for _ in range(2))
        for batch in zip(logits[:170].split(17), target[:170].split(17), strict=True):
            first.update(*batch)
        second.update(logits[170:], target[170:])
        copied = TaxonomyNodes(tree, coverage=0.85, nodes=3)
        copied.load_state_dict(first.state_dict())
        copied.merge(second)
        first.merge(second)
        assert torch.equal(first.rows.state()["scores"], copied.rows.state()["scores"])
        found[many] = first.rows.state()["scores"]
    assert torch.equal(found[1], found[900]) and torch.equal(found[1], found[2**22])
    assert 0 < int((found[1] == 0).sum()) < 300


def test_more_nodes_hold_fewer_classes():
    logits, target = rows(4000, 60, 3)
    tree = random_tree(60, seed=3)
    sizes = []
    for nodes in (1, 2, 4):
        predictor = TaxonomyNodes(tree, coverage=0.9, nodes=nodes).calibrate(logits[:2000], target[:2000])
        sizes.append(float(predictor(logits[2000:]).sum(1).double().mean()))
    assert sizes == sorted(sizes, reverse=True)


def test_a_class_that_is_sure_enough_alone_is_the_answer():
    logits, _ = rows(300, 12)
    predictor = TaxonomyNodes(random_tree(), coverage=0.9).calibrate(logits, logits.argmax(1))
    assert float(predictor.threshold) == 0 and predictor.report.coverage == 1
    assert torch.equal(predictor(logits).sum(1), torch.ones(300, dtype=torch.int64))


def test_too_few_rows_answer_with_the_root():
    logits, target = rows(5, 12)
    with pytest.warns(CalibrationWarning, match="needs at least 9 calibration rows, got 5"):
        predictor = TaxonomyNodes(random_tree(), coverage=0.9).calibrate(logits, target)
    assert {node.level for [node] in predictor.nodes(logits)} == {"root"}
    for nodes in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            predictor = TaxonomyNodes(random_tree(), coverage=0.9, nodes=nodes).calibrate(logits, target)
        assert predictor(logits).all()


def test_masses_are_of_the_probabilities_that_are_given():
    logits, target = rows(200, 12)
    predictor = TaxonomyNodes(random_tree(), coverage=0.9, nodes=2).calibrate(logits, target)
    others = torch.full((200, 12), 1 / 12)
    for with_own, with_others in zip(predictor.nodes(logits), predictor.nodes(logits, others), strict=True):
        assert {node.index for node in with_own} == {node.index for node in with_others}
        assert [node.mass for node in with_others] == pytest.approx([n.size / 12 for n in with_others])


@pytest.mark.errors
def test_what_is_no_taxonomy_or_no_number():
    tree = random_tree()
    for options, message in (
        ({"nodes": 0}, "nodes must be an integer >= 1, got 0"),
        ({"coverage": 1.0}, "coverage must be < 1"),
        ({"activation": "sigmoid"}, "activation must be one of softmax, none, got 'sigmoid'"),
    ):
        with pytest.raises(ValueError, match=message):
            TaxonomyNodes(tree, **options)
    with pytest.raises(ValueError, match="taxonomy must be a Taxonomy, got ClassTable"):
        TaxonomyNodes(ClassTable(["a"]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scores must have 12 classes, as TaxonomyNodes was made for, got 9"):
        TaxonomyNodes(tree).calibrate(*rows(50, 9))
    with pytest.raises(ValueError, match="calibrated with labels"):
        TaxonomyNodes(tree).calibrate(rows(50, 12)[0])


@pytest.mark.errors
def test_a_state_of_another_taxonomy_is_refused(tmp_path):
    first, second = TaxonomyNodes(random_tree(seed=0)), TaxonomyNodes(random_tree(seed=1))
    first.calibrate(*rows(100, 12))
    with pytest.raises(ValueError, match="the state is of another taxonomy"):
        second.load_state_dict(first.state_dict())
    unfinished = TaxonomyNodes(random_tree(seed=0))
    unfinished.update(*rows(20, 12))
    with pytest.raises(ValueError, match="with the same options"):
        second.merge(unfinished)
    save(first, tmp_path / "node90")
    again = load(tmp_path / "node90")
    assert isinstance(again, TaxonomyNodes) and again.taxonomy == first.taxonomy
    with pytest.raises(ValueError, match="names, levels and parents must have one entry"):
        make("taxonomy_nodes", {"taxonomy": {"names": [], "levels": [], "parents": []}})


@pytest.mark.errors
def test_several_nodes_are_refused_in_a_graph():
    predictor = TaxonomyNodes(random_tree(), nodes=2).calibrate(*rows(100, 12))
    with pytest.raises(Exception, match="nodes must be 1 in a graph that is compiled or exported, got 2"):
        torch.export.export(predictor, (rows(4, 12)[0],))


def long_tailed(seed):
    """96 species in 24 genera and 6 families; frequencies of species fall as 1 / rank."""
    generator = torch.Generator().manual_seed(seed)
    genus = torch.arange(96) // 4
    tree = tree_of(genus.tolist(), (genus // 4).tolist())
    parts = [torch.randn(k, 8, generator=generator)[i] for k, i in ((6, genus // 4), (24, genus))]
    centers = 2 * parts[0] + 1.2 * parts[1] + 0.7 * torch.randn(96, 8, generator=generator)
    priors = 1 / (1 + torch.randperm(96, generator=generator).double())
    return tree, centers, priors / priors.sum(), generator


def draw(n, centers, priors, generator):
    target = torch.multinomial(priors, n, replacement=True, generator=generator)
    x = centers[target] + torch.randn(n, 8, generator=generator)
    return -(torch.cdist(x, centers) ** 2) / 2 + priors.log(), target  # the log-posteriors, up to a constant


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 300])
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_coverage_is_what_is_promised_and_not_more(nodes, n):
    tree, centers, priors, generator = long_tailed(0)
    predictor = TaxonomyNodes(tree, coverage=0.9, nodes=nodes)
    covered, covered_plainly, repeats, fresh = 0, 0, 200, 500
    for _ in range(repeats):
        predictor.update(*draw(n, centers, priors, generator))
        plain = (
            predictor.rows.state()["scores"].sort().values[math.ceil(0.9 * n) - 1]
        )  # the rows' own quantile
        predictor.finish()
        logits, target = draw(fresh, centers, priors, generator)
        covered += int(predictor(logits).gather(1, target[:, None]).sum())
        predictor.threshold = plain
        covered_plainly += int(predictor(logits).gather(1, target[:, None]).sum())
    share, plain_share = covered / (repeats * fresh), covered_plainly / (repeats * fresh)
    # the calibration sets alone spread the coverage: variance of the Beta law, and of the fresh rows
    spread = 4 * (0.09 / ((n + 2) * repeats) + 0.09 / (repeats * fresh)) ** 0.5
    assert 0.9 - spread <= share <= 0.9 + 1 / (n + 1) + spread
    assert plain_share < 0.9 - spread or n > 30  # with many rows the correction is small


@pytest.mark.slow
def test_the_common_ancestor_of_a_flat_set_covers_more_than_is_promised():
    from shortlist.predictors import Conformal

    tree, centers, priors, generator = long_tailed(0)
    seen, fresh = draw(5000, centers, priors, generator), draw(20_000, centers, priors, generator)
    hits, sizes = {}, {}
    node = TaxonomyNodes(tree, coverage=0.9).calibrate(*seen)(fresh[0])
    flat = Conformal(coverage=0.9).calibrate(*seen)(fresh[0])
    for name, sets in {"node": node, "flat": common_ancestors(flat, tree)}.items():
        hits[name] = float(sets.gather(1, fresh[1][:, None]).double().mean())
        sizes[name] = float(sets.sum(1).double().mean())
    assert hits["node"] == pytest.approx(0.9, abs=0.01)
    assert hits["flat"] > 0.93 and sizes["flat"] > sizes["node"]


def common_ancestors(sets, tree):
    """The classes of the lowest node that holds each set, by loops."""
    leaves, found = oracle.leaves_of(tree.parents, sets.shape[1]), torch.zeros_like(sets)
    for i, row in enumerate(sets):
        held = frozenset(row.nonzero().squeeze(1).tolist())
        node = min((v for v in range(len(leaves)) if held <= leaves[v]), key=lambda v: len(leaves[v]))
        found[i, sorted(leaves[node])] = True
    return found
