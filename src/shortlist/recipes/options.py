"""Check the options of a section against the signature of what has its name."""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model, field_validator

from shortlist.datasets import dataset_info
from shortlist.predictors import predictor_kind
from shortlist.recipes.loss_use import is_own, is_unseen, signature_of
from shortlist.recipes.sections import DataSection, NamedSection, PredictorSection, refuse_yes_for_a_number


def options_model(
    name: str,
    function: Callable[..., Any],
    *,
    provided: frozenset[str] = frozenset(),
    more: Mapping[str, Any] | None = None,
    passed_to: Callable[..., Any] | None = None,
) -> type[BaseModel]:
    """Make a pydantic model of the options that a function takes, from its signature.

    Args:
        name: Name of the model in messages.
        function: Function with annotated parameters.
        provided: Parameters that are not options, since the trainer provides them.
        more: Further fields, as for ``pydantic.create_model``.
        passed_to: Function that takes the further options, if ``function`` has ``**options``.
    """
    parameters = dict(signature_of(function).parameters)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if open_ended and passed_to is not None:
        parameters |= inspect.signature(passed_to).parameters
        open_ended = False
    fields: dict[str, Any] = {}
    for option, parameter in parameters.items():
        if option in provided or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        fields[option] = (annotation, ... if parameter.default is parameter.empty else parameter.default)
    config = ConfigDict(
        extra="allow" if open_ended else "forbid",
        frozen=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )
    checks: dict[str, Any] = {"_numbers": field_validator("*", mode="before")(refuse_yes_for_a_number)}
    return create_model(name, __config__=config, __validators__=checks, **(fields | dict(more or {})))


@cache  # making a model takes longer than checking a whole recipe
def _options_model(path: str, function: Any, provided: frozenset[str], passed_to: Any) -> type[BaseModel]:
    return options_model(path, function, provided=provided, passed_to=passed_to)


def check_options(
    path: str,
    section: NamedSection,
    function: Any,
    provided: frozenset[str],
    passed_to: Any = None,
    parts: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Check a section's options, and give them the types that are asked for (1e-3 is text in YAML).

    ``parts`` are options that may have a name and options of their own, and what these names stand for.
    """
    options, checked = dict(section.options), {}
    for key, registry in (parts or {}).items():
        if isinstance(options.get(key), Mapping):
            checked[key] = _checked_part(f"{path}.{key}", options.pop(key), registry)
    checked |= _checked(path, options, _options_model(path, function, provided, passed_to))
    for option, value in checked.items():
        assert section.__pydantic_extra__ is not None  # it has the options
        section.__pydantic_extra__[option] = value


def data_options(section: DataSection) -> dict[str, Any]:
    """Return the options of a data set, of the types that it asks for where it is somebody's own."""
    if not is_own(section.name) or is_unseen(section.name):
        return section.options
    build = dataset_info(section.name).build
    provided = frozenset({"progress", "train_transform", "eval_transform"})
    return _checked("data", section.options, _options_model("data", build, provided, None))


def predictor_options(section: PredictorSection, key: str = "NAME") -> dict[str, Any]:
    """Return the options of a predictor, of the types that it asks for where it is somebody's own."""
    if not is_own(section.name) or is_unseen(section.name):
        return section.options
    path, kind = f"predictors.{key}", predictor_kind(section.name)
    provided = kind.from_code | {"taxonomy"}
    return _checked(path, section.options, _options_model(path, kind, provided, None))


def _checked(path: str, options: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return options of the types that a model asks for."""
    try:
        checked = model.model_validate(options)
    except ValidationError as error:
        raise ValueError("; ".join(fault_lines(error, model, path))) from error
    return {option: getattr(checked, option) for option in options}


def _checked_part(path: str, content: Mapping[str, Any], registry: Mapping[str, Any]) -> dict[str, Any]:
    """Return name and options of a part of a section, such as the score of a conformal predictor."""
    options = dict(content)
    name = str(options.pop("name", None))
    if name not in registry:
        raise ValueError(unknown_words(path, name, registry))
    options = _checked(path, options, _options_model(path, registry[name], frozenset(), None))
    try:
        registry[name](**options)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return {"name": name, **options}


def unknown_words(path: str, name: str, choices: Any) -> str:
    """Say that a name is not one of the choices, and which of them is the nearest."""
    near = difflib.get_close_matches(str(name), list(choices), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{path}.name must be one of {', '.join(choices)}, got {name!r}{hint}"


def fault_lines(error: ValidationError, model: type[BaseModel], prefix: str) -> list[str]:
    """Return one line for each fault, with the whole key and, for an unknown one, the nearest valid name."""
    lines = []
    for fault in error.errors():
        location = [str(part) for part in fault["loc"]]
        key = ".".join([prefix, *location] if prefix else location)
        if fault["type"] == "extra_forbidden":
            keys = _keys(model, location[:-1])
            near = difflib.get_close_matches(location[-1], keys, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            hint = hint or (f"; known are {', '.join(keys)}" if keys else "")
            lines.append(f"{key}: unknown key{hint}")
        elif fault["type"] == "missing":
            lines.append(f"{key}: required")
        elif not location or fault["type"] == "value_error":
            message = fault["msg"].removeprefix("Value error, ")
            lines.append(f"{key}: {message}" if location and not message.startswith(key) else message)
        else:
            lines.append(f"{key}: {fault['msg']}, got {fault['input']!r}")
    return lines


def _keys(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Return the keys that are valid at a place."""
    for part in path:
        field = model.model_fields.get(part)
        inner = None if field is None else _section_of(field.annotation)
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _section_of(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in candidates if inspect.isclass(c) and issubclass(c, BaseModel)), None)
