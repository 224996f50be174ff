"""What the losses with margins have in common: their general form, what they learn, their warning."""

import math
import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import (
    LOSSES,
    LDAMLoss,
    _margins,
    balanced_ce_loss,
    equalized_loss,
    imbalanced_noised_topk_loss,
    ldam_loss,
    logit_adjusted_adaptive_loss,
    logit_adjusted_loss,
    pairwise_margin_loss,
    two_parameter_margin_loss,
)
from tests.losses.margin_family import COUNTS, WEIGHT, general, weighted_row

each_member = pytest.mark.parametrize(
    ("loss", "name", "options"),
    [
        (balanced_ce_loss, "balanced", {}),
        (ldam_loss, "ldam", {"scale": 1.0, "max_margin": 0.7}),
        (equalized_loss, "equalized", {"tau": 0.5}),
        (logit_adjusted_loss, "logit_adjusted", {"tau": 1.5}),
        (logit_adjusted_adaptive_loss, "adaptive", {}),
        (two_parameter_margin_loss, "two", {"tau_true": 0.3, "tau_others": 1.2}),
    ],
)


@each_member
def test_members_equal_the_general_form_and_its_formula(loss, name, options):
    logits, target = 3 * torch.randn(20, 5, dtype=torch.float64), torch.randint(5, (20,))
    form = general(name, **options)
    rows = torch.stack(
        [
            form["factors"][y]
            * math.log(1 + sum(math.exp(form["margins"][y, j] + s[j] - s[y]) for j in range(5) if j != y))
            for s, y in zip(logits, target.tolist(), strict=True)
        ]
    )
    torch.testing.assert_close(pairwise_margin_loss(logits, target, **form, reduction="none"), rows)
    torch.testing.assert_close(
        loss(logits, target, class_counts=COUNTS.double(), **options, reduction="none"), rows
    )


@each_member
@pytest.mark.parametrize("weighting", ["consistent", "plain"])
def test_weighted_members_equal_the_general_form_and_its_formula(loss, name, options, weighting):
    logits, target = 3 * torch.randn(20, 5, dtype=torch.float64), torch.randint(5, (20,))
    form = general(name, **options)
    rows = torch.tensor(
        [
            weighted_row(s, y, **form, weight=WEIGHT, consistent=weighting == "consistent")
            for s, y in zip(logits.tolist(), target.tolist(), strict=True)
        ],
        dtype=torch.float64,
    )
    common = {"class_counts": COUNTS.double(), **options, "weight": WEIGHT, "weighting": weighting}
    torch.testing.assert_close(loss(logits, target, **common, reduction="none"), rows)
    torch.testing.assert_close(loss(logits, target, **common), rows.sum() / WEIGHT[target].sum())
    if weighting == "consistent":
        form["margins"] = form["margins"] + torch.log(WEIGHT[None, :] / WEIGHT[:, None])
        default = {key: value for key, value in common.items() if key != "weighting"}
        assert torch.equal(loss(logits, target, **default), loss(logits, target, **common))
    torch.testing.assert_close(
        pairwise_margin_loss(logits, target, **form, weight=WEIGHT, reduction="none"), rows
    )
    # a common factor of the weights makes no difference to the margins
    torch.testing.assert_close(
        loss(logits, target, **common | {"weight": 50 * WEIGHT}), rows.sum() / WEIGHT[target].sum()
    )


@each_member
def test_class_of_weight_0_keeps_loss_and_gradient_finite(loss, name, options):
    """Its rows count for nothing; as a competitor it has no margin for its weight, as if that were 1."""
    logits, target = 3 * torch.randn(20, 5, dtype=torch.float64), torch.arange(20) % 5
    weight = torch.tensor([0.2, 0.0, 1.0, 3.0, 0.0], dtype=torch.float64)
    as_if = [0.2, 1.0, 1.0, 3.0, 1.0]
    form = general(name, **options)
    leaf = logits.clone().requires_grad_()
    rows = loss(leaf, target, class_counts=COUNTS.double(), **options, weight=weight, reduction="none")
    rows.sum().backward()
    wanted = [
        weighted_row(s, y, **form, weight=as_if, consistent=True) if weight[y] else 0.0
        for s, y in zip(logits.tolist(), target.tolist(), strict=True)
    ]
    torch.testing.assert_close(rows.detach(), torch.tensor(wanted, dtype=torch.float64))
    assert torch.isfinite(leaf.grad).all()
    nothing = weight[target] == 0
    assert (leaf.grad[nothing] == 0).all() and (leaf.grad[~nothing] != 0).all()


