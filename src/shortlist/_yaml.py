"""Read YAML files of keys and values, and refuse a key that is there twice."""

from pathlib import Path
from typing import Any

import yaml

__all__ = ["read_mapping"]


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:  # else the first would be lost without a word
                    raise ValueError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Return the keys and values of a file.

    Raises:
        ValueError: If it is not YAML, holds something else, or a key twice; the message names the file.
    """
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)  # a safe one
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a mapping of keys to values, got {type(content).__name__}")
    return content
