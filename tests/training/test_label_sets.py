import pytest
import torch
from torch import nn

from shortlist.datasets.label_sets import LabelSetSplit
from shortlist.losses.label_sets import LABEL_SET_LOSSES
from shortlist.metrics.label_sets import measure_label_sets
from shortlist.models.label_set_head import LabelSetHead, predicted_sizes
from shortlist.training.label_sets import predict_label_sets, train_label_sets


def easy_rows(n: int = 512, c: int = 5) -> LabelSetSplit:
    """Rows whose inputs are their labels, with a little noise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.rand(n, c, generator=generator) < 0.4
    labels[:, 0] |= ~labels.any(1)
    return LabelSetSplit(labels.float() + 0.05 * torch.randn(n, c, generator=generator), labels)


def trained(loss: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), LabelSetHead(16, 5))
    return train_label_sets(network, LABEL_SET_LOSSES[loss](), easy_rows(), epochs=15, batch_size=32, lr=0.1)


@pytest.mark.parametrize("loss", LABEL_SET_LOSSES)
def test_easy_label_sets_are_learned_with_their_sizes(loss):
    found = predict_label_sets(trained(loss), easy_rows(), batch_size=100)
    assert torch.equal(found.labels, easy_rows().labels)
    metrics = measure_label_sets(found.scores, found.labels, sizes=found.sizes)
    assert metrics["at_true.f1"] > 0.97 and metrics["at_predicted.f1"] > 0.9 and metrics["size.exact"] > 0.8


def test_a_training_is_repeated_to_the_bit():
    first, second = (trained("sparse_top").state_dict() for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_predicted_sizes_are_whole_numbers_from_one_to_the_number_of_classes():
    z = torch.tensor([-50.0, 0.5413, 2.0, 50.0])  # means 1, 2, 3.127, 51
    assert predicted_sizes(z, num_classes=4).tolist() == [1, 2, 3, 4]


@pytest.mark.errors
def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ValueError, match=r"network must return LabelSetScores.*got Tensor"):
        train_label_sets(nn.Linear(5, 5), LABEL_SET_LOSSES["sparse_top"](), easy_rows(), epochs=1)
    broken = nn.Sequential(nn.Linear(5, 16), LabelSetHead(16, 5))
    nn.init.constant_(broken[0].weight, torch.nan)
    with pytest.raises(ValueError, match="the training diverged; try a smaller lr"):
        predict_label_sets(broken, easy_rows())
