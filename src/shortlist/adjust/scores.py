"""Adjustment of scores to other class priors, and by a temperature."""

from jaxtyping import Float
from torch import Tensor, nn

from shortlist._checks import (
    can_read_values,
    check_class_vector,
    check_number,
    check_scores,
    promote,
)

__all__ = ["LogitAdjustment", "adjust_logits", "log_prior_ratio"]


def log_prior_ratio(
    source_priors: Tensor, target_priors: Tensor | None, num_classes: int | None = None
) -> Tensor:
    """Log of target over source priors (c,); without a target, minus the log of the source."""
    given = {"source_priors": source_priors, "target_priors": target_priors}
    for name, priors in given.items():
        if priors is None:
            continue
        check_class_vector(name, priors, num_classes=num_classes)
        num_classes = len(priors)
        if not can_read_values(priors):
            continue
        if (priors == 0).any():
            raise ValueError(f"{name} must be > 0, got 0 for class {int((priors == 0).nonzero()[0])}")
        if abs(float(priors.double().sum()) - 1) > 1e-2:  # half precision adds up to 1 only to 2 digits
            raise ValueError(f"{name} must add up to 1, got {float(priors.double().sum()):g}")
    log_source = promote(source_priors).log()
    return -log_source if target_priors is None else promote(target_priors).log() - log_source


def adjust_logits(
    logits: Float[Tensor, "n c"],
    *,
    source_priors: Float[Tensor, " c"],
    target_priors: Float[Tensor, " c"] | None = None,
    tau: float = 1.0,
) -> Float[Tensor, "n c"]:
    r"""Scores for other class priors than those of the training data.

    .. math:: s_j + \tau\,(\log \pi^{\text{target}}_j - \log \pi^{\text{source}}_j)

    If the softmax of the scores is the true posterior under the source priors, then with ``tau=1`` the
    softmax of the result is the true posterior under the target priors. Without ``target_priors`` these are
    uniform (a constant, dropped), and the argmax of the result has the smallest balanced error possible.
    ``tau=0`` changes nothing. Adjusting the result with source and target exchanged returns the scores.

    Args:
        logits: Scores (n, c).
        source_priors: Class frequencies (c,) that the model was trained with, each > 0, adding up to 1.
        target_priors: Class frequencies (c,) to predict for, each > 0, adding up to 1; uniform if ``None``.
        tau: Strength of the adjustment; 1 suits calibrated scores, otherwise see :func:`fit_tau`.

    Returns:
        Adjusted scores (n, c), in float32 if the logits are in half precision.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> posterior = torch.tensor([[0.8, 0.2]])  # from which 0.8 / 0.9 < 0.2 / 0.1
        >>> adjust_logits(posterior.log(), source_priors=torch.tensor([0.9, 0.1])).exp()
        tensor([[0.8889, 2.0000]])

    References:
        A. K. Menon, S. Jayasumana, A. S. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equation 9.
    """
    check_scores(logits)
    check_number("tau", tau)
    ratio = log_prior_ratio(source_priors, target_priors, logits.shape[1])
    logits = promote(logits)
    return logits + (tau * ratio).to(logits.dtype)


class LogitAdjustment(nn.Module):
    r"""Temperature and change of priors as the last layer of a model: :math:`s / T + \tau \log` ratio.

    With ``temperature=1`` it is :func:`adjust_logits`. Buffers ``log_ratio`` (c,), ``tau`` and
    ``temperature`` are saved, moved and exported with the model.

    Example:
        >>> layer = LogitAdjustment(source_priors=torch.tensor([0.5, 0.5]), temperature=2.0)
        >>> layer(torch.tensor([[4.0, 1.0]])).diff()
        tensor([[-1.5000]])
    """

    log_ratio: Tensor
    tau: Tensor
    temperature: Tensor

    def __init__(
        self,
        *,
        source_priors: Float[Tensor, " c"],
        target_priors: Float[Tensor, " c"] | None = None,
        tau: float = 1.0,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        check_number("tau", tau)
        check_number("temperature", temperature, above=0.0)
        log_ratio = log_prior_ratio(source_priors, target_priors)
        self.register_buffer("log_ratio", log_ratio)
        self.register_buffer("tau", log_ratio.new_tensor(tau))
        self.register_buffer("temperature", log_ratio.new_tensor(temperature))

    def forward(self, logits: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Adjusted scores (n, c), in float32 if the logits are in half precision."""
        check_scores(logits)
        if logits.shape[1] != len(self.log_ratio):
            raise ValueError(f"logits must have {len(self.log_ratio)} classes, got {logits.shape[1]}")
        logits = promote(logits)
        return logits / self.temperature.to(logits.dtype) + (self.tau * self.log_ratio).to(logits.dtype)
