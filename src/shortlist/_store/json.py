"""Write JSON that every reader accepts, and read JSON files by one reader that names the file."""

import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from shortlist._store.files import read_text

MAX_DEPTH = 100
"""How deep lists and objects may be inside each other."""


def strict_json(content: Any, *, indent: int | None = None) -> str:
    """Return the content as JSON; infinite numbers, which JSON does not have, are written as text.

    Example:
        >>> strict_json({"nll": float("inf"), "k": (1, 5)})
        '{"nll": "inf", "k": [1, 5]}'
    """
    return json.dumps(_plain(content), ensure_ascii=False, indent=indent, allow_nan=False)


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text holds.

    Raises:
        ValueError: If it is not JSON, or nested too deep.
    """
    too_deep = f"it is nested too deep: more than {MAX_DEPTH} levels"
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(too_deep) from None
    level = [content]
    for _ in range(MAX_DEPTH + 1):
        parents = [value for value in level if isinstance(value, dict | list)]
        if not parents:
            return content
        level = [
            value
            for parent in parents
            for value in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(value, dict | list)
        ]
    raise ValueError(too_deep)


def read_json(path: str | Path) -> Any:
    """Return what a JSON file holds.

    Raises:
        ValueError: If it is not JSON, or nested too deep; the message names the file.
        OSError: If it cannot be opened.
    """
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON that can be read: {error}") from error


def read_as(kind: Any, content: Any) -> Any:
    """Return a value of a type from what :func:`strict_json` wrote of its ``asdict``.

    Args:
        kind: A dataclass, ``Mapping``, ``tuple`` of any length, ``X | None``, number or text. A class with
            ``from_dict`` reads itself.
        content: Plain values.

    Raises:
        ValueError: If there are other entries than the type has; also ``TypeError`` and ``AttributeError``.

    Example:
        >>> read_as(Mapping[int, tuple[float, ...]], {"5": [0.5, "inf"]})
        {5: (0.5, inf)}
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if content is None else read_as(inner[0], content)
    if origin is tuple:
        return tuple(read_as(inner[0], entry) for entry in content)
    if origin is Mapping:
        return {inner[0](key): read_as(inner[1], entry) for key, entry in content.items()}
    if hasattr(kind, "from_dict"):
        return kind.from_dict(content)
    if isinstance(kind, type) and is_dataclass(kind):
        kinds = get_type_hints(kind)
        if unknown := sorted(content.keys() - kinds.keys()):
            raise ValueError(f"{kind.__name__} has no {unknown[0]}")
        return kind(**{name: read_as(kinds[name], entry) for name, entry in content.items()})
    return float(content) if content in ("inf", "-inf") else content


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value
