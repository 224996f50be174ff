"""What docs/guides/migration.md says is the same, is, and its numbers of what differs are true.

Peers that are not installed are left out.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from shortlist.losses import imbalanced_noised_topk_loss, noised_topk_loss, ranked_topk_loss, smooth_topk_loss
from shortlist.metrics import calibration_error, set_coverage, set_size, topk_accuracy
from shortlist.predictors import Conformal
from shortlist.predictors.conformity import APS, RAPS, SAPS, class_scores

PEERS = Path(sys.prefix) / "peers"  # where `make slow` puts them, beside what the others find
if PEERS.is_dir() and str(PEERS) not in sys.path:
    sys.path.append(str(PEERS))

pytestmark = pytest.mark.filterwarnings("ignore")  # of the peers


HALF = 2000  # rows that calibrate, and rows that measure
PAGE = (Path(__file__).parents[1] / "docs/guides/migration.md").read_text()


@pytest.fixture(scope="module")
def rows():
    """Scores and classes, the first half to calibrate."""
    return make_rows(20)


def make_rows(num_classes):
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(2 * HALF, num_classes, generator=generator)
    return scores, torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)


def in_words(sets, target):
    """Write coverage and size as the page does."""
    covered = 100 * sets.gather(1, target[HALF:, None]).double().mean()
    return f"{covered:.1f} % with {sets.sum(1).double().mean():.2f} classes"


def our_sets(rows, uniform=None, coverage=0.9, **options):
    """Return our sets; ``uniform`` is the share of the class's own probability that counts."""
    scores, target = rows
    predictor = Conformal(coverage=coverage, **options)
    if uniform is None:
        return predictor.calibrate(scores[:HALF], target[:HALF])(scores[HALF:])
    predictor.update(scores[:HALF], target[:HALF], uniform=torch.full((HALF,), uniform))
    return predictor.finish()(scores[HALF:], uniform=torch.full((HALF, 1), uniform))


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_top_k_accuracy_is_that_of_torchmetrics(rows, k, average):
    from torchmetrics.classification import MulticlassAccuracy

    peer = MulticlassAccuracy(num_classes=20, top_k=k, average=average)(*rows)
    torch.testing.assert_close(topk_accuracy(*rows, k=k, average=average).float(), peer)


def test_torchmetrics_counts_a_class_that_has_no_rows_as_missed(rows):
    from torchmetrics.classification import MulticlassAccuracy

    scores, target = (part[rows[1] < 15] for part in rows)  # 15 of 20 classes, all of which are guessed
    peer = {k: MulticlassAccuracy(num_classes=20, top_k=k, average="macro")(scores, target) for k in (1, 5)}
    by_class = [(scores.argmax(1) == target)[target == c].double().mean() for c in range(15)]
    ours = topk_accuracy(scores, target, k=1, average="macro")
    torch.testing.assert_close(ours, sum(by_class) / 15)
    torch.testing.assert_close(peer[1].double(), sum(by_class) / 20, atol=1e-6, rtol=0)
    torch.testing.assert_close(peer[5].double(), topk_accuracy(scores, target, k=5, average="macro").double())
    assert f"{100 * peer[1]:.1f} % where {100 * ours:.1f} %" in PAGE


def test_the_calibration_error_is_that_of_torchmetrics(rows):
    from torchmetrics.classification import MulticlassCalibrationError

    peer = MulticlassCalibrationError(num_classes=20, n_bins=15)(rows[0].softmax(1), rows[1])
    torch.testing.assert_close(calibration_error(*rows, activation="softmax").float(), peer)


def mapie_sets(rows, score, **params):
    mapie = pytest.importorskip("mapie.classification")
    base = pytest.importorskip("sklearn.base")

    class Given(base.ClassifierMixin, base.BaseEstimator):
        classes_, n_features_in_, is_fitted_ = np.arange(20), 20, True

        def fit(self, inputs, target):
            return self

        def predict_proba(self, inputs):
            return torch.from_numpy(inputs).softmax(1).numpy()

        def predict(self, inputs):
            return inputs.argmax(1)

    scores, target = rows[0].double().numpy(), rows[1].numpy()
    peer = mapie.SplitConformalClassifier(
        Given(), confidence_level=0.9, conformity_score=score, prefit=True, random_state=0
    ).conformalize(scores[:HALF], target[:HALF])
    options = {"conformity_score_params": params} if params else {}
    return torch.from_numpy(peer.predict_set(scores[HALF:], **options)[1][:, :, 0])


def test_lac_sets_are_those_of_mapie(rows):
    assert torch.equal(mapie_sets(rows, "lac"), our_sets((rows[0].double(), rows[1])))


