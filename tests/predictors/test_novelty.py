"""The detector of strangers: strangeness by formula, calibration in pieces, refusals, files."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from shortlist.predictors import (
    CalibrationWarning,
    FeatureMeans,
    NoveltyDetector,
    load_novelty,
    save,
)
from shortlist.predictors.p_values import class_p_values, macro_p_values, pooled_p_values
from shortlist.predictors.strangeness import (
    distance_strangeness,
    energy_strangeness,
    probability_strangeness,
)
from shortlist.sentences import novelty_words

RULES = ("pooled", "class", "macro")


def clusters(n=600, c=5, d=7, *, dtype=torch.float32, seed=0):
    """Features around a center for each class, scores from them, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    centers = 4 * torch.randn(c, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    target = torch.randint(c, (n,), generator=generator)
    features = centers[target] + torch.randn(n, d, generator=generator, dtype=torch.float64)
    scores = -torch.cdist(features, centers).square() / 2
    return features.to(dtype), scores.to(dtype), target


def means(c=5, d=7):
    features, _, target = clusters(500, c, d, seed=1)
    found = FeatureMeans(num_classes=c, dim=d)
    found.update(features, target)
    return found.means()


def make(strangeness="distance", rule="pooled", **options):
    of_classes = means() if strangeness == "distance" else None
    return NoveltyDetector(strangeness=strangeness, rule=rule, means=of_classes, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_strangeness_is_its_formula(dtype):
    features, scores, _ = clusters(50, dtype=dtype)
    exact, tolerance = scores.double(), 1e-12 if dtype == torch.float64 else 1e-5
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    energy, doubt = energy_strangeness(scores), probability_strangeness(scores)
    distance = distance_strangeness(features, means())
    assert energy.dtype == doubt.dtype == distance.dtype == kind
    for row in range(50):
        p = exact[row].softmax(0)
        assert float(energy[row]) == pytest.approx(
            -math.log(sum(map(math.exp, exact[row] + 50))) + 50, rel=1e-5
        )
        others = sum(p.sort().values[:-1].tolist())
        assert float(doubt[row]) == pytest.approx(math.log(others / float(p.max())), rel=1e-3)
        apart = [math.dist(features[row].tolist(), mean) for mean in means().tolist()]
        assert float(distance[row]) == pytest.approx(min(apart), rel=tolerance)


def test_rows_of_which_the_model_is_very_sure_still_differ():
    scores = torch.tensor([[30.0, 0.0], [600.0, 0.0], [90.0, -math.inf]])
    assert probability_strangeness(scores).tolist() == [-30, -600, -math.inf]


def test_distances_do_not_depend_on_the_rows_beside_them():
    features, _, _ = clusters(700)
    of_classes = torch.cat([means(), torch.randn(3000, 7)])
    at_once = distance_strangeness(features, of_classes)
    one_by_one = torch.cat([distance_strangeness(row[None], of_classes) for row in features[:100]])
    assert torch.equal(at_once[:100], one_by_one)
    far = distance_strangeness(features + 1000, of_classes + 1000)  # where squares would lose all digits
    assert torch.allclose(far, at_once, atol=2e-3)


def test_means_of_features_in_any_pieces():
    features, _, target = clusters(300)
    target[:3] = -100
    target[target == 4] = 2
    whole, first, second = (FeatureMeans(num_classes=6, dim=7) for _ in range(3))
    whole.update(features, target)
    for part, classes in zip(features.split(70), target.split(70), strict=True):
        first.update(part, classes)
    again = FeatureMeans(num_classes=6, dim=7)
    again.load_state_dict(first.state_dict())
    order = torch.randperm(300)
    second.update(features[order[:200]], target[order[:200]])
    expected = torch.stack([features[target == c].double().mean(0) for c in range(4)]).float()
    assert torch.equal(whole.means(), expected) and torch.equal(again.means(), expected)
    rest = FeatureMeans(num_classes=6, dim=7)
    rest.update(features[order[200:]], target[order[200:]])
    second.merge(rest)  # rows in another order, from two places
    assert torch.equal(second.counts, whole.counts)
    assert torch.allclose(second.means().double(), expected.double(), rtol=2**-23, atol=2**-30)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("strangeness", ["distance", "energy", "probability"])
def test_p_values_and_flags(rule, strangeness):
    features, scores, target = clusters()
    new = {"features": clusters(80, seed=5)[0] * 1.7, "scores": clusters(80, seed=5)[1] * 1.7}
    detector = make(strangeness, rule, level=0.1, num_classes=5)
    detector.calibrate(target, scores=scores, features=features)
    known = detector.strangeness_of(scores=scores, features=features)
    values = detector.strangeness_of(**new)
    if rule == "pooled":
        expected = pooled_p_values(values, known)
    elif rule == "class":
        expected = class_p_values(values, known, target, num_classes=5).amax(1)
    else:
        expected = macro_p_values(values, known, target, num_classes=5)
    assert torch.equal(detector.p_values(**new), expected)
    assert torch.equal(detector.flag(**new), expected <= 0.1)
    assert torch.equal(detector(**new), expected <= 0.1)
    assert detector.report.rows == 600 and detector.report.flagged <= 0.1
    assert detector.report.smallest_p_value == float(expected.new_tensor(0) + detector.table[0])
    assert "10 %" in novelty_words(detector) and "600" in novelty_words(detector)


def test_a_function_of_scores_and_features_is_a_strangeness():
    features, _, _ = clusters(100)

    def norm(scores, features):
        return features.norm(dim=1)

    detector = NoveltyDetector(strangeness=norm, level=0.2).calibrate(features=features)
    expected = pooled_p_values(features.norm(dim=1), features.norm(dim=1))
    assert torch.equal(detector.p_values(features=features), expected)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("travel", ["state_dict", "in a model", "pickle", "file"])
def test_pieces_end_as_one_calibration(rule, travel, tmp_path):
    _, scores, target = clusters()
    target[::50] = -100
    whole = make("energy", rule).calibrate(target, scores=scores)
    part, other = make("energy", rule), make("energy", rule)
    part.update(target[:100], scores=scores[:100])
    if travel == "state_dict":
        moved = make("energy", rule)
        moved.load_state_dict(part.state_dict())
    elif travel == "in a model":
        outer = nn.Sequential(make("energy", rule))
        outer.load_state_dict(copy.deepcopy(nn.Sequential(part).state_dict()))
        [moved] = outer
    elif travel == "pickle":
        moved = pickle.loads(pickle.dumps(part))
    else:
        save(part, tmp_path / "part")
        moved = load_novelty(tmp_path / "part")
    other.update(target[350:], scores=scores[350:])
    moved.update(target[100:350], scores=scores[100:350])
    other.merge(moved)
    other.finish()
    assert torch.equal(other.values, whole.values) and torch.equal(other.table, whole.table)
    assert torch.equal(other.cutoff, whole.cutoff) and other.report == whole.report


@pytest.mark.parametrize("strangeness", ["distance", "energy"])
def test_a_saved_detector_is_the_same(strangeness, tmp_path):
    features, scores, target = clusters()
    detector = make(strangeness, "macro", num_classes=5).calibrate(target, scores=scores, features=features)
    save(detector, tmp_path / "novelty.json")
    loaded = load_novelty(tmp_path / "novelty.json")
    assert loaded.options() == detector.options() and loaded.report == detector.report
    assert novelty_words(loaded) == novelty_words(detector)
    assert torch.equal(
        loaded.p_values(scores=scores, features=features), detector.p_values(scores=scores, features=features)
    )
    before = detector.state_dict()
    detector.half()
    assert all(torch.equal(before[key], value) for key, value in detector.state_dict().items())
    save(detector, tmp_path / "novelty.json")  # in place of the first
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.errors
def test_damaged_files_are_named(tmp_path):
    _, scores, target = clusters()
    save(make("energy").calibrate(target, scores=scores), tmp_path / "novelty.json")
    [state] = tmp_path.glob("*.safetensors")
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"novelty.json is not a novelty detector .* not the file that was"):
        load_novelty(tmp_path / "novelty.json")
    with pytest.raises(ValueError, match=r"strangeness must be one of .* to be saved, got <lambda>"):
        save(NoveltyDetector(strangeness=lambda s, f: s[:, 0]), tmp_path / "other")


def test_a_detector_is_calibrated_anew():
    _, scores, target = clusters()
    detector = make("energy", "macro").calibrate(target, scores=scores)
    detector.calibrate(target % 3, scores=scores[:, :3])
    expected = make("energy", "macro").calibrate(target % 3, scores=scores[:, :3])
    assert torch.equal(detector.table, expected.table) and int(detector.num_classes) == 3


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"level": 0.01}, 98, "needs at least 99 calibration rows, got 98 .*p-value is 0.0101"),
        ({"delta": 0.1}, 88, "needs at least 90 calibration rows, got 88"),
        ({"rule": "class"}, 90, r"at least 19 calibration rows in each class, and . classes have fewer, got"),
        ({"rule": "macro", "level": 0.01}, 60, "at least 20 calibration rows in each of the 5 classes, got"),
        ({"rule": "class", "classes": "all", "num_classes": 6}, 600, "1 class has fewer, got 0 in class 5"),
        ({"rule": "macro", "classes": "all", "num_classes": 6}, 600, "at most a share 0.05 .* 1 have none"),
    ],
)
def test_too_few_rows_to_flag_anything_are_refused(options, rows, message):
    features, _, target = clusters(rows)
    function = {"strangeness": lambda scores, features: features[:, 0]}
    with pytest.raises(ValueError, match=f"can never flag anything: it .*{message}"):
        NoveltyDetector(**{"num_classes": 5, **function, **options}).calibrate(target, features=features)


