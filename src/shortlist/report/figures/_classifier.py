"""The norms and offsets of a run's classifier, from its saved weights."""

from collections.abc import Mapping

import torch
from torch import Tensor

from shortlist.training.runs import Run, RunError
from shortlist.training.weights import read_weights

__all__ = ["read_classifier"]


def read_classifier(run: Run, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Norm of the weights of each class (c,) and offset of each class (c,), float64.

    Args:
        run: With ``model.safetensors``.
        scores: Some of its scores (n, c), which the classifier must be able to give.

    Raises:
        RunError: If there is no linear classifier to be found, or the scores are not its own.
        FileNotFoundError: If there is no ``model.safetensors``.
    """
    path = run.path / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{run.path} has no trained network: {path.name} is missing")
    tensors = read_weights(path)
    name = _classifier_name(run, tensors, scores.shape[1])
    weight = tensors[f"{name}.weight"].double()
    bias = tensors.get(f"{name}.bias", torch.zeros(len(weight))).double()
    scale = tensors.get(f"{name.rpartition('.')[0]}.log_scale")  # of a head whose weights are scaled
    if scale is not None:
        weight = weight * scale.double().exp()[:, None]
    norms = weight.norm(dim=1)
    if not (norms > 0).all() or not norms.isfinite().all():
        raise RunError(f"{run.path} has class weights of norm 0 or that are not finite")
    _check_span(run, weight, scores[:16].double() - bias)
    return norms, bias


def _classifier_name(run: Run, tensors: Mapping[str, Tensor], num_classes: int) -> str:
    """Of the layers with a row of weights for each class, the one that scores come from."""
    given = run.recipe.head.classifier
    found = [
        key.removesuffix(".weight")
        for key, tensor in tensors.items()
        if key.endswith(".weight") and tensor.ndim == 2 and len(tensor) == num_classes
    ]
    found = [name for name in found if not name.endswith("proposal_head")]  # only for training
    if given is not None:
        found = [name for name in found if name == given or name.startswith(f"{given}.")]
    else:
        named = [name for name in found if name.split(".")[0] in ("head", "heads", "fc", "classifier")]
        found = named or found
    if any(f"{name}.{scale}" in tensors for name in found for scale in ("fixed_scale", "log_scale")):
        raise RunError(f"{run.path} has a cosine classifier, which does not look at the norms of its weights")
    if len(found) != 1:
        got = ", ".join(found) or "none"
        raise RunError(f"{run.path} must have one linear classifier of {num_classes} classes, got {got}")
    return found[0]


def _check_span(run: Run, weight: Tensor, products: Tensor) -> None:
    """Scores less offsets must be W x for some x: they are not if something comes after the layer."""
    features = torch.linalg.lstsq(weight, products.T, driver="gelsd").solution
    residual = (weight @ features - products.T).abs().max()
    if float(residual) > 1e-3 * max(1.0, float(products.abs().max())):
        raise RunError(
            f"{run.path} has scores that its classifier cannot give: they are off by {residual:.3g}"
        )
