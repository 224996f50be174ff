"""Heads, which compute class scores (n, c) from features (n, d)."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from shortlist._checks import check_count, check_number, promote


class LinearHead(nn.Module):
    r"""A linear head with one weight vector and one offset per class.

    .. math:: s_c = w_c \cdot x + b_c

    Its parameters have the names and the first values of ``nn.Linear``, whose state it loads.

    Args:
        in_features: Length d of the features.
        num_classes: Number c of classes.
        bias: Whether the head has offsets.

    Returns:
        Logits (n, c) for features (n, d).

    Example:
        >>> head = LinearHead(2, 3)
        >>> head(torch.zeros(1, 2)).equal(head.bias[None])
        True
    """

    bias: nn.Parameter | None

    def __init__(self, in_features: int, num_classes: int, *, bias: bool = True) -> None:
        super().__init__()
        _check_sizes(in_features, num_classes)
        self.in_features, self.num_classes = in_features, num_classes
        self.weight = nn.Parameter(torch.empty(num_classes, in_features))
        self.register_parameter("bias", nn.Parameter(torch.empty(num_classes)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters, uniformly within ``1 / sqrt(in_features)``, as ``nn.Linear`` does."""
        bound = 1 / math.sqrt(self.in_features)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute the scores of a batch."""
        _check_features(features, self.in_features)
        return linear(features, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Show the hyper-parameters."""
        return f"{self.in_features}, {self.num_classes}, bias={self.bias is not None}"


