"""Write JSON that every reader accepts."""

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["strict_json"]


def strict_json(content: Any, *, indent: int | None = None) -> str:
    """Return the content as JSON; infinite numbers, which JSON does not have, are written as text.

    Example:
        >>> strict_json({"nll": float("inf"), "k": (1, 5)})
        '{"nll": "inf", "k": [1, 5]}'
    """
    return json.dumps(_plain(content), ensure_ascii=False, indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value
