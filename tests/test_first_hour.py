"""What people try in their first hour: lists, arrays, a wrong shape, two heads, a look at an object."""

import numpy as np
import pytest
import torch

from shortlist import ClassTable, Taxonomy
from shortlist.losses import LOSSES, create
from shortlist.metrics import evaluate
from shortlist.models.heads import TwoHead
from shortlist.predictors import PREDICTORS, AverageK, Conformal, TopK, make
from shortlist.priors import class_balanced_weights, class_priors, margins_from_counts

COUNTS = [60, 30, 9, 1]
TABLE = ClassTable(names=("oak", "ash", "elm", "fir"), parents={"genus": ("a", "a", "b", "b")})


def rows(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """What ``predict_proba`` of scikit-learn gives: probabilities in float64, and labels."""
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(4), n), rng.integers(0, 4, n).astype(np.int32)


def predictor(name: str):
    options = {"k": 2} if name in ("topk", "average_k") else {"coverage": 0.8}
    if name == "taxonomy_nodes":
        options |= {"taxonomy": Taxonomy.from_class_table(TABLE)}
    return make(name, options | {"activation": "none"})


@pytest.mark.parametrize("name", PREDICTORS)
def test_arrays_give_the_sets_of_tensors(name):
    probabilities, labels = rows()
    expected = predictor(name)
    expected = expected.calibrate(torch.tensor(probabilities), torch.tensor(labels).long())
    sets = expected(torch.tensor(probabilities))
    given = predictor(name).calibrate(probabilities, labels)
    assert isinstance(given(probabilities), torch.Tensor)
    assert torch.equal(given(probabilities), sets)
    assert torch.equal(given(probabilities[::-1]), sets.flip(0))  # an array that runs backwards
    probabilities.flags.writeable = False
    assert torch.equal(given(probabilities), sets)
    pieces = predictor(name)
    pieces.update(probabilities[:50], labels[:50])
    pieces.update(probabilities[50:], labels[50:])
    assert torch.equal(pieces.finish()(probabilities), sets)


@pytest.mark.parametrize("name", PREDICTORS)
def test_classes_of_any_integer_type_and_in_lists_are_taken(name):
    probabilities, labels = rows()
    expected = predictor(name).calibrate(probabilities, torch.tensor(labels).long())(probabilities)
    for given in (labels.tolist(), tuple(labels.tolist()), torch.tensor(labels), labels.astype(np.uint8)):
        assert torch.equal(predictor(name).calibrate(probabilities, given)(probabilities), expected)
        found = evaluate(probabilities, given, {"one": TopK(1)}, activation="none", num_resamples=0)
        assert found.scores.topk[1].micro.value == (probabilities.argmax(1) == labels).mean()


@pytest.mark.errors
def test_predictors_in_a_list_and_labels_by_name_are_told_what_to_pass():
    probabilities, labels = rows()
    with pytest.raises(ValueError, match=r"predictors must be a dict by name, .* got list"):
        evaluate(probabilities, labels, [TopK(2)], activation="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"target must hold .* counted from 0, got <U2 such as 's1'"):
        evaluate(probabilities, ["s1"] * 80, {}, activation="none")  # type: ignore[arg-type]


@pytest.mark.errors
@pytest.mark.parametrize("name", PREDICTORS)
def test_two_heads_and_maps_are_told_what_to_pass(name):
    both = TwoHead(8, 4)(torch.randn(30, 8))
    ready = predictor(name).calibrate(both.set_logits.softmax(1), torch.arange(30) % 4)
    for call in (lambda x: predictor(name).calibrate(x, torch.arange(30) % 4), ready):
        with pytest.raises(
            ValueError, match=r"got TwoHeadScores: of a network with two heads, pass output.set"
        ):
            call(both)
        with pytest.raises(ValueError, match=r"got torch.float32 \(2, 4, 5, 5\): there are 4 dimensions"):
            call(torch.rand(2, 4, 5, 5))
        with pytest.raises(ValueError, match="scores must hold numbers, got <U1"):
            call(np.full((30, 4), "a"))


@pytest.mark.errors
def test_losses_say_what_to_do_with_maps():
    maps, classes = torch.randn(2, 4, 5, 5), torch.randint(4, (2, 5, 5))
    loss = create("noised_topk", k=2)
    with pytest.raises(ValueError, match=r"logits.movedim\(1, -1\).flatten\(0, -2\) and target.flatten\(\)"):
        loss(maps, classes)
    assert loss(maps.movedim(1, -1).flatten(0, -2), classes.flatten()).isfinite()


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if "class_counts" in loss.needs])
@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda counts: np.array(counts, dtype=np.float32)])
def test_counts_may_be_lists_and_arrays(name, kind):
    logits, target = torch.rand(6, 4) - 0.5, torch.tensor([0, 1, 2, 3, 0, 1])
    options = {"k": 2, "noise_std": 0.0} if name == "imbalanced_noised_topk" else {}
    expected = create(name, class_counts=torch.tensor(COUNTS), **options)(logits, target)
    torch.testing.assert_close(create(name, class_counts=kind(COUNTS), **options)(logits, target), expected)
    function = LOSSES[name].function
    torch.testing.assert_close(function(logits, target, class_counts=kind(COUNTS), **options), expected)


def test_priors_and_weights_of_lists():
    counts = torch.tensor(COUNTS)
    torch.testing.assert_close(class_priors(COUNTS), counts / counts.sum())
    torch.testing.assert_close(class_balanced_weights(COUNTS), class_balanced_weights(counts))
    margins = margins_from_counts(np.array(COUNTS), max_margin=0.5)
    torch.testing.assert_close(margins, margins_from_counts(counts, max_margin=0.5))


@pytest.mark.errors
@pytest.mark.parametrize("counts", [["6", "3"], [[1, 2]], "63", [1, -2]])
def test_counts_that_are_none_are_refused(counts):
    with pytest.raises(ValueError, match=r"class_counts must be|must have one entry"):
        create("ldam", class_counts=counts)(torch.rand(1, 2), torch.tensor([0]))


def test_results_need_no_class_table():
    probabilities, labels = rows()
    predictors = {"top2": TopK(2)}
    table = ClassTable([str(c) for c in range(4)])
    given = {"activation": "none"}
    expected = evaluate(torch.tensor(probabilities), torch.tensor(labels).long(), predictors, table, **given)
    assert evaluate(probabilities, labels, predictors, **given) == expected
    with pytest.raises(ValueError, match="class_table must be given with scores in blocks of rows"):
        evaluate([torch.tensor(probabilities)], torch.tensor(labels).long(), predictors)


def test_objects_show_what_they_are():
    scores, target = torch.randn(100, 4), torch.arange(100) % 4
    assert repr(TopK(2)) == "TopK(k=2)"
    assert repr(AverageK(1.5, rule="strict")) == "AverageK(k=1.5, rule='strict', not calibrated)"
    shown = "Conformal(coverage=0.9, score='lac', rule='marginal', calibrated on 100 rows)"
    assert repr(Conformal(0.9).calibrate(scores, target)) == shown
    results = evaluate(scores, target, {"top2": TopK(2)}, ks=(1,))
    hits = 100 * results.scores.topk[1].micro.value
    coverage = 100 * results.sets["top2"].coverage.micro.value
    shown = f"100 rows, 4 classes; top-1 {hits:.1f} %; top2: coverage {coverage:.1f} %, size 2.00"
    assert repr(results) == f"Results({shown})"