# Theorem 1 of Menon et al.: on a small discrete distribution, each x has a score vector of its own

JOINT = torch.tensor(
    [[0.50, 0.06, 0.01], [0.20, 0.05, 0.02], [0.06, 0.04, 0.01], [0.02, 0.01, 0.02]], dtype=torch.float64
)
JOINT = JOINT / JOINT.sum()


def minimize(loss) -> torch.Tensor:
    """Scores (x, y) that minimize the expected loss."""
    scores = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [scores], max_iter=500, tolerance_grad=1e-10, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = (
            loss(scores.repeat_interleave(3, 0), torch.arange(3).repeat(4), reduction="none")
            @ JOINT.flatten()
        )
        value.backward()
        return value

    optimizer.step(closure)
    return scores.detach()


PRIOR = JOINT.sum(0)
COUNTS_OF_PRIOR = PRIOR * 1000
BALANCED_DECISION = (JOINT / PRIOR).argmax(1)


def general_loss(alpha, delta):
    return lambda scores, target, reduction: pairwise_margin_loss(
        scores, target, margins=delta, factors=alpha, reduction=reduction
    )


def with_counts(loss, **options):
    return lambda scores, target, reduction: loss(
        scores, target, class_counts=COUNTS_OF_PRIOR, **options, reduction=reduction
    )


