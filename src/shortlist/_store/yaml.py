"""Read YAML in one place: plain values only, no key twice, bounded in size, depth and aliases."""

from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from shortlist._store.files import read_text

MAX_BYTES = 2_000_000
"""Size of the largest file that is read."""
MAX_DEPTH = 100
"""How deep lists and mappings may be inside each other, aliases written out."""
MAX_NODES = 100_000
"""How many keys and values there may be, aliases written out: ten lines of aliases can be a billion."""


def _fast_loader() -> type:
    """Return the loader of plain values with a compiled parser, and a composer in Python to be watched."""
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class Loader(Composer, CParser, SafeConstructor, Resolver):
        def __init__(self, stream: Any) -> None:
            CParser.__init__(self, stream)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)

    return Loader


_Base: Any = _fast_loader() if yaml.__with_libyaml__ else yaml.SafeLoader  # reads in a fifth of the time


class _Loader(_Base):
    """Loads plain values; counts as it reads, so that nothing large is ever made."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._nodes = 0
        self._depth = 0
        self._deepest = 0
        self._measured: dict[int, tuple[int, int]] = {}  # nodes and height of each node, by its id

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias = self.check_event(yaml.AliasEvent)
        line = self.peek_event().start_mark.line + 1
        before, deepest = self._nodes, self._deepest
        self._depth += 1
        self._deepest = self._depth
        if not is_alias:
            self._nodes += 1
        self._check_bounds(line)
        node = super().compose_node(parent, index)
        if is_alias:
            if id(node) not in self._measured:
                raise ValueError(f"line {line}: an alias stands inside of what it stands for")
            nodes, height = self._measured[id(node)]
            self._nodes += nodes
            self._deepest += height
            self._check_bounds(line)
        else:
            self._measured[id(node)] = (self._nodes - before, self._deepest - self._depth)
        self._deepest = max(deepest, self._deepest)
        self._depth -= 1
        return node

    def _check_bounds(self, line: int) -> None:
        if self._deepest > MAX_DEPTH:
            raise ValueError(f"line {line}: it is nested too deep: more than {MAX_DEPTH} levels")
        if self._nodes > MAX_NODES:
            raise ValueError(f"line {line}: it is too long: more than {MAX_NODES:,} values, aliases included")

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:  # else the first would be lost without a word
                    raise ValueError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Return the plain values that a text holds.

    Raises:
        yaml.YAMLError: If it is not YAML.
        ValueError: If it is too deep or too long, has a key twice, or a value that cannot be.
    """
    return yaml.load(text, _Loader)


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Return the keys and values of a file.

    Raises:
        ValueError: If it is not YAML, is too large, too deep or too long, holds something else, or a key
            twice; the message names the file.
    """
    text = read_text(path, max_bytes=MAX_BYTES)
    try:
        content = parse_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a mapping of keys to values, got {type(content).__name__}")
    return content
