"""The pairwise margin family, focal loss and weights by counts."""

import math
import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import (
    LOSSES,
    LDAMLoss,
    LogitAdjustedLoss,
    PairwiseMarginLoss,
    _margins,
    balanced_ce_loss,
    equalised_loss,
    focal_loss,
    imbalanced_noised_topk_loss,
    ldam_loss,
    logit_adjusted_adaptive_loss,
    logit_adjusted_loss,
    pairwise_margin_loss,
    two_parameter_margin_loss,
)
from shortlist.priors import class_balanced_weights, class_priors, margins_from_counts
from tests.conftest import tensor

COUNTS = torch.tensor([400, 100, 30, 9, 1])


def test_golden_ldam_and_focal(golden):
    reference, checked = golden("longtail"), {"ldam": 0, "focal": 0}
    for case in reference.cases:
        if case["kind"] not in checked:
            continue
        params = case["params"]
        logits = reference.shared[case["inputs"]["x"]].clone() * case["inputs"].get("x_multiplier", 1)
        target = reference.shared[case["inputs"]["y"]]
        logits.requires_grad_()
        weight = None if params["weight"] is None else tensor(params["weight"])
        if case["kind"] == "ldam":
            counts = torch.tensor(params["cls_num_list"], dtype=torch.float64)
            options = {"class_counts": counts, "max_margin": params["max_m"], "scale": float(params["s"])}
            margins = margins_from_counts(counts, max_margin=params["max_m"])
            torch.testing.assert_close(margins, tensor(case["m_list"]), rtol=0, atol=1e-12)
            rows = ldam_loss(logits, target, **options, reduction="none")
            torch.testing.assert_close(
                rows.detach(), tensor(case["per_sample_unweighted"]), rtol=1e-9, atol=1e-9
            )
            # the original's weights come without margins
            mean = ldam_loss(logits, target, **options, weight=weight, weighting="plain")
            gradient = case["grad_of_mean"]
        else:
            rows = focal_loss(
                logits, target, gamma=params["gamma"], weight=weight, weight_in_focus=True, reduction="none"
            )
            torch.testing.assert_close(rows.detach(), tensor(case["per_sample"]), rtol=1e-9, atol=1e-9)
            mean = rows.mean()  # the original's mean is a plain one
            gradient = case["grad_of_mean_wrt_logits"]
        mean.backward()
        assert mean.item() == pytest.approx(case["mean"], rel=1e-9)
        torch.testing.assert_close(logits.grad, tensor(gradient), rtol=1e-9, atol=1e-9)
        checked[case["kind"]] += 1
    assert checked == {"ldam": 4, "focal": 4}


def test_golden_class_balanced_weights(golden):
    cases = [case for case in golden("longtail").cases if case["kind"] == "class_balanced_weights"]
    assert len(cases) == 4
    for case in cases:
        counts = torch.tensor(case["params"]["cls_num_list"], dtype=torch.float64)
        weights = class_balanced_weights(counts, beta=case["params"]["beta"])
        torch.testing.assert_close(weights, tensor(case["weights"]), rtol=1e-9, atol=0)


def general(name: str, **options) -> dict:
    """Delta and alpha of METHODS' table, entry by entry."""
    c, total = len(COUNTS), float(COUNTS.sum())
    prior = [float(n) / total for n in COUNTS]
    margin = margins_from_counts(COUNTS.double(), max_margin=options.get("max_margin", 0.5)).tolist()
    delta, alpha = torch.zeros(c, c, dtype=torch.float64), torch.ones(c, dtype=torch.float64)
    for y in range(c):
        if name == "balanced":
            alpha[y] = 1 / prior[y]
        for j in range(c):
            delta[y, j] = {
                "balanced": 0,
                "ldam": margin[y],
                "equalised": math.log(prior[j] ** options.get("tau", 1)),
                "logit_adjusted": options.get("tau", 1) * math.log(prior[j] / prior[y]),
                "adaptive": math.log(prior[j] / prior[y]) + prior[y] ** -0.25,
                "two": options.get("tau_others", 1) * math.log(prior[j])
                - options.get("tau_true", 1) * math.log(prior[y]),
            }[name]
    return {"margins": delta, "factors": alpha}