@pytest.mark.parametrize("peer", ["MAPIE", "TorchCP"])
def test_the_example_in_three_libraries_has_the_same_sets(peer):
    """As the page has it: each library goes on from the model, in names of its own."""
    pytest.importorskip({"MAPIE": "mapie", "TorchCP": "torchcp.classification.predictor"}[peer])
    section = PAGE.partition("## The same example in three libraries")[2].partition("## torchmetrics")[0]
    blocks = dict(re.findall(r'^```python(?: title="(\w+)")?\n(.*?)^```$', section, re.S | re.M))
    found = {}
    for name in (peer, "shortlist"):
        names = {}
        exec(blocks[""] + blocks[name], names)
        found[name] = torch.as_tensor(np.asarray(names["sets"])).bool()
    assert torch.equal(found[peer], found["shortlist"])
    sizes = found["shortlist"].sum(1)
    assert found["shortlist"].shape == (597, 10) and sizes.min() < sizes.max()  # not lists of one digit


def test_the_example_beside_mapie_has_the_same_sets_in_both_libraries():
    pytest.importorskip("mapie.classification")
    page = (Path(__file__).parents[1] / "docs" / "guides" / "scikit_learn.md").read_text()
    names: dict = {}
    for code in re.findall(r"```python[^\n]*\n(.*?)```", page, flags=re.S):
        exec(code, names)
    np.testing.assert_array_equal(names["our_sets"], names["their_sets"])
    assert 1.5 < names["our_sets"].sum(1).mean() < 4


@pytest.mark.parametrize(("rows", "same"), [(700, True), (718, False)])
def test_mapie_asks_for_a_row_more_than_the_theorem_of_cv(rows, same):
    mapie = pytest.importorskip("mapie.classification")
    model_selection = pytest.importorskip("sklearn.model_selection")
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    from shortlist.sklearn import SetClassifier

    inputs, target = load_digits(return_X_y=True)
    folds = model_selection.KFold(5, shuffle=True, random_state=0)
    (inputs, new), (target, _) = np.split(inputs[:, ::4], [rows]), np.split(target, [rows])
    model = LogisticRegression(max_iter=2000)
    peer = mapie.CrossConformalClassifier(
        model, confidence_level=0.9, conformity_score="lac", cv=folds, random_state=0
    ).fit_conformalize(inputs, target)
    theirs = peer.predict_set(new, agg_scores="crossval")[1][:, :, 0]
    ours = SetClassifier(model, Conformal(0.9), cv=folds).fit(inputs, target).predict_set(new)
    assert (theirs <= ours).all() and bool((theirs == ours).all()) == same
    assert int((ours & ~theirs).sum(1).max()) <= 1


@pytest.mark.parametrize("last", [True, "randomized", False])
def test_aps_of_mapie_is_another_one(rows, last):
    peer = mapie_sets(rows, "aps", include_last_label=last)
    assert f"`include_last_label={last!r}`: {in_words(peer, rows[1])}".replace("'", '"') in PAGE
    assert in_words(our_sets(rows, score="aps"), rows[1]) in PAGE
    if last is True:  # the sets of one family: the same order of classes, and a higher threshold
        assert (our_sets(rows, score="aps") <= peer).all()
        before = class_scores(APS(), rows[0][HALF:].double().softmax(1))
        assert before[peer].max() < before[~peer].min()


@pytest.mark.parametrize("name", ["LAC", "APS", "RAPS", "SAPS", "by class"])
def test_conformal_sets_are_those_of_torchcp(rows, name):
    predictors = pytest.importorskip("torchcp.classification.predictor")
    score = pytest.importorskip("torchcp.classification.score")
    target = rows[1]
    theirs, options = {
        "LAC": (score.LAC(), {}),
        "APS": (score.APS(randomized=False), {"score": "aps", "uniform": 1.0}),
        "RAPS": (
            score.RAPS(randomized=False, penalty=0.02, kreg=3),
            {"score": RAPS(penalty=0.02, k_reg=3), "uniform": 1.0},
        ),
        "SAPS": (score.SAPS(randomized=False, weight=0.2), {"score": SAPS(step=0.2)}),
        "by class": (score.LAC(), {"rule": "class_conditional"}),
    }[name]
    kind = predictors.ClassConditionalPredictor if name == "by class" else predictors.SplitPredictor
    peer = torchcp_sets(rows, kind(theirs, alpha=0.1), 0.1)
    ours = our_sets(rows, **options)
    assert torch.equal(peer, ours)
    if name in ("APS", "RAPS"):
        default = our_sets(rows, score=options["score"])
        assert f"{in_words(peer, target)}, here {in_words(default, target)}" in PAGE
    metrics = pytest.importorskip("torchcp.classification.utils.metrics").Metrics()
    torch.testing.assert_close(
        torch.tensor(metrics("coverage_rate")(peer, target[HALF:])),
        set_coverage(ours, target[HALF:]).float(),
    )
    torch.testing.assert_close(
        torch.tensor(metrics("average_size")(peer)), set_size(ours, target[HALF:]).float()
    )


def torchcp_sets(rows, peer, alpha):
    peer.calculate_threshold(rows[0][:HALF], rows[1][:HALF], alpha)
    return peer.predict_with_logits(rows[0][HALF:]).bool()


