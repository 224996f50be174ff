"""Fit a temperature, a prior exponent and a shift for each class, by penalized likelihood."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import check_number
from shortlist.scores.held_out_rows import held_out
from shortlist.scores.likelihood import (
    TemperaturePriorFit,
    fit_temperature_and_prior,
    priors_nearly_equal,
)

_BLOCK = 2**21  # scores looked at in one go, in float64


class ClassShiftFit(NamedTuple):
    """Result of :func:`fit_class_shifts`, for :meth:`ScoreMap.identified`."""

    temperature: float
    exponent: float
    shifts: Tensor
    smoothed: bool


def fit_class_shifts(
    logits: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    priors: Float[Tensor, " c"],
    rows_priors: Float[Tensor, " c"] | None = None,
    spread: float = 1.0,
    ignore_index: int = -100,
) -> ClassShiftFit:
    r"""Fit a temperature, a power of the class priors and a shift for each class, by penalized likelihood.

    .. math:: \arg\min_{T > 0, t, b} \; -\sum_i
        \log \mathrm{softmax}\Bigl(\frac{s_i}{T} + t \log \pi + \log\frac{q}{\pi} + b\Bigr)_{y_i}
        + \frac{1}{2 \sigma^2} \sum_j b_j^2

    For losses that leave each class a level of its own, which no temperature and no prior explain: single
    positive labels without negatives. :func:`fit_temperature_and_prior` is the same without shifts, and
    what this becomes for :math:`\sigma \to 0`. The penalty is a normal distribution of the shifts: a class
    with few rows keeps a shift near 0. With nearly equal priors, t is 0. Convex in
    (1/T, t, b); L-BFGS in float64.

    The shifts are fitted to the rows that they are fitted on: a predictor that is calibrated on the same rows
    is a little too sure, the more so the fewer rows a class has.

    Args:
        logits: Scores (n, c) of rows that the model was not trained on.
        target: Class indices (n,).
        priors: Class frequencies (c,) of the training rows, each > 0, adding up to 1.
        rows_priors: Class frequencies (q in the formula) (c,) that the held-out rows were drawn with, if
            these are not ``priors``.
        spread: Standard deviation of the shifts before any row is seen (:math:`\sigma` in the formula), > 0.
        ignore_index: Rows with this target are ignored.

    Raises:
        ValueError: If an argument is out of its range, or the scores rank the target no better than chance.

    Example:
        >>> posterior = torch.tensor([[0.6, 0.3, 0.1]] * 1000)
        >>> target = torch.tensor([0] * 600 + [1] * 300 + [2] * 100)
        >>> noise = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        >>> noise[torch.arange(1000), target] += 1  # the log-likelihood ratio of a class is its noise
        >>> scores = posterior.log() + noise + torch.tensor([0.0, 2.0, 0.0])  # the level of class 1 is wrong
        >>> fit = fit_class_shifts(scores, target, priors=torch.full((3,), 1 / 3), spread=10.0)
        >>> [round(float(shift - fit.shifts[0]), 1) for shift in fit.shifts]
        [0.0, -2.0, -0.0]

    References:
        C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, "On calibration of modern neural networks", ICML 2017
        (vector scaling, which this is with one scale for all classes and a penalty).
    """
    check_number("spread", spread, above=0.0)
    start = fit_temperature_and_prior(
        logits, target, priors=priors, rows_priors=rows_priors, ignore_index=ignore_index
    )
    logits, target = held_out(logits, target, ignore_index)
    log_priors = priors.detach().cpu().double().log()
    offset = torch.zeros_like(log_priors)
    if rows_priors is not None:
        offset = rows_priors.detach().cpu().double().log() - log_priors
    if priors_nearly_equal(priors):  # the exponent then stays 0
        log_priors = torch.zeros_like(log_priors)
    return _minimize(start, logits, target, log_priors, offset, spread)


def _minimize(
    start: TemperaturePriorFit,
    logits: Tensor,
    target: Tensor,
    log_priors: Tensor,
    offset: Tensor,
    spread: float,
) -> ClassShiftFit:
    """Minimize the penalized negative log-likelihood, from the fit without shifts on."""
    smoothing = 1 / (len(target) + 2) if start.smoothed else 0.0

    # in units of the fit without shifts, so that all parameters are of size 1
    beta = torch.ones((), dtype=torch.float64, requires_grad=True)
    exponent = torch.tensor(start.exponent, dtype=torch.float64, requires_grad=True)
    shifts = torch.zeros_like(log_priors, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [beta, exponent, shifts],
        max_iter=500,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        penalty = shifts.square().sum() / (2 * spread**2 * len(target))
        penalty.backward()
        added = exponent * log_priors + offset + shifts
        return penalty.detach() + _backward(beta / start.temperature, logits, target, added, smoothing)

    with torch.enable_grad():
        optimizer.step(closure)
    if float(beta.detach()) <= 0:
        raise ValueError(
            "logits must rank the target better than chance for a likeliest temperature to exist, "
            f"got 1 / temperature = {float(beta.detach()) / start.temperature:g}"
        )
    temperature = start.temperature / float(beta.detach())
    return ClassShiftFit(temperature, float(exponent.detach()), shifts.detach(), start.smoothed)


def _backward(beta: Tensor, logits: Tensor, target: Tensor, added: Tensor, smoothing: float) -> Tensor:
    """Return the mean negative log-likelihood of rows (n, c), and add its gradients, some rows at a time."""
    value = torch.zeros((), dtype=torch.float64)
    block = max(1, _BLOCK // logits.shape[1])
    for scores, true in zip(logits.split(block), target.split(block), strict=True):
        part = _negative_log_likelihood(beta, scores, true, added, smoothing) / len(target)
        part.backward(retain_graph=True)
        value = value + part.detach()
    return value


def _negative_log_likelihood(
    beta: Tensor, scores: Tensor, target: Tensor, added: Tensor, smoothing: float
) -> Tensor:
    """Return the total negative log-likelihood of rows (n, c), with label smoothing over their classes."""
    masked = scores.isneginf()
    mapped = beta * scores.double().masked_fill(masked, 0.0) + added
    log_probs = mapped.masked_fill(masked, -torch.inf).log_softmax(1)
    loss = -(1 - smoothing) * log_probs.gather(1, target[:, None]).sum()
    if smoothing:
        share = ~masked / (~masked).sum(1, keepdim=True)
        loss = loss - smoothing * (share * log_probs.masked_fill(masked, 0.0)).sum()
    return loss
