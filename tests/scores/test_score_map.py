import copy
import io
import itertools
import json
import math
import pickle
import warnings

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from shortlist.losses import LogitAdjustedLoss, logit_adjusted_loss
from shortlist.scores import PriorRecord, ScoreMap, UnknownPriorError, normalization_map
from tests.conftest import tensor
from tests.scores.rows import HALF, random_priors

TRAINING = PriorRecord.training(torch.tensor([60, 30, 8, 1, 1]))


def given_priors(c, seed=0, power=1.0):
    return PriorRecord.given(random_priors(c, seed)).to_power(power)


def random_map(c, seed, *, per_class=True, contains=None, now=None):
    generator = torch.Generator().manual_seed(seed)
    size = (c,) if per_class else ()
    scale = torch.rand(size, dtype=torch.float64, generator=generator) * 3 + 0.2
    shift = 4 * torch.rand(size, dtype=torch.float64, generator=generator) - 2
    return ScoreMap(c, scale=scale, shift=shift, contains=contains, now=now)


def random_scores(n, c, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, c, dtype=torch.float64, generator=generator).to(dtype)


def same_map(a, b):
    """To the bit: numbers and record."""
    assert torch.equal(a.scale, b.scale) and torch.equal(a.shift, b.shift) and torch.equal(a.offset, b.offset)
    assert a.to_dict() == b.to_dict()


# the map


