"""What holds for every predictor: rows are checked, left out and forgotten alike, and nothing is mixed up."""

import inspect
import math
import warnings

import numpy as np
import pytest
import torch

from shortlist.predictors import (
    PREDICTORS,
    AverageError,
    AverageK,
    CalibrationWarning,
    Conformal,
    PointwiseError,
    TaxonomyNodes,
    TopK,
    load,
    save,
    sizes,
)
from shortlist.predictors.conformity import LAC, RAPS, SAPS
from shortlist.predictors.thresholds import Clustered, Interpolated, Marginal
from shortlist.taxonomy import Taxonomy

LEVELS = (*["class"] * 6, "genus", "genus", "family", "root")
TREE = Taxonomy(tuple("abcdefGHFR"), LEVELS, (6, 7, 6, 7, 8, 9, 8, 9, 9, -1))
CALIBRATED = {
    "average_k": lambda: AverageK(2),
    "bounded average_k": lambda: AverageK(2, at_least=1, at_most=4),
    "average error": lambda: AverageError(coverage=0.8),
    "lac": lambda: Conformal(coverage=0.8),
    "aps": lambda: Conformal(coverage=0.8, score="aps"),
    "capped lac": lambda: Conformal(coverage=0.8, at_least=1, at_most=4),
    "one node": lambda: TaxonomyNodes(TREE, coverage=0.8),
    "few nodes": lambda: TaxonomyNodes(TREE, coverage=0.8, nodes=2),
}


ALL = CALIBRATED | {
    "topk": lambda: TopK(2),
    "topk with priors": lambda: TopK(2, priors=torch.tensor([0.4, 0.2, 0.1, 0.1, 0.1, 0.1])),
    "pointwise error": lambda: PointwiseError(coverage=0.8),
    "aps by class": lambda: Conformal(coverage=0.8, score="aps", rule="class_conditional"),
    "macro": lambda: Conformal(coverage=0.8, priors=torch.tensor([0.4, 0.2, 0.1, 0.1, 0.1, 0.1])),
    "sigmoids": lambda: AverageK(2, activation="sigmoid"),
}
LAYOUTS = {
    "transposed": lambda scores: scores.T.contiguous().T,
    "every other column": lambda scores: scores.repeat_interleave(2, dim=1)[:, ::2],
    "every other row": lambda scores: scores.repeat_interleave(2, dim=0)[::2],
}


def rows(n=300, c=6, seed=3):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, c, generator=generator) * 2
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


@pytest.mark.errors
@pytest.mark.parametrize("name", CALIBRATED)
@pytest.mark.parametrize(
    ("scores", "target", "message"),
    [
        (torch.zeros(0, 6), torch.zeros(0, dtype=torch.int64), "calibration .*needs at least .* row"),
        ([[1.0, 2.0]], torch.tensor([0]), r"scores must be a floating tensor of shape \(n, c\), got list"),
        (
            np.zeros((3, 6), dtype=np.int64),
            torch.zeros(3, dtype=torch.int64),
            "scores must be .* got torch.int64",
        ),
        (torch.tensor(1.0), torch.tensor([0]), r"scores must be .* got torch.float32 \(\)"),
        (torch.zeros(3, 6), ["s3", "s1", "s2"], "target must hold .* counted from 0, got <U2 such as 's3'"),
        (torch.zeros(3, 6), np.array(["s3"] * 3), "target must hold .* counted from 0, got <U2 such as 's3'"),
        (torch.zeros(3, 6), [0, 1], r"target must be .* shape \(3,\)"),
        (torch.zeros(3, 6), torch.zeros(2, dtype=torch.int64), r"target must be .* shape \(3,\)"),
    ],
)
def test_rows_of_the_wrong_kind_are_named(name, scores, target, message):
    with pytest.raises(ValueError, match=message):
        CALIBRATED[name]().calibrate(scores, target)


@pytest.mark.parametrize("name", ["average_k", "average error"])
def test_no_rows_and_no_target(name):
    with pytest.raises(ValueError, match=r"needs at least 1 row"):
        CALIBRATED[name]().calibrate(torch.zeros(0, 6))


@pytest.mark.parametrize("name", CALIBRATED)
def test_rows_with_the_target_to_leave_out_are_left_out_by_all(name):
    logits, target = rows()
    padded = target.where(torch.arange(300) < 200, -100)
    a = CALIBRATED[name]().calibrate(logits, padded)
    b = CALIBRATED[name]().calibrate(logits[:200], target[:200])
    assert torch.equal(a.threshold, b.threshold) and a.report == b.report and a.report.rows == 200


