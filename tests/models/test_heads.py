import copy
import functools
import importlib
import importlib.util
import math
import pickle

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from shortlist.models.classifiers import freeze_features, replace_classifier
from shortlist.models.heads import CosineHead, LinearHead, ScaledHead, TwoHead, TwoHeadScores
from tests.conftest import vision_library

N, D, C = 5, 7, 4
HEADS = {
    "linear": lambda: LinearHead(D, C),
    "linear without bias": lambda: LinearHead(D, C, bias=False),
    "cosine": lambda: CosineHead(D, C, scale=20.0),
    "cosine, learned scale": lambda: CosineHead(D, C, scale=20.0, learn_scale=True),
    "two": lambda: TwoHead(D, C),
    "scaled": lambda: ScaledHead(LinearHead(D, C)),
    "scaled nn.Linear": lambda: ScaledHead(nn.Linear(D, C, bias=False)),
    "scaled cosine": lambda: ScaledHead(CosineHead(D, C, scale=3.0)),
}
each = pytest.mark.parametrize("name", HEADS)


def dot(a, b) -> float:
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def cosine(a, b) -> float:
    length = math.sqrt(dot(a, a)) * math.sqrt(dot(b, b))
    return dot(a, b) / length if length else 0.0


def by_hand(features, weight, score) -> torch.Tensor:
    rows = [[score(row, weight[c], c) for c in range(len(weight))] for row in features]
    return torch.tensor(rows, dtype=torch.float64)


def flat(scores) -> torch.Tensor:
    return torch.cat(list(scores), dim=1) if isinstance(scores, tuple) else scores


def test_linear_head_is_a_loop():
    head, features = LinearHead(D, C).double(), torch.randn(N, D, dtype=torch.float64)
    want = by_hand(features, head.weight, lambda x, w, c: dot(x, w) + head.bias[c].item())
    torch.testing.assert_close(head(features), want)
    assert LinearHead(D, C, bias=False).bias is None


def test_linear_head_starts_as_and_loads_from_nn_linear():
    torch.manual_seed(3)
    linear = nn.Linear(D, C)
    torch.manual_seed(3)
    head = LinearHead(D, C)
    bound = 1 / math.sqrt(D)
    assert head.weight.abs().max() <= bound and head.bias.abs().max() <= bound
    torch.testing.assert_close(head.weight, linear.weight)
    other = nn.Linear(D, C)
    head.load_state_dict(other.state_dict())
    features = torch.randn(N, D)
    assert head(features).equal(other(features))


def test_cosine_head_is_a_loop():
    head, features = CosineHead(D, C, scale=20.0).double(), 3 * torch.randn(N, D, dtype=torch.float64)
    with torch.no_grad():
        head.weight.mul_(torch.rand(C, 1) + 0.5)  # lengths must not matter
    want = by_hand(features, head.weight, lambda x, w, c: 20 * cosine(x, w))
    torch.testing.assert_close(head(features), want)
    assert head(features).abs().max() <= 20


def test_cosine_head_starts_with_unit_weights():
    head = CosineHead(D, 50)
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(50))
    assert len(head.weight.unique(dim=0)) == 50


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_cosine_of_zero_features_is_zero_with_a_finite_gradient(dtype):
    head = CosineHead(D, C, scale=30.0, learn_scale=True).to(dtype)
    features = torch.zeros(2, D, dtype=dtype)
    features[1, 2] = 1
    features.requires_grad_()
    scores = head(features)
    assert (scores[0] == 0).all() and (scores[1] != 0).any()
    scores.sum().backward()
    assert features.grad.isfinite().all() and features.grad.abs().max() < 1e3
    assert all(p.grad.isfinite().all() for p in head.parameters())


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float16, 6e4), (torch.float16, 1e-6), (torch.bfloat16, 1e4)]
)
def test_cosine_head_in_half_precision(dtype, size):
    """The squares of these features overflow or vanish in float16."""
    head = CosineHead(D, C, scale=30.0).to(dtype)
    features = (size * torch.sign(torch.randn(N, D))).to(dtype)
    scores = head(features)
    assert scores.dtype == torch.float32
    want = by_hand(features.double(), head.weight.double(), lambda x, w, c: 30 * cosine(x, w))
    torch.testing.assert_close(scores.double(), want, rtol=1e-4, atol=1e-4)