@given(
    c=st.integers(2, 7),
    seed=st.integers(0, 99),
    tau=st.floats(-3, 3),
    per_class=st.booleans(),
    converted=st.booleans(),
)
def test_mapped_scores_are_the_formula(c, seed, tau, per_class, converted):
    contains = given_priors(c, seed).to_power(tau)
    now = given_priors(c, seed + 100) if converted else None
    score_map = random_map(c, seed, per_class=per_class, contains=contains, now=now)
    scores = random_scores(3, c, seed)
    mapped = score_map(scores)
    raised = [float(p) ** tau for p in random_priors(c, seed)]
    for i, j in itertools.product(range(3), range(c)):
        # one number, or one per class
        scale, shift = (float(value.expand(c)[j]) for value in (score_map.scale, score_map.shift))
        expected = scale * float(scores[i, j]) + shift
        if converted:
            expected += math.log(random_priors(c, seed + 100)[j]) - math.log(raised[j] / sum(raised))
        assert float(mapped[i, j]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_mapped_in_place_are_those_mapped_apart(dtype):
    score_map = random_map(5, 3, contains=given_priors(5)).under("balanced")
    scores = random_scores(4, 5, dtype=dtype)
    expected = score_map(scores)
    mapped = score_map.map_(scores)
    assert mapped.data_ptr() == scores.data_ptr()
    torch.testing.assert_close(mapped, expected, rtol=0, atol=0)


def test_same_priors_and_tau_0_are_the_identity():
    scores = torch.randn(4, 5)
    plain = ScoreMap(5, contains=TRAINING)
    assert torch.equal(plain(scores), scores) and torch.equal(plain.under(TRAINING)(scores), scores)
    assert torch.equal(plain.under(TRAINING.priors)(scores), scores)  # by value, whatever they are called
    assert torch.equal(plain.under("balanced").under(TRAINING)(scores), scores)
    without = ScoreMap(5, contains=TRAINING.to_power(0.0))  # nothing to take out
    assert torch.equal(without.under("balanced")(scores), scores)
    assert torch.equal(ScoreMap(5, contains=None)(scores), scores)


@pytest.mark.parametrize("tau", [1.0, 0.3, 2.5])
def test_there_and_back_returns_the_scores(tau):
    scores, a, b = random_scores(4, 5), given_priors(5, 1, tau), given_priors(5, 2, tau)
    there = ScoreMap(5, contains=a).under(b)
    back = ScoreMap(5, contains=b).under(a)
    assert not torch.allclose(there(scores), scores, atol=0.1)
    torch.testing.assert_close(back(there(scores)), scores, rtol=0, atol=1e-12)
    torch.testing.assert_close(there.invert(there(scores)), scores, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_argmax_under_balanced_priors_is_the_bayes_balanced_decision(seed):
    """Five points, three classes: of all 3^5 decisions, none has a smaller balanced error."""
    generator = torch.Generator().manual_seed(seed)
    joint = torch.rand(5, 3, dtype=torch.float64, generator=generator) * torch.tensor([1.0, 0.2, 0.04])
    joint /= joint.sum()
    priors, posterior = joint.sum(0), joint / joint.sum(1, keepdim=True)

    def error(decision):
        return 1 - sum(float(joint[x, j] / priors[j]) for x, j in enumerate(decision)) / 3

    best = min(itertools.product(range(3), repeat=5), key=error)
    balanced = ScoreMap(3, contains=PriorRecord.given(priors)).under("balanced")
    assert balanced(posterior.log()).argmax(1).tolist() == list(best)
    assert error(posterior.argmax(1).tolist()) > error(best)  # the plain posterior decides worse


def test_converted_posterior_is_the_posterior_under_other_priors():
    likelihood = torch.rand(4, 3, dtype=torch.float64)
    a, b = random_priors(3, 1), random_priors(3, 2)
    posteriors = [(likelihood * p) / (likelihood * p).sum(1, keepdim=True) for p in (a, b)]
    score_map = ScoreMap(3, contains=PriorRecord.given(a))
    torch.testing.assert_close(score_map.under(b)(posteriors[0].log()).softmax(1), posteriors[1])
    torch.testing.assert_close(score_map.log_posterior(posteriors[0].log(), priors=b).exp(), posteriors[1])
    balanced = likelihood / likelihood.sum(1, keepdim=True)
    got = score_map.under(b).log_posterior(posteriors[0].log(), priors="balanced")  # assigned, b forgotten
    torch.testing.assert_close(got.exp(), balanced)


def test_gradient_and_non_finite_scores_pass_through():
    scores = torch.tensor([[1.0, -torch.inf, math.nan], [0.0, 1.0, 2.0]], requires_grad=True)
    contains = PriorRecord.given(torch.tensor([0.5, 0.25, 0.25]))
    for scale, expected in ((1.0, torch.ones(2, 3)), (torch.tensor([2.0, 3.0, 4.0]), None)):
        score_map = ScoreMap(3, scale=scale, contains=contains).under("balanced")
        mapped = score_map(scores)
        assert mapped[0, 1] == -torch.inf and mapped[0, 2].isnan()  # and no other entry
        assert mapped[0, 0].isfinite() and mapped[1].isfinite().all()
        back = score_map.invert(mapped)
        assert back[0, 1] == -torch.inf and back[0, 2].isnan() and back[1].isfinite().all()
        scores.grad = None
        mapped.sum().backward()
        assert torch.equal(scores.grad, torch.tensor([[2.0, 3.0, 4.0]] * 2) if expected is None else expected)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_scores_are_mapped_in_float32(dtype):
    scores = torch.randn(4, 5).to(dtype)
    for score_map in (ScoreMap(5, contains=TRAINING).under("balanced"), ScoreMap(5, contains=TRAINING)):
        expected = score_map(scores.float())
        mapped = score_map(scores)
        assert mapped.dtype == torch.float32 and torch.equal(mapped, expected)
        assert score_map.invert(scores).dtype == torch.float32
        whole = nn.Sequential(copy.deepcopy(score_map)).to(dtype)  # the whole model in half precision
        assert torch.equal(whole(scores), expected)


@pytest.mark.parametrize("change", ["half", "bfloat16", "float", "double"])
def test_change_of_precision_leaves_its_numbers(change):
    score_map = random_map(5, 1, contains=TRAINING, now=PriorRecord.balanced(5))
    before = copy.deepcopy(score_map)
    same_map(getattr(score_map, change)(), before)
    model = nn.Sequential(nn.Linear(3, 5), score_map)
    getattr(model, change)()
    assert score_map.scale.dtype == score_map.offset.dtype == torch.float64
    same_map(score_map, before)
    assert torch.equal(score_map(torch.ones(1, 5)), before(torch.ones(1, 5)))


def test_temperature_divides_the_scores_before_priors_come_in():
    scores, a, b = random_scores(4, 5), random_priors(5, 1), random_priors(5, 2)
    score_map = ScoreMap(5, shift=3.0, contains=PriorRecord.given(a).to_power(1.5)).with_temperature(2.0)
    want = ((scores + 3.0) / 2 + 1.5 * (b / a).log()).log_softmax(1)
    torch.testing.assert_close(
        score_map.under(PriorRecord.given(b).to_power(1.5))(scores).log_softmax(1), want
    )
    late = ScoreMap(5, shift=3.0, contains=PriorRecord.given(a).to_power(1.5))
    late = late.under(PriorRecord.given(b).to_power(1.5)).with_temperature(2.0)
    torch.testing.assert_close(late(scores).log_softmax(1), want)
    got = ScoreMap(5, contains=None).with_temperature(4.0)(scores)  # scores without a record may be scaled
    torch.testing.assert_close(got, scores / 4)


@pytest.mark.parametrize("exponent", [-0.4, 0.0, 0.7, 1.0, 1.8])
def test_identified_map_gives_the_posterior_that_was_fitted(exponent):
    """Of scores s with softmax(s / T + t log priors) = posterior, whatever the map made of s before."""
    posterior = random_scores(6, 5).softmax(1)
    fitted = 2.5 * (posterior.log() - exponent * TRAINING.log_priors)
    for first in (ScoreMap(5, contains=None), random_map(5, 3), ScoreMap(5, contains=TRAINING)):
        raw = first.invert(fitted)
        found = first.identified(TRAINING, temperature=2.5, exponent=exponent)
        assert found.now is TRAINING and found.contains.same_as(TRAINING.to_power(1 - exponent))
        torch.testing.assert_close(found(raw).softmax(1), posterior)
        torch.testing.assert_close(found.log_posterior(raw, priors=TRAINING).exp(), posterior)
        balanced = posterior / TRAINING.priors
        torch.testing.assert_close(
            found.under("balanced")(raw).softmax(1), balanced / balanced.sum(1, keepdim=True)
        )


def test_golden_posteriors_and_values(golden):
    reference, checked = golden("score_map"), 0
    for case in reference.cases:
        if case["kind"] != "score_map":
            continue
        params = case["params"]
        scores = reference.shared["logits"] / params["input_divisor"]
        contains, rows, importance = (
            PriorRecord.given(tensor(params[key]))
            for key in ("scores_prior", "rows_prior", "class_importance")
        )
        score_map = ScoreMap(scores.shape[1], scale=params["scale"], contains=contains)
        log_posterior = score_map.log_posterior(scores, priors=rows)
        torch.testing.assert_close(log_posterior, tensor(case["log_posterior"]), rtol=0, atol=1e-12)
        log_value = log_posterior + importance.log_priors - rows.log_priors
        torch.testing.assert_close(log_value, tensor(case["log_value"]), rtol=0, atol=1e-12)
        checked += 1
    assert checked == 3


def test_golden_weighted_logit_adjusted_loss(golden):
    reference = golden("score_map")
    (case,) = [case for case in reference.cases if case["kind"] == "weighted_logit_adjusted"]
    params = case["params"]
    options = {
        "class_counts": 1e6 * reference.shared["priors"],
        "tau": params["tau"],
        "weight": tensor(params["weight"]),
    }
    target, wanted = reference.shared["targets"], tensor(case["rows"])
    logits = reference.shared["logits"].clone().requires_grad_()
    loss = logit_adjusted_loss(logits, target, **options)
    loss.backward()
    assert loss.item() == pytest.approx(case["loss"], abs=1e-12)
    torch.testing.assert_close(logits.grad, tensor(case["grad"]), rtol=0, atol=1e-12)
    rows = logit_adjusted_loss(logits.detach(), target, **options, reduction="none")
    torch.testing.assert_close(rows / options["weight"][target], wanted, rtol=0, atol=1e-12)
    assert LogitAdjustedLoss(**options)(logits, target).item() == pytest.approx(case["loss"], abs=1e-12)


# as a module


def test_map_is_saved_loaded_pickled_copied_and_moved():
    scores = torch.randn(4, 5)
    layer = ScoreMap(5, scale=1 / 3, contains=TRAINING.to_power(0.5)).under("balanced").noted("by hand")
    assert set(layer.state_dict()) == {"_extra_state"}
    assert not list(layer.parameters())
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = ScoreMap(5, shift=torch.arange(5.0), contains=None)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    for twin in (fresh, pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert torch.equal(twin(scores), layer(scores))
        same_map(twin, layer)
        assert twin.note == "by hand"
    assert layer.to("meta")(scores.to("meta")).shape == (4, 5)  # no value is looked at


def test_state_of_a_model_carries_the_record_through_safetensors(tmp_path):
    save_file, load_file = (
        getattr(pytest.importorskip("safetensors.torch"), name) for name in ("save_file", "load_file")
    )
    score_map = random_map(5, 2, contains=TRAINING.to_power(0.25), now=PriorRecord.balanced(5))
    model = nn.Sequential(nn.Linear(3, 5), score_map)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    fresh = nn.Sequential(nn.Linear(3, 5), ScoreMap(5, contains=None))
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
    features = torch.randn(4, 3)
    assert torch.equal(fresh(features), model(features))
    same_map(fresh[1], score_map)
    assert fresh[1].contains.words() == "the training priors to the power 0.25"
    assert fresh[1].now.words() == "balanced priors"


@given(c=st.integers(1, 6), seed=st.integers(0, 99), per_class=st.booleans(), kind=st.integers(0, 2))
def test_map_is_written_and_read_to_the_bit(c, seed, per_class, kind):
    contains = None if kind == 0 else PriorRecord("training", random_priors(c, seed).log())
    now = given_priors(c, seed + 1) if kind == 2 else None
    score_map = random_map(c, seed, per_class=per_class, contains=contains, now=now)
    content = json.loads(json.dumps(score_map.to_dict()))
    read = ScoreMap.from_dict(content)
    same_map(read, score_map)
    scores = random_scores(3, c, seed)
    assert torch.equal(read(scores), score_map(scores))
    assert torch.equal(read.invert(scores), score_map.invert(scores))


@pytest.mark.compiled
def test_map_exports_with_a_model_to_a_graph_and_to_onnx(tmp_path):
    score_map = random_map(5, 1, contains=TRAINING, now=PriorRecord.balanced(5)).with_temperature(2.0)
    model = nn.Sequential(nn.Linear(3, 5), score_map).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(model, (torch.randn(4, 3),), dynamic_shapes=({0: batch},))
    features = torch.randn(7, 3)
    torch.testing.assert_close(exported.module()(features), model(features))
    onnxruntime = pytest.importorskip("onnxruntime")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own parts
        torch.onnx.export(exported, dynamo=True, verbose=False).save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: features.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), model(features).detach(), rtol=1e-5, atol=1e-5)


# algebra


@given(c=st.integers(2, 6), seeds=st.tuples(*[st.integers(0, 999)] * 3), per_class=st.booleans())
def test_composition_is_the_formula_and_associative(c, seeds, per_class):
    contains, now = given_priors(c, seeds[0]), given_priors(c, seeds[1])
    first, second = (random_map(c, seed, per_class=per_class) for seed in seeds[:2])
    third = random_map(c, seeds[2], contains=contains, now=now)
    scores = random_scores(3, c, seeds[0])
    left, right = first.then(second).then(third), first.then(second.then(third))
    for composed in (left, right):
        torch.testing.assert_close(composed(scores), third(second(first(scores))), rtol=1e-12, atol=1e-12)
        assert composed.contains is contains and composed.now is now
    torch.testing.assert_close(left.scale, right.scale, rtol=1e-14, atol=0)
    torch.testing.assert_close(left.shift, right.shift, rtol=1e-13, atol=1e-13)
    (a1, a2), (b1, b2) = ([getattr(m, k).expand(c) for m in (first, second)] for k in ("scale", "shift"))
    both = first.then(second)
    assert both.scale.expand(c).tolist() == [float(a2[j]) * float(a1[j]) for j in range(c)]
    assert both.shift.expand(c).tolist() == [float(a2[j]) * float(b1[j]) + float(b2[j]) for j in range(c)]
    assert both.contains is None and both.now is None


@given(c=st.integers(2, 6), seed=st.integers(0, 999))
def test_conversions_compose_at_the_end(c, seed):
    a, b, d = (given_priors(c, seed + i) for i in range(3))
    first, known = random_map(c, seed), random_map(c, seed + 1, contains=a)
    one, two = ScoreMap(c, contains=a, now=b), ScoreMap(c, contains=b, now=d)
    left, right = first.then(known).then(one).then(two), first.then(known.then(one.then(two)))
    same_map(left, right)
    same_map(left, first.then(known).under(d))
    scores = random_scores(3, c, seed)
    torch.testing.assert_close(left(scores), two(one(known(first(scores)))), rtol=1e-12, atol=1e-12)


@given(c=st.integers(1, 6), seed=st.integers(0, 999), per_class=st.booleans())
def test_inverse_returns_the_scores(c, seed, per_class):
    score_map = random_map(
        c, seed, per_class=per_class, contains=given_priors(c, seed), now=given_priors(c, seed + 1)
    )
    scores = random_scores(3, c, seed)
    torch.testing.assert_close(score_map.invert(score_map(scores)), scores, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(score_map(score_map.invert(scores)), scores, rtol=1e-12, atol=1e-12)
    single = score_map.invert(score_map(scores.float()))
    torch.testing.assert_close(single, scores.float(), rtol=1e-4, atol=1e-4)


@given(c=st.integers(1, 6), seed=st.integers(0, 999), kind=st.sampled_from(["balanced", "given", "vector"]))
def test_priors_are_assigned_and_never_added(c, seed, kind):
    score_map = random_map(c, seed, contains=given_priors(c, seed))
    x = {
        "balanced": "balanced",
        "given": given_priors(c, seed + 1),
        "vector": random_priors(c, seed + 1),
    }[kind]
    scores, once = random_scores(3, c, seed), score_map.under(x)
    same_map(once.under(x), once)
    same_map(score_map.under(given_priors(c, seed + 2)).under(x), once)
    assert torch.equal(once.under(x)(scores), once(scores))
    same_map(once.under(score_map.contains), score_map)
    same_map(score_map, random_map(c, seed, contains=given_priors(c, seed)))  # a map is a value


def test_same_conversion_twice_is_refused():
    balance = ScoreMap(5, contains=TRAINING).under("balanced")
    first = ScoreMap(5, scale=2.0, contains=TRAINING)
    once = first.then(balance)
    same_map(once, first.under("balanced"))
    with pytest.raises(
        ValueError,
        match=r"second must take .*\(balanced priors\), got .* training priors",
    ):
        once.then(balance)
    back = ScoreMap(5, contains=PriorRecord.balanced(5)).under(TRAINING)
    same_map(once.then(back), first)


def test_scaling_after_a_conversion_is_refused():
    balanced = ScoreMap(5, contains=TRAINING).under("balanced")
    for second in (
        ScoreMap(5, scale=2.0, contains=PriorRecord.balanced(5)),
        ScoreMap(5, shift=torch.arange(5.0), contains=None),
    ):
        with pytest.raises(
            ValueError, match="second must not scale or shift scores whose priors were converted"
        ):
            balanced.then(second)
    same_map(balanced.then(ScoreMap(5, contains=None)), balanced)  # nothing to do


def test_unknown_priors_refuse_every_use_of_priors():
    scores = torch.randn(2, 3)
    unknown = normalization_map(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3))
    training = PriorRecord.training(torch.tensor([3, 2, 1]))
    for call, wanted in (
        (lambda: unknown.under("balanced"), "balanced priors"),
        (lambda: unknown.under(training), "the training priors"),
        (lambda: unknown.under(torch.full((3,), 1 / 3)), "given priors"),
        (lambda: unknown.with_temperature(2.0).under("balanced"), "balanced priors"),
        (lambda: unknown.log_posterior(scores, priors=training), "the training priors"),
        (
            lambda: unknown.then(ScoreMap(3, contains=training, now=training.to_power(0.5))),
            "to the power 0.5",
        ),
        (lambda: unknown.then(ScoreMap(3, contains=training)), "the training priors"),
        (lambda: ScoreMap(3, contains=None, now=training), "the training priors"),
        (lambda: ScoreMap(3, contains=training).then(unknown).under("balanced"), "balanced priors"),
    ):
        with pytest.raises(
            UnknownPriorError,
            match=f"unknown class priors .*{wanted}: fit their temperature",
        ):
            call()
    assert issubclass(UnknownPriorError, ValueError)
    # what needs no priors is allowed, and a fit makes them known
    torch.testing.assert_close(unknown(scores), scores / torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(unknown.invert(unknown(scores)), scores)
    known = unknown.identified(training, temperature=1.5, exponent=0.3).under("balanced")
    assert known.now.words() == "balanced priors"


# words


def test_map_says_what_its_scores_are():
    score_map = ScoreMap(5, contains=TRAINING)
    assert score_map.words() == "The scores are log-posteriors under the training priors."
    assert score_map.under("balanced").words() == "The scores are log-posteriors under balanced priors."
    noted = score_map.under("balanced").noted("fitted on 30 rows")
    assert noted.words() == "The scores are log-posteriors under balanced priors: fitted on 30 rows."
    assert noted.under(TRAINING).note == "fitted on 30 rows"
    unknown = ScoreMap(5, contains=None)
    assert unknown.words() == "The scores only put the classes in order; they are not log-probabilities."
    assert repr(score_map.under("balanced")) == (
        "ScoreMap(5, contains: the training priors, now: balanced priors)"
    )
    assert repr(unknown) == "ScoreMap(5, contains: unknown, now: unknown)"


# errors

SCORES, TARGET = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])
MAP = ScoreMap(2, contains=PriorRecord.given(torch.tensor([0.75, 0.25])))


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MAP(SCORES[0]), r"scores must be .* shape \(n, c\), got"),
        (lambda: MAP(TARGET[:, None]), "scores must be a floating tensor"),
        (lambda: MAP(torch.zeros(2, 3)), "scores must have 2 classes, got 3"),
        (lambda: MAP.invert(torch.zeros(2, 3)), "scores must have 2 classes, got 3"),
        (lambda: MAP.under(torch.tensor([1.0, 0.0])), "priors must be > 0, got 0.0 for class 1"),
        (lambda: MAP.under(torch.tensor([3.0, 1.0])), "priors must add up to 1, got 4"),
        (lambda: MAP.under(torch.tensor([2.0, -1.0])), "priors must be .* >= 0, got -1"),
        (lambda: MAP.under(torch.tensor([1.0, math.nan])), "priors must be finite .* got nan"),
        (lambda: MAP.under(torch.ones(3) / 3), r"now must have one prior per class \(2\), got 3"),
        (lambda: MAP.under("uniform"), "priors must be one of balanced, got 'uniform'"),  # type: ignore
        (
            lambda: MAP.under([0.5, 0.5]),  # type: ignore
            r"priors must be a PriorRecord, a tensor of shape \(c,\) or 'balanced', got a list",
        ),
        (lambda: MAP.with_temperature(0.0), "temperature must be > 0, got 0.0"),
        (lambda: MAP.with_temperature(math.nan), "temperature must be a finite number > 0, got nan"),
        (
            lambda: MAP.identified(MAP.contains, temperature=1.0, exponent=math.inf),  # type: ignore
            "exponent must be a finite number, got inf",
        ),
        (lambda: MAP.then(ScoreMap(3, contains=None)), "second must have 2 classes, got 3"),
        (
            lambda: ScoreMap(2, contains=PriorRecord.balanced(4)),
            r"contains must have one prior per class \(2\), got 4",
        ),
        (lambda: ScoreMap(0, contains=None), "num_classes must be an integer >= 1, got 0"),
        (lambda: ScoreMap(2, scale=0.0, contains=None), "scale must be > 0, got 0.0"),
        (lambda: ScoreMap(2, scale=torch.tensor([1.0, -1.0]), contains=None), "scale must be > 0, got -1.0"),
        (lambda: ScoreMap(2, scale=math.inf, contains=None), "scale must be a finite number, got inf"),
        (lambda: ScoreMap(2, scale=torch.tensor(math.inf), contains=None), "scale must be .* got inf"),
        (lambda: ScoreMap(2, shift=torch.tensor(math.nan), contains=None), "shift must be .* got nan"),
        (lambda: ScoreMap(2, shift=torch.tensor([0.0, -math.inf]), contains=None), "finite, got -inf"),
        (
            lambda: ScoreMap(2, shift=torch.zeros(3), contains=None),
            r"shift must be one number or one per class \(2\), got shape \(3,\)",
        ),
        (lambda: ScoreMap.from_dict({**MAP.to_dict(), "format": "other"}), "its format is 'other'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.errors
def test_a_shift_that_takes_the_priors_out_cannot_be_applied_twice():
    """By hand, without a conversion: what the second map says of its result would not be true."""
    training = PriorRecord.training(torch.tensor([9, 1]))
    by_hand = ScoreMap(2, shift=-training.log_priors, contains=PriorRecord.balanced(2))
    start = ScoreMap(2, contains=training)
    assert start.then(by_hand).now.same_as(PriorRecord.balanced(2))
    with pytest.raises(
        ValueError, match=r"second must say what its shift makes of balanced priors.*applied twice"
    ):
        start.then(by_hand).then(by_hand)