@pytest.mark.errors
@pytest.mark.parametrize("name", CALIBRATED)
def test_a_calibration_that_failed_leaves_no_rows_behind(name):
    logits, target = rows(60_000)
    bad = logits.clone()
    bad[-1, 0] = math.nan
    predictor = CALIBRATED[name]()
    with pytest.raises(ValueError, match="maximum nan"):
        predictor.calibrate(bad, target)
    predictor.update(logits[:300], target[:300])
    expected = CALIBRATED[name]().calibrate(logits[:300], target[:300])
    assert torch.equal(predictor.finish().threshold, expected.threshold)
    assert predictor.report == expected.report


@pytest.mark.parametrize("name", [name for name in CALIBRATED if "node" not in name])  # made for six classes
def test_calibrated_again_for_another_number_of_classes(name):
    predictor = CALIBRATED[name]().calibrate(*rows(5000, 6))
    logits, target = rows(5000, 9)
    assert predictor.calibrate(logits, target)(logits).shape == (5000, 9)


def test_scores_that_need_gradients_are_no_matter():
    logits, target = rows(5000)
    for name, make in CALIBRATED.items():
        free = make().calibrate(logits, target)
        bound = make().calibrate(logits.clone().requires_grad_(), target)
        assert torch.equal(free.threshold, bound.threshold), name
        assert torch.equal(bound(logits.clone().requires_grad_()), free(logits))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ALL)
def test_scores_may_lie_in_memory_in_any_order(name, layout):
    """To the bit: half of PyTorch's kernels add up in another order there."""
    logits, target = rows(5000)
    for scores in (logits, logits.double(), logits.half()):
        other = LAYOUTS[layout](scores)
        assert torch.equal(scores, other)
        wanted, found = ALL[name](), ALL[name]()
        if wanted.needs_calibration:
            wanted.calibrate(scores, target)
            found.calibrate(other, target)
            assert torch.equal(found.threshold, wanted.threshold) and found.report == wanted.report
        assert torch.equal(found(other), wanted(scores))


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_true_class_that_is_ruled_out_is_one_that_is_very_unlikely(name):
    logits, target = rows(600)
    out, low = logits.clone(), logits.clone()
    out[torch.arange(0, 600, 10), target[::10]] = -math.inf
    low[torch.arange(0, 600, 10), target[::10]] = -1000.0
    found, wanted = CALIBRATED[name]().calibrate(out, target), CALIBRATED[name]().calibrate(low, target)
    assert torch.equal(found.threshold, wanted.threshold) and found.threshold.isfinite().all()
    assert torch.equal(found(out), wanted(low))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["average_k", "lac", "topk"])
def test_sigmoids_are_the_same_in_any_batches(name, dtype):
    """PyTorch computes the last few numbers of a tensor by another formula than the others."""
    make = {
        "average_k": lambda: AverageK(3, activation="sigmoid", priors=torch.full((37,), 1 / 37)),
        "lac": lambda: Conformal(coverage=0.7, activation="sigmoid"),
        "topk": lambda: TopK(3, activation="sigmoid", priors=torch.full((37,), 1 / 37)),
    }[name]
    logits, target = rows(1501, 37)
    logits = logits.to(dtype)
    whole, pieces = make(), make()
    values = whole.values(logits)
    for size in (1, 7, 100):
        assert torch.equal(torch.cat([whole.values(part) for part in logits.split(size)]), values)
    torch.testing.assert_close(values * (1 if name == "lac" else 1 / 37), torch.sigmoid(logits.to(values)))
    if name != "topk":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            whole.calibrate(logits, target)
            for part, classes in zip(logits.split(7), target.split(7), strict=True):
                pieces.update(part, classes)
            assert torch.equal(pieces.finish().threshold, whole.threshold)
    assert torch.equal(torch.cat([whole(part) for part in logits.split(7)]), whole(logits))
    full = logits[:64].clone()  # of which nothing is filled up
    whole.values(full)
    assert torch.equal(full, logits[:64])


