"""Save and load predictors: options and report as JSON, the state beside it as safetensors."""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from shortlist._named_code import UntrustedCodeError, find_class
from shortlist._store.files import check_regular, replacing, write_text
from shortlist._store.json import read_json
from shortlist.predictors._base import SetPredictor
from shortlist.predictors._calibrated import Calibrated
from shortlist.predictors.average_k import AverageK
from shortlist.predictors.conformal import Conformal
from shortlist.predictors.novelty import NoveltyDetector
from shortlist.predictors.plug_in import AverageError, PointwiseError
from shortlist.predictors.taxonomy_nodes import TaxonomyNodes
from shortlist.predictors.topk import TopK
from shortlist.taxonomy import Taxonomy

C = TypeVar("C", bound=Calibrated)
_FORMAT = "shortlist predictor 4"

PREDICTORS: dict[str, type[SetPredictor]] = {
    "topk": TopK,
    "average_k": AverageK,
    "pointwise_error": PointwiseError,
    "average_error": AverageError,
    "conformal": Conformal,
    "taxonomy_nodes": TaxonomyNodes,
}
"""The class of each predictor, by the name that recipes use."""


def predictor_kind(name: str) -> type[SetPredictor]:
    """Return the class of a predictor: one of ``PREDICTORS``, or of somebody's own ``package.module:Class``.

    Raises:
        ValueError: If there is none, or it is code that this process may not run.
    """
    if ":" in name:
        return find_class("predictor", name, SetPredictor)
    if name not in PREDICTORS:
        raise ValueError(f"name must be one of {', '.join(PREDICTORS)}, got {name!r}")
    return PREDICTORS[name]


def predictor_name(kind: type[Calibrated]) -> str:
    """Return the name by which a class of predictors is saved and made again.

    Raises:
        ValueError: If it is no predictor, or if no other process could import it.
    """
    name = next((name for name, each in PREDICTORS.items() if each is kind), None)
    if name is not None:
        return name
    module, own = kind.__module__, kind.__qualname__
    importable = module != "__main__" and getattr(sys.modules.get(module), own, None) is kind
    if not importable or not issubclass(kind, Calibrated):
        names = ", ".join(PREDICTORS)
        raise ValueError(
            f"predictor must be one of {names}, or of a class that a module has by its name, "
            f"got {own} of {module}"
        )
    return f"{module}:{own}"


def make(
    name: str, options: dict[str, Any], *, state: Mapping[str, Tensor] | None = None, place: str = ""
) -> SetPredictor:
    """Make a predictor from its registered name and plain options, as in a recipe or a file.

    Args:
        name: A key of ``PREDICTORS``, or ``package.module:Class`` that this process may run.
        options: Arguments of the predictor; a score or rule is given by name or as a dict of name and
            options.
        state: State that will be loaded. If it has priors, the predictor is made with uniform ones.
        place: Name of the place that the state is for, if it is for one.

    Example:
        >>> make("conformal", {"coverage": 0.8, "score": {"name": "raps", "k_reg": 3}}).score
        RAPS(penalty=0.01, k_reg=3)
    """
    kind, options = predictor_kind(name), dict(options)
    for key, registry in kind.parts.items():
        if isinstance(options.get(key), dict):
            chosen = dict(options[key])
            part = chosen.pop("name", None)
            if part not in registry:
                raise ValueError(f"{key}.name must be one of {', '.join(registry)}, got {part!r}")
            options[key] = registry[part](**chosen)
    if isinstance(options.get("taxonomy"), dict):
        options["taxonomy"] = Taxonomy.from_dict(options["taxonomy"])
    state = {} if state is None else state
    for argument, buffer in (("priors", "weights"), ("scores_priors", "shift")):
        if buffer in state and "place" not in state:
            options[argument] = torch.full_like(state[buffer], 1 / len(state[buffer]))
    predictor = kind(**options)
    if "place" in state:
        predictor._make_for_place(state["place"], state["shift"], place)
    return predictor


