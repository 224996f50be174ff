"""What docs/migration.md says is the same, is. Peers that are not installed are left out."""

import numpy as np
import pytest
import torch

from shortlist.losses import imbalanced_noised_topk_loss, noised_topk_loss, ranked_topk_loss, smooth_topk_loss
from shortlist.metrics import calibration_error, set_coverage, set_size, topk_accuracy
from shortlist.predictors import Conformal
from shortlist.predictors.conformity import RAPS, SAPS

pytestmark = pytest.mark.filterwarnings("ignore")  # of the peers


@pytest.fixture(scope="module")
def rows():
    """Scores and classes, the first half to calibrate."""
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(1000, 20, generator=generator)
    return scores, torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_top_k_accuracy_is_that_of_torchmetrics(rows, k, average):
    from torchmetrics.classification import MulticlassAccuracy

    found = MulticlassAccuracy(num_classes=20, top_k=k, average=average)(*rows)
    torch.testing.assert_close(topk_accuracy(*rows, k=k, average=average).float(), found)


def test_the_calibration_error_is_that_of_torchmetrics(rows):
    from torchmetrics.classification import MulticlassCalibrationError

    found = MulticlassCalibrationError(num_classes=20, n_bins=15)(rows[0].softmax(1), rows[1])
    torch.testing.assert_close(calibration_error(*rows, activation="softmax").float(), found)


def test_lac_sets_are_those_of_mapie(rows):
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

    scores, target = rows[0].double(), rows[1]
    peer = mapie.SplitConformalClassifier(Given(), confidence_level=0.9, conformity_score="lac", prefit=True)
    peer.conformalize(scores[:500].numpy(), target[:500].numpy())
    found = peer.predict_set(scores[500:].numpy())[1][:, :, 0]
    ours = Conformal(coverage=0.9).calibrate(scores[:500], target[:500])(scores[500:])
    assert (found == ours.numpy()).all()


@pytest.mark.parametrize("name", ["LAC", "APS", "RAPS", "SAPS", "by class"])
def test_conformal_sets_are_those_of_torchcp(rows, name):
    predictors = pytest.importorskip("torchcp.classification.predictor")
    score = pytest.importorskip("torchcp.classification.score")
    scores, target = rows
    theirs, options = {
        "LAC": (score.LAC(), {}),
        "APS": (score.APS(randomized=False), {"score": "aps"}),
        "RAPS": (score.RAPS(randomized=False, penalty=0.02, kreg=3), {"score": RAPS(penalty=0.02, k_reg=3)}),
        "SAPS": (score.SAPS(randomized=False, weight=0.2), {"score": SAPS(step=0.2)}),
        "by class": (score.LAC(), {"rule": "class_conditional"}),
    }[name]
    kind = predictors.ClassConditionalPredictor if name == "by class" else predictors.SplitPredictor
    peer = kind(theirs, alpha=0.1)
    peer.calculate_threshold(scores[:500], target[:500], 0.1)
    found = peer.predict_with_logits(scores[500:]).bool()
    ours = Conformal(coverage=0.9, **options).calibrate(scores[:500], target[:500])(scores[500:])
    assert torch.equal(found, ours)
    metrics = pytest.importorskip("torchcp.classification.utils.metrics").Metrics()
    torch.testing.assert_close(
        torch.tensor(metrics("coverage_rate")(found, target[500:])),
        set_coverage(ours, target[500:]).float(),
    )
    torch.testing.assert_close(
        torch.tensor(metrics("average_size")(found)), set_size(ours, target[500:]).float()
    )


def test_noised_losses_have_the_expectation_of_pytopk(rows):
    pytopk = pytest.importorskip("pytopk")
    torch.manual_seed(0)
    scores, target = rows[0][:100], rows[1][:100]
    found = pytopk.BalNoisedTopK(k=5, epsilon=0.2, n_sample=2000)(scores, target)
    ours = noised_topk_loss(scores, target, k=5, noise_std=0.2, num_samples=None)
    torch.testing.assert_close(found, ours, atol=1e-3, rtol=0)

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
    ours = ranked_topk_loss(scores, target, distribution=shares, candidates=16, top1=top1, method=method)
    torch.testing.assert_close(peer(scores, target), ours, atol=1e-5, rtol=1e-5)
    smooth = difftopk.SmoothTopKLoss(20, 5, tau=1.0)(scores, target)
    torch.testing.assert_close(
        smooth_topk_loss(scores, target, k=5, temperature=1.0), smooth, atol=1e-5, rtol=1e-5
    )
