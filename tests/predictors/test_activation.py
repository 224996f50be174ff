"""Probabilities where logits are meant, and logits where probabilities are."""

import numpy as np
import pytest
import torch

from shortlist import ClassTable, Taxonomy
from shortlist._checks import values_hidden
from shortlist.metrics import evaluate
from shortlist.predictors import AverageError, AverageK, Conformal, TaxonomyNodes, TopK

TREE = Taxonomy.from_class_table(ClassTable(names=tuple("abcdef"), parents={"genus": tuple("xxyyzz")}))
MAKERS = {
    "average_k": lambda **options: AverageK(2, **options),
    "average_error": lambda **options: AverageError(0.9, **options),
    "lac": lambda **options: Conformal(0.9, **options),
    "aps": lambda **options: Conformal(0.95, score="aps", **options),  # 92.5 % would be ties: the first class
    "taxonomy_nodes": lambda **options: TaxonomyNodes(TREE, **options),
}


def rows(n: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(6, (n,), generator=generator)
    logits = torch.randn(n, 6, generator=generator)
    logits[torch.arange(n), target] += 3
    return logits, target


@pytest.mark.errors  # the line that is blamed is another one if shapes are checked at run time
@pytest.mark.parametrize("name", MAKERS)
def test_probabilities_under_softmax_are_warned_of_once(name):
    logits, target = rows()
    probabilities = logits.softmax(1)
    for given in (probabilities, probabilities.double().numpy()):
        with pytest.warns(UserWarning, match=r"each row sums to 1\): pass activation='none'") as caught:
            MAKERS[name]().calibrate(given, target)
        assert [one.filename for one in caught] == [__file__]
    pieces, other = MAKERS[name](), MAKERS[name]()
    pieces.update(probabilities[:200], target[:200])
    other.update(probabilities[200:], target[200:])
    pieces.merge(other)
    with pytest.warns(UserWarning, match="look like probabilities") as caught:
        pieces.finish()
    assert len(caught) == 1
    MAKERS[name](activation="none").calibrate(probabilities, target)  # without a warning, as the next ones
    MAKERS[name]().calibrate(logits, target)
    MAKERS[name]().calibrate(probabilities.log(), target)
    pieces.calibrate(logits, target)
    with values_hidden():  # as on an accelerator, where to look would mean to wait
        MAKERS[name]().calibrate(probabilities, target)


@pytest.mark.errors
@pytest.mark.parametrize("name", MAKERS)
def test_logits_without_activation_are_refused(name):
    logits, target = rows()
    wanted = (
        r"scores must be probabilities in \[0, 1\] with activation='none', got {}.*use activation='softmax'"
    )
    with pytest.raises(ValueError, match=wanted.format("-")):
        MAKERS[name](activation="none").calibrate(logits, target)
    with pytest.raises(ValueError, match=wanted.format(r"\d")):
        MAKERS[name](activation="none").calibrate(logits - logits.min(), target)
    rounded = logits.softmax(1) * (1 + 1e-4)
    MAKERS[name](activation="none").calibrate(rounded, target)


def test_a_class_can_be_ruled_out_without_activation():
    probabilities, target = rows()[0].softmax(1), rows()[1] % 5
    probabilities[:, 5] = -torch.inf
    for predictor in (AverageK(1, activation="none"), Conformal(0.9, activation="none")):
        assert not predictor.calibrate(probabilities, target)(probabilities)[:, 5].any()


@pytest.mark.errors
def test_evaluate_warns_of_probabilities_too():
    logits, target = rows()
    probabilities = logits.softmax(1)
    by_logits = Conformal(0.9).calibrate(logits, target)
    wanted = "look like probabilities.*pass activation='none'"
    with pytest.warns(UserWarning, match=wanted) as caught:
        evaluate(probabilities, target, {}, num_resamples=0)
    assert [one.filename for one in caught] == [__file__]
    with pytest.warns(UserWarning, match=r"predictors\['c'\]: scores look like probabilities"):
        evaluate(probabilities, target, {"c": by_logits}, activation="none", num_resamples=0)
    ranked = {"top2": TopK(2), "c": Conformal(0.9, activation="none").calibrate(probabilities, target)}
    evaluate(probabilities.numpy(), target, ranked, activation="none", num_resamples=0)
    evaluate(logits, target, {"c": by_logits}, num_resamples=0)


@pytest.mark.errors
def test_evaluate_refuses_logits_for_a_predictor_that_takes_probabilities():
    logits, target = rows()
    predictor = Conformal(0.9, activation="none").calibrate(logits.softmax(1), np.asarray(target))
    with pytest.raises(ValueError, match=r"predictors\['c'\].*in \[0, 1\] with activation='none', got -"):
        evaluate(logits, target, {"c": predictor}, num_resamples=0)
