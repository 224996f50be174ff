"""Normalize the weights of a trained classifier, directly or as a map of its scores."""

import copy
from typing import Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_class_vector, check_number, promote
from shortlist.models import LinearHead
from shortlist.scores.held_out_rows import held_out
from shortlist.scores.score_map import ScoreMap
from shortlist.scores.tau import TauFit, check_grid, chosen_fit, middle_of_best

Offsets = Literal["kept", "scaled"]

Model = TypeVar("Model", bound=nn.Module)


def normalize_weights(weight: Float[Tensor, "c d"], *, tau: float = 1.0) -> Float[Tensor, "c d"]:
    r"""Divide class weights by a power of their norms.

    .. math:: w_c / \lVert w_c \rVert_2^\tau

    It helps if the norms grow with the class frequencies, as they tend to under SGD with momentum; under
    Adam they need not. It is not consistent for the balanced error. ``tau=0`` changes nothing.

    Args:
        weight: Weights (c, d), one row per class, none of them of norm 0 (an error: it has no direction).
        tau: Strength of the normalization; 1 makes all norms 1.

    Returns:
        Weights (c, d) of the same type.

    Raises:
        ValueError: If an argument is out of its range, or the norm of a row is 0 or not finite.

    Example:
        >>> normalize_weights(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 1.0000]])

    References:
        B. Kang, S. Xie, M. Rohrbach, Z. Yan, A. Gordo, J. Feng, Y. Kalantidis, "Decoupling representation and
        classifier for long-tailed recognition", ICLR 2020, equation 4.
    """
    check_number("tau", tau)
    if weight.ndim != 2 or not weight.is_floating_point():
        got = f"{weight.dtype} {tuple(weight.shape)}"
        raise ValueError(f"weight must be a floating tensor of shape (c, d), got {got}")
    norms = promote(weight).norm(dim=1, keepdim=True)
    if can_read_values(norms):
        bad = ~((norms > 0) & norms.isfinite()).squeeze(1)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise ValueError(
                f"weight must have rows of finite norm > 0, got {float(norms[row])} in row {row}"
            )
    return (promote(weight) / norms**tau).to(weight.dtype)


def normalization_map(
    norms: Float[Tensor, " c"],
    offsets: Float[Tensor, " c"],
    *,
    tau: float = 1.0,
    offset: Offsets = "kept",
    priors: Float[Tensor, " c"] | None = None,
) -> ScoreMap:
    r"""Return weight normalization as a map of the scores, so that the network need not run again.

    With ``offset="kept"``, :math:`w / \lVert w \rVert^\tau` for w turns a score :math:`s = w x + b` into
    :math:`(s - b) / \lVert w \rVert^\tau + b`. With ``offset="scaled"`` the whole class vector, its offset
    included, is divided by a power of its norm, as in equation 3 of the paper:
    :math:`s / \lVert (w, b) \rVert^\tau`. The class priors that the result contains are unknown.

    Args:
        norms: Norms of the class weights (c,), without the offsets, each > 0.
        offsets: Offsets of the classes (c,); zeros if there are none.
        tau: Strength of the normalization; 0 changes nothing.
        offset: Whether the offsets are ``"kept"`` or ``"scaled"`` with the weights.
        priors: Class priors (c,), each > 0, to divide by a power of in place of the norms (Kim and Kim 2020).

    Example:
        >>> norms, offsets = torch.tensor([3.0, 1.0]), torch.tensor([4.0, 0.0])
        >>> normalization_map(norms, offsets, offset="scaled")(torch.tensor([[10.0, 10.0]]))
        tensor([[ 2., 10.]])

    References:
        A. K. Menon et al., ICLR 2021, equation 3; B. Kang et al., ICLR 2020, equation 4; B. Kim, J. Kim,
        "Adjusting decision boundary for class imbalanced learning", IEEE Access 2020, for the priors.
    """
    check_number("tau", tau)
    check_choice("offset", offset, ("kept", "scaled"))
    check_class_vector("norms", norms)
    norms, offsets = norms.detach().cpu().double(), offsets.detach().cpu().double()
    if offsets.shape != norms.shape or not bool(offsets.isfinite().all()):
        raise ValueError(f"offsets must be finite and of shape ({len(norms)},), got {tuple(offsets.shape)}")
    if priors is not None:
        check_class_vector("priors", priors, num_classes=len(norms))
    if offset == "scaled":
        norms, offsets = torch.hypot(norms, offsets), torch.zeros_like(offsets)
    if priors is not None:
        norms = priors.detach().cpu().double()
    if not bool((norms > 0).all()):
        name = "norms" if priors is None else "priors"
        raise ValueError(f"{name} must be > 0, got 0 for class {int(norms.argmin())}")
    factors = norms**-tau
    return ScoreMap(len(norms), scale=factors, shift=(1 - factors) * offsets, contains=None)


