"""Figures about long tails: numbers against formulas of the paper, minimization by scipy, and loops."""

import json
import math
from decimal import Decimal, localcontext

import pytest
import torch
from scipy.optimize import minimize_scalar

from shortlist.papers.figures import binary_links, load_figure

PRIOR = 0.2


def plain_loss(factors, margins, gamma, f: float, positive: bool) -> float:
    """Equation 13 of the paper."""
    if positive:
        return factors[0] / gamma * math.log1p(math.exp(gamma * (margins[0] - f)))
    return factors[1] / gamma * math.log1p(math.exp(gamma * (margins[1] + f)))


def link_of_lemma(factors, margins, gamma, p: float) -> float:
    """Lemma 4, with 60 digits: the positive root g of g^2 + (c - a b / q) g - a / q, and log(g) / gamma."""
    with localcontext() as context:
        context.prec = 60
        (first, second), (margin, other) = map(Decimal, factors), map(Decimal, margins)
        gamma, p = Decimal(gamma), Decimal(p)
        a = first / second * (gamma * (margin - other)).exp()
        b, c, q = (gamma * other).exp(), (gamma * margin).exp(), (1 - p) / p
        half = (a * b / q - c) / 2
        return float((half + (half**2 + a / q).sqrt()).ln() / gamma)


@pytest.fixture(scope="module")
def links() -> dict:
    return binary_links.measure(prior=PRIOR, gamma=[1, 8], steps=20, score_max=3)


def test_the_losses_are_those_of_the_paper(links):
    first, second = links["panels"]
    assert [panel["gamma"] for panel in links["panels"]] == [1, 8]
    balanced = first["losses"]["balanced"]
    assert (balanced["factors"], balanced["margins"]) == (pytest.approx([5, 1.25]), [1, 1])
    for panel in (first, second):
        unequal = panel["losses"]["unequal margin"]
        margin = math.log(4) / panel["gamma"]
        assert unequal["factors"] == [1, 1] and unequal["margins"] == pytest.approx([margin, -margin])
        assert panel["losses"]["balanced + margin"]["margins"] == pytest.approx([1, 0.25])
        assert panel["losses"]["balanced + margin 1/π"]["margins"] == pytest.approx([1, 5])


def test_links_are_those_of_lemma_4_and_minimize_the_expected_loss(links):
    for panel in links["panels"]:
        for found in panel["losses"].values():
            options = found["factors"], found["margins"], panel["gamma"]
            for p, score in zip(links["probabilities"], found["link"], strict=True):
                # where both slopes are level, the last digit of p moves the best score by 1e-7
                assert score == pytest.approx(link_of_lemma(*options, p), abs=1e-6)

                def risk(f, p=p, options=options):
                    return p * plain_loss(*options, f, True) + (1 - p) * plain_loss(*options, f, False)

                best = minimize_scalar(risk, bounds=(-15, 15), method="bounded", options={"xatol": 1e-10})
                assert risk(score) <= best.fun + 1e-12


def test_bayes_risks_are_expected_losses_divided_by_the_largest(links):
    for panel in links["panels"]:
        for found in panel["losses"].values():
            options = found["factors"], found["margins"], panel["gamma"]
            risks = [
                p * plain_loss(*options, f, True) + (1 - p) * plain_loss(*options, f, False)
                for p, f in zip(links["probabilities"], found["link"], strict=True)
            ]
            assert found["risk_max"] == pytest.approx(max(risks), abs=1e-9)
            assert found["risk"] == pytest.approx([risk / max(risks) for risk in risks], abs=1e-9)
    # the risk of a decision at the prior, whose two kinds of errors cost 1 / prior and 1 / (1 - prior)
    tent = [min(5 * p, 1.25 * (1 - p)) for p in links["probabilities"]]
    assert links["tent"] == pytest.approx(tent)


def test_the_logistic_loss_has_the_logit_and_its_margin_only_moves_it(links):
    logit = [math.log(p / (1 - p)) for p in links["probabilities"]]
    for panel in links["panels"]:
        plain, moved = panel["losses"]["logistic"], panel["losses"]["unequal margin"]
        assert plain["link"] == pytest.approx([x / panel["gamma"] for x in logit], abs=1e-9)
        shift = math.log(4) / panel["gamma"]
        assert moved["link"] == pytest.approx([x + shift for x in plain["link"]], abs=1e-9)
        assert moved["risk"] == pytest.approx(plain["risk"], abs=1e-9)  # the paper's remark on figure 7


def test_which_losses_are_consistent(links):
    """Lemma 3: the decision is at the prior if the factors' ratio times that of sigmoids is (1 - pi) / pi."""
    for panel in links["panels"]:
        gamma = panel["gamma"]
        for name, found in panel["losses"].items():
            (a, b), (margin, other) = found["factors"], found["margins"]
            ratio = a / (1 + math.exp(-gamma * margin)) / (b / (1 + math.exp(-gamma * other)))
            assert found["threshold"] == pytest.approx(1 / (1 + ratio), abs=1e-12)
            if name in ("balanced", "unequal margin"):
                assert found["threshold"] == pytest.approx(PRIOR, abs=1e-12)
    away = [abs(panel["losses"]["balanced + margin 1/π"]["threshold"] - PRIOR) for panel in links["panels"]]
    assert away[1] < 1e-3 < away[0]  # consistent only as gamma grows


def test_the_inverse_of_the_link(links):
    scores = torch.tensor(links["scores"], dtype=torch.float64)
    assert (len(scores), scores[0], scores[-1]) == (21, -3, 3)
    for panel in links["panels"]:
        made = binary_links.binary_losses(PRIOR, panel["gamma"])
        for name, found in panel["losses"].items():
            inverse = torch.tensor(found["inverse"], dtype=torch.float64)
            inside = (inverse > 1e-6) & (inverse < 1 - 1e-6)
            again = binary_links.link(made[name], inverse[inside])
            assert torch.allclose(again, scores[inside], atol=1e-6)


def test_links_stay_finite_at_extremes():
    loss = binary_links.binary_losses(0.001, 500.0)["balanced + margin 1/π"]
    found = binary_links.link(loss, torch.tensor([1e-12, 0.5, 1 - 1e-12], dtype=torch.float64))
    assert found.isfinite().all() and (found.diff() >= 0).all()


def test_links_are_drawn(links):
    drawing = load_figure("binary_links").draw(json.loads(json.dumps(links)))
    drawing.draw_without_rendering()
    assert len(drawing.axes) == 6
    for axes, panel in zip((drawing.axes[:3], drawing.axes[3:]), links["panels"], strict=True):
        assert axes[0].get_title() == f"γ = {panel['gamma']:g}"
        for line, found in zip(axes[0].lines, panel["losses"].values(), strict=False):
            assert list(line.get_ydata()) == found["link"]
        assert list(axes[2].lines[-1].get_ydata()) == links["tent"]


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": 1}, r"prior must be .*< 1, got 1"),
        ({"gamma": 0}, r"gamma must be > 0, got 0"),
        ({"steps": 1}, r"steps must be an integer >= 2, got 1"),
        ({"score_max": -1}, r"score_max must be > 0, got -1"),
    ],
)
def test_binary_links_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        binary_links.measure(**options)