def test_saps_of_torchcp_without_draws_loses_its_promise_where_first_guesses_are_enough():
    predictors = pytest.importorskip("torchcp.classification.predictor")
    score = pytest.importorskip("torchcp.classification.score")
    rows = make_rows(3)
    assert (rows[0].argmax(1) == rows[1]).double().mean() > 0.8
    peer = predictors.SplitPredictor(score.SAPS(randomized=False, weight=0.2), alpha=0.2)
    sets = torchcp_sets(rows, peer, 0.2)
    ours = our_sets(rows, coverage=0.8, score=SAPS(step=0.2))
    assert f"{in_words(sets, rows[1])}, here {in_words(ours, rows[1])}" in PAGE


@pytest.mark.parametrize("name", ["LAC", "ClasswiseLAC", "APS", "RAPS"])
def test_sets_of_puncc(rows, name):
    puncc = pytest.importorskip("deel.puncc.classification")
    api = pytest.importorskip("deel.puncc.api.prediction")

    class Given(api.BasePredictor):
        def predict(self, X, **_):
            return torch.from_numpy(X).softmax(1).numpy()

    scores, target = rows[0].double(), rows[1]
    options = {"RAPS": {"lambd": 0.02, "k_reg": 3}}.get(name, {})
    options |= {"rand": False} if "APS" in name else {}
    peer = getattr(puncc, name)(Given(object(), is_trained=True), train=False, **options)
    peer.fit(X_calib=scores[:HALF].numpy(), y_calib=target[:HALF].numpy())
    sets = torch.zeros(HALF, 20, dtype=torch.bool)
    for row, classes in enumerate(peer.predict(scores[HALF:].numpy(), alpha=0.1)[1]):
        sets[row, [int(c) for c in classes]] = True
    if "LAC" in name:
        rule = "class_conditional" if name == "ClasswiseLAC" else "marginal"
        assert torch.equal(sets, our_sets((scores, target), rule=rule))
    else:
        assert in_words(sets, target) in PAGE


@pytest.mark.parametrize("smoothing", [False, True])
def test_sets_of_crepes(rows, smoothing):
    crepes = pytest.importorskip("crepes")
    extras = pytest.importorskip("crepes.extras")
    probs, target = rows[0].double().softmax(1).numpy(), rows[1].numpy()
    sets = {}
    for nonconformity in (extras.hinge, extras.margin):
        peer = crepes.ConformalClassifier()
        peer.fit(nonconformity(probs[:HALF], np.arange(20), target[:HALF]), seed=0)
        found = peer.predict_set(nonconformity(probs[HALF:]), confidence=0.9, smoothing=smoothing, seed=0)
        sets[nonconformity.__name__] = torch.from_numpy(np.asarray(found)).bool()
    ours = our_sets((rows[0].double(), rows[1]))
    assert int((sets["hinge"] != ours).any(1).sum()) == int(smoothing)  # 1 of 2,000 sets by a draw
    assert in_words(sets["margin"], rows[1]) in PAGE


def test_noised_losses_have_the_expectation_of_pytopk(rows):
    pytopk = pytest.importorskip("pytopk")
    torch.manual_seed(0)
    scores, target = rows[0][:100], rows[1][:100]
    peer = pytopk.BalNoisedTopK(k=5, epsilon=0.2, n_sample=2000)(scores, target)
    ours = noised_topk_loss(scores, target, k=5, noise_std=0.2, num_samples=None)
    torch.testing.assert_close(peer, ours, atol=1e-3, rtol=0)

    counts, cosines = torch.arange(1, 21) * 10, torch.nn.functional.normalize(scores)
    options = {"k": 5, "scale": 40.0}
    peer = pytopk.ImbalNoisedTopK(
        epsilon=0.01, max_m=0.2, cls_num_list=counts.tolist(), n_sample=2000, **options
    )
    ours = imbalanced_noised_topk_loss(
        cosines, target, noise_std=0.01, max_margin=0.2, class_counts=counts, num_samples=None, **options
    )
    torch.testing.assert_close(peer(cosines, target), ours, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("theirs", "top1"), [("sm", "softmax"), ("smce", "softmax_ce"), ("sort", "sort")])
@pytest.mark.parametrize("method", ["bitonic", "neuralsort", "softsort"])
def test_ranked_losses_are_those_of_difftopk(rows, method, theirs, top1):
    difftopk = pytest.importorskip("difftopk")
    scores, target = rows[0][:64], rows[1][:64]
    shares = [0.5, 0.0, 0.0, 0.0, 0.5]
    name = "bitonic__non_sparse" if method == "bitonic" else method
    peer = difftopk.TopKCrossEntropyLoss(
        name, 10.0, shares, n=20, m=16, distribution="cauchy", top1_mode=theirs
    )
    options = {"distribution": shares, "candidates": 16, "steepness": 10.0}
    ours = ranked_topk_loss(scores, target, top1=top1, method=method, **options)
    torch.testing.assert_close(peer(scores, target), ours, atol=1e-5, rtol=1e-5)
    smooth = difftopk.SmoothTopKLoss(20, 5, tau=1.0)(scores, target)
    torch.testing.assert_close(
        smooth_topk_loss(scores, target, k=5, temperature=1.0), smooth, atol=1e-5, rtol=1e-5
    )
