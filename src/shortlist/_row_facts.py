"""What data say about rows beside their class: which rows are photos of one object, and groups of rows."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._store.files import replacing

FACTS = ("observation", "organ")
"""Columns that every data set hands on, where it has them."""
ALONE = -1
"""Observation of a row that belongs to none, and group of a row that belongs to none."""
_GROUP = "group."  # start of the name of a tensor of groups
_KEY = "shortlist"
_PHOTO_KEY = b"photos of an object"  # of the hash that orders them, which must not depend on their scores


def observation_number(text: object) -> int:
    """Return a number of 63 bits for the id of an observation, the same everywhere; -1 for none.

    Example:
        >>> observation_number("oak 7") == observation_number("oak 7 "), observation_number("")
        (True, -1)
    """
    name = "" if text is None else str(text).strip()
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 if name else ALONE


def photo_order(objects: Tensor) -> Tensor:
    """Return the numbers of all rows (n,), those of an object together, in the order in which they count.

    Photos of an object are in order of a keyed hash of its number and of the photo's place among its photos:
    the same order however the rows of different objects are mixed.

    Args:
        objects: Number of the object of each row (n,).

    Example:
        >>> photo_order(torch.tensor([7, 7, 3, 7, 3]))
        tensor([4, 2, 1, 3, 0])
    """
    order = objects.argsort(stable=True)
    numbers, counts = objects[order].unique_consecutive(return_counts=True)
    rows, start = order.tolist(), 0
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        if count > 1:
            places = sorted(range(count), key=lambda place: _photo_hash(number, place))
            rows[start : start + count] = [rows[start + place] for place in places]
        start += count
    return torch.tensor(rows, dtype=torch.int64)


def _photo_hash(number: int, place: int) -> bytes:
    return hashlib.blake2b(f"{number} {place}".encode(), digest_size=8, key=_PHOTO_KEY).digest()


@dataclass(frozen=True, eq=False)
class RowFacts:
    """What is known about rows, by column.

    Args:
        observation: Number of the object that each row shows (n,), -1 where it is not known. Rows with the
            same number are photos of one object, in whatever file or split they are.
        groups: By name of a column such as ``"organ"``: the place (n,) of each row's group among the names of
            the groups, -1 where it is not known, and these names.
    """

    observation: Tensor | None = None
    groups: Mapping[str, tuple[Tensor, tuple[str, ...]]] = field(default_factory=dict)

    def __len__(self) -> int:
        columns = [codes for codes, _ in self.groups.values()]
        return len(columns[0] if self.observation is None else self.observation)

    @staticmethod
    def of_columns(columns: Mapping[str, Sequence[Any]]) -> "RowFacts | None":
        """Read columns of texts, of which ``observation`` is one; ``None`` if all of them are empty.

        Example:
            >>> facts = RowFacts.of_columns({"observation": ["a", "b", "a"], "organ": ["leaf", "", "bark"]})
            >>> bool(facts.observation[0] == facts.observation[2]), facts.groups["organ"]
            (True, (tensor([ 1, -1,  0], dtype=torch.int32), ('bark', 'leaf')))
        """
        observation, groups = None, {}
        for column, values in columns.items():
            if column == "observation":
                numbers = torch.tensor([observation_number(value) for value in values], dtype=torch.int64)
                observation = numbers if bool((numbers != ALONE).any()) else None
                continue
            texts = ["" if value is None else " ".join(str(value).split()) for value in values]
            names = tuple(sorted(set(texts) - {""}))
            place = {name: code for code, name in enumerate(names)} | {"": ALONE}
            if names:
                groups[column] = torch.tensor([place[text] for text in texts], dtype=torch.int32), names
        return None if observation is None and not groups else RowFacts(observation, groups)

    @property
    def objects(self) -> Tensor | None:
        """Number of the object of each row (n,); a row that belongs to no observation is an object itself."""
        if self.observation is None:
            return None
        themselves = -2 - torch.arange(len(self.observation))
        return torch.where(self.observation == ALONE, themselves, self.observation)

    def take(self, rows: Tensor) -> "RowFacts":
        """Return the facts of some rows, by their numbers."""
        groups = {column: (codes[rows], names) for column, (codes, names) in self.groups.items()}
        return RowFacts(None if self.observation is None else self.observation[rows], groups)

    @staticmethod
    def joined(parts: Iterable[tuple["RowFacts | None", int]]) -> "RowFacts | None":
        """Put rows behind each other: what is known of each part, and its number of rows."""
        parts = list(parts)
        if all(facts is None for facts, _ in parts):
            return None
        filled = [(facts or RowFacts(), rows) for facts, rows in parts]
        observation, groups = None, {}
        if any(facts.observation is not None for facts, _ in filled):
            columns = [
                torch.full((rows,), ALONE) if facts.observation is None else facts.observation
                for facts, rows in filled
            ]
            observation = torch.cat(columns)
        for column in dict.fromkeys(column for facts, _ in filled for column in facts.groups):
            names = sorted({name for facts, _ in filled for name in facts.groups.get(column, ((), ()))[1]})
            place = {name: code for code, name in enumerate(names)}
            codes = []
            for facts, rows in filled:
                own_codes, own_names = facts.groups.get(column, (torch.full((rows,), ALONE), ()))
                new = torch.tensor([*(place[name] for name in own_names), ALONE], dtype=torch.int32)
                codes.append(new[own_codes.long()])  # -1 is the last one
            groups[column] = torch.cat(codes), tuple(names)
        return RowFacts(observation, groups)

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
        """Return everything as tensors by name, and the names of the groups by column."""
        tensors = {} if self.observation is None else {"observation": self.observation}
        tensors |= {_GROUP + column: codes.contiguous() for column, (codes, _) in self.groups.items()}
        return tensors, {column: list(names) for column, (_, names) in self.groups.items()}

    def names_of(self, column: str) -> list[str | None]:
        """Return the name of each row's group in a column; ``None`` where it is not known."""
        codes, names = self.groups[column]
        return [None if code == ALONE else names[code] for code in codes.tolist()]

    def plain(self) -> dict[str, list[Any]]:
        """Return columns of plain values for a table: numbers of observations, and names of groups."""
        columns: dict[str, list[Any]] = {}
        if self.observation is not None:
            columns["observation"] = [
                None if number == ALONE else number for number in self.observation.tolist()
            ]
        return columns | {_GROUP + column: self.names_of(column) for column in self.groups}

    @staticmethod
    def of_plain(columns: Mapping[str, Sequence[Any]]) -> "RowFacts | None":
        """Restore what :meth:`plain` returned, among other columns; ``None`` if there is nothing."""
        groups = {
            key.removeprefix(_GROUP): values for key, values in columns.items() if key.startswith(_GROUP)
        }
        facts = RowFacts.of_columns(groups)
        if "observation" not in columns:
            return facts
        numbers = [ALONE if number is None else number for number in columns["observation"]]
        return RowFacts(torch.tensor(numbers, dtype=torch.int64), {} if facts is None else facts.groups)

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], names: Mapping[str, Sequence[str]]) -> "RowFacts | None":
        """Restore what :meth:`to_tensors` returned, among other tensors; ``None`` if there is nothing.

        A group without a name is called by its number.

        Raises:
            ValueError: If a column does not hold whole numbers, or a group is not among the names.
        """
        tensors = {key: column for key, column in tensors.items() if is_fact(key)}
        for key, column in tensors.items():
            if column.is_floating_point() or column.ndim != 1:
                raise ValueError(
                    f"{key} must be whole numbers (n,), got {column.dtype} {tuple(column.shape)}"
                )
        observation = tensors.pop("observation", None)
        groups = {}
        for key, codes in tensors.items():
            column, largest = key.removeprefix(_GROUP), int(codes.max()) if len(codes) else ALONE
            of_column = tuple(names.get(column, map(str, range(largest + 1))))
            if largest >= len(of_column):
                raise ValueError(
                    f"{key} must be below {len(of_column)}, the number of its groups, got {largest}"
                )
            groups[column] = codes.to(torch.int32), of_column
        if observation is None and not groups:
            return None
        return RowFacts(None if observation is None else observation.long(), groups)

    def save(self, path: str | Path) -> None:
        """Write a ``.safetensors`` file, completely or not at all."""
        from safetensors.torch import save_file

        tensors, names = self.to_tensors()
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata={_KEY: json.dumps({"groups": names})})

    @staticmethod
    def load(path: str | Path) -> "RowFacts | None":
        """Read the facts of any ``.safetensors`` file; ``None`` if it has none.

        Raises:
            ValueError: If it cannot be read, or a column is none.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                names = filter(is_fact, file.keys())
                said = json.loads((file.metadata() or {}).get(_KEY, "{}")).get("groups", {})
                return RowFacts.from_tensors({name: file.get_tensor(name) for name in names}, said)
        except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error


def is_fact(key: str) -> bool:
    """Return whether a tensor or a column of this name is one of the facts."""
    return key == "observation" or key.startswith(_GROUP)