class CosineHead(nn.Module):
    r"""A head whose scores are the cosine of the features and each class's weight vector, times a scale.

    .. math:: s_c = \gamma\, \frac{w_c \cdot x}{\lVert w_c \rVert\, \lVert x \rVert}

    Features of zero give scores of zero. Half precision is normalized and multiplied in float32, and so are
    the scores; under autocast the product has autocast's type, after a normalization in float32.

    A loss with a scale of its own (LDAM, noised top-k with margins) wants ``scale=1``; a fixed scale is
    usually from 10 to 60. A learned scale starts at ``scale`` and is learned as its logarithm, so that it
    stays positive; weight decay would pull it to 1, so give ``log_scale`` none.

    Args:
        in_features: Length d of the features.
        num_classes: Number c of classes.
        scale: Factor of the cosines (gamma in the formula), > 0.
        learn_scale: Whether the scale is learned.

    Returns:
        Logits (n, c) for features (n, d) in ``[-scale, scale]``.

    Example:
        >>> head = CosineHead(2, 2, scale=10.0)
        >>> _ = head.load_state_dict({"weight": torch.tensor([[2.0, 0.0], [0.0, 5.0]])}, strict=False)
        >>> head(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[6., 8.],
                [0., 0.]], grad_fn=<MulBackward0>)

    References:
        S. Gidaris, N. Komodakis, "Dynamic few-shot visual learning without forgetting", CVPR 2018, section
        3.2.
    """

    fixed_scale: Tensor | None
    log_scale: nn.Parameter | None

    def __init__(
        self, in_features: int, num_classes: int, *, scale: float = 1.0, learn_scale: bool = False
    ) -> None:
        super().__init__()
        _check_sizes(in_features, num_classes)
        check_number("scale", scale, above=0.0)
        self.in_features, self.num_classes = in_features, num_classes
        self.weight = nn.Parameter(torch.empty(num_classes, in_features))
        self.register_buffer("fixed_scale", None if learn_scale else torch.tensor(float(scale)))
        log_scale = nn.Parameter(torch.tensor(math.log(scale))) if learn_scale else None
        self.register_parameter("log_scale", log_scale)
        self.reset_parameters()

    @property
    def scale(self) -> Tensor:
        """The factor of the cosines, a scalar."""
        if self.log_scale is not None:
            return promote(self.log_scale).exp()
        assert self.fixed_scale is not None  # one of the two is always there
        return self.fixed_scale

    def reset_parameters(self) -> None:
        """Draw new class weights, uniformly on the unit sphere; a learned scale stays as it is."""
        with torch.no_grad():
            self.weight.copy_(_unit(nn.init.normal_(self.weight)))

    def forward(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute the scores of a batch."""
        _check_features(features, self.in_features)
        return linear(_unit(promote(features)), _unit(promote(self.weight))) * self.scale

    def extra_repr(self) -> str:
        """Show the hyper-parameters."""
        learned = self.log_scale is not None
        return f"{self.in_features}, {self.num_classes}, scale={self.scale.item():.4g}, learn_scale={learned}"


class TwoHeadScores(NamedTuple):
    """The pair that :class:`TwoHead` returns: scores (n, c) to predict from, and to propose labels."""

    set_logits: Tensor
    proposal_logits: Tensor


class TwoHead(nn.Module):
    """A set head and a proposal head on shared features, for the average-k loss.

    The proposal head is trained with cross-entropy and proposes further labels for each batch; the set head
    is trained on these and is the one to predict from. Training and evaluation return the same: both.

    Args:
        in_features: Length d of the features.
        num_classes: Number c of classes.
        bias: Whether the heads have offsets.

    Returns:
        The pair :class:`TwoHeadScores` of logits (n, c) for features (n, d).

    Example:
        >>> scores = TwoHead(8, 3)(torch.randn(4, 8))
        >>> scores.set_logits.shape, scores.proposal_logits.shape
        (torch.Size([4, 3]), torch.Size([4, 3]))

    References:
        C. Garcin, M. Servajean, A. Joly, J. Salmon, "A two-head loss function for deep average-K
        classification", 2023.
    """

    def __init__(self, in_features: int, num_classes: int, *, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.num_classes = in_features, num_classes
        self.set_head = LinearHead(in_features, num_classes, bias=bias)
        self.proposal_head = LinearHead(in_features, num_classes, bias=bias)

    def reset_parameters(self) -> None:
        """Draw new parameters for both heads."""
        self.set_head.reset_parameters()
        self.proposal_head.reset_parameters()

    def forward(self, features: Float[Tensor, "n d"]) -> TwoHeadScores:
        """Compute the scores of a batch by both heads."""
        return TwoHeadScores(self.set_head(features), self.proposal_head(features))


class LabelSetScores(NamedTuple):
    """The pair that a head of label sets returns: scores (n, c), and the output of the size head (n,)."""

    scores: Tensor
    size_logits: Tensor


def head_outputs(output: Any) -> dict[str, Tensor]:
    """Return a network's output by head: ``"set"``, with ``"proposal"`` of two heads, ``"size"`` of sizes."""
    if isinstance(output, LabelSetScores):
        return {"set": output.scores, "size": output.size_logits[:, None]}
    if isinstance(output, TwoHeadScores):
        return {"set": output.set_logits, "proposal": output.proposal_logits}
    if not isinstance(output, Tensor):
        kind = type(output).__name__
        raise ValueError(f"network must return scores (n, c) or TwoHeadScores, got {kind}")
    return {"set": output}


def head_scores(output: Any, head: str = "set") -> Tensor:
    """Return the scores (n, c), float32, of one head, or the only output of the network."""
    outputs = head_outputs(output)
    return outputs.get(head, outputs["set"]).float()


class ScaledHead(nn.Module):
    r"""A trained head that is frozen, with one learned positive scale per class (learnable weight scaling).

    .. math:: s_c = f_c\, (w_c \cdot x) + b_c, \qquad f_c > 0

    As in the paper, the weight is scaled and the offset is not (the authors' code multiplies both). The
    scales start at 1, where the scores are those of the given head, and are learned as logarithms so that
    they stay positive; train them on class-balanced batches with frozen features. A cosine head, which looks
    only at the direction of its weights, is scaled after the cosine.

    Args:
        head: A trained ``nn.Linear``, :class:`LinearHead` or :class:`CosineHead`. It is not copied: its own
            parameters are frozen.

    Returns:
        Logits (n, c) for features (n, d).

    Raises:
        ValueError: If ``head`` is of another kind.

    Example:
        >>> trained = LinearHead(4, 3)
        >>> head, features = ScaledHead(trained), torch.randn(2, 4)
        >>> head(features).allclose(trained(features))
        True
        >>> [name for name, parameter in head.named_parameters() if parameter.requires_grad]
        ['log_scale']

    References:
        B. Kang, S. Xie, M. Rohrbach, Z. Yan, A. Gordo, J. Feng, Y. Kalantidis, "Decoupling representation and
        classifier for long-tailed recognition", ICLR 2020, section 4.
    """

    def __init__(self, head: nn.Linear | LinearHead | CosineHead) -> None:
        super().__init__()
        if not isinstance(head, nn.Linear | LinearHead | CosineHead):
            raise ValueError(
                f"head must be an nn.Linear, LinearHead or CosineHead, got {type(head).__name__}"
            )
        self.head = head.requires_grad_(False)
        self.num_classes, self.in_features = head.weight.shape
        self.log_scale = nn.Parameter(torch.zeros_like(head.weight[:, 0]))

    @property
    def scale(self) -> Tensor:
        """The scale of each class (c,)."""
        return self.log_scale.exp()

    def reset_parameters(self) -> None:
        """Set the scales back to 1; the head stays as it is."""
        nn.init.zeros_(self.log_scale)

    def forward(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute the scores of a batch."""
        _check_features(features, self.in_features)
        if isinstance(self.head, CosineHead):
            return self.scale * self.head(features)
        scores = self.scale * linear(features, self.head.weight)
        return scores if self.head.bias is None else scores + self.head.bias


def _unit(vectors: Tensor) -> Tensor:
    """Divide each row by its length; a row of zeros stays, with a finite gradient."""
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(norm > 0, norm, 1)


def _check_sizes(in_features: int, num_classes: int) -> None:
    check_count("in_features", in_features)
    check_count("num_classes", num_classes)


def _check_features(features: Tensor, in_features: int) -> None:
    if features.ndim != 2 or features.shape[1] != in_features or not features.is_floating_point():
        raise ValueError(
            f"features must be a floating tensor of shape (n, {in_features}), "
            f"got {features.dtype} {tuple(features.shape)}"
        )
