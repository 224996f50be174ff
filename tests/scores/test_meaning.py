"""What the scores of each loss contain, as it declares it, and as its minimizer over free scores shows."""

import pytest
import torch
from torch import nn

from shortlist.losses import LOSSES, AverageKLoss, LabelEstimates, log_weights
from shortlist.priors import class_priors
from shortlist.scores import PriorRecord, map_of_loss

# P(x, y) of three inputs and four classes, two of which are rare
JOINT = torch.tensor(
    [[0.40, 0.05, 0.020, 0.004], [0.10, 0.20, 0.010, 0.020], [0.08, 0.05, 0.050, 0.016]], dtype=torch.float64
)
PRIOR = JOINT.sum(0)
COUNTS = 1000 * PRIOR
TRAINING = PriorRecord.training(COUNTS)
LOG_POSTERIOR = (JOINT / JOINT.sum(1, keepdim=True)).log()
WEIGHT = torch.tensor([0.5, 1.0, 3.0, 2.0], dtype=torch.float64)
BALANCED = torch.full((4,), 0.25, dtype=torch.float64)
COUNTED = {"class_counts": COUNTS}

TRAINED = "the training priors"
EVEN = "balanced priors"
UNKNOWN = "unknown"


def build(name, **options):
    if name == "cross_entropy":
        return nn.CrossEntropyLoss(**options)
    return LOSSES[name](**options)


def record_of(loss, **options):
    score_map = map_of_loss(loss, class_counts=COUNTS, **options)
    return UNKNOWN if score_map.contains is None else score_map.contains.words()


# options of each loss, and what its scores then contain
DECLARED = [
    ("cross_entropy", {}, TRAINED),
    ("cross_entropy", {"label_smoothing": 0.1}, UNKNOWN),
    ("topk_hinge", {"k": 2}, UNKNOWN),
    ("convex_topk_hinge", {"k": 2}, UNKNOWN),
    ("calibrated_topk_hinge", {"k": 2}, UNKNOWN),
    ("smooth_topk", {"k": 2}, UNKNOWN),
    ("noised_topk", {"k": 2}, UNKNOWN),
    ("imbalanced_noised_topk", {"k": 2, **COUNTED, "scale": 40.0}, UNKNOWN),
    ("ranked_topk", {"distribution": [0.5, 0.5]}, UNKNOWN),
    ("sparse_top", {}, UNKNOWN),
    ("balanced_ce", COUNTED, EVEN),
    ("equalized", COUNTED, UNKNOWN),
    ("equalized", {**COUNTED, "tau": 0.0}, TRAINED),
    ("focal", {}, UNKNOWN),
    ("focal", {"gamma": 0.0}, TRAINED),
    ("ldam", {**COUNTED, "scale": 30.0}, UNKNOWN),
    ("logit_adjusted", COUNTED, EVEN),
    ("logit_adjusted", {**COUNTED, "tau": 0.0}, TRAINED),
    ("logit_adjusted", {**COUNTED, "tau": 0.5}, "the training priors to the power 0.5"),
    ("logit_adjusted", {**COUNTED, "tau": 1.5}, "the training priors to the power -0.5"),
    ("logit_adjusted_adaptive", COUNTED, UNKNOWN),
    ("pairwise_margin", {"margins": torch.zeros(4, 4)}, UNKNOWN),
    ("two_parameter_margin", COUNTED, EVEN),
    (
        "two_parameter_margin",
        {**COUNTED, "tau_true": 0.25, "tau_others": 0.25},
        f"{TRAINED} to the power 0.75",
    ),
    ("two_parameter_margin", {**COUNTED, "tau_true": 0.5}, UNKNOWN),
    ("assume_negative", {}, UNKNOWN),
    ("average_k", {"k": 2.0}, UNKNOWN),
    ("expected_positive", {"k": 2.0}, UNKNOWN),
    ("role", {"k": 2.0, "estimates": LabelEstimates(torch.arange(4), num_classes=4)}, UNKNOWN),
]


def test_every_loss_is_here():
    assert {name for name, *_ in DECLARED} == {*LOSSES, "cross_entropy"}


@pytest.mark.parametrize(("name", "options", "words"), DECLARED)
def test_record_of_each_loss(name, options, words):
    loss = build(name, **options)
    assert record_of(loss) == words
    score_map = map_of_loss(loss, class_counts=COUNTS)
    assert score_map.scale.item() == options.get("scale", 1.0)
    assert score_map.shift.item() == 0.0 and score_map.now is score_map.contains