@pytest.mark.parametrize(
    ("options", "enough"),
    [({"level": 0.01}, 99), ({"delta": 0.1}, 90), ({"delta": 0.05, "level": 0.1}, 58)],
)
def test_one_more_row_is_enough(options, enough):
    known = torch.arange(float(enough))[:, None]
    detector = NoveltyDetector(strangeness="energy", **options).calibrate(scores=known)
    assert detector.flag(scores=torch.tensor([[-1.0]])).item()
    with pytest.raises(ValueError, match=f"needs at least {enough} calibration rows, got {enough - 1}"):
        NoveltyDetector(strangeness="energy", **options).calibrate(scores=known[1:])


def test_classes_without_rows_are_named():
    _, scores, target = clusters()
    padded = torch.cat([scores, scores.new_full((600, 2), -50.0)], 1)
    with pytest.warns(CalibrationWarning, match=r"nothing is promised about 2 classes .*\(5, 6\)"):
        detector = make("energy", "class").calibrate(target, scores=padded)
    assert detector.report.absent_classes == (5, 6)


def test_strangers_of_a_batch():
    known = torch.arange(1000.0)[:, None]
    detector = NoveltyDetector(strangeness="energy", level=0.1).calibrate(scores=known)
    batch = torch.cat([torch.full((3, 1), -1.0), torch.arange(500.0, 540.0)[:, None]])
    assert detector.flag_batch(scores=batch).nonzero().squeeze(1).tolist() == [0, 1, 2]
    few = NoveltyDetector(strangeness="energy", level=0.1).calibrate(scores=known[:50])
    with pytest.warns(
        CalibrationWarning, match=r"50 calibration rows, .* batch of 43 .* if they are 9 or more"
    ):
        assert not few.flag_batch(scores=batch + 500 * (batch > 0)).any()


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, s, t: make(rule="some"), "rule must be one of"),
        (
            lambda f, s, t: NoveltyDetector(strangeness="distance"),
            "means must be given for strangeness='distance' alone, got none",
        ),
        (lambda f, s, t: NoveltyDetector(strangeness="energy", means=f), "got some for 'energy'"),
        (lambda f, s, t: make("energy", "macro", delta=0.1), "delta is for rule='pooled', got 0.1 for"),
        (lambda f, s, t: make("energy").calibrate(features=f), "scores must be given .* got None"),
        (lambda f, s, t: make().calibrate(scores=s), "features must be given .* got None"),
        (lambda f, s, t: make().calibrate(features=f[:, :3]), "features must have 7 columns .* got 3"),
        (lambda f, s, t: make().calibrate(features=f * math.nan), "features must be finite"),
        (
            lambda f, s, t: make("energy", "macro").calibrate(scores=s),
            "target must be given for rule='macro'",
        ),
        (lambda f, s, t: make(rule="macro").calibrate(t, features=f), "num_classes must be given"),
        (lambda f, s, t: make("energy", "macro").calibrate(t + 3, scores=s), r"target must be in \[0, 5\)"),
        (lambda f, s, t: make("energy").calibrate(t[:0], scores=s[:0]), "at least 1 row .* got 0"),
        (lambda f, s, t: make("energy", level=2), "level must be < 1, got 2"),
        (lambda f, s, t: make("energy").merge(make("energy", level=0.1)), "same options .* got"),
        (lambda f, s, t: make("energy").merge(make("energy").calibrate(scores=s)), "merge before finish"),
        (
            lambda f, s, t: make().merge(NoveltyDetector(strangeness="distance", means=f)),
            "the same means",
        ),
        (
            lambda f, s, t: FeatureMeans(num_classes=5, dim=7).update(f[:, :2], t),
            "must have 7 columns, got 2",
        ),
        (lambda f, s, t: FeatureMeans(num_classes=5, dim=7).means(), "at least 1 row, got 0"),
        (lambda f, s, t: FeatureMeans(num_classes=2, dim=7).update(f, t), r"target must be in \[0, 2\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*clusters())


@pytest.mark.errors
def test_use_before_calibration_is_an_error():
    with pytest.raises(RuntimeError, match="NoveltyDetector is not calibrated"):
        make("energy").flag(scores=torch.zeros(2, 3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter's own parts
@pytest.mark.parametrize("strangeness", ["energy", "probability"])
def test_the_flags_are_exported(strangeness, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    _, scores, _ = clusters()
    detector = make(strangeness, level=0.2).calibrate(scores=scores).eval()
    program = torch.export.export(detector, (scores[:4],), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.onnx.export(program, dynamo=True, verbose=False).save(tmp_path / "flags.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "flags.onnx")
    [flags] = session.run(None, {session.get_inputs()[0].name: scores.numpy()})
    assert (torch.from_numpy(flags) != detector(scores)).sum() <= 1  # whose strangeness is the cutoff


@pytest.mark.errors
def test_a_function_that_gives_no_number_for_a_new_row_is_named():
    """A p-value would call it strange, and a comparison with the cutoff would not."""
    detector = NoveltyDetector(strangeness=lambda scores, features: features[:, 0]).calibrate(
        features=torch.arange(40.0)[:, None]
    )
    for ask in (detector.flag, detector.p_values, detector.flag_batch):
        with pytest.raises(ValueError, match="strangeness must be numbers, got NaN in row 1"):
            ask(features=torch.tensor([[50.0], [float("nan")]]))
