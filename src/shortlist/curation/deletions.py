"""Photos that were deleted from a store of feedback: they are in no later benchmark."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

StoreCopies = Mapping[str, Collection[str]]
"""Copies of photos that stores in PostgreSQL have now: their SHA-256, by the id of the store."""
DELETED = "photos that were deleted from the store of feedback"
"""Why photos are left out."""
_EXPORTED = re.compile("store-([0-9a-f]{16})")
_COPY = re.compile("images/([0-9a-f]{2})/\\1[0-9a-f]{62}")  # below a store in a folder


def store_folder(store: str) -> str:
    """Return the name of the folder for exported copies of a store in a database, which tells the store."""
    return f"store-{store}"


def was_deleted(source: str | Path, copies: StoreCopies | None = None) -> bool:
    """Whether a path is that of a copy in a store of feedback, or from one, that has the copy no more.

    Args:
        source: The path: ``STORE/images/ab/SHA256`` or, exported from a database, ``store-ID/ab/SHA256``.
        copies: The copies that stores in databases have now; if left out, files tell what was deleted.

    Raises:
        ValueError: If it is from a store in a database of which ``copies`` says nothing, or from a store in a
            folder that is not there: nobody knows what was deleted from it.
    """
    source = Path(source)
    exported = [match for folder in source.parents[1:2] if (match := _EXPORTED.fullmatch(folder.name))]
    if copies is None or not exported:
        in_store = any((folder / "feedback.json").exists() for folder in source.parents[2:3])
        if not in_store and _COPY.fullmatch("/".join(source.parts[-3:])):
            raise ValueError(
                f"{source} is a copy in a store of feedback, which must be at {source.parents[2]}: it tells "
                "what was deleted since; put it back there"
            )
        return not source.exists() and (in_store or bool(exported))
    store = exported[0][1]
    if store not in copies:
        raise ValueError(
            f"{source} was exported from store {store} in PostgreSQL, which may have deleted it since: "
            "give the address by --store"
        )
    return source.name not in copies[store]