def fit_normalization(
    logits: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    norms: Float[Tensor, " c"],
    offsets: Float[Tensor, " c"],
    *,
    offset: Offsets = "kept",
    priors: Float[Tensor, " c"] | None = None,
    grid: Float[Tensor, " g"] | None = None,
    standard_errors: int | float = 1.0,
) -> TauFit:
    """Find a strength of :func:`normalization_map` with a small balanced error on held-out rows.

    Chosen as by :func:`shortlist.scores.fit_tau`: the middle of the taus whose error is within
    ``standard_errors`` standard errors of the least. A tie with the true class counts as an error.

    Args:
        logits: Scores (n, c) of rows that the model was not trained on, as the network gives them.
        target: Class indices (n,).
        norms: Norms of the class weights (c,).
        offsets: Offsets of the classes (c,).
        offset: Whether the offsets are ``"kept"`` or ``"scaled"`` with the weights.
        priors: Class priors (c,) in place of the norms.
        grid: Ascending taus (g,) to try; 0, 0.05, ..., 2 if ``None``.
        standard_errors: Errors within this many standard errors of the smallest count as equally good.

    Example:
        >>> scores, target = torch.tensor([[4.0, 1.5], [0.5, 0.4], [2.0, 1.8]]), torch.tensor([0, 1, 1])
        >>> norms, offsets = torch.tensor([2.0, 1.0]), torch.zeros(2)
        >>> fit = fit_normalization(scores, target, norms, offsets, standard_errors=0)
        >>> f"{fit.tau:.2f}"  # right from log2(1.25) = 0.32 to log2(2.67) = 1.42
        '0.85'
    """
    logits, target = held_out(logits, target, -100)
    grid = check_grid(torch.linspace(0.0, 2.0, 41, dtype=torch.float64) if grid is None else grid)
    counts = target.bincount(minlength=logits.shape[1])
    share = 1 / (counts[target] * (counts > 0).sum()).double()
    wrong = []
    for tau in grid.tolist():
        scores = normalization_map(norms, offsets, tau=tau, offset=offset, priors=priors)(logits)
        others = scores.scatter(1, target[:, None], -torch.inf)
        wrong.append(others.amax(1) >= scores.gather(1, target[:, None]).squeeze(1))
    curve = torch.stack([share @ rows.double() for rows in wrong])
    return chosen_fit(curve, grid, wrong[middle_of_best(curve, grid)], target, counts, standard_errors)


def normalize_classifier(layer: Model, *, name: str | None = None, tau: float = 1.0) -> Model:
    """Copy a linear layer, or a model with one, and normalize its weights by :func:`normalize_weights`.

    The bias is kept as it is. (Kang et al. leave it out. To scale it along, as the weight of a constant
    feature, append it to the weights as a column.) :func:`normalization_map` does the same to scores.

    Args:
        layer: The trained classifier, (d) to (c), or a model that has it; it is not changed.
        name: Dotted name of the classifier in the model, for example ``"set_head"`` of a ``TwoHead``;
            ``None`` for the layer itself.
        tau: Strength of the normalization; 1 makes all norms 1.

    Returns:
        A new layer or model.

    Raises:
        ValueError: If there is no linear layer of that name. A cosine head is none: it has no use for norms.

    Example:
        >>> layer = nn.Linear(2, 3)
        >>> [f"{norm:.3f}" for norm in normalize_classifier(layer).weight.norm(dim=1)]
        ['1.000', '1.000', '1.000']
    """
    modules = dict(layer.named_modules(remove_duplicate=False))
    linear = [key for key, module in modules.items() if isinstance(module, nn.Linear | LinearHead)]
    if (name or "") not in linear:
        linear_names = ", ".join(repr(key) for key in linear[-8:]) or "none"
        raise ValueError(f"name must be that of a linear layer, got {name!r}; linear layers: {linear_names}")
    result = copy.deepcopy(layer)
    part = result.get_submodule(name or "")
    assert isinstance(part, nn.Linear | LinearHead)  # as in the original
    with torch.no_grad():
        part.weight.copy_(normalize_weights(part.weight, tau=tau))
    return result
