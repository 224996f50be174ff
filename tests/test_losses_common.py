"""The contract that every entry of LOSSES keeps."""

import copy
import inspect
import math
import pickle

import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from shortlist import losses
from shortlist.losses import LOSSES
from tests.processes import in_two_processes

N, C = 6, 9
COUNTS = torch.tensor([500, 200, 100, 50, 30, 10, 5, 2, 1])
OPTIONS = {
    "balanced_ce": {"class_counts": COUNTS},
    "equalized": {"class_counts": COUNTS},
    "focal": {},
    "assume_negative": {},
    "ldam": {"class_counts": COUNTS, "scale": 1.0},
    "logit_adjusted": {"class_counts": COUNTS},
    "logit_adjusted_adaptive": {"class_counts": COUNTS},
    "pairwise_margin": {
        "margins": torch.linspace(-1, 1, C * C).view(C, C),
        "factors": torch.linspace(0.5, 2, C),
    },
    "two_parameter_margin": {"class_counts": COUNTS, "tau_others": 0.5},
    "ranked_topk": {"distribution": [0.2, 0.3, 0.5], "steepness": 1.0},
    "sparse_top": {},
    "noised_topk": {"k": 3, "noise_std": 0.5, "num_samples": None},
    "imbalanced_noised_topk": {
        "k": 3,
        "margins": torch.linspace(0.1, 0.5, C),
        "num_samples": None,
        "noise_std": 0.3,
        "scale": 1.0,
    },
}
# losses of a whole batch have tests of their own, in losses/
COUPLED = {"average_k", "expected_positive", "role"}
NAMES = [name for name in LOSSES if name not in COUPLED]
CLASS_LOSSES = [name for name in NAMES if name != "sparse_top"]
# margin losses, whose class weights come with margins of their own unless they are to be plain
MARGIN_LOSSES = [
    name for name in CLASS_LOSSES if "weighting" in inspect.signature(LOSSES[name].__init__).parameters
]
# what has one entry per class goes along when classes are moved or left out
PER_CLASS = ("margins", "factors", "class_counts")


def of_classes(settings: dict, classes) -> dict:
    moved = dict(settings)
    for name in PER_CLASS:
        if name in moved:
            value = moved[name]
            moved[name] = value[classes][:, classes] if value.ndim == 2 else value[classes]
    return moved


def options(name: str) -> dict:
    return dict(OPTIONS.get(name, {"k": 3}))


def plainly_weighted(name: str) -> dict:
    """Options with which class weights mean what they mean for cross-entropy."""
    return options(name) | ({"weighting": "plain"} if name in MARGIN_LOSSES else {})


def function(name: str):
    return getattr(losses, f"{name}_loss")


def batch(name: str, dtype=torch.float64, n: int = N, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, C, dtype=torch.float64, generator=generator).to(dtype)
    if name == "sparse_top":
        target = torch.rand(n, C, generator=generator) < 0.3
        target[:, 2] = True
        return logits, target.long()
    return logits, torch.randint(C, (n,), generator=generator)


each = pytest.mark.parametrize("name", NAMES)
each_class_loss = pytest.mark.parametrize("name", CLASS_LOSSES)


@each
def test_stem_names_file_function_and_class(name):
    cls = LOSSES[name]
    assert cls.__module__ == f"shortlist.losses.{name}"
    assert cls.__name__.lower() == f"{name}_loss".replace("_", "")
    assert function(name).__module__ == cls.__module__


@each
def test_module_is_the_function(name):
    logits, target = batch(name)
    module = LOSSES[name](**options(name))
    assert module(logits, target).equal(function(name)(logits, target, **options(name)))


@each
def test_reductions(name):
    logits, target = batch(name)
    rows, total, mean = (
        function(name)(logits, target, **options(name), reduction=r) for r in ("none", "sum", "mean")
    )
    assert rows.shape == (N,)
    torch.testing.assert_close(rows.sum(), total)
    torch.testing.assert_close(rows.mean(), mean)


