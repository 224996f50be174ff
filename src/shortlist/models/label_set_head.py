"""The head for rows with several labels: scores of the classes, and how many of them there are."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import softplus

from shortlist.models.heads import LabelSetScores, LinearHead


class LabelSetHead(nn.Module):
    """A linear head of the classes and one of the number of labels, on the same features.

    At test time nobody knows how many labels a row has, which ``sparse_top`` wants to know. The second head
    learns it with :func:`shortlist.losses.label_sets.set_size_loss`; :func:`predicted_sizes` reads it.

    Args:
        in_features: Length d of the features.
        num_classes: Number c of classes.
        bias: Whether the head of the classes has offsets.

    Returns:
        The pair :class:`LabelSetScores` for features (n, d).

    Example:
        >>> output = LabelSetHead(8, 3)(torch.randn(4, 8))
        >>> output.scores.shape, output.size_logits.shape
        (torch.Size([4, 3]), torch.Size([4]))
    """

    def __init__(self, in_features: int, num_classes: int, *, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.num_classes = in_features, num_classes
        self.class_head = LinearHead(in_features, num_classes, bias=bias)
        self.size_head = LinearHead(in_features, 1)

    def reset_parameters(self) -> None:
        """Draw new parameters for both heads."""
        self.class_head.reset_parameters()
        self.size_head.reset_parameters()

    def forward(self, features: Float[Tensor, "n d"]) -> LabelSetScores:
        """Compute the scores of a batch, and the output of its size head."""
        return LabelSetScores(self.class_head(features), self.size_head(features).squeeze(1))


def predicted_sizes(size_logits: Float[Tensor, " n"], *, num_classes: int) -> Int[Tensor, " n"]:
    """Return the whole number of labels (n,) that is nearest to the size head's mean, from 1 to c.

    Example:
        >>> predicted_sizes(torch.tensor([-9.0, 0.5413, 2.0]), num_classes=3)  # means 1.0, 2.0 and 3.1
        tensor([1, 2, 3])
    """
    sizes: Any = 1 + softplus(size_logits.float())
    return sizes.round().long().clamp(max=num_classes)