def test_scale_is_a_buffer_or_a_positive_parameter():
    fixed, learned = CosineHead(D, C, scale=30.0), CosineHead(D, C, scale=30.0, learn_scale=True)
    assert set(dict(fixed.named_parameters())) == {"weight"} and set(fixed.state_dict()) == {
        "weight",
        "fixed_scale",
    }
    assert set(dict(learned.named_parameters())) == {"weight", "log_scale"}
    assert fixed.scale == 30 and learned.scale.item() == pytest.approx(30)
    optimizer = torch.optim.SGD([learned.log_scale], lr=1.0)
    for _ in range(20):  # a descent on the scale itself would be negative after the first step
        optimizer.zero_grad()
        learned.scale.backward()
        optimizer.step()
    assert 0 < learned.scale < 30


def test_two_head_is_two_linear_heads_in_training_and_evaluation():
    head, features = TwoHead(D, C).double(), torch.randn(N, D, dtype=torch.float64)
    for mode in (True, False):
        scores = head.train(mode)(features)
        assert isinstance(scores, TwoHeadScores)
        for got, part in ((scores.set_logits, head.set_head), (scores.proposal_logits, head.proposal_head)):
            want = by_hand(features, part.weight, lambda x, w, c, b=part.bias: dot(x, w) + b[c].item())
            torch.testing.assert_close(got, want)
    assert not scores.set_logits.equal(scores.proposal_logits)
    scores.set_logits.sum().backward()
    assert head.proposal_head.weight.grad is None


