import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck

from shortlist.ops import perturbed_topk
from shortlist.ops._cpu import draws as cpu_draws
from shortlist.ops.expected_topk import leave_out
from tests import references
from tests.conftest import tensor

EXACT = {"num_samples": None, "tolerance": 1e-13, "num_nodes": 64}


def test_worked_example_of_the_paper():
    scores = torch.tensor([[2.4, 2.6, 2.3, 0.5]], dtype=torch.float64, requires_grad=True)
    draws = [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]]
    value = perturbed_topk(scores, k=2, noise_std=1.0, noise=tensor(draws)[:, None])
    value.sum().backward()
    assert value.item() == pytest.approx(7.4 / 3, abs=1e-12)
    torch.testing.assert_close(scores.grad, tensor([[1 / 3, 1 / 3, 1 / 3, 0]]), rtol=0, atol=1e-12)


def test_golden(golden):
    reference = golden("noised_topk")
    cases = [case for case in reference.cases if case["kind"] == "noised_topk"]
    assert len(cases) > 50
    for case in cases:
        inputs, params = reference.inputs(case), case["params"]
        scores = inputs["s"].requires_grad_()
        noise = inputs["Z"].permute(2, 0, 1)
        value = perturbed_topk(scores, k=params["k"], noise_std=params["eps"], noise=noise)
        value.sum().backward()
        torch.testing.assert_close(value.detach(), tensor(case["value"]), rtol=0, atol=1e-12)
        torch.testing.assert_close(scores.grad, tensor(case["grad_of_sum"]), rtol=0, atol=1e-12)


