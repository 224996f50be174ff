"""Fit a temperature, alone or with an exponent of the priors, by likelihood on held-out rows."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import check_class_vector, check_priors
from shortlist.scores.held_out_rows import block_rows, held_out

_NEARLY_EQUAL = 1.2


def priors_nearly_equal(priors: Float[Tensor, " c"]) -> bool:
    """Return whether the largest prior is at most 1.2 times the smallest one.

    A power of such priors moves log-probabilities by so little (0.18 for the power 1) that held-out rows do
    not tell which power it is: the likeliest one is some large number by chance.

    Example:
        >>> priors_nearly_equal(torch.tensor([27.0, 28.0]) / 55)
        True
    """
    return float(priors.max()) <= _NEARLY_EQUAL * float(priors.min())


def log_prior_ratio(
    source_priors: Tensor, target_priors: Tensor | None, num_classes: int | None = None
) -> Tensor:
    """Return the log of target over source priors (c,), float64; without target, minus the source's log."""
    check_priors("source_priors", source_priors, num_classes=num_classes)
    log_source = source_priors.detach().cpu().double().log()
    if target_priors is None:
        return -log_source
    check_priors("target_priors", target_priors, num_classes=len(source_priors))
    return target_priors.detach().cpu().double().log() - log_source


class _Rows(NamedTuple):
    """Scores (n, c), targets (n,), row weights (n,) that add up to 1, and an offset per class (c,).

    ``ratio`` is added times a coefficient, ``offset`` as it is. ``smoothing`` is the share of each row that
    counts for all classes alike instead of for its target.
    """

    logits: Tensor
    target: Tensor
    weight: Tensor
    ratio: Tensor
    offset: Tensor
    smoothing: float = 0.0


