import copy
import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from shortlist.models.heads import CosineHead, TwoHead
from shortlist.scores import fit_normalization, normalization_map, normalize_classifier, normalize_weights
from tests.scores.rows import HALF


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 2.0])
def test_normalized_weights_are_the_formula(tau):
    weight = torch.randn(4, 3, dtype=torch.float64)
    result = normalize_weights(weight, tau=tau)
    for row, expected in zip(result.tolist(), weight.tolist(), strict=True):
        norm = math.sqrt(sum(value * value for value in expected))
        assert row == pytest.approx([value / norm**tau for value in expected])


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
@pytest.mark.parametrize("bias", [True, False])
def test_normalized_classifier_is_a_copy_with_its_bias(dtype, bias):
    layer = nn.Linear(3, 4, bias=bias, dtype=dtype)
    before, state = layer.weight.clone(), torch.get_rng_state()
    result = normalize_classifier(layer, tau=0.5)
    assert torch.equal(torch.get_rng_state(), state)
    assert result is not layer and torch.equal(layer.weight, before)
    assert result.weight.dtype == dtype and result.weight.requires_grad
    assert torch.equal(result.weight, normalize_weights(before, tau=0.5))
    if bias:
        assert torch.equal(result.bias, layer.bias) and result.bias is not layer.bias
    else:
        assert result.bias is None


def test_normalized_classifier_of_a_model_is_found_by_name():
    model = nn.Sequential(nn.Linear(3, 4), TwoHead(4, 5))
    before = copy.deepcopy(model.state_dict())
    result = normalize_classifier(model, name="1.set_head")
    changed = {key for key, value in result.state_dict().items() if not value.equal(before[key])}
    assert changed == {"1.set_head.weight"} and isinstance(result, nn.Sequential)
    torch.testing.assert_close(result[1].set_head.weight.norm(dim=1), torch.ones(5))
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())


@pytest.mark.errors
def test_only_linear_layers_are_normalized():
    for model, name, found in (
        (TwoHead(4, 5), None, "'set_head', 'proposal_head'"),
        (nn.Sequential(nn.Linear(3, 4)), "1", "'0'"),
        (CosineHead(4, 3), None, "none"),
    ):
        with pytest.raises(
            ValueError, match=rf"name must be that of a linear layer, got {name!r}; linear layers: {found}$"
        ):
            normalize_classifier(model, name=name)


def test_half_precision_norms_do_not_overflow():
    weight = torch.full((2, 300), 30000.0, dtype=torch.float16)
    torch.testing.assert_close(
        normalize_weights(weight).float(), torch.full((2, 300), 300**-0.5), rtol=1e-3, atol=0
    )


# as a map of the scores


@given(c=st.integers(1, 6), seed=st.integers(0, 99), tau=st.floats(-1, 2), bias=st.booleans())
def test_map_with_offsets_kept_is_running_the_normalized_classifier(c, seed, tau, bias):
    torch.manual_seed(seed)
    layer = nn.Linear(3, c, bias=bias, dtype=torch.float64).requires_grad_(False)
    offsets = layer.bias if bias else torch.zeros(c)
    features = torch.randn(5, 3, dtype=torch.float64)
    score_map = normalization_map(layer.weight.norm(dim=1), offsets, tau=tau)
    wanted = normalize_classifier(layer, tau=tau)(features)
    torch.testing.assert_close(score_map(layer(features)), wanted, rtol=1e-12, atol=1e-12)
    assert score_map.contains is None and score_map.now is None


@given(c=st.integers(1, 6), seed=st.integers(0, 99), tau=st.floats(-1, 2))
def test_map_with_offsets_scaled_divides_them_along(c, seed, tau):
    """As a classifier whose [w, b] are divided by a power of the norm of [w, b]; by loops."""
    torch.manual_seed(seed)
    layer = nn.Linear(3, c, dtype=torch.float64).requires_grad_(False)
    features = torch.randn(5, 3, dtype=torch.float64)
    score_map = normalization_map(layer.weight.norm(dim=1), layer.bias, tau=tau, offset="scaled")
    mapped = score_map(layer(features))
    for i, x in enumerate(features.tolist()):
        for j, (w, b) in enumerate(zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)):
            norm = math.sqrt(sum(value * value for value in [*w, b]))
            expected = sum(value / norm**tau * part for value, part in zip(w, x, strict=True)) + b / norm**tau
            assert float(mapped[i, j]) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert score_map.contains is None


