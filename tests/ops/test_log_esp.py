import mpmath
import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck

from shortlist.ops import log_esp, log_esp_ratio
from tests import references


@given(
    c=st.integers(1, 9),
    scale=st.sampled_from([1e-3, 0.3, 1.0, 30.0, 1e4]),
    ties=st.booleans(),
    data=st.data(),
)
def test_equals_the_sum_over_subsets(c, scale, ties, data):
    k = data.draw(st.integers(1, c))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    scores = torch.randn(3, c, dtype=torch.float64, generator=generator)
    scores = scale * (scores.round() if ties else scores)
    low, high = log_esp(scores, k=k)
    want_low, want_high = (references.rows(references.log_esp, scores, [size] * 3) for size in (k - 1, k))
    magnitude = 1 + scores.abs().sum(1)
    assert ((low - want_low).abs() < 1e-13 * magnitude).all()
    assert ((high - want_high).abs() < 1e-13 * magnitude).all()
    assert ((log_esp_ratio(scores, k=k) - (want_high - want_low)).abs() < 1e-13 * magnitude).all()


@pytest.mark.parametrize(("c", "k"), [(1, 1), (2, 1), (5, 2), (7, 6), (6, 6), (8, 4)])
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_gradients(c, k, scale):
    scores = (scale * torch.randn(2, c, dtype=torch.float64)).requires_grad_()
    assert gradcheck(lambda s: log_esp(s, k=k), (scores,))
    assert gradcheck(lambda s: log_esp_ratio(s, k=k), (scores,))


def exact_ratio(row, k):
    """log(e_k / e_{k-1}) with 60 digits, by the recursion over terms."""
    mpmath.mp.dps = 60
    terms = [mpmath.exp(mpmath.mpf(float(s))) for s in row]
    e = [mpmath.mpf(1)] + [mpmath.mpf(0)] * k
    for term in terms:
        for i in range(k, 0, -1):
            e[i] += term * e[i - 1]
    return float(mpmath.log(e[k] / e[k - 1]))


@pytest.mark.parametrize("k", [1, 5, 20, 100])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0, 1e4])
def test_float32_is_stable_for_all_ranges(k, scale):
    scores = scale * torch.randn(2, 300)
    got = log_esp_ratio(scores, k=k)
    want = torch.tensor([exact_ratio(row, k) for row in scores])
    assert got.dtype == torch.float32
    assert ((got - want).abs() <= 2e-6 * (1 + scores.abs().amax(1))).all()


@pytest.mark.parametrize("k", [3, 60])
def test_gradient_is_the_chance_to_be_in_the_subset(k):
    scores = (5 * torch.randn(4, 200)).requires_grad_()
    _, high = log_esp(scores, k=k)
    (included,) = torch.autograd.grad(high.sum(), scores)
    assert (included >= 0).all() and (included <= 1 + 1e-5).all()
    torch.testing.assert_close(included.sum(1), torch.full((4,), float(k)), rtol=1e-5, atol=0)


def test_a_gap_that_underflows_is_exact():
    scores = torch.tensor([[1e4, 1e4, 1e4, 0.0, 0.0]])
    assert log_esp_ratio(scores, k=3).item() == pytest.approx(1e4 - torch.tensor(3.0).log().item(), abs=2e-3)
    assert log_esp_ratio(scores, k=4).item() == pytest.approx(torch.tensor(2.0).log().item(), abs=1e-5)


def test_masked_scores():
    scores = torch.tensor([[1.0, -torch.inf, 2.0, -torch.inf], [-torch.inf] * 4], requires_grad=True)
    low, high = log_esp(scores, k=2)
    assert low[0].item() == pytest.approx(torch.tensor([1.0, 2.0]).logsumexp(0).item())
    assert high[0].item() == pytest.approx(3.0)
    assert low[1] == -torch.inf and high[1] == -torch.inf
    ratio = log_esp_ratio(scores, k=3)
    assert (ratio == -torch.inf)[0]
    (gradient,) = torch.autograd.grad(high[0] + low[0], scores)
    assert torch.isfinite(gradient).all() and gradient[0, 1] == 0


def test_nan_is_not_hidden():
    scores = torch.zeros(2, 5)
    scores[1, 3] = torch.nan
    ratio = log_esp_ratio(scores, k=2)
    assert ratio[0] == pytest.approx(torch.tensor(2.0).log().item()) and ratio[1].isnan()


@pytest.mark.errors
def test_bad_input():
    with pytest.raises(ValueError, match=r"k must be an integer >= 1, got 0"):
        log_esp(torch.zeros(2, 3), k=0)
    with pytest.raises(ValueError, match=r"k must be <= the number of classes \(3\), got 4"):
        log_esp_ratio(torch.zeros(2, 3), k=4)
    with pytest.raises(ValueError, match=r"scores must be a floating tensor of shape \(n, c\)"):
        log_esp(torch.zeros(3), k=1)


def test_second_derivatives_are_refused():
    scores = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        torch.autograd.grad(log_esp_ratio(scores, k=2).sum(), scores, create_graph=True)