def _derivatives(coefficients: Tensor, rows: _Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, gradient, Hessian of the negative log-likelihood of softmax(beta * s + tau * r + o)."""
    m = len(coefficients)
    value, gradient, hessian = (coefficients.new_zeros((m,) * order) for order in range(3))
    parts = (part.split(block_rows(rows.logits)) for part in (rows.logits, rows.target, rows.weight))
    for logits, true, weight in zip(*parts, strict=True):
        scores, masked = logits.double(), logits.isneginf()
        scores = (scores - scores.gather(1, true[:, None])).masked_fill(masked, 0.0)
        features = torch.stack([scores, rows.ratio - rows.ratio[true][:, None]][:m])
        relative = torch.einsum("m,mnc->nc", coefficients, features)
        relative = relative + rows.offset - rows.offset[true][:, None]
        if rows.smoothing:
            share = rows.smoothing * weight[:, None] * ~masked / (~masked).sum(1, keepdim=True)
            value = value - (share * relative).sum()
            gradient = gradient - (share * features).sum((1, 2))
        relative = relative.masked_fill(masked, -torch.inf)
        probs = relative.softmax(1)
        means = (probs * features).sum(2)
        centered = (features - means[:, :, None]).flatten(1)
        value = value + weight @ relative.logsumexp(1)
        gradient = gradient + means @ weight
        hessian = hessian + (centered * (weight[:, None] * probs).flatten()) @ centered.T
    return value, gradient, hessian


def _distance(logits: Tensor, true: Tensor) -> Tensor:
    """Return how far scores (n, c) are from those of the true classes (n, 1), 0 for masked ones."""
    return (logits - true).masked_fill(logits.isneginf(), 0.0).abs()


class _NoMinimumError(ValueError):
    """Raised if no temperature is the best: rows without a mistake, or equal scores."""


def _fit_likelihood(
    logits: Tensor,
    target: Tensor,
    row_weight: Tensor,
    log_ratio: Tensor | None = None,
    *,
    offset: Tensor | None = None,
    smoothing: float = 0.0,
) -> list[float]:
    """Minimize the weighted negative log-likelihood of softmax(beta * s + tau * r + o), by Newton's method.

    It is convex in (beta, tau), and Newton's steps do not depend on the units of s and r, so that there is
    nothing to tune. Steps that do not shrink mean that there is no minimum: rows that some coefficients
    classify without a mistake push these to infinity.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,).
        row_weight: Weight (n,) of each row.
        log_ratio: r, one number (c,) for each class; ``None`` fits beta alone.
        offset: o, one number (c,) for each class; 0 if ``None``.
        smoothing: Share of each row that counts for all classes alike.

    Returns:
        The coefficients: beta, and tau if there is a ``log_ratio``.
    """
    true = logits.gather(1, target[:, None])
    if true.isneginf().any():
        raise ValueError("logits must be finite for the target class, got -inf")
    coefficients = torch.zeros(1 if log_ratio is None else 2, dtype=torch.float64)
    nothing = coefficients.new_zeros(logits.shape[1])
    ratio, offset = (nothing if given is None else given for given in (log_ratio, offset))
    rows = _Rows(logits, target, row_weight / row_weight.sum(), ratio, offset, smoothing)
    parts = (part.split(block_rows(logits)) for part in (logits, true))
    spread = max(float(_distance(*part).max()) for part in zip(*parts, strict=True))
    unit = coefficients.new_tensor([1 / max(spread, 1e-300), 1.0])[: len(coefficients)]
    value, gradient, hessian = _derivatives(coefficients, rows)
    converged = False
    for _ in range(100):
        factor, failed = torch.linalg.cholesky_ex(hessian)
        if converged or failed:
            break
        step = -torch.cholesky_solve(gradient[:, None], factor).squeeze(1)
        converged = bool((step.abs() <= 1e-8 * unit.maximum(coefficients.abs())).all())
        slope, size = gradient @ step, 1.0
        trial = _derivatives(coefficients + step, rows)
        while size > 1e-9 and trial[0] > value + 1e-4 * size * slope + 1e-14:  # 1e-14: rounding
            size /= 2
            trial = _derivatives(coefficients + size * step, rows)
        coefficients = coefficients + size * step
        value, gradient, hessian = trial
    _check_minimum(coefficients, value, converged)
    return coefficients.tolist()


def _check_minimum(coefficients: Tensor, value: Tensor, converged: bool) -> None:
    """Refuse coefficients that are not the likeliest ones, or that turn the scores around."""
    if not converged and coefficients[0] >= 0:
        raise _NoMinimumError(
            "logits must differ, and be wrong on some rows, for a likeliest temperature to exist; got equal "
            f"scores or rows without a mistake (mean negative log-likelihood {float(value):g})"
        )
    if coefficients[0] <= 0:
        raise ValueError(
            "logits must rank the target better than chance for a likeliest temperature to exist, "
            f"got 1 / temperature = {float(coefficients[0]):g}"
        )


def fit_temperature(
    logits: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    weight: Float[Tensor, " c"] | None = None,
    offset: Float[Tensor, " c"] | None = None,
    ignore_index: int = -100,
) -> float:
    r"""Find the temperature that makes held-out rows most likely.

    .. math:: \arg\min_{T > 0} \; -\sum_i w_{y_i} \log \mathrm{softmax}(s_i / T + o)_{y_i}

    Convex in 1/T; Newton's method in float64, the same result each time. Scores times a have a times the
    temperature. A class may be masked in a row by -inf. Classes without rows do take part: that they did not
    occur speaks against scores that expected them.

    Args:
        logits: Scores (n, c) of rows that the model was not trained on.
        target: Class indices (n,).
        weight: Weight of each class (c,), as in ``cross_entropy``.
        offset: Number that is added to each class after the division (c,) (o in the formula), for priors that
            the scores leave out.
        ignore_index: Rows with this target are ignored.

    Returns:
        The temperature, > 0.

    Raises:
        ValueError: If an argument is out of its range, or no temperature is the best: the target has the
            highest score in every row (the smaller the better), or the scores are no better than chance.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]] * 4)  # says e^2 : 1 where 3 : 1 is right
        >>> round(fit_temperature(logits, torch.tensor([0, 0, 0, 1])), 4)  # 2 / log 3
        1.8205

    References:
        C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, "On calibration of modern neural networks", ICML 2017.
    """
    logits, target = held_out(logits, target, ignore_index)
    if weight is None:
        weight = torch.ones(logits.shape[1])
    check_class_vector("weight", weight, num_classes=logits.shape[1])
    row_weight = weight.detach().cpu().double()[target]
    if not row_weight.sum() > 0:
        raise ValueError("weight must be > 0 for the class of at least one row, got 0 for all")
    if offset is not None:
        offset = offset.detach().cpu().double()
        if offset.shape != logits.shape[1:] or not bool(offset.isfinite().all()):
            got = f"shape {tuple(offset.shape)}" if offset.shape != logits.shape[1:] else "others"
            raise ValueError(f"offset must be one finite number per class ({logits.shape[1]}), got {got}")
    return 1 / _fit_likelihood(logits, target, row_weight, offset=offset)[0]


class TemperaturePriorFit(NamedTuple):
    """Result of :func:`fit_temperature_and_prior`, for :meth:`ScoreMap.identified`.

    ``smoothed`` says that the rows had no mistake, so that the likeliest temperature would be 0, and a small
    share of each row was counted for all classes alike.
    """

    temperature: float
    exponent: float
    smoothed: bool


def fit_temperature_and_prior(
    logits: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    priors: Float[Tensor, " c"],
    rows_priors: Float[Tensor, " c"] | None = None,
    ignore_index: int = -100,
) -> TemperaturePriorFit:
    r"""Fit the temperature of scores, and the power of the class priors that they leave out, by likelihood.

    .. math:: \arg\min_{T > 0, t} \; -\sum_i
        \log \mathrm{softmax}\Bigl(\frac{s_i}{T} + t \log \pi + \log\frac{q}{\pi}\Bigr)_{y_i}

    For scores that are no log-probabilities, or contain unknown priors: hinges, noised, smooth and ranked
    losses, margins, normalized weights. The softmax in the formula is then as near to the posterior of the
    held-out rows as two numbers can bring it, and without its last term to that of rows with the priors.
    Log-posteriors have T = 1 and t = 0, those without the priors t = 1. Convex in (1/T, t); Newton's method
    in float64. With nearly equal priors (see :func:`priors_nearly_equal`) rows do not tell t, and it is 0.
    Where no row is mistaken, the likelihood has no maximum: then ``1 / (n + 2)`` of each of the n
    rows counts for all classes alike, as in Platt's rule.

    Args:
        logits: Scores (n, c) of rows that the model was not trained on.
        target: Class indices (n,).
        priors: Class frequencies (c,) of the training rows, each > 0, adding up to 1.
        rows_priors: Class frequencies (q in the formula) (c,) that the held-out rows were drawn with, if
            these are not ``priors``: validation rows are often balanced, or have more of the rare classes
            (see :func:`priors_of_rows`).
        ignore_index: Rows with this target are ignored.

    Raises:
        ValueError: If an argument is out of its range, or the scores rank the target no better than chance.

    Example:
        >>> posterior = torch.tensor([[0.9, 0.1]] * 10 + [[0.5, 0.5]] * 10)
        >>> target = torch.tensor([0] * 9 + [1] + [0] * 5 + [1] * 5)  # as the posterior says: 9 : 1, 5 : 5
        >>> priors = torch.tensor([0.7, 0.3])
        >>> fit = fit_temperature_and_prior(3 * (posterior / priors).log(), target, priors=priors)
        >>> round(fit.temperature, 4), round(fit.exponent, 4)
        (3.0, 1.0)

    References:
        J. Platt, "Probabilistic outputs for support vector machines", 1999, section 2.2 (smoothed targets).
    """
    logits, target = held_out(logits, target, ignore_index)
    check_priors("priors", priors, num_classes=logits.shape[1])
    log_priors = priors.detach().cpu().double().log()
    offset = None
    if rows_priors is not None:
        check_priors("rows_priors", rows_priors, num_classes=logits.shape[1])
        offset = rows_priors.detach().cpu().double().log() - log_priors
    differ = not priors_nearly_equal(priors)
    weight = torch.ones(len(target), dtype=torch.float64)

    def fit(smoothing: float) -> list[float]:
        ratio = log_priors if differ else None
        fitted_values = _fit_likelihood(logits, target, weight, ratio, offset=offset, smoothing=smoothing)
        return [*fitted_values, 0.0]

    try:
        beta, exponent, *_ = fit(0.0)
        return TemperaturePriorFit(1 / beta, exponent, smoothed=False)
    except _NoMinimumError:
        beta, exponent, *_ = fit(1 / (len(target) + 2))
        return TemperaturePriorFit(1 / beta, exponent, smoothed=True)


class TemperatureTauFit(NamedTuple):
    """Result of :func:`fit_temperature_and_tau`."""

    temperature: float
    tau: float


def fit_temperature_and_tau(
    logits: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    source_priors: Float[Tensor, " c"],
    target_priors: Float[Tensor, " c"] | None = None,
    offset: Float[Tensor, " c"] | None = None,
    ignore_index: int = -100,
) -> TemperatureTauFit:
    r"""Find the temperature and the adjustment strength that make re-weighted held-out rows most likely.

    .. math::
        \arg\min_{T > 0, \tau} \; -\sum_i \frac{\pi^{\text{target}}_{y_i}}{n_{y_i}}
        \log \mathrm{softmax}\Bigl(\frac{s_i}{T}
        + \tau \log\frac{\pi^{\text{target}}}{\pi^{\text{source}}}\Bigr)_{y_i}

    :math:`n_c` is the number of held-out rows of class c: the rows count as if drawn under the target priors,
    whatever they were drawn under. Scores of the true posterior have T = tau = 1. Convex in (1/T, tau);
    Newton's method in float64. Less noisy than :func:`fit_tau`, but fits probabilities and not the error.

    Args:
        logits: Scores (n, c) of rows that the model was not trained on.
        target: Class indices (n,), of two classes or more. Classes without rows are left out, as if masked by
            -inf: the weights of the rows cannot stand in for a class that none belongs to.
        source_priors: Class frequencies (c,) that the model was trained with, each > 0, adding up to 1.
        target_priors: Class frequencies (c,) to predict for; uniform if ``None``. Not the source ones, for
            which tau has no meaning.
        offset: Number that is added to each class after the division by T (c,), for priors that the scores
            leave out.
        ignore_index: Rows with this target are ignored.

    Returns:
        Temperature and tau.

    Raises:
        ValueError: If an argument is out of its range, or no temperature and tau are the best.

    Example:
        >>> posterior = torch.tensor([[0.9, 0.1]] * 10 + [[0.5, 0.5]] * 10)
        >>> target = torch.tensor([0] * 9 + [1] + [0] * 5 + [1] * 5)  # as the posterior says: 9 : 1, 5 : 5
        >>> priors = torch.tensor([0.7, 0.3])
        >>> fit = fit_temperature_and_tau(3 * posterior.log(), target, source_priors=priors)
        >>> round(fit.temperature, 4), round(fit.tau, 4)
        (3.0, 1.0)

    References:
        Guo et al., ICML 2017 (temperature) and Menon et al., ICLR 2021, section 4.1 (tau).
    """
    logits, target = held_out(logits, target, ignore_index)
    num_classes = logits.shape[1]
    ratio = log_prior_ratio(source_priors, target_priors, num_classes)
    counts = target.bincount(minlength=num_classes)
    present = counts > 0
    if int(present.sum()) < 2:
        raise ValueError(f"target must have rows of at least 2 classes, got class {int(target[0])} alone")
    if ratio[present].max() - ratio[present].min() < 1e-6:
        other = "uniform" if target_priors is None else "target_priors"
        raise ValueError(f"source_priors must differ from {other} for tau to be fitted, got equal ones")
    wanted = torch.ones(num_classes) if target_priors is None else target_priors.detach().cpu()
    row_weight = wanted.double()[target] / counts[target]
    if not present.all():
        logits = logits.masked_fill(~present, -torch.inf)
    if offset is not None:
        offset = offset.detach().cpu().double()
    beta, tau = _fit_likelihood(logits, target, row_weight, ratio, offset=offset)
    return TemperatureTauFit(1 / beta, tau)