def declared(loss, head="set"):
    return loss.score_meaning(loss.options, head)


def test_sigmoid_losses_say_so():
    sigmoid = {
        name
        for name, options, _ in DECLARED
        if name != "cross_entropy" and declared(build(name, **options)).sigmoid
    }
    assert sigmoid == {"assume_negative", "average_k", "expected_positive", "role"}


def test_heads_of_the_average_k_loss():
    for weight, words in ((None, TRAINED), (WEIGHT, "given priors")):
        loss = AverageKLoss(k=2.0, weight=weight)
        assert record_of(loss, head="proposal") == words
        assert record_of(loss, head="set") == UNKNOWN
        assert not declared(loss, "proposal").sigmoid and declared(loss, "set").sigmoid


def test_weights_and_shares_have_their_part():
    for loss, shares, expected in (
        (nn.CrossEntropyLoss(weight=WEIGHT), None, WEIGHT * PRIOR),
        (nn.CrossEntropyLoss(weight=1 / PRIOR), None, BALANCED),
        (nn.CrossEntropyLoss(), BALANCED, BALANCED),
        (nn.CrossEntropyLoss(weight=WEIGHT), BALANCED, WEIGHT),
        (build("logit_adjusted", **COUNTED, weight=WEIGHT), None, BALANCED),
        (build("logit_adjusted", **COUNTED, weight=WEIGHT, weighting="plain"), None, WEIGHT),
        (build("logit_adjusted", **COUNTED, weight=1 / PRIOR, weighting="plain"), None, 1 / PRIOR),
        (build("logit_adjusted", **COUNTED), BALANCED, 1 / PRIOR),
        (build("balanced_ce", **COUNTED, weight=WEIGHT, weighting="plain"), None, WEIGHT),
        (build("focal", gamma=0.0, weight=WEIGHT), None, WEIGHT * PRIOR),
    ):
        contains = map_of_loss(loss, class_counts=COUNTS, class_shares=shares).contains
        torch.testing.assert_close(contains.priors, (expected / expected.sum()).double())


def test_floored_counts_are_those_of_the_loss():
    counts = torch.tensor([7, 0, 3])
    loss = LOSSES["logit_adjusted"](class_counts=counts, zero_counts="floor")
    score_map = map_of_loss(loss, class_counts=counts)
    assert score_map.contains.words() == EVEN
    plain = map_of_loss(nn.CrossEntropyLoss(), class_counts=counts).contains.priors
    torch.testing.assert_close(plain, class_priors(counts.double(), zero_counts="floor"))


# against minimizers