@each
def test_a_batch_of_one_and_rows_do_not_mix(name):
    logits, target = batch(name)
    rows = function(name)(logits, target, **options(name), reduction="none")
    for i in range(N):
        alone = function(name)(logits[i : i + 1], target[i : i + 1], **options(name))
        torch.testing.assert_close(alone, rows[i])


@each
def test_gradcheck(name):
    logits, target = batch(name)
    logits = (1.3 * logits).requires_grad_()
    # the defaults of the exact expectation are good for 1e-4: see tests/ops for tighter settings
    assert gradcheck(lambda x: function(name)(x, target, **options(name)), (logits,), atol=1e-4)


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_finite_float32(name, dtype):
    logits, target = batch(name, dtype)
    leaf = (30 * logits).requires_grad_()
    loss = function(name)(leaf, target, **options(name))
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isfinite(loss)
    assert leaf.grad.dtype == dtype and torch.isfinite(leaf.grad).all()
    double = function(name)(leaf.detach().double(), target, **options(name))
    torch.testing.assert_close(loss.double(), double, rtol=1e-4, atol=1e-4)


@each
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_extreme_scores_are_finite(name, scale):
    logits, target = batch(name, torch.float32)
    leaf = (scale * logits).requires_grad_()
    loss = function(name)(leaf, target, **options(name))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(leaf.grad).all()


@each
def test_tied_scores_give_a_gradient_that_sums_to_zero(name):
    leaf = torch.zeros(N, C, requires_grad=True)
    loss = function(name)(leaf, batch(name)[1], **options(name))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(leaf.grad).all()
    assert name == "assume_negative" or leaf.grad.sum(1).abs().max() < 1e-4


@each
def test_nan_scores_give_nan(name):
    logits, target = batch(name)
    logits[1, 4] = math.nan
    for wanted in range(C if name != "sparse_top" else 1):
        if name != "sparse_top":
            target = torch.full((N,), wanted)
        rows = function(name)(logits, target, **options(name), reduction="none")
        assert rows[1].isnan() and not rows[0].isnan()
        assert function(name)(logits, target, **options(name)).isnan()


@each
def test_masked_scores_are_left_out(name):
    """-inf behaves as a class that is far below; the loss is that of the classes left."""
    logits, target = batch(name, torch.float32)
    logits[:, 5:7] = -torch.inf
    if name == "sparse_top":
        target[:, 5:7] = 0
    else:
        target[(target == 5) | (target == 6)] = 2
    leaf = logits.clone().requires_grad_()
    loss = function(name)(leaf, target, **options(name))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(leaf.grad).all() and (leaf.grad[:, 5:7] == 0).all()
    if name in ("ranked_topk", "assume_negative") or "class_counts" in options(name):
        return  # a network of fewer wires is another one; fewer classes have other priors, or other weights
    keep = [0, 1, 2, 3, 4, 7, 8]
    settings = of_classes(options(name), keep)
    if name == "sparse_top":
        left = target[:, keep]
    else:
        left = torch.tensor([keep.index(int(t)) for t in target])
    torch.testing.assert_close(
        loss.detach(), function(name)(logits[:, keep], left, **settings), rtol=1e-4, atol=1e-5
    )