@pytest.mark.parametrize("kind", ["nn", "ours", "cosine"])
def test_scaled_head_is_a_loop(kind):
    inner = {"nn": nn.Linear(D, C), "ours": LinearHead(D, C), "cosine": CosineHead(D, C, scale=3.0)}[kind]
    head, features = ScaledHead(inner).double(), torch.randn(N, D, dtype=torch.float64)
    torch.testing.assert_close(head(features), inner(features))
    scale = [0.5, 1.0, 2.0, 3.0]
    with torch.no_grad():
        head.log_scale.copy_(torch.tensor(scale).log())
    if kind == "cosine":
        want = by_hand(features, inner.weight, lambda x, w, c: scale[c] * 3 * cosine(x, w))
    else:
        want = by_hand(features, inner.weight, lambda x, w, c: scale[c] * dot(x, w) + inner.bias[c].item())
    torch.testing.assert_close(head(features), want, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(head.scale, torch.tensor(scale, dtype=torch.float64), rtol=1e-6, atol=0)
    head.reset_parameters()
    torch.testing.assert_close(head(features), inner(features))


def test_scaled_head_trains_its_scales_alone():
    inner = LinearHead(D, C)
    head, before = ScaledHead(inner), copy.deepcopy(inner.state_dict())
    optimizer = torch.optim.SGD(head.parameters(), lr=0.5)
    features, target = torch.randn(40, D), torch.randint(C, (40,))
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(features), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and (head.scale != 1).all() and (head.scale > 0).all()
    assert all(before[name].equal(value) for name, value in inner.state_dict().items())


@each
def test_gradcheck(name):
    head, features = HEADS[name]().double(), torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    parameters = [p for p in head.parameters() if p.requires_grad]
    assert gradcheck(lambda x, *_: flat(head(x)), (features, *parameters))


@each
def test_state_pickle_and_copy(name):
    head, features = HEADS[name](), torch.randn(N, D)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    want = flat(head(features))
    other = HEADS[name]()
    assert not flat(other(features)).equal(want)
    other.load_state_dict(head.state_dict())
    for twin in (other, pickle.loads(pickle.dumps(head)), copy.deepcopy(head)):
        assert flat(twin(features)).equal(want)
    assert head.in_features == D and head.num_classes == C
    assert type(head).__name__ in repr(head)


@each
def test_reset_draws_anew(name):
    head, features = HEADS[name](), torch.randn(N, D)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.fill_(0.25)
    before = flat(head(features))
    head.reset_parameters()
    assert not flat(head(features)).equal(before)


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_close_to_double(name, dtype):
    head, features = HEADS[name]().to(dtype), torch.randn(N, D).to(dtype)
    scores = flat(head(features))
    want = flat(copy.deepcopy(head).double()(features.double()))
    assert scores.isfinite().all()
    torch.testing.assert_close(scores.double(), want, rtol=0.02, atol=0.03)


@each
def test_autocast(name):
    head, features = HEADS[name](), torch.randn(N, D, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = flat(head(features))
    torch.testing.assert_close(scores.float(), flat(head(features)), rtol=0.05, atol=0.3)
    scores.sum().backward()
    assert features.grad.isfinite().all()


@each
@pytest.mark.compiled
def test_compiles_without_a_break(name):
    head, features = HEADS[name](), torch.randn(N, D)
    compiled = torch.compile(head, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(flat(compiled(features)), flat(head(features)))
    torch._dynamo.reset()


@each
def test_empty_batch(name):
    assert flat(HEADS[name]()(torch.zeros(0, D))).shape[0] == 0


@pytest.mark.errors
@each
@pytest.mark.parametrize("features", [torch.zeros(N, D + 1), torch.zeros(D), torch.zeros(N, D).long()])
def test_bad_features(name, features):
    with pytest.raises(
        ValueError, match=rf"features must be a floating tensor of shape \(n, {D}\), got torch"
    ):
        HEADS[name]()(features)


@pytest.mark.errors
@pytest.mark.parametrize("cls", [LinearHead, CosineHead, TwoHead])
def test_bad_sizes(cls):
    with pytest.raises(ValueError, match="in_features must be an integer >= 1, got 0"):
        cls(0, C)
    with pytest.raises(ValueError, match=r"num_classes must be an integer >= 1, got 2\.5"):
        cls(D, 2.5)


@pytest.mark.errors
def test_bad_scale_and_bad_inner_head():
    for scale in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="scale must be"):
            CosineHead(D, C, scale=scale)
    for inner in (TwoHead(D, C), ScaledHead(LinearHead(D, C)), nn.ReLU()):
        with pytest.raises(ValueError, match=f"CosineHead, got {type(inner).__name__}"):
            ScaledHead(inner)


class Backbone(nn.Module):
    """A model of which parts can be named as the usual libraries do."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, D), nn.BatchNorm1d(D), nn.ReLU())
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x):
        x = self.features(x)
        for name, part in self.named_children():
            x = part(x) if name != "features" else x
        return x


PLACES = {
    "fc": lambda: Backbone(fc=nn.Linear(D, 9)),
    "classifier": lambda: Backbone(classifier=nn.Linear(D, 9)),
    "classifier.2": lambda: Backbone(
        classifier=nn.Sequential(nn.Linear(D, D), nn.Dropout(), nn.Linear(D, 9), nn.Flatten())
    ),
    "head": lambda: Backbone(head=LinearHead(D, 9)),
    "heads.head": lambda: Backbone(heads=nn.ModuleDict({"head": nn.Linear(D, 9)})),
}


@pytest.mark.parametrize("place", PLACES)
def test_classifier_is_found_by_its_usual_names(place):
    model = PLACES[place]().double().eval()
    assert replace_classifier(model, lambda d: CosineHead(d, C)) is model
    new = model.get_submodule(place)
    assert isinstance(new, CosineHead) and new.weight.shape == (C, D)
    assert new.weight.dtype == torch.float64 and not new.training


def test_a_head_can_be_replaced_by_name_again_and_by_a_module():
    model = Backbone(top=nn.Sequential(nn.Linear(D, D), nn.Linear(D, 9)))
    replace_classifier(model, functools.partial(TwoHead, num_classes=C), name="top.1")
    assert isinstance(model(torch.randn(3, 6)), TwoHeadScores)
    replace_classifier(model, LinearHead(D, 3), name="top.1")
    assert model(torch.randn(3, 6)).shape == (3, 3)
    replace_classifier(model, LinearHead(D, 2), name="top")
    assert model(torch.randn(3, 6)).shape == (3, 2)
    for head in (TwoHead(D, C), ScaledHead(nn.Linear(D, C)), CosineHead(D, C), LinearHead(D, 2)):
        model = Backbone(fc=head)
        assert replace_classifier(model, lambda d: nn.Linear(d, 1))(torch.randn(3, 6)).shape == (3, 1)


def test_number_of_classes_is_kept_up():
    model = PLACES["fc"]()
    model.num_classes = 9
    assert replace_classifier(model, lambda d: LinearHead(d, C)).num_classes == C
    assert replace_classifier(model, lambda d: nn.Linear(d, 2)).num_classes == 2


class Shared(nn.Module):
    """A classifier with two names, of which the forward pass uses the second."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, D), nn.Linear(D, 9)
        self.classifier = self.head

    def forward(self, x):
        return self.classifier(self.body(x))


@pytest.mark.parametrize("name", [None, "head", "classifier"])
def test_all_names_of_a_classifier_are_replaced(name):
    model = replace_classifier(Shared(), lambda d: LinearHead(d, C), name=name)
    assert isinstance(model.head, LinearHead) and model.head is model.classifier
    assert model(torch.randn(2, 6)).shape == (2, C)
    frozen = freeze_features(Shared(), name=name)
    assert [n for n, p in frozen.named_parameters() if p.requires_grad] == ["head.weight", "head.bias"]


def test_freezing_twice_is_freezing_once():
    model = Backbone(fc=nn.Linear(D, C))
    for _ in range(3):
        freeze_features(model)
    hooks = [
        len(module._forward_pre_hooks) for module in model.modules() if isinstance(module, nn.BatchNorm1d)
    ]
    assert hooks and set(hooks) == {1}


@pytest.mark.errors
def test_replace_errors_name_the_candidates_and_change_nothing():
    plain = Backbone(top=nn.Linear(D, 9))
    two = Backbone(fc=nn.Linear(D, 9), head=nn.Linear(9, 9))
    head = functools.partial(LinearHead, num_classes=C)
    layers = r"last linear layers of the model: features\.0"
    for model, options, message in [
        (plain, {}, rf"name must be given .* got None; found nothing; {layers}, top$"),
        (two, {}, rf"found fc, head; {layers}, fc, head$"),
        (plain, {"name": "fc"}, rf"name must be that of a module of the model, got 'fc'; {layers}, top$"),
        (plain, {"name": ""}, "name must be that of a module of the model, got ''"),
        (plain, {"name": "features"}, rf"no in_features: 'features' is of type Sequential; {layers}, top$"),
        (plain, {"name": "top", "head": LinearHead(D + 1, C)}, "head must take the 7 features of 'top'"),
        (plain, {"name": "top", "head": lambda d: None}, "head must be a module or make one, got NoneType"),
        (nn.ReLU(), {}, "linear layers of the model: none"),
    ]:
        before = repr(model)
        with pytest.raises(ValueError, match=message):
            replace_classifier(model, **{"head": head, **options})
        assert repr(model) == before


def test_frozen_features_stay_while_the_classifier_trains():
    model = Backbone(fc=nn.Linear(D, C))
    model(torch.randn(64, 6) + 5)  # running statistics that differ from those of a batch
    assert freeze_features(model) is model
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        model.train()
        optimizer.zero_grad()
        model(torch.randn(8, 6)).sum().backward()
        optimizer.step()
    after = model.state_dict()
    changed = {name for name in after if not after[name].equal(before[name])}
    assert changed == {"fc.weight", "fc.bias"}
    x = torch.randn(8, 6)
    in_train = model.train()(x)
    assert in_train.equal(model.eval()(x))  # the running statistics are used in both modes


def test_freezing_keeps_batch_norm_inside_the_classifier_free_and_survives_pickling():
    def build():
        return Backbone(classifier=nn.Sequential(nn.BatchNorm1d(D), nn.Linear(D, C)))

    model = freeze_features(build(), name="classifier")
    assert {n for n, p in model.named_parameters() if p.requires_grad} == {
        "classifier.0.weight",
        "classifier.0.bias",
        "classifier.1.weight",
        "classifier.1.bias",
    }
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        before = copy.deepcopy(twin.state_dict())
        twin.train()(torch.randn(8, 6) + 3)
        after = twin.state_dict()
        assert after["features.1.running_mean"].equal(before["features.1.running_mean"])
        assert not after["classifier.0.running_mean"].equal(before["classifier.0.running_mean"])


def test_freezing_leaves_a_scaled_head_its_frozen_weight():
    model = freeze_features(Backbone(fc=ScaledHead(nn.Linear(D, C))))
    assert [n for n, p in model.named_parameters() if p.requires_grad] == ["fc.log_scale"]


def test_freezing_can_reset_the_classifier():
    model = Backbone(fc=nn.Linear(D, C))
    before = copy.deepcopy(model.state_dict())
    freeze_features(model, reset=True)
    after = model.state_dict()
    assert {name for name in after if not after[name].equal(before[name])} == {"fc.weight", "fc.bias"}


@pytest.mark.errors
def test_freeze_errors_change_nothing():
    model = Backbone(top=nn.Sequential(nn.Linear(D, C)))
    with pytest.raises(ValueError, match="reset must be False for a Sequential"):
        freeze_features(model, name="top", reset=True)
    with pytest.raises(ValueError, match="name must be given"):
        freeze_features(model)
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.compiled
def test_frozen_features_compile():
    model = freeze_features(Backbone(fc=nn.Linear(D, C))).train()
    x = torch.randn(8, 6)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    assert model.features[1].num_batches_tracked == 0
    torch._dynamo.reset()


MODELS = [
    ("torchvision", "resnet18", "fc", 512),
    ("torchvision", "mobilenet_v3_small", "classifier.3", 1024),
    ("torchvision", "densenet121", "classifier", 1024),
    ("torchvision", "vit_b_32", "heads.head", 768),
    ("torchvision", "efficientnet_b0", "classifier.1", 1280),
    ("torchvision", "swin_t", "head", 768),
    ("timm", "resnet18", "fc", 512),
    ("timm", "vit_tiny_patch16_224", "head", 192),
    ("timm", "mobilenetv3_small_100", "classifier", 1024),
    ("timm", "densenet121", "classifier", 1024),
    ("timm", "convnext_atto", "head.fc", 320),
]


def build(library: str, name: str) -> nn.Module:
    module = vision_library(library)
    if library == "timm":
        return module.create_model(name, pretrained=False)
    return importlib.import_module("torchvision.models").get_model(name, weights=None)


@pytest.mark.parametrize(("library", "name", "place", "length"), MODELS)
def test_models_of_timm_and_torchvision(library, name, place, length):
    model = build(library, name).eval()
    size = 224 if "vit" in name else 64
    images = torch.randn(2, 3, size, size)
    replace_classifier(model, lambda d: TwoHead(d, C))
    assert model.get_submodule(place).in_features == length
    with torch.no_grad():
        scores = model(images)
    assert scores.set_logits.shape == scores.proposal_logits.shape == (2, C)
    replace_classifier(model, lambda d: CosineHead(d, C + 1))
    replace_classifier(model, ScaledHead(model.get_submodule(place)), name=place)
    freeze_features(model).train()
    before = copy.deepcopy(dict(model.named_buffers()))
    scores = model(images)
    assert scores.shape == (2, C + 1)
    scores.sum().backward()
    assert {n for n, p in model.named_parameters() if p.grad is not None} == {f"{place}.log_scale"}
    assert all(buffer.equal(before[name]) for name, buffer in model.named_buffers())
    if library == "timm":
        assert model.num_classes == C + 1


@pytest.mark.errors
def test_timm_models_without_one_classifier_ask_for_a_name():
    timm = vision_library("timm")
    distilled = timm.create_model("deit_tiny_distilled_patch16_224", pretrained=False)
    with pytest.raises(ValueError, match=r"name must be given .* head, head_dist$"):
        replace_classifier(distilled, lambda d: LinearHead(d, C))
    replace_classifier(distilled, lambda d: LinearHead(d, C), name="head_dist")
    features = timm.create_model("resnet18", pretrained=False, num_classes=0)
    with pytest.raises(ValueError, match=r"head must be a module .* 'fc' is of type Identity"):
        replace_classifier(features, lambda d: LinearHead(d, C))
    assert replace_classifier(features, LinearHead(512, C)).eval()(torch.randn(2, 3, 64, 64)).shape == (2, C)