each_member = pytest.mark.parametrize(
    ("loss", "name", "options"),
    [
        (balanced_ce_loss, "balanced", {}),
        (ldam_loss, "ldam", {"scale": 1.0, "max_margin": 0.7}),
        (equalised_loss, "equalised", {"tau": 0.5}),
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


WEIGHT = torch.tensor([0.2, 0.5, 1.0, 3.0, 8.0], dtype=torch.float64)


def weighted_row(scores, y, margins, factors, weight, *, consistent):
    """w_y alpha_y log(1 + sum of exp(Delta_yj + s_j - s_y)), with log(w_j / w_y) in Delta if wanted."""
    total = 1.0
    for j in range(len(scores)):
        if j != y:
            margin = float(margins[y, j]) + (math.log(weight[j] / weight[y]) if consistent else 0.0)
            total += math.exp(margin + scores[j] - scores[y])
    return float(weight[y]) * float(factors[y]) * math.log(total)


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


@pytest.mark.parametrize("scale", [1.0, 10.0, 30.0])
def test_margins_of_weights_come_after_the_scale(scale):
    """LDAM multiplies scores and its own margin by its scale, but log(w_j / w_y) is one of what comes out."""
    cosines, target = 2 * torch.rand(20, 5, dtype=torch.float64) - 1, torch.randint(5, (20,))
    form = general("ldam", max_margin=0.4)
    rows = torch.tensor(
        [
            weighted_row(
                [scale * value for value in s],
                y,
                scale * form["margins"],
                form["factors"],
                WEIGHT,
                consistent=True,
            )
            for s, y in zip(cosines.tolist(), target.tolist(), strict=True)
        ],
        dtype=torch.float64,
    )
    options = {"class_counts": COUNTS.double(), "max_margin": 0.4, "scale": scale, "weight": WEIGHT}
    torch.testing.assert_close(ldam_loss(cosines, target, **options, reduction="none"), rows)
    one_hot = torch.nn.functional.one_hot(target, 5).double()
    torch.testing.assert_close(ldam_loss(cosines, one_hot, **options, reduction="none"), rows)


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


@pytest.mark.parametrize("scale", [0.1, 30.0, 1e4])
def test_table_of_margins_does_not_cancel(scale):
    """Probability targets on scores whose softmax is all but one-hot."""
    logits = scale * torch.randn(6, 5, dtype=torch.float64)
    options = {"class_counts": COUNTS.double(), "tau_true": 0.2, "tau_others": 0.9}
    for j in range(5):
        shares = torch.zeros(6, 5, dtype=torch.float64)
        shares[:, j] = 1
        want = two_parameter_margin_loss(logits, torch.full((6,), j), **options, reduction="none")
        got = two_parameter_margin_loss(logits, shares, **options, reduction="none")
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


def test_limits_users_can_check():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    plain = cross_entropy(logits, target)
    even = torch.full((5,), 7)
    torch.testing.assert_close(focal_loss(logits, target, gamma=0.0), plain)
    torch.testing.assert_close(logit_adjusted_loss(logits, target, class_counts=COUNTS, tau=0.0), plain)
    torch.testing.assert_close(logit_adjusted_loss(logits, target, class_counts=even), plain)
    torch.testing.assert_close(equalised_loss(logits, target, class_counts=COUNTS, tau=0.0), plain)
    torch.testing.assert_close(balanced_ce_loss(logits, target, class_counts=even), 5 * plain)
    torch.testing.assert_close(pairwise_margin_loss(logits, target, margins=torch.zeros(5, 5)), plain)


def test_focal_gradient_is_finite_where_the_true_class_is_certain():
    logits = torch.tensor([[200.0, 0.0], [0.0, 0.0]], requires_grad=True)
    focal_loss(logits, torch.tensor([0, 1]), gamma=0.5).backward()
    assert torch.isfinite(logits.grad).all() and logits.grad[1, 1] < 0


# Theorem 1 of Menon et al.: on a small discrete distribution, each x has a score vector of its own

JOINT = torch.tensor(
    [[0.50, 0.06, 0.01], [0.20, 0.05, 0.02], [0.06, 0.04, 0.01], [0.02, 0.01, 0.02]], dtype=torch.float64
)
JOINT = JOINT / JOINT.sum()


def minimise(loss) -> torch.Tensor:
    """Scores (x, y) that minimise the expected loss."""
    scores = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [scores], max_iter=500, tolerance_grad=1e-10, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        value = (
            loss(scores.repeat_interleave(3, 0), torch.arange(3).repeat(4), reduction="none")
            @ JOINT.flatten()
        )
        value.backward()
        return value

    optimiser.step(closure)
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
        scores = minimise(general_loss(d / PRIOR, torch.log(d[None, :] / d[:, None])))
        assert scores.argmax(1).equal(BALANCED_DECISION)
    for loss in (balanced_ce_loss, logit_adjusted_loss):
        scores = minimise(with_counts(loss))
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
            scores = minimise(with_counts(loss, weight=weight, weighting=weighting, **options))
            torch.testing.assert_close(
                scores.softmax(1), learned / learned.sum(1, keepdim=True), atol=1e-5, rtol=0
            )
        default = minimise(with_counts(loss, weight=weight, **options))
        assert default.argmax(1).equal(BALANCED_DECISION)


def test_other_members_do_not():
    for loss in (
        lambda s, t, reduction: cross_entropy(s, t, reduction=reduction),
        with_counts(ldam_loss, scale=1.0, max_margin=1.0),
        with_counts(equalised_loss),
    ):
        assert not minimise(loss).argmax(1).equal(BALANCED_DECISION)


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
        # sigma(D): d loss / d score at equal scores, the slope that decides the zero of the minimiser
        slope = torch.sigmoid(torch.tensor([first, second], dtype=torch.float64))
        right = torch.tensor([1.0, float(prior[0] / prior[1] * slope[0] / slope[1])], dtype=torch.float64)
        for factor, consistent in ((1.0, True), (1.6, False), (0.6, False)):
            alpha = right * torch.tensor([1.0, factor], dtype=torch.float64)
            scores = torch.zeros(len(joint), 2, dtype=torch.float64, requires_grad=True)
            optimiser = torch.optim.LBFGS(
                [scores], max_iter=400, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
            )

            def closure(scores=scores, alpha=alpha, optimiser=optimiser, first=first, second=second):
                optimiser.zero_grad()
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

            optimiser.step(closure)
            assert scores.argmax(1).equal(decision) == consistent


def test_priors_and_weights():
    torch.testing.assert_close(class_priors(COUNTS).sum(), torch.tensor(1.0))
    floored = class_priors(torch.tensor([3, 0]), zero_counts="floor")
    assert floored.tolist() == pytest.approx([0.75, 0.25])
    assert class_balanced_weights(torch.tensor([5, 5, 5])).tolist() == pytest.approx([1, 1, 1])
    assert class_balanced_weights(COUNTS, beta=0.0).tolist() == pytest.approx([1] * 5)


@pytest.mark.errors
def test_bad_counts():
    with pytest.raises(ValueError, match="class_counts must be >= 1, got 0 for class 1; zero_counts='floor'"):
        class_priors(torch.tensor([3, 0]))
    with pytest.raises(ValueError, match="class_counts must be finite and >= 0, got -2"):
        class_priors(torch.tensor([3, -2]), zero_counts="floor")
    with pytest.raises(ValueError, match=r"beta must be < 1, got 1\.0"):
        class_balanced_weights(COUNTS, beta=1.0)
    with pytest.raises(ValueError, match="zero_counts must be one of error, floor, got 'drop'"):
        class_priors(COUNTS, zero_counts="drop")
    with pytest.raises(ValueError, match=r"margins must have shape \(5, 5\), got \(4, 5\)"):
        pairwise_margin_loss(torch.zeros(2, 5), torch.tensor([0, 1]), margins=torch.zeros(4, 5))
    with pytest.raises(ValueError, match="margins must be finite, got inf"):
        pairwise_margin_loss(torch.zeros(2, 5), torch.tensor([0, 1]), margins=torch.full((5, 5), math.inf))


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
    "equalised": equalised_loss,
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


def test_half_precision_counts_give_float32_priors():
    counts = torch.tensor([1.0] + [60_000.0] * 1000, dtype=torch.float16)
    priors = class_priors(counts)
    assert priors.dtype == torch.float32
    assert priors[0].log().item() == pytest.approx(math.log(1 / (float(counts[1]) * 1000 + 1)), rel=1e-6)
    assert class_balanced_weights(counts).dtype == torch.float32
    assert margins_from_counts(counts, max_margin=0.5).dtype == torch.float32


def test_buffers_are_the_losss_own():
    counts, weight, margins = torch.tensor([3.0, 2.0, 1.0]), torch.ones(3), torch.zeros(3, 3)
    scores, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    losses = [
        LogitAdjustedLoss(class_counts=counts, weight=weight),
        PairwiseMarginLoss(margins=margins, factors=weight),
    ]
    before = [loss(scores, target) for loss in losses]
    counts[0], weight[1], margins[0] = 300.0, 9.0, 5.0
    assert [loss(scores, target) for loss in losses] == before


@pytest.mark.errors
def test_modules_refuse_zero_counts_wherever_these_are(monkeypatch):
    monkeypatch.setattr("shortlist._checks.can_read_values", lambda tensor: False)  # as on an accelerator
    counts = torch.tensor([3, 0, 1])

    def readable_on_the_cpu(self):
        monkeypatch.undo()
        return self

    monkeypatch.setattr(torch.Tensor, "cpu", readable_on_the_cpu)
    with pytest.raises(ValueError, match="class_counts must be >= 1, got 0 for class 1"):
        LogitAdjustedLoss(class_counts=counts)
    monkeypatch.setattr("shortlist._checks.can_read_values", lambda tensor: False)
    priors = class_priors(counts)  # the function does not wait for the device; it says so
    assert priors.tolist() == pytest.approx([0.6, 0.2, 0.2])


@pytest.mark.errors
def test_no_counts_at_all():
    with pytest.raises(ValueError, match="class_counts must have at least one entry, got none"):
        class_priors(torch.tensor([]))


@pytest.mark.filterwarnings("ignore:ldam_loss expects cosine scores")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [0.01, 1.0, 3.5, 50.0])
def test_scaled_loss_of_tiny_shares_is_the_logarithm(gap, dtype):
    """The share of the true class is below the smallest number where scale times gap is above 88 (708)."""
    scores = torch.tensor([[gap, 0.0, -gap], [0.0, gap, 0.0]], dtype=dtype, requires_grad=True)
    target = torch.tensor([1, 1])
    loss = ldam_loss(
        scores, target, class_counts=torch.ones(3), max_margin=1e-9, scale=30.0, reduction="none"
    )
    expected = torch.nn.functional.cross_entropy(30.0 * scores.double(), target, reduction="none")
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    gradient = torch.autograd.grad(loss.sum(), scores)[0]
    wanted = torch.autograd.grad(expected.sum(), scores)[0]
    torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-5)
