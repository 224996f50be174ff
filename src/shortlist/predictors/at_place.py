"""The posterior at a place, where classes are as frequent as they are there."""

import torch
from jaxtyping import Float
from torch import Tensor


def place_offset(weights: Float[Tensor, " c"], priors: Float[Tensor, " c"]) -> Float[Tensor, " c"]:
    """Return what turns log-posteriors under ``priors`` into scores at a place, by addition.

    Args:
        weights: Frequency of the classes at the place, >= 0; -inf is the offset of a class without weight.
        priors: Class priors that the log-posteriors contain. A class without one is ruled out.
    """
    return (weights.double().log() - priors.double().log()).where(priors > 0, -torch.inf)


def place_posterior(
    log_p: Float[Tensor, "n c"], weights: Float[Tensor, " c"], priors: Float[Tensor, " c"]
) -> Float[Tensor, "n c"]:
    r"""Return the posterior :math:`u_j \propto p_j v_j / \pi_j` at a place.

    Args:
        log_p: Log-posteriors (n, c), or scores that a softmax turns into posteriors; -inf rules a class out.
        weights: Frequency :math:`v` of the classes at the place (c,), >= 0; only ratios matter.
        priors: Class priors :math:`\pi` that ``log_p`` contains (c,), > 0.

    Returns:
        The posterior, which adds up to 1 over the classes of the place; a row where all of them are ruled out
        is 0.

    Example:
        >>> log_p = torch.tensor([[0.6, 0.3, 0.1]]).log()
        >>> place_posterior(log_p, torch.tensor([0.0, 0.5, 0.5]), torch.tensor([0.5, 0.3, 0.2]))
        tensor([[0.0000, 0.6667, 0.3333]])
    """
    posterior = (log_p + place_offset(weights, priors).to(log_p)).softmax(1)
    return posterior.nan_to_num(nan=0.0)