@pytest.mark.errors
@pytest.mark.parametrize("name", ALL)
def test_vmap_is_refused(name):
    logits, target = rows()
    predictor = ALL[name]()
    message = f"{type(predictor).__name__} must be called outside of torch.vmap: make one batch of all rows"
    if predictor.needs_calibration:
        with pytest.raises(ValueError, match=message):
            torch.vmap(predictor.calibrate)(logits.view(3, 100, 6), target.view(3, 100))
        predictor.calibrate(logits, target)
    for transformed in (torch.vmap(predictor), torch.vmap(torch.vmap(predictor))):
        with pytest.raises(ValueError, match=message):
            transformed(logits.view(3, 5, 20, 6))
    seen = []
    torch.func.grad(lambda scores: seen.append(predictor(scores)) or scores.sum())(logits)
    assert seen[0].shape == (300, 6)


@pytest.mark.errors
def test_merge_refuses_other_priors():
    logits, _ = rows()
    even, uneven = torch.full((6,), 1 / 6), torch.tensor([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    for first, second in ((even, uneven), (even, None), (None, even)):
        a, b = AverageK(2, priors=first), AverageK(2, priors=second)
        a.update(logits)
        b.update(logits)
        with pytest.raises(ValueError, match="other must have the same priors"):
            a.merge(b)
    a, b = AverageK(2, priors=even), AverageK(2, priors=even.clone())
    a.update(logits)
    b.update(logits)
    a.merge(b)
    assert a.finish().report.rows == 600


def test_rare_classes_in_half_precision_have_finite_weights():
    priors = torch.tensor([1 - 5e-6] + [1e-6] * 5)
    logits, _ = rows()
    for half in (priors.half(), priors.bfloat16()):
        assert torch.equal(
            TopK(2, priors=half)(logits), TopK(2, priors=half.double() / half.double().sum())(logits)
        )
        assert AverageK(2, priors=half).weights.isfinite().all()


@pytest.mark.parametrize("name", PREDICTORS)
def test_whether_priors_or_a_taxonomy_are_taken_is_declared_as_it_is(name):
    arguments = inspect.signature(PREDICTORS[name]).parameters
    assert PREDICTORS[name].takes_priors == ("priors" in arguments)
    assert PREDICTORS[name].takes_taxonomy == ("taxonomy" in arguments)


def test_every_predictor_that_is_calibrated_is_checked_here():
    needing = {kind for kind in PREDICTORS.values() if kind.needs_calibration}
    assert {type(make()) for make in CALIBRATED.values()} == needing


@pytest.mark.parametrize("name", PREDICTORS)
def test_every_argument_is_saved_or_declared_to_come_from_code(name):
    kind, arguments = PREDICTORS[name], inspect.signature(PREDICTORS[name]).parameters
    needed = {key: 2 for key, argument in arguments.items() if argument.default is argument.empty}
    predictor = kind(**(needed | {"taxonomy": TREE} if kind.takes_taxonomy else needed))
    assert predictor.options().keys() == arguments.keys() - kind.from_code
    assert kind.parts.keys() <= predictor.options().keys()


@pytest.mark.errors
def test_weights_that_overflow_are_an_error():
    priors = torch.tensor([1 - 5e-6] + [1e-6] * 5)
    for given in (priors, priors.double()):
        with pytest.raises(ValueError, match=r"tau must be .* got 10"):
            AverageK(2, priors=given, tau=10)


@pytest.mark.errors
@pytest.mark.parametrize(
    "use",
    [
        lambda logits, target: PointwiseError(activation="none")(logits),
        lambda logits, target: AverageError(activation="none").calibrate(logits),
        lambda logits, target: Conformal(score="aps", activation="none").calibrate(logits, target),
        lambda logits, target: TaxonomyNodes(TREE, activation="none").calibrate(logits, target),
        lambda logits, target: TopK(2, priors=torch.full((6,), 1 / 6), activation="none")(logits),
        lambda logits, target: AverageK(2, priors=torch.full((6,), 1 / 6), activation="none").calibrate(
            logits
        ),
    ],
)
def test_logits_are_not_taken_for_probabilities(use):
    logits, target = rows()
    with pytest.raises(
        ValueError, match=r"scores must be probabilities in \[0, 1\] with activation='none', got -"
    ):
        use(logits, target)


def test_any_values_that_rank_will_do_where_they_are_only_compared():
    logits, _ = rows()
    assert torch.equal(TopK(2, activation="none")(logits), TopK(2)(logits))


@pytest.mark.errors
def test_numbers_of_numpy_can_be_saved(tmp_path):
    logits, target = rows()
    raps = RAPS(penalty=np.float32(0.5), k_reg=np.int64(3))  # type: ignore[arg-type]
    for predictor in (
        AverageK(np.int64(2), tau=np.float32(0.5), priors=torch.full((6,), 1 / 6)),
        AverageError(coverage=np.float32(0.5)),
        PointwiseError(coverage=np.float32(0.5)),
        TaxonomyNodes(TREE, coverage=np.float32(0.5)),
        Conformal(coverage=np.float32(0.5), score=raps, rule=Interpolated(weight=np.float32(0.25))),
        Conformal(score=SAPS(step=np.float32(0.5)), rule=Clustered(share=np.float32(0.5))),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            predictor.calibrate(logits, target)
        save(predictor, tmp_path / "sets")
        assert torch.equal(load(tmp_path / "sets")(logits), predictor(logits))


@pytest.mark.errors
def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    class Margin(LAC):
        pass

    class Always(Marginal):
        pass

    logits, target = rows()
    for options, message in (
        ({"score": Margin()}, "predictor.score must be one of lac, .* got Margin"),
        ({"rule": Always()}, "predictor.rule must be one of marginal, .* got Always"),
    ):
        own = Conformal(**options).calibrate(logits, target)
        with pytest.raises(ValueError, match=message):
            save(own, tmp_path / "sets")
    assert not list(tmp_path.iterdir())


def test_names_with_dots_are_different_files(tmp_path):
    save(TopK(2), tmp_path / "top 2.5 é")
    save(TopK(3), tmp_path / "top 2.7 é")
    save(TopK(4), tmp_path / "top 2.7 é.json")
    assert [load(tmp_path / f"top 2.{i} é").k for i in (5, 7)] == [2, 4]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_model_beside_it_is_never_removed(tmp_path):
    for name in ("model.finetune.safetensors", "model.0123abcd.safetensors"):
        (tmp_path / name).write_bytes(b"weights")
    for k in (1, 2, 3):
        save(TopK(k), tmp_path / "model")
        save(AverageK(2).calibrate(rows(seed=k)[0]), tmp_path / "model")
    assert (tmp_path / "model.finetune.safetensors").read_bytes() == b"weights"
    assert (tmp_path / "model.0123abcd.safetensors").read_bytes() == b"weights"
    assert len(list(tmp_path.iterdir())) == 4
    (tmp_path / "model.json").write_text("not ours")
    save(TopK(1), tmp_path / "model")
    assert load(tmp_path / "model").k == 1


@pytest.mark.errors
def test_sizes_of_what_are_no_sets():
    with pytest.raises(ValueError, match=r"sets must be a bool tensor of shape \(n, c\), got torch.float32"):
        sizes(torch.randn(3, 4))


@pytest.mark.errors
def test_what_is_no_other_predictor(tmp_path):
    predictor = AverageK(2)
    predictor.update(rows()[0])
    with pytest.raises(ValueError, match="other must be another AverageK, got itself"):
        predictor.merge(predictor)  # its rows would count twice
    with pytest.raises(ValueError, match=r"other must be a AverageK with the same options .* got None"):
        predictor.merge(None)
    with pytest.raises(ValueError, match=r"predictor must be one of topk, .* got Linear"):
        save(torch.nn.Linear(2, 2), tmp_path / "sets")


@pytest.mark.errors
@pytest.mark.parametrize("name", CALIBRATED)
def test_a_batch_with_one_bad_row_adds_nothing(name, monkeypatch):
    """Batches are taken in some rows at a time: all of them are checked before any is added."""
    logits, target = rows()
    predictor = CALIBRATED[name]()
    monkeypatch.setattr(type(predictor), "_rows_at_once", lambda self, num_classes: 7)
    predictor.update(logits[:200], target[:200])
    bad = logits[200:].clone()
    bad[-1, 2] = math.nan
    with pytest.raises(ValueError, match="row 99 has the maximum nan"):
        predictor.update(bad, target[200:])
    assert predictor.finish().report.rows == 200
    monkeypatch.undo()
    assert torch.equal(
        predictor.threshold, CALIBRATED[name]().calibrate(logits[:200], target[:200]).threshold
    )


@pytest.mark.parametrize("name", CALIBRATED)
def test_rows_that_are_left_out_of_a_batch_of_many(name, monkeypatch):
    logits, target = rows()
    left_out = target.where(torch.arange(300) % 11 < 9, -100)
    kept = left_out != -100
    wanted = CALIBRATED[name]().calibrate(logits[kept], target[kept])
    monkeypatch.setattr(type(wanted), "_rows_at_once", lambda self, num_classes: 10)
    found = CALIBRATED[name]()
    found.update(logits, left_out)
    assert torch.equal(found.finish().threshold, wanted.threshold) and found.report == wanted.report