def test_consistent_members_learn_the_balanced_decisions():
    assert not BALANCED_DECISION.equal(JOINT.argmax(1))  # it is another rule than the plain one
    for d in (torch.ones(3), PRIOR, PRIOR**0.5, torch.tensor([0.2, 3.0, 1.0])):
        d = d.double()
        scores = minimize(general_loss(d / PRIOR, torch.log(d[None, :] / d[:, None])))
        assert scores.argmax(1).equal(BALANCED_DECISION)
    for loss in (balanced_ce_loss, logit_adjusted_loss):
        scores = minimize(with_counts(loss))
        assert scores.argmax(1).equal(BALANCED_DECISION)
        torch.testing.assert_close(
            scores.softmax(1), (JOINT / PRIOR) / (JOINT / PRIOR).sum(1, True), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("weight", [[3.0, 0.2, 1.0], [1.0, 5.0, 25.0], "inverse"])
def test_weights_change_what_is_learned_only_if_plain(weight):
    """Theorem 1 with alpha = w / pi (or w) and delta = w (or w pi): the balanced posterior, whatever w."""
    weight = 1 / PRIOR if weight == "inverse" else torch.tensor(weight, dtype=torch.float64)
    balanced = JOINT / PRIOR
    for loss, options in (
        (balanced_ce_loss, {}),
        (logit_adjusted_loss, {}),
        (two_parameter_margin_loss, {"tau_true": 1.0, "tau_others": 1.0}),
    ):
        for weighting, learned in (("consistent", balanced), ("plain", balanced * weight)):
            scores = minimize(with_counts(loss, weight=weight, weighting=weighting, **options))
            torch.testing.assert_close(
                scores.softmax(1), learned / learned.sum(1, keepdim=True), atol=1e-5, rtol=0
            )
        default = minimize(with_counts(loss, weight=weight, **options))
        assert default.argmax(1).equal(BALANCED_DECISION)


def test_other_members_do_not():
    for loss in (
        lambda s, t, reduction: cross_entropy(s, t, reduction=reduction),
        with_counts(ldam_loss, scale=1.0, max_margin=1.0),
        with_counts(equalized_loss),
    ):
        assert not minimize(loss).argmax(1).equal(BALANCED_DECISION)


@pytest.fixture
def not_warned(monkeypatch):
    monkeypatch.setattr(_margins, "_warned", set())
    monkeypatch.setattr(_margins, "_calls", {})


def no_warning(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()


@pytest.mark.parametrize("name", ["ldam_loss", "imbalanced_noised_topk_loss"])
def test_warns_once_of_scores_that_are_no_cosines(name, not_warned):
    loss = {
        "ldam_loss": lambda x, scale=30.0: LDAMLoss(class_counts=COUNTS, scale=scale)(x, torch.arange(4)),
        "imbalanced_noised_topk_loss": lambda x, scale=30.0: imbalanced_noised_topk_loss(
            x, torch.arange(4), margins=torch.ones(5), k=2, scale=scale
        ),
    }[name]
    no_warning(lambda: loss(9 * torch.rand(4, 5) + 2, scale=1.0))  # no scale: any scores will do
    with pytest.warns(
        UserWarning, match=rf"{name} expects cosine scores in \[-1, 1\].*scale=30, got scores up to"
    ):
        loss(9 * torch.rand(4, 5) + 2)
    no_warning(lambda: loss(9 * torch.rand(4, 5) + 2))


def test_cosine_warning_looks_at_all_rows_that_count(not_warned):
    cosines = torch.rand(64, 5)
    target, masked = torch.arange(64) % 5, cosines.clone()
    target[10], masked[10] = -100, 1000.0  # an ignored row
    masked[11, 3] = -torch.inf  # and a masked class
    no_warning(lambda: ldam_loss(masked, target, class_counts=COUNTS))
    _margins._calls.clear()
    late = cosines.clone()
    late[63, 4] = -7.5
    with pytest.warns(UserWarning, match=r"got scores up to 7\.5"):
        ldam_loss(late, target, class_counts=COUNTS)


def test_cosine_warning_knows_probability_targets_and_accelerators(not_warned, monkeypatch):
    shares = torch.full((4, 5), 0.2)
    with pytest.warns(UserWarning, match="ldam_loss expects cosine scores"):
        ldam_loss(torch.full((4, 5), 9.0), shares, class_counts=COUNTS)
    _margins._warned.clear()
    _margins._calls.clear()
    monkeypatch.setattr(_margins, "can_read_values", lambda tensor: False)
    with pytest.warns(UserWarning, match="ldam_loss expects cosine scores"):
        ldam_loss(torch.full((4, 5), 9.0), shares, class_counts=COUNTS)
    _margins._warned.clear()  # one wait for the device, then never again
    no_warning(lambda: [ldam_loss(torch.full((4, 5), 9.0), shares, class_counts=COUNTS) for _ in range(250)])
    monkeypatch.undo()


def test_cosine_warning_looks_again_now_and_then(not_warned):
    no_warning(lambda: ldam_loss(torch.rand(4, 5), torch.arange(4), class_counts=COUNTS))
    with pytest.warns(UserWarning, match="ldam_loss expects cosine scores"):
        for _ in range(_margins._LOOK_AGAIN):
            ldam_loss(9 * torch.rand(4, 5) + 2, torch.arange(4), class_counts=COUNTS)


COUNTED = {
    "balanced_ce": balanced_ce_loss,
    "equalized": equalized_loss,
    "ldam": ldam_loss,
    "logit_adjusted": logit_adjusted_loss,
    "logit_adjusted_adaptive": logit_adjusted_adaptive_loss,
    "two_parameter_margin": two_parameter_margin_loss,
}


@pytest.mark.errors
@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("length", [1, 4, 9])
def test_counts_of_another_number_of_classes(name, length):
    scores, target, counts = torch.rand(3, 5), torch.arange(3), torch.arange(1, length + 1)
    with pytest.raises(ValueError, match=rf"class_counts must have one entry per class \(5\), got {length}"):
        COUNTED[name](scores, target, class_counts=counts)
    with pytest.raises(ValueError, match=rf"class_counts must have one entry per class \(5\), got {length}"):
        LOSSES[name](class_counts=counts)(scores, target)


@pytest.mark.parametrize("name", COUNTED)
def test_priors_keep_their_digits(name):
    """Whole counts with scores of float64, and counts that float16 cannot hold."""
    scores, target = torch.rand(4, 5, dtype=torch.float64), torch.tensor([4, 1, 2, 0])
    counts = torch.tensor([70_001, 333, 7, 3, 1])
    want = COUNTED[name](scores, target, class_counts=counts.double())
    torch.testing.assert_close(COUNTED[name](scores, target, class_counts=counts), want, rtol=1e-14, atol=0)
    for given in (counts, counts.float()):
        module = LOSSES[name](class_counts=given)
        for changed in (module.half(), module.bfloat16(), torch.nn.ModuleList([module]).half()[0]):
            assert changed.class_counts.equal(given)
            torch.testing.assert_close(changed(scores, target), want, rtol=1e-14, atol=0)
    assert module.to("meta").class_counts.is_meta
