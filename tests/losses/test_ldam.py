import pytest
import torch

from shortlist.losses import ldam_loss
from shortlist.priors import margins_from_counts
from tests.conftest import tensor
from tests.losses.batches import golden_long_tail
from tests.losses.margin_family import COUNTS, WEIGHT, general, weighted_row


def test_golden(golden):
    for case, logits, target, weight in golden_long_tail(golden, "ldam"):
        params = case["params"]
        counts = torch.tensor(params["cls_num_list"], dtype=torch.float64)
        options = {"class_counts": counts, "max_margin": params["max_m"], "scale": float(params["s"])}
        margins = margins_from_counts(counts, max_margin=params["max_m"])
        torch.testing.assert_close(margins, tensor(case["m_list"]), rtol=0, atol=1e-12)
        rows = ldam_loss(logits, target, **options, reduction="none")
        torch.testing.assert_close(rows.detach(), tensor(case["per_sample_unweighted"]), rtol=1e-9, atol=1e-9)
        # the original's weights come without margins
        mean = ldam_loss(logits, target, **options, weight=weight, weighting="plain")
        mean.backward()
        assert mean.item() == pytest.approx(case["mean"], rel=1e-9)
        torch.testing.assert_close(logits.grad, tensor(case["grad_of_mean"]), rtol=1e-9, atol=1e-9)


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
