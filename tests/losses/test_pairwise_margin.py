import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import PairwiseMarginLoss, pairwise_margin_loss


def test_no_margins_are_cross_entropy():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    got = pairwise_margin_loss(logits, target, margins=torch.zeros(5, 5))
    torch.testing.assert_close(got, cross_entropy(logits, target))


def binary_margins(first: float, second: float) -> torch.Tensor:
    return torch.tensor([[0.0, first], [second, 0.0]], dtype=torch.float64)


def test_binary_condition():
    """Theorem 2: consistent iff alpha_1 sigma(Delta_1) / (alpha_0 sigma(Delta_0)) = pi_0 / pi_1."""
    joint = torch.stack([torch.linspace(0.02, 0.9, 23), torch.linspace(0.98, 0.1, 23)], 1).double()
    joint = joint * torch.tensor([0.2, 0.8]).double()
    joint = joint / joint.sum()
    prior = joint.sum(0)
    decision = (joint / prior).argmax(1)
    for first, second in [(0.0, 0.0), (1.0, -0.5), (-0.7, 0.4), (2.0, 2.0)]:
        # sigma(D): d loss / d score at equal scores, the slope that decides the zero of the minimizer
        slope = torch.sigmoid(torch.tensor([first, second], dtype=torch.float64))
        right = torch.tensor([1.0, float(prior[0] / prior[1] * slope[0] / slope[1])], dtype=torch.float64)
        for factor, consistent in ((1.0, True), (1.6, False), (0.6, False)):
            alpha = right * torch.tensor([1.0, factor], dtype=torch.float64)
            scores = torch.zeros(len(joint), 2, dtype=torch.float64, requires_grad=True)
            optimizer = torch.optim.LBFGS(
                [scores], max_iter=400, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
            )

            def closure(scores=scores, alpha=alpha, optimizer=optimizer, first=first, second=second):
                optimizer.zero_grad()
                rows = pairwise_margin_loss(
                    scores.repeat_interleave(2, 0),
                    torch.arange(2).repeat(len(joint)),
                    margins=binary_margins(first, second),
                    factors=alpha,
                    reduction="none",
                )
                value = 100 * rows @ joint.flatten()
                value.backward()
                return value

            optimizer.step(closure)
            assert scores.argmax(1).equal(decision) == consistent


def test_buffers_are_the_losss_own():
    margins, factors = torch.zeros(3, 3), torch.ones(3)
    scores, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    loss = PairwiseMarginLoss(margins=margins, factors=factors)
    before = loss(scores, target)
    margins[0], factors[1] = 5.0, 9.0
    assert loss(scores, target) == before


@pytest.mark.errors
def test_bad_margins():
    with pytest.raises(ValueError, match=r"margins must have shape \(5, 5\), got \(4, 5\)"):
        pairwise_margin_loss(torch.zeros(2, 5), torch.tensor([0, 1]), margins=torch.zeros(4, 5))
    with pytest.raises(ValueError, match="margins must be finite, got inf"):
        pairwise_margin_loss(torch.zeros(2, 5), torch.tensor([0, 1]), margins=torch.full((5, 5), math.inf))


def test_temperature_is_that_of_appendix_b():
    """Equation 13: w / gamma log(1 + exp(gamma d) exp(-gamma f)), of which a weighted hinge is the limit."""
    f = torch.linspace(-3, 3, 13, dtype=torch.float64)
    logits = torch.stack([f, torch.zeros_like(f)], 1)
    options = {"margins": binary_margins(0.4, -0.7), "factors": torch.tensor([2.0, 0.5]), "reduction": "none"}
    for label, margin, factor, sign in ((0, 0.4, 2.0, -1), (1, -0.7, 0.5, 1)):
        target = torch.full((13,), label)
        for gamma in (0.5, 1.0, 8.0):
            want = [
                factor / gamma * math.log(1 + math.exp(gamma * margin) * math.exp(sign * gamma * x))
                for x in f
            ]
            got = pairwise_margin_loss(logits, target, temperature=1 / gamma, **options)
            torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64))
        hinge = factor * (margin + sign * f).clamp_min(0)
        got = pairwise_margin_loss(logits, target, temperature=1e-4, **options)
        torch.testing.assert_close(got, hinge, rtol=0, atol=1e-3)


@pytest.mark.errors
def test_a_temperature_of_0():
    with pytest.raises(ValueError, match=r"temperature must be > 0, got 0\.0"):
        PairwiseMarginLoss(margins=torch.zeros(2, 2), temperature=0.0)