def loss_of(name: str, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Compute any loss, those of a whole batch too; a second head and estimates have the same scores."""
    if name == "expected_positive":
        return losses.expected_positive_loss(logits, target, k=2.0)
    if name in COUPLED:
        return getattr(losses, f"{name}_loss")(logits, logits, target, k=2.0)
    return function(name)(logits, target, **options(name))


LAYOUTS = {
    "transposed": lambda scores: scores.T.contiguous().T,
    "every other column": lambda scores: scores.repeat_interleave(2, dim=1)[:, ::2],
    "every other row": lambda scores: scores.repeat_interleave(2, dim=0)[::2],
    "last rows of more": lambda scores: torch.cat([scores, scores])[N:],
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_may_lie_in_memory_in_any_order(name, layout):
    logits, target = batch(name, torch.float32)
    results = []
    for scores in (logits, LAYOUTS[layout](logits)):
        leaf = scores.detach().requires_grad_()
        loss = loss_of(name, leaf, target)
        results.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
    assert LAYOUTS[layout](logits).equal(logits)
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("left", [C - 1, 3, 1])  # more than k classes, k, and fewer
def test_a_true_class_that_is_left_out_is_no_nan(name, left):
    logits, target = batch(name, torch.float32)
    true = 2 if name == "sparse_top" else int(target[1])
    out = [true, *(j for j in range(C) if j != true)][: C - left]
    if name == "sparse_top":
        target[1] = torch.eye(C)[true]
    logits[1, out] = -torch.inf
    leaf = logits.clone().requires_grad_()
    loss = loss_of(name, leaf, target)
    loss.backward()
    if name in ("ranked_topk", "role"):  # which have a largest value
        assert torch.isfinite(loss)
    else:
        assert loss == torch.inf
    assert torch.isfinite(leaf.grad).all()
    if name in CLASS_LOSSES:
        rows = function(name)(logits, target, **options(name), reduction="none")
        assert torch.isfinite(rows[[0, *range(2, N)]]).all()
        assert torch.isfinite(loss) or rows[1] == torch.inf
        shares = torch.nn.functional.one_hot(target, C).float()
        of_shares = function(name)(logits, shares, **options(name), reduction="none")
        torch.testing.assert_close(of_shares, rows)


@pytest.mark.parametrize("options", [{"num_samples": 5}, {"noise_std": 0.0}])
def test_a_true_class_that_is_left_out_is_no_nan_with_drawn_noise(options):
    logits, target = batch("noised_topk", torch.float32)
    target[1] = 1
    logits[1, [1, 3, 4, 5, 6, 7]] = -torch.inf
    leaf = logits.requires_grad_()
    rows = losses.noised_topk_loss(leaf, target, k=3, **options, reduction="none")
    rows.sum().backward()
    assert rows[1] == torch.inf and torch.isfinite(rows[[0, 2, 3, 4, 5]]).all()
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("name", ["topk_hinge", "convex_topk_hinge"])
def test_a_true_class_that_is_left_out_is_no_nan_for_hinges_with_noise(name):
    logits, target = batch(name, torch.float32)
    for out in ([1], [1, 3, 4, 5, 6, 7], [0, 1, 3, 4, 5, 6, 7, 8]):
        leaf = logits.clone()
        leaf[1, out] = -torch.inf
        target[1] = 1
        leaf.requires_grad_()
        rows = function(name)(leaf, target, k=3, noise_std=0.5, reduction="none")
        rows.sum().backward()
        assert rows[1] == torch.inf and torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name != "assume_negative"]
)  # sigmoids know the level
@given(shift=st.sampled_from([-100.0, 0.5, 1000.0]), seed=st.integers(0, 50))
def test_shift_changes_nothing(name, shift, seed):
    logits, target = batch(name, seed=seed)
    settings = options(name)
    torch.testing.assert_close(
        function(name)(logits + shift, target, **settings),
        function(name)(logits, target, **settings),
        atol=1e-7,
        rtol=1e-7,
    )


@each
@given(seed=st.integers(0, 50))
def test_order_of_classes_changes_nothing(name, seed):
    logits, target = batch(name, seed=seed)
    settings = options(name)
    if name == "ranked_topk":
        settings["method"] = "neuralsort"  # networks depend on the order of their wires
    order = torch.randperm(C, generator=torch.Generator().manual_seed(seed))
    moved = target[:, order] if target.ndim == 2 else order.argsort()[target]
    want = function(name)(logits, target, **settings)
    settings = of_classes(settings, order)
    torch.testing.assert_close(function(name)(logits[:, order], moved, **settings), want)


@each_class_loss
def test_weight_and_ignore_index_mean_what_they_mean_for_cross_entropy(name):
    logits, target = batch(name)
    weight = torch.rand(C, dtype=torch.float64) + 0.1
    target[[1, 4]] = -7
    rows = function(name)(logits, target.clamp_min(0), **options(name), reduction="none")
    counted = target != -7
    row_weight = torch.where(counted, weight[target.clamp_min(0)], 0)
    common = {"weight": weight, "ignore_index": -7}
    settings = plainly_weighted(name)
    torch.testing.assert_close(
        function(name)(logits, target, **settings, **common),
        (rows * row_weight).sum() / row_weight.sum(),
    )
    none = function(name)(logits, target, **settings, **common, reduction="none")
    torch.testing.assert_close(none, rows * row_weight)
    plain = function(name)(logits, target, **options(name), ignore_index=-7)
    torch.testing.assert_close(plain, rows[counted].mean())
    assert function(name)(logits, torch.full((N,), -100), **options(name)).isnan()  # as cross_entropy
    assert cross_entropy(logits, torch.full((N,), -100)).isnan()


# Delta_yj of the margin losses with the options above, by the priors p of METHODS' table; balanced_ce has
# factors alpha_y besides
MARGINS = {
    "balanced_ce": lambda p, y, j: 0.0,
    "equalized": lambda p, y, j: math.log(p[j]),
    "ldam": lambda p, y, j: 0.5 * (p[y] / min(p)) ** -0.25,
    "logit_adjusted": lambda p, y, j: math.log(p[j] / p[y]),
    "logit_adjusted_adaptive": lambda p, y, j: math.log(p[j] / p[y]) + p[y] ** -0.25,
    "two_parameter_margin": lambda p, y, j: 0.5 * math.log(p[j]) - math.log(p[y]),
}


def row_with_margins(name: str, scores: list[float], y: int, weight: list[float]) -> float:
    """w_y alpha_y log(1 + sum of exp(Delta_yj + log(w_j / w_y) + s_j - s_y)), by a loop."""
    priors = [float(n) / float(COUNTS.sum()) for n in COUNTS]
    alpha = 1 / priors[y] if name == "balanced_ce" else 1.0
    total = 1.0
    for j in range(C):
        if j != y:
            margin = MARGINS[name](priors, y, j) + math.log(weight[j] / weight[y])
            total += math.exp(margin + scores[j] - scores[y])
    return weight[y] * alpha * math.log(total)


def test_margins_of_every_margin_loss_are_here():
    assert set(MARGIN_LOSSES) == set(MARGINS)
    for name in MARGIN_LOSSES:
        for call in (LOSSES[name].__init__, function(name)):
            assert inspect.signature(call).parameters["weighting"].default == "consistent"


@pytest.mark.parametrize("name", MARGIN_LOSSES)
def test_consistent_weights_come_with_their_margins(name):
    logits, target = batch(name)
    weight = torch.rand(C, dtype=torch.float64) + 0.1
    want = torch.tensor(
        [
            row_with_margins(name, scores, y, weight.tolist())
            for scores, y in zip(logits.tolist(), target.tolist(), strict=True)
        ],
        dtype=torch.float64,
    )
    for settings in (options(name), options(name) | {"weighting": "consistent"}):
        rows = function(name)(logits, target, **settings, weight=weight, reduction="none")
        torch.testing.assert_close(rows, want, rtol=1e-12, atol=1e-12)
        module = LOSSES[name](**settings, weight=weight)
        torch.testing.assert_close(module(logits, target), want.sum() / weight[target].sum())
    target[[1, 4]] = -7
    counted = target != -7
    got = function(name)(logits, target, **options(name), weight=weight, ignore_index=-7)
    torch.testing.assert_close(got, want[counted].sum() / weight[target[counted]].sum())
    none = function(name)(logits, target, **options(name), weight=weight, ignore_index=-7, reduction="none")
    torch.testing.assert_close(none, want.where(counted, 0))
    # without weights, or with equal ones, there is nothing to make up for
    plain = function(name)(logits, target, **options(name), ignore_index=-7)
    even = torch.full((C,), 3.0)
    for settings in (options(name), plainly_weighted(name)):
        torch.testing.assert_close(
            function(name)(logits, target, **settings, ignore_index=-7, weight=even), plain
        )


@each_class_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_class_of_weight_0_counts_for_nothing(name, dtype):
    logits, target = batch(name, dtype)
    target[:3] = torch.tensor([4, 0, 8])
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 0.0, 3.0, 1.0, 1.0, 1.0])
    shares = torch.full((N, C), 1 / C)
    for settings in (options(name), plainly_weighted(name)):
        leaf = logits.clone().requires_grad_()
        rows = function(name)(leaf, target, **settings, weight=weight, reduction="none")
        assert torch.isfinite(rows).all() and (rows[target == 4] == 0).all()
        mean = LOSSES[name](**settings, weight=weight)(leaf, target)
        torch.testing.assert_close(mean, rows.sum() / weight[target].sum().to(rows.dtype))
        mean.backward()
        assert torch.isfinite(leaf.grad).all()
        assert (leaf.grad[target == 4] == 0).all() and (leaf.grad[target != 4] != 0).any()
        leaf.grad = None
        mixed = function(name)(leaf, shares, **settings, weight=weight)
        mixed.backward()
        assert torch.isfinite(mixed) and torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("name", MARGIN_LOSSES)
@pytest.mark.parametrize("weighting", ["consistent", "plain"])
def test_gradcheck_with_weights(name, weighting):
    logits, target = batch(name)
    settings = options(name) | {"weighting": weighting, "weight": torch.linspace(0, 2, C).double()}
    shares = torch.rand(N, C, dtype=torch.float64)
    for wanted in (target, shares / shares.sum(1, keepdim=True)):
        leaf = logits.clone().requires_grad_()
        assert gradcheck(lambda x, wanted=wanted: function(name)(x, wanted, **settings), (leaf,))


@each_class_loss
def test_ignored_rows_have_no_gradient(name):
    logits, target = batch(name)
    target[2] = -100
    leaf = logits.requires_grad_()
    function(name)(leaf, target, **options(name)).backward()
    assert (leaf.grad[2] == 0).all() and (leaf.grad[0] != 0).any()


@pytest.mark.parametrize("name", [name for name in CLASS_LOSSES if "topk" not in name])  # these need k left
@pytest.mark.parametrize("left", [7, 2, 1])
def test_masked_classes_without_a_share_have_no_gradient(name, left):
    logits, _ = batch(name, torch.float32)
    logits[:, left:] = -torch.inf
    shares = torch.rand(N, C)
    shares[:, left:] = 0
    shares = shares / shares.sum(1, keepdim=True)
    leaf = logits.requires_grad_()
    loss = function(name)(leaf, shares, **options(name))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(leaf.grad).all() and (leaf.grad[:, left:] == 0).all()


@each_class_loss
def test_probability_targets_are_convex_combinations(name):
    logits, _ = batch(name)
    weight = torch.rand(C, dtype=torch.float64)
    shares = torch.rand(N, C, dtype=torch.float64)
    shares[:, 3] = 0
    shares = shares / shares.sum(1, keepdim=True)
    table = torch.stack(
        [function(name)(logits, torch.full((N,), j), **options(name), reduction="none") for j in range(C)],
        dim=1,
    )
    got = function(name)(logits, shares, **plainly_weighted(name), weight=weight, reduction="none")
    torch.testing.assert_close(got, (shares * weight * table).sum(1))
    mean = function(name)(logits, shares, **plainly_weighted(name), weight=weight)
    torch.testing.assert_close(mean, got.mean())  # as cross_entropy
    weighted = torch.stack(
        [
            function(name)(logits, torch.full((N,), j), **options(name), weight=weight, reduction="none")
            for j in range(C)
        ],
        dim=1,
    )  # with their margins, where a loss has some for its weights
    got = function(name)(logits, shares, **options(name), weight=weight, reduction="none")
    torch.testing.assert_close(got, (shares * weighted).sum(1))
    torch.testing.assert_close(function(name)(logits, shares, **options(name), weight=weight), got.mean())
    one_hot = torch.nn.functional.one_hot(torch.arange(N), C).double()
    torch.testing.assert_close(
        function(name)(logits, one_hot, **options(name)),
        function(name)(logits, torch.arange(N), **options(name)),
    )


@each
def test_pickle_copy_state_and_repr(name):
    logits, target = batch(name)
    weight = torch.rand(C, dtype=torch.float64) + 0.1
    module = LOSSES[name](**options(name), weight=weight)
    want = module(logits, target)
    for twin in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert twin(logits, target).equal(want)
    other = LOSSES[name](**options(name), weight=torch.ones(C, dtype=torch.float64))
    other.load_state_dict(module.state_dict())
    assert other(logits, target).equal(want)
    assert type(module).__name__ in repr(module)


@each
def test_module_moves_its_buffers(name):
    module = LOSSES[name](**options(name), weight=torch.ones(C)).to("meta")
    assert all(buffer.is_meta for buffer in module.buffers()) and len(list(module.buffers())) >= 1


@each
@pytest.mark.compiled
def test_compiles_without_a_break(name):
    logits, target = batch(name, torch.float32)
    module = LOSSES[name](**options(name))
    results = []
    for run in (module, torch.compile(module, backend="aot_eager", fullgraph=True)):
        leaf = logits.clone().requires_grad_()
        loss = run(leaf, target)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["ldam", "logit_adjusted"])
@pytest.mark.compiled
def test_weights_with_margins_compile_without_a_break(name):
    logits, target = batch(name, torch.float32)
    module = LOSSES[name](**options(name), weight=torch.linspace(0, 2, C))
    results = []
    for run in (module, torch.compile(module, backend="aot_eager", fullgraph=True)):
        leaf = logits.clone().requires_grad_()
        loss = run(leaf, target)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.compiled
def test_sampled_noise_compiles_without_a_break():
    logits, target = batch("noised_topk", torch.float32)
    module = torch.compile(losses.NoisedTopKLoss(k=3), backend="aot_eager", fullgraph=True)
    leaf = logits.requires_grad_()
    module(leaf, target).backward()
    assert torch.isfinite(leaf.grad).all() and (leaf.grad != 0).any()
    torch._dynamo.reset()


@each
def test_rows_may_be_changed_in_place(name):
    gradients = []
    for in_place in (True, False):
        leaf, target = batch(name)
        leaf.requires_grad_()
        loss = LOSSES[name](**(options(name) | {"reduction": "none"}))
        rows = loss(leaf, target)
        changed = rows.mul_(2) if in_place else 2 * rows
        gradients.append(torch.autograd.grad(changed.sum(), leaf)[0])
    torch.testing.assert_close(*gradients)


@each
def test_autocast(name):
    logits, target = batch(name, torch.float32)
    head = torch.nn.Linear(C, C)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = head(logits)
        assert scores.dtype == torch.bfloat16
        loss = LOSSES[name](**options(name))(scores, target)
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isfinite(head.weight.grad).all()


@each
def test_autocast_rounds_nothing_inside(name):
    """No step of a loss may be one that autocast takes in half precision."""
    results = []
    for enabled in (False, True):
        leaf, target = batch(name, torch.float32)
        leaf = (10 * leaf.detach() + 50).requires_grad_()
        for num_samples in [{}, *([{"num_samples": 3}] if "noised" in name else [])]:
            torch.manual_seed(1)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                loss = LOSSES[name](**(options(name) | num_samples))(leaf, target)
            results.append((loss.detach(), torch.autograd.grad(loss, leaf)[0]))
    half = len(results) // 2
    assert all(
        torch.equal(*pair)
        for a, b in zip(results[:half], results[half:], strict=True)
        for pair in zip(a, b, strict=True)
    )


def train_on_half(rank: int) -> list:
    half = slice(rank * N // 2, (rank + 1) * N // 2)
    return [loss_and_gradient(*case, half, parallel=True) for case in SHARED_BATCHES]


# with plain cross-entropy, and weights and ignored rows that differ between the processes
SHARED_BATCHES = [
    *((name, uneven) for name in NAMES for uneven in (False, True)),
    *(("cross_entropy", {"label_smoothing": e, "weighted": w}) for e in (0.0, 0.2) for w in (False, True)),
]


def loss_and_gradient(name: str, uneven, rows: slice, parallel: bool) -> tuple[torch.Tensor, torch.Tensor]:
    logits, target = batch(name)
    weight = torch.linspace(0.1, 3, C, dtype=torch.float64)
    if uneven and name != "sparse_top":
        target[:2] = -100
    if name == "cross_entropy":
        loss = torch.nn.CrossEntropyLoss(
            weight=weight if uneven["weighted"] else None, label_smoothing=uneven["label_smoothing"]
        )
    else:
        loss = LOSSES[name](**options(name), weight=weight if uneven else None)
    torch.manual_seed(1)
    head = torch.nn.Linear(C, C, bias=False, dtype=torch.float64)
    model = torch.nn.parallel.DistributedDataParallel(head) if parallel else head
    value = losses.call_loss(loss, model(logits[rows]), target[rows], torch.arange(N)[rows])
    value.backward()
    assert head.weight.grad is not None
    return value.detach(), head.weight.grad


def test_two_processes_with_half_the_batch_each_equal_one(tmp_path):
    results = in_two_processes(train_on_half, tmp_path)
    for number, (name, uneven) in enumerate(SHARED_BATCHES):
        value, gradient = loss_and_gradient(name, uneven, slice(0, N), parallel=False)
        found = [result[number] for result in results]
        for _, one in found:
            torch.testing.assert_close(one, gradient, rtol=1e-9, atol=1e-12)
        mean = torch.stack([one for one, _ in found]).mean(0)
        torch.testing.assert_close(mean, value, rtol=1e-9, atol=1e-12)


def alone(rank: int) -> float:
    """What the first process computes by itself: a loss without a gradient, and one that nobody else has."""
    if rank:
        return 0.0
    logits, target = batch("focal")
    loss = torch.nn.CrossEntropyLoss(weight=torch.linspace(0.1, 3, C, dtype=torch.float64))
    value = losses.call_loss(loss, logits, target, torch.arange(N))
    with losses.in_one_process():
        own = losses.call_loss(loss, logits.requires_grad_(), target, torch.arange(N))
    assert torch.allclose(value, own)
    return float(own)


def test_a_process_that_computes_a_loss_by_itself_waits_for_nobody(tmp_path):
    logits, target = batch("focal")
    want = torch.nn.functional.cross_entropy(
        logits, target, weight=torch.linspace(0.1, 3, C, dtype=torch.float64)
    )
    assert in_two_processes(alone, tmp_path)[0] == pytest.approx(float(want), rel=1e-12)


BAD = [
    ({"target": torch.tensor([0, 1, 2, 3, 4, 9])}, r"target must be in \[0, 9\) or -100, got 9"),
    ({"target": torch.tensor([0, 1, 2, 3, 4, -1])}, r"target must be in \[0, 9\) or -100, got -1"),
    ({"target": torch.zeros(5, dtype=torch.int64)}, r"target must be int64 class indices of shape \(6,\)"),
    ({"target": torch.zeros(6, dtype=torch.int32)}, r"got torch.int32 \(6,\)"),
    ({"target": [0, 1, 2, 3, 4, 5]}, "target must be int64 class indices .*, got list"),
    ({"target": torch.full((6, 9), 0.5)}, "probability targets must add up to 1 in each row, got 4.5"),
    ({"target": torch.full((6, 8), 0.125)}, r"probability targets must be .* shape \(6, 9\)"),
    ({"weight": torch.ones(8)}, r"weight must have one entry per class \(9\), got 8"),
    ({"weight": -torch.ones(9)}, "weight must be finite and >= 0, got -1.0"),
    ({"weight": torch.full((9,), math.nan)}, "weight must be finite and >= 0, got nan"),
    ({"reduction": "average"}, "reduction must be one of mean, sum, none, got 'average'"),
    (
        {"logits": torch.zeros(9)},
        r"logits must be a floating tensor of shape \(n, c\), got torch.float32 \(9,\)",
    ),
    ({"logits": torch.zeros(6, 9, dtype=torch.int64)}, "logits must be a floating tensor"),
]


@pytest.mark.errors
@each_class_loss
@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input(name, change, message):
    logits, target = batch(name)
    arguments = {"logits": logits, "target": target, **options(name), **change}
    with pytest.raises(ValueError, match=message):
        function(name)(arguments.pop("logits"), arguments.pop("target"), **arguments)


HYPER = [
    ({"k": 0}, "k must be an integer >= 1, got 0"),
    ({"k": 2.0}, r"k must be an integer >= 1, got 2\.0"),
    ({"k": True}, "k must be an integer >= 1, got True"),
    (
        {"margin": math.nan},
        "margin must be a finite number.*, got nan",
    ),
    ({"temperature": 0.0}, r"temperature must be > 0, got 0\.0"),
    ({"temperature": math.nan}, "temperature must be a finite number > 0, got nan"),
    ({"noise_std": -1.0}, r"noise_std must be >= 0, got -1\.0"),
    ({"noise_std": math.inf}, "noise_std must be a finite number >= 0, got inf"),
    ({"num_samples": 0}, "num_samples must be an integer >= 1, got 0"),
    ({"scale": 0.0}, r"scale must be > 0, got 0\.0"),
    ({"max_margin": 0.0}, r"max_margin must be > 0, got 0\.0"),
    ({"tau": math.nan}, "tau must be a finite number"),
    ({"tau_true": math.inf}, "tau_true must be a finite number, got inf"),
    ({"gamma": -1.0}, r"gamma must be >= 0, got -1\.0"),
    ({"class_counts": torch.tensor([1] * 8 + [0])}, "class_counts must be >= 1, got 0 for class 8"),
    ({"class_counts": torch.full((9,), math.nan)}, "class_counts must be finite and >= 0, got nan"),
    ({"steepness": -1.0}, r"steepness must be > 0, got -1\.0"),
    ({"candidates": 0}, "candidates must be an integer >= 1, got 0"),
    ({"weighting": "balanced"}, "weighting must be one of consistent, plain, got 'balanced'"),
]


@pytest.mark.errors
@each
def test_bad_hyper_parameters_are_refused_by_function_and_module(name):
    logits, target = batch(name)
    for change, message in HYPER:
        parameters = (
            inspect.signature(LOSSES[name].__init__).parameters,
            inspect.signature(function(name)).parameters,
        )
        if any(not set(change) <= set(names) for names in parameters):
            continue
        settings = {**options(name), **change}
        with pytest.raises(ValueError, match=message):
            LOSSES[name](**settings)
        with pytest.raises(ValueError, match=message):
            function(name)(logits, target, **settings)


@pytest.mark.errors
@pytest.mark.parametrize("name", [name for name in CLASS_LOSSES if "k" in options(name)])
def test_k_must_leave_a_class_out(name):
    logits, target = batch(name)
    for k in (C, C + 5):
        with pytest.raises(ValueError, match=rf"k must be < the number of classes \({C}\), got {k}"):
            function(name)(logits, target, **{**options(name), "k": k})


@pytest.mark.parametrize("name", LOSSES)
def test_function_and_module_agree_on_every_option(name):
    """Names, order, defaults and annotations; the function's positional arguments are tensors of a batch."""
    of_function = inspect.signature(function(name)).parameters.values()
    of_module = dict(inspect.signature(LOSSES[name]).parameters)
    if name == "role":  # the table from which the module looks up the function's tensor
        assert of_module.pop("estimates").annotation is losses.LabelEstimates
    assert [p for p in of_function if p.kind is p.KEYWORD_ONLY] == list(of_module.values())


@pytest.mark.errors
@each
def test_unknown_and_missing_options_are_refused_by_name(name):
    settings, loss = options(name), LOSSES[name].__name__
    message = rf"{loss}.__init__\(\) got an unexpected keyword argument 'color'"
    with pytest.raises(TypeError, match=message):
        LOSSES[name](**settings, color=3)
    with pytest.raises(TypeError, match=rf"{loss}.__init__\(\)"):
        LOSSES[name](5, **settings)
    parameters = inspect.signature(LOSSES[name]).parameters
    for required in [
        option for option in parameters if parameters[option].default is inspect.Parameter.empty
    ]:
        with pytest.raises(TypeError, match=rf"{loss}.__init__\(\) missing a required .*'{required}'"):
            LOSSES[name](**{key: value for key, value in settings.items() if key != required})