def save(predictor: SetPredictor | NoveltyDetector, path: str | Path) -> None:
    """Save a predictor or a detector to ``path`` (``.json``) and its state beside it (``.safetensors``).

    The JSON is replaced last and names its state file, so that a crash leaves the old pair or the new one.

    Args:
        predictor: A calibrated predictor, or an unfinished one with rows added by ``update``, to merge later.
        path: Path of the file; ``.json`` is added if it is missing.
    """
    name = "novelty" if type(predictor) is NoveltyDetector else predictor_name(type(predictor))
    options = predictor.options()
    for key, registry in predictor.parts.items():
        chosen = options[key]["name"] if isinstance(options[key], dict) else options[key]
        if chosen not in registry:
            raise ValueError(
                f"predictor.{key} must be one of {', '.join(registry)} to be saved, got {chosen}"
            )
    report = None if predictor.report is None else predictor.report.to_dict()
    content = {"format": _FORMAT, "predictor": name, "options": options, "report": report}
    content["place"] = getattr(predictor, "place_name", "")
    _write_pair(_json_path(path), content, predictor.state_dict())


def load(path: str | Path) -> SetPredictor:
    """Load the predictor that :func:`save` wrote."""
    return _load(
        path,
        "a predictor",
        lambda of, state: make(of["predictor"], of["options"], state=state, place=of["place"]),
    )


def load_novelty(path: str | Path) -> NoveltyDetector:
    """Load the detector that :func:`save` wrote."""
    return _load(
        path,
        "a novelty detector",
        lambda of, state: NoveltyDetector(**of["options"], means=state.get("means")),
    )


def _load(path: str | Path, what: str, make_from: Callable[[dict[str, Any], dict[str, Tensor]], C]) -> C:
    path = _json_path(path)
    try:
        content, state = _read_pair(path)
        made = make_from(content, state)
        made.load_state_dict(state)
        if content["report"] is not None:
            made.report = made.report_kind.from_dict(content["report"])
    except UntrustedCodeError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} is not {what} saved by shortlist: {error}") from error
    return made


def _write_pair(path: Path, content: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a JSON file and the tensors that it names, so that a crash leaves the old pair or the new one."""
    from safetensors.torch import save as to_bytes

    state = to_bytes({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
    digest = hashlib.sha256(state).hexdigest()
    content = {**content, "state": f"{path.stem}.{digest[:8]}.safetensors", "sha256": digest}
    old, new = state_path(path), path.with_name(content["state"])
    with replacing(new) as temporary:
        temporary.write_bytes(state)
    write_text(path, json.dumps(content, indent=2) + "\n")
    if old is not None and old != new:
        old.unlink(missing_ok=True)


def _read_pair(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what :func:`_write_pair` wrote, if it is of our format and both files belong together."""
    from safetensors.torch import load as from_bytes

    content = read_json(path)
    if content["format"] != _FORMAT:
        raise ValueError(f"its format is {content['format']!r}, not {_FORMAT!r}")
    check_regular(path.with_name(content["state"]), links=False)
    state = path.with_name(content["state"]).read_bytes()
    if hashlib.sha256(state).hexdigest() != content["sha256"]:
        raise ValueError(f"{content['state']} is not the file that was saved with it")
    return content, from_bytes(state)


def _json_path(path: str | Path) -> Path:
    """Return the path with ``.json`` at its end; the name may have other dots, as in ``average_2.5``."""
    path = Path(path)
    return path if path.suffix == ".json" else path.with_name(f"{path.name}.json")


def state_path(path: Path) -> Path | None:
    """Return the state file that an earlier :func:`save` wrote for this path; only this may be removed."""
    try:
        content = read_json(path)
        state = content["state"] if content["format"] == _FORMAT else ""
        return path.with_name(state) if state.startswith(f"{path.stem}.") else None
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None