@given(c=st.integers(2, 8), seed=st.integers(0, 99), data=st.data())
def test_given_noise_equals_a_loop_over_draws(c, seed, data):
    k = data.draw(st.integers(1, c))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, c, dtype=torch.float64, generator=generator)
    noise = torch.randn(4, 3, c, dtype=torch.float64, generator=generator)
    got = perturbed_topk(scores, k=k, noise_std=0.7, noise=noise)
    want = torch.stack([references.perturbed_topk(scores[i], k, 0.7, noise[:, i]) for i in range(3)])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_draws_come_from_the_generator():
    scores = torch.randn(4, 30)
    first, again, other = (
        perturbed_topk(scores, k=3, noise_std=0.5, generator=torch.Generator().manual_seed(s))
        for s in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_unpruned_draws_are_the_generators():
    scores = 0.1 * torch.randn(4, 30)
    noise = torch.randn(5, 4, 30, generator=torch.Generator().manual_seed(3))
    drawn = perturbed_topk(scores, k=3, noise_std=1.0, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(drawn, perturbed_topk(scores, k=3, noise_std=1.0, noise=noise))


@pytest.mark.parametrize("num_samples", [None, 3])
def test_no_noise_is_the_plain_kth_value(num_samples):
    scores = torch.randn(5, 20, requires_grad=True)
    value = perturbed_topk(scores, k=4, noise_std=0.0, num_samples=num_samples)
    value.sum().backward()
    assert torch.equal(value, scores.topk(4).values[:, 3])
    assert torch.equal(scores.grad.sum(1), torch.ones(5)) and (scores.grad == 1).sum() == 5


def kinds_of_scores(c: int, k: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Rows that a quadrature may find hard."""

    def noise(std):
        return std * torch.randn(1, c, dtype=torch.float64, generator=generator)

    crowd = noise(0.3)
    crowd[:, : max(1, k // 2)] += 2
    certain = noise(3.0)
    certain[:, : k - 1] += 30
    far = noise(0.1)
    far[:, :k] += 1e4
    lone = noise(0.05)
    lone[:, 0] += 1.0
    return {
        "flat": noise(0.0),
        "near": noise(0.1),
        "tied": noise(2.0).round(),
        "spread": noise(3.0),
        "crowd": crowd,
        "certain": certain,
        "far": far,
        "lone": lone,
    }


SIZES = [(c, k) for c in (2, 5, 40, 300) for k in (1, 2, 6, 21, 101) if k < c]


@pytest.mark.parametrize(("c", "k"), SIZES)
@pytest.mark.parametrize("noise_std", [0.2, 1.0])
def test_exact_equals_a_fine_integral(c, k, noise_std):
    for name, scores in kinds_of_scores(c, k, torch.Generator().manual_seed(c * k)).items():
        want = references.expected_topk(scores[0], k, noise_std)
        tight = perturbed_topk(scores, k=k, noise_std=noise_std, **EXACT).item()
        usual = perturbed_topk(scores, k=k, noise_std=noise_std, num_samples=None).item()
        assert abs(tight - want) < 1e-9 * noise_std + 1e-11 * abs(want), name
        assert abs(usual - want) < 1e-5 * noise_std, name  # the bound stated in the documentation


@pytest.mark.parametrize(("c", "k"), [(5, 2), (40, 6), (300, 1), (300, 51), (1000, 11), (1000, 101)])
def test_exact_gradient_at_the_usual_settings(c, k):
    """Stated bound: 1e-4 in the sum of absolute differences; the tight settings are the reference."""
    for name, scores in kinds_of_scores(c, k, torch.Generator().manual_seed(c + k)).items():
        gradients = []
        for settings in (EXACT, {"num_samples": None}):
            leaf = scores.clone().requires_grad_()
            perturbed_topk(leaf, k=k, noise_std=0.5, **settings).sum().backward()
            gradients.append(leaf.grad)
        assert (gradients[0] - gradients[1]).abs().sum() < 1e-4, name
        assert gradients[0].sum().item() == pytest.approx(1, abs=1e-9), name
        assert (gradients[0] >= 0).all(), name


@pytest.mark.parametrize(("c", "k"), [(2, 1), (3, 3), (6, 2), (9, 8)])
@pytest.mark.parametrize("noise_std", [0.3, 2.0])
def test_exact_gradcheck(c, k, noise_std):
    scores = torch.randn(2, c, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: perturbed_topk(s, k=k, noise_std=noise_std, **EXACT), (scores,))


@pytest.mark.parametrize(("k", "noise_std"), [(1, 1.0), (3, 0.3), (6, 0.05)])
def test_exact_equals_a_million_draws(k, noise_std):
    scores = torch.randn(1, 12, dtype=torch.float64).requires_grad_()
    generator = torch.Generator().manual_seed(k)
    draws, half = 1_000_000, 500_000
    noisy = [
        scores.detach() + noise_std * torch.randn(half, 12, dtype=torch.float64, generator=generator)
        for _ in range(2)
    ]
    kth, index = torch.cat(noisy).topk(k).values[:, -1], torch.cat(noisy).topk(k).indices[:, -1]
    value = perturbed_topk(scores, k=k, noise_std=noise_std, num_samples=None)
    value.sum().backward()
    assert abs(value.item() - kth.mean().item()) < 4.5 * kth.std().item() / draws**0.5
    share = torch.bincount(index, minlength=12) / draws
    spread = (share * (1 - share) / draws).sqrt()
    assert ((scores.grad[0] - share).abs() <= 4.5 * spread + 1e-5).all()


@given(seed=st.integers(0, 999), k=st.integers(1, 7), noise_std=st.sampled_from([0.05, 0.5, 3.0]))
def test_published_bounds(seed, k, noise_std):
    """|top_k,eps - top_k| <= eps k sqrt(2 log L); the smoothed k-th lies between smoothed neighbors."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 8, dtype=torch.float64, generator=generator)
    smooth = perturbed_topk(scores, k=k, noise_std=noise_std, **EXACT)
    plain = scores.topk(k).values[:, -1]
    assert ((smooth - plain).abs() <= noise_std * k * math.sqrt(2 * math.log(8))).all()
    assert (perturbed_topk(scores, k=k + 1, noise_std=noise_std, **EXACT) < smooth).all()


@given(seed=st.integers(0, 999), k=st.integers(1, 6))
def test_smoothed_sum_of_the_top_is_lipschitz_and_convex(seed, k):
    """E of the sum of the k largest is sqrt(k)-Lipschitz, convex, with gradient sqrt(k L) / eps-Lipschitz."""
    generator = torch.Generator().manual_seed(seed)
    one, two = torch.randn(2, 1, 7, dtype=torch.float64, generator=generator)

    def top_sum(scores):
        leaf = scores.clone().requires_grad_()
        value = torch.stack(
            [perturbed_topk(leaf, k=i, noise_std=0.6, **EXACT) for i in range(1, k + 1)]
        ).sum()
        return value.item(), torch.autograd.grad(value, leaf)[0]

    (value_one, gradient_one), (value_two, gradient_two) = top_sum(one), top_sum(two)
    distance = (one - two).norm().item()
    assert abs(value_one - value_two) <= math.sqrt(k) * distance + 1e-9
    assert (gradient_one - gradient_two).norm() <= math.sqrt(k * 7) / 0.6 * distance + 1e-9
    assert top_sum((one + two) / 2)[0] <= (value_one + value_two) / 2 + 1e-9


@pytest.mark.parametrize("k", [1, 6, 30])
def test_leaving_classes_out_changes_nothing(k):
    generator = torch.Generator().manual_seed(k)
    scores = 5 * torch.randn(6, 400, dtype=torch.float64, generator=generator)
    near, index = leave_out(scores, scores.topk(k).values[:, -1:], k, 0.3, 1e-5)
    assert index is not None and near.shape[1] < 200  # the path is reached
    leaf = scores.clone().requires_grad_()
    value = perturbed_topk(leaf, k=k, noise_std=0.3, num_samples=None)
    value.sum().backward()
    for i in range(6):
        assert value[i].item() == pytest.approx(references.expected_topk(scores[i], k, 0.3), abs=3e-6)
    assert (leaf.grad > 0).sum() < 6 * 200 and leaf.grad.sum(1).tolist() == pytest.approx([1] * 6, abs=1e-4)


def test_leaving_classes_out_of_draws_keeps_the_distribution():
    scores = 5 * torch.randn(1, 400, dtype=torch.float64).requires_grad_()
    kth = cpu_draws.kth_largest_at_least(scores.detach(), 6)
    assert (
        kth <= scores.topk(6).values[:, -1] and leave_out(scores.detach(), kth, 6, 0.5, 1e-5)[1] is not None
    )
    draws = 200_000
    mean = perturbed_topk(scores, k=6, noise_std=0.5, num_samples=draws).item()
    exact = perturbed_topk(scores, k=6, noise_std=0.5, num_samples=None).item()
    assert abs(mean - exact) < 4.5 * 0.5 / draws**0.5


@pytest.mark.parametrize("settings", [{"num_samples": None}, {"num_samples": 4}])
def test_masked_and_nan_scores(settings):
    scores = torch.randn(4, 9)
    scores[0, 3:] = -torch.inf  # three left
    scores[1, 2:] = -torch.inf  # two left
    scores[2, 4] = torch.nan
    leaf = scores.clone().requires_grad_()
    value = perturbed_topk(leaf, k=3, noise_std=0.5, **settings)
    assert (
        torch.isfinite(value[0]) and value[1] == -torch.inf and value[2].isnan() and torch.isfinite(value[3])
    )
    (gradient,) = torch.autograd.grad(value[0] + value[3], leaf)
    assert torch.isfinite(gradient[[0, 3]]).all() and (gradient[0, 3:] == 0).all()


@pytest.mark.parametrize("settings", [{"num_samples": None}, {"num_samples": 2}])
def test_an_empty_batch(settings):
    assert perturbed_topk(torch.zeros(0, 5), k=2, noise_std=1.0, **settings).shape == (0,)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be an integer >= 1, got 0"),
        ({"k": 6}, r"k must be <= the number of classes \(5\), got 6"),
        ({"noise_std": -0.1}, r"noise_std must be >= 0, got -0.1"),
        ({"noise_std": math.nan}, "noise_std must be a finite number >= 0, got nan"),
        ({"num_samples": 0}, "num_samples must be an integer >= 1, got 0"),
        ({"tolerance": 0.0}, "tolerance must be > 0, got 0.0"),
        ({"noise": torch.zeros(2, 5)}, r"noise must have shape \(m, 2, 5\), got \(2, 5\)"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        perturbed_topk(torch.zeros(2, 5), **{"k": 2, "noise_std": 1.0, **arguments})


def check_draws_against_exact(scores, k, noise_std, draws):
    """Mean and shares of k-th places over many draws, against the exact expectation."""
    index, noise = cpu_draws.kth_of_draws(scores, k, noise_std, draws, None, 1e-5)
    kth = scores.gather(1, index.T) + noise.T
    leaf = scores.clone().requires_grad_()
    exact = perturbed_topk(leaf, k=k, noise_std=noise_std, **EXACT)
    exact.sum().backward()
    assert ((kth.mean(1) - exact).abs() < 4.5 * kth.std(1) / draws**0.5).all()
    for i in range(len(scores)):
        share = torch.bincount(index[:, i], minlength=scores.shape[1]) / draws
        spread = (leaf.grad[i] * (1 - leaf.grad[i]) / draws).sqrt()
        assert ((share - leaf.grad[i]).abs() <= 5 * spread + 2 / draws).all()


def test_drawing_only_the_upper_end_keeps_the_distribution():
    scores = 0.05 * torch.randn(2, 300, dtype=torch.float64)
    assert cpu_draws._upper_share(scores, 3, 1.0) < cpu_draws._LARGEST_SHARE  # the path is reached
    check_draws_against_exact(scores, 3, 1.0, 40_000)


def test_draws_that_need_more_than_the_upper_end_are_completed(monkeypatch):
    """With an upper end that is too small in a quarter of the draws, and slots that run out."""
    monkeypatch.setattr(cpu_draws, "_upper_share", lambda scores, k, noise_std: 0.012)
    scores = 0.3 * torch.randn(2, 300, dtype=torch.float64)
    completed = []
    complete = cpu_draws._complete
    monkeypatch.setattr(cpu_draws, "_complete", lambda *a: completed.append(len(a[0])) or complete(*a))
    check_draws_against_exact(scores, 3, 1.0, 20_000)
    assert sum(completed) > 5_000
    monkeypatch.setattr(cpu_draws.math, "ceil", lambda x: 4)
    check_draws_against_exact(scores, 3, 1.0, 20_000)


@pytest.mark.parametrize("num_samples", [5, None])
@pytest.mark.parametrize(("size", "noise_std"), [(1e4, 1e-5), (1e3, 1e-6), (1.0, 1e-46)])
def test_noise_below_the_spacing_of_floats(num_samples, size, noise_std):
    scores = (torch.linspace(-1, 1, 100) * size)[torch.randperm(100)][None].requires_grad_()
    value = perturbed_topk(scores, k=2, noise_std=noise_std, num_samples=num_samples)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    assert value.item() == pytest.approx(scores.topk(2).values[0, 1].item(), rel=1e-6)
    assert gradient.sum().item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("num_samples", [5, None])
def test_fewer_finite_scores_than_k(num_samples):
    scores = torch.full((1, 100), -math.inf)
    scores[0, 0] = 3.0
    assert perturbed_topk(scores, k=2, noise_std=0.1, num_samples=num_samples) == -math.inf


@pytest.mark.parametrize("num_samples", [5, None])
def test_nan_behind_classes_that_are_left_out(num_samples):
    scores = torch.arange(1000.0).flip(0)[None].clone()
    scores[0, -1] = math.nan
    assert perturbed_topk(scores, k=3, noise_std=0.5, num_samples=num_samples).isnan()


@pytest.mark.parametrize("gap", [3.0, 4.0, 6.0, 20.0])
@pytest.mark.parametrize(("c", "k", "above"), [(1000, 11, 5), (300, 26, 25), (2000, 100, 50)])
def test_error_bounds_where_some_classes_are_all_but_certain(gap, c, k, above):
    scores = torch.full((1, c), -2.0, dtype=torch.float64)
    scores[0, : k + 1] = 0
    scores[0, :above] = gap
    leaf, twin = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    usual = perturbed_topk(leaf, k=k, noise_std=1.0, num_samples=None)
    tight = perturbed_topk(twin, k=k, noise_std=1.0, num_samples=None, tolerance=1e-13, num_nodes=150)
    usual.backward()
    tight.backward()
    assert tight.item() == pytest.approx(references.expected_topk(scores[0], k, 1.0), abs=1e-9)
    assert abs(usual.item() - tight.item()) < 1e-5
    assert (leaf.grad - twin.grad).abs().sum() < 1e-4


def test_second_derivatives_are_refused():
    scores = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        torch.autograd.grad(
            perturbed_topk(scores, k=2, noise_std=1.0, num_samples=None).sum(), scores, create_graph=True
        )


def test_scores_that_are_not_contiguous():
    scores = (5 * torch.randn(1000, 8)).T
    for num_samples in (None, 3):
        perturbed_topk(scores, k=3, noise_std=0.1, num_samples=num_samples)


@pytest.mark.errors
def test_a_tolerance_above_its_bound():
    with pytest.raises(ValueError, match=r"tolerance must be < 0\.5, got 1\.0"):
        perturbed_topk(torch.randn(2, 5), k=2, noise_std=1.0, tolerance=1.0)