def test_map_of_tau_0_and_of_unit_norms_is_the_identity():
    scores, offsets = torch.randn(4, 3), torch.tensor([1.0, -2.0, 0.0])
    for offset in ("kept", "scaled"):
        score_map = normalization_map(torch.tensor([0.5, 2.0, 9.0]), offsets, tau=0.0, offset=offset)
        assert torch.equal(score_map(scores), scores)
    assert torch.equal(normalization_map(torch.ones(3), offsets)(scores), scores)


def test_class_without_weights_has_a_direction_only_with_its_offset():
    norms, offsets = torch.tensor([0.0, 1.0]), torch.tensor([4.0, 0.0])
    mapped = normalization_map(norms, offsets, offset="scaled")(torch.tensor([[4.0, 3.0]]))
    torch.testing.assert_close(mapped, torch.tensor([[1.0, 3.0]]))
    with pytest.raises(ValueError, match="norms must be > 0, got 0 for class 0"):
        normalization_map(norms, offsets)
    with pytest.raises(ValueError, match="norms must be > 0, got 0 for class 0"):
        normalization_map(norms, torch.zeros(2), offset="scaled")


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: normalize_weights(torch.zeros(2, 3)), "norm > 0, got 0.0 in row 0"),
        (lambda: normalize_weights(torch.tensor([[1.0], [math.nan]])), "finite norm .* got nan in row 1"),
        (lambda: normalize_weights(torch.ones(3)), r"weight must be .* \(c, d\), got torch.float32 \(3,\)"),
        (lambda: normalize_weights(torch.ones(2, 2), tau=math.nan), "tau must be"),
        (lambda: normalization_map(torch.ones(2), torch.zeros(2), tau=math.nan), "tau must be"),
        (
            lambda: normalization_map(torch.ones(2), torch.zeros(2), offset="dropped"),  # type: ignore
            "offset must be one of kept, scaled, got 'dropped'",
        ),
        (
            lambda: normalization_map(torch.tensor([1.0, math.inf]), torch.zeros(2)),
            "norms must be finite .* got inf",
        ),
        (
            lambda: normalization_map(torch.ones(2), torch.zeros(3)),
            r"offsets must be finite and of shape \(2,\), got \(3,\)",
        ),
        (lambda: normalization_map(torch.ones(1), torch.tensor([math.nan])), "offsets must be finite"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_priors_in_place_of_norms():
    """Kim and Kim: w x / pi^tau, whatever the norms."""
    weight, bias, features = torch.randn(4, 3), torch.randn(4), torch.randn(7, 3)
    priors = torch.tensor([0.6, 0.25, 0.1, 0.05])
    scores, norms = features @ weight.T + bias, weight.norm(dim=1)
    scaled = normalization_map(norms, bias, tau=0.3, offset="scaled", priors=priors)
    torch.testing.assert_close(scaled(scores), scores / priors**0.3)
    kept = normalization_map(norms, bias, tau=0.3, offset="kept", priors=priors)
    torch.testing.assert_close(kept(scores), features @ (weight / priors[:, None] ** 0.3).T + bias)


@pytest.mark.parametrize("by_prior", [False, True])
def test_fitted_strength_has_the_least_balanced_error(by_prior):
    target = torch.randint(4, (300,))
    norms, offsets = torch.tensor([4.0, 2.0, 1.0, 0.5]), torch.randn(4)
    priors = torch.tensor([0.6, 0.25, 0.1, 0.05]) if by_prior else None
    divisor = norms if priors is None else priors
    clean = torch.randn(300, 4) + 2 * torch.nn.functional.one_hot(target, 4)
    scores = clean * divisor**0.8
    grid = torch.linspace(0, 2, 9, dtype=torch.float64)
    options = {"offset": "scaled", "priors": priors, "grid": grid, "standard_errors": 0}
    # scaled by norms, the offset is part of the vector
    norms = norms if by_prior else (norms**2 - offsets.clamp(-0.4, 0.4) ** 2).sqrt()
    fit = fit_normalization(scores, target, norms, offsets.clamp(-0.4, 0.4), **options)
    for place, tau in enumerate(grid.tolist()):
        predicted = (scores / divisor**tau).argmax(1)
        errors = [float((predicted[target == j] != j).double().mean()) for j in range(4)]
        assert fit.curve[place] == pytest.approx(sum(errors) / 4)
    assert fit.balanced_error == pytest.approx(float(fit.curve.min()))
    assert abs(fit.tau - 0.8) <= 0.5