def minimize(loss, joint):
    """Free scores (x, y) of the least expected loss, which is a sum over all x and y: no sampling error."""
    rows, target = len(joint), torch.arange(4).repeat(len(joint))

    def expected(scores):
        return loss(scores.repeat_interleave(4, 0), target) @ joint.flatten()

    scores = torch.zeros(rows, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [scores], max_iter=1000, tolerance_grad=1e-11, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = expected(scores)
        value.backward()
        return value

    optimizer.step(closure)
    assert scores.grad.abs().max() < 1e-7
    return scores.detach()


def as_seen(shares):
    """P(x, y) of rows whose classes are drawn with other shares."""
    return JOINT if shares is None else JOINT / PRIOR * shares


MARGIN_LOSSES = [
    ("balanced_ce", {}),
    ("logit_adjusted", {"tau": 0.5}),
    ("logit_adjusted", {"tau": 1.0}),
    ("logit_adjusted", {"tau": 1.5}),
    ("two_parameter_margin", {"tau_true": 0.7, "tau_others": 0.7}),
    ("equalized", {"tau": 0.0}),
]
KNOWN = [
    ("cross_entropy", {}),
    ("cross_entropy", {"weight": WEIGHT}),
    ("focal", {"gamma": 0.0}),
    ("focal", {"gamma": 0.0, "weight": WEIGHT}),
    ("focal", {"gamma": 0.0, "weight": WEIGHT, "weight_in_focus": True}),
    *[
        (name, {**COUNTED, **options, **weights})
        for name, options in MARGIN_LOSSES
        for weights in (
            {},
            {"weight": WEIGHT, "weighting": "consistent"},
            {"weight": WEIGHT, "weighting": "plain"},
        )
    ],
]


def shown(value):
    if not isinstance(value, dict):
        return value if isinstance(value, str) else None
    return " ".join(
        str(part) if not isinstance(part, torch.Tensor) else key
        for key, part in value.items()
        if key != "class_counts"
    )


@pytest.mark.parametrize("shares", [None, BALANCED], ids=["training rows", "balanced rows"])
@pytest.mark.parametrize(("name", "options"), KNOWN, ids=shown)
def test_map_of_a_loss_gives_the_posterior_of_its_minimizer(name, options, shares):
    loss = build(name, **options, reduction="none")
    scores = minimize(loss, as_seen(shares))
    score_map = map_of_loss(loss, class_counts=COUNTS, class_shares=shares)
    torch.testing.assert_close(
        score_map.log_posterior(scores, priors=TRAINING), LOG_POSTERIOR, rtol=0, atol=1e-4
    )
    balanced = JOINT / PRIOR
    torch.testing.assert_close(
        score_map.log_posterior(scores, priors="balanced").exp(),
        balanced / balanced.sum(1, keepdim=True),
        rtol=0,
        atol=1e-4,
    )


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_proposal_head_of_the_average_k_loss_learns_log_posteriors(weight):
    # k - 1 = c - k and scores of 0 from the set head: which classes are pseudo-positives makes no difference
    loss = AverageKLoss(k=2.5, weight=weight, reduction="none")
    scores = minimize(lambda proposals, target: loss((torch.zeros_like(proposals), proposals), target), JOINT)
    score_map = map_of_loss(loss, class_counts=COUNTS, head="proposal")
    torch.testing.assert_close(
        score_map.log_posterior(scores, priors=TRAINING), LOG_POSTERIOR, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cross_entropy", {"label_smoothing": 0.1}),
        ("focal", {"gamma": 2.0}),
        ("equalized", {**COUNTED, "tau": 1.0}),
        ("logit_adjusted_adaptive", COUNTED),
        ("two_parameter_margin", {**COUNTED, "tau_true": 0.3}),
        ("ldam", {**COUNTED, "scale": 1.0, "max_margin": 1.0}),
        ("smooth_topk", {"k": 2}),
    ],
    ids=shown,
)
def test_scores_of_unknown_priors_are_no_log_posteriors_of_any(name, options):
    """If they contained one, scores minus log-posteriors would not depend on the input, but for a level."""
    loss = build(name, **options, reduction="none")
    assert map_of_loss(loss, class_counts=COUNTS).contains is None
    difference = minimize(loss, JOINT) - LOG_POSTERIOR
    difference = difference - difference.mean(1, keepdim=True)
    assert (difference - difference[0]).abs().max() > 0.02


def test_a_loss_that_declares_nothing_has_scores_of_unknown_priors():
    score_map = map_of_loss(nn.MultiMarginLoss(weight=torch.ones(4)), class_counts=COUNTS)
    assert score_map.contains is None and score_map.scale == 1


# errors


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: map_of_loss(AverageKLoss(k=2.0), class_counts=COUNTS, head="other"),
            "head must be one of set, proposal, got 'other'",
        ),
        (
            lambda: map_of_loss(nn.CrossEntropyLoss(), class_counts=COUNTS, head="set"),
            "head must be left out: CrossEntropyLoss has one head, got 'set'",
        ),
        (
            lambda: map_of_loss(build("balanced_ce", **COUNTED), class_counts=COUNTS, head="proposal"),
            "head must be left out: BalancedCELoss has one head, got 'proposal'",
        ),
        (
            lambda: map_of_loss(nn.CrossEntropyLoss(weight=torch.ones(3)), class_counts=COUNTS),
            r"class_counts must have as many classes as the loss \(3\), got 4",
        ),
        (
            lambda: map_of_loss(nn.CrossEntropyLoss(), class_counts=COUNTS, class_shares=torch.ones(2) / 2),
            r"class_counts must have as many classes as class_shares \(2\), got 4",
        ),
        (
            lambda: map_of_loss(nn.CrossEntropyLoss(), class_counts=COUNTS, class_shares=torch.ones(4)),
            "priors must add up to 1, got 4",
        ),
        (lambda: map_of_loss(nn.CrossEntropyLoss(), class_counts=-COUNTS), "class_counts must be finite and"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_meaning_of_weights_is_their_logarithm():
    logarithms = log_weights(torch.tensor([2.0, 0.5, 0.0])).tolist()
    assert logarithms == pytest.approx([0.6931471805599453, -0.6931471805599453, 0.0], abs=1e-15)
