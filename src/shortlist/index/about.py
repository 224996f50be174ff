"""What data sets know about their images: author, license, source, date, organ, observation."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shortlist._json import read_json
from shortlist.datasets.plantnet import METADATA_FILE, plantnet_metadata
from shortlist.engine.files import absolute, full_path
from shortlist.engine.lists import folder_of, is_list, list_columns

__all__ = ["ABOUT", "About", "about_of_data", "about_of_list", "plain_about"]

ABOUT = ("author", "license", "source", "date", "organ", "observation")
"""What is kept about an image."""

About = Callable[[str], Mapping[str, str]]

# names of columns, of which the first that is there is taken
_COLUMNS = {
    "author": ("author", "creator", "photographer", "rights_holder"),
    "license": ("license", "licence"),
    "source": ("source", "url", "references"),
    "date": ("date", "observed_on", "event_date"),
    "organ": ("organ", "view"),
    "observation": ("observation", "observation_id", "obs_id"),
}
_LONGEST = 500


def plain_about(known: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known as short texts, without what is empty or not kept."""
    found = {}
    for name in ABOUT:
        value = known.get(name)
        text = "" if value is None else " ".join(str(value).split())[:_LONGEST]
        if text:
            found[name] = text
    return found


def _nothing(_: str) -> Mapping[str, str]:
    return {}


def about_of_list(path: str | Path, *, root: str | Path | None = None, path_column: str = "path") -> About:
    """Read the columns of a list of images, and return a function from the path of an image to its row."""
    path = absolute(path)
    if not is_list(path):
        return _nothing
    wanted = [name for names in _COLUMNS.values() for name in names]
    table = list_columns(path, [path_column], [name for name in wanted if name != path_column])
    chosen = {key: next((n for n in names if n in table), None) for key, names in _COLUMNS.items()}
    columns = {key: table[name] for key, name in chosen.items() if name is not None}
    if not columns:
        return _nothing
    base = folder_of(path) if root is None else str(root)
    names = table[path_column].to_pylist()
    rows = {full_path(base, str(name)): row for row, name in enumerate(names)}

    def about(image: str) -> Mapping[str, str]:
        row = rows.get(image)
        return {} if row is None else plain_about({key: col[row].as_py() for key, col in columns.items()})

    return about


def about_of_data(name: str, options: Mapping[str, Any], *, part: str = "train") -> About:
    """Return what the data set of a recipe knows about the images of a part."""
    if name in ("image_list", "image_lists"):
        columns = {key: options[key] for key in ("root", "path_column") if key in options}
        path = options["path"] if name == "image_list" else options.get(part) or options["train"]
        return about_of_list(path, **columns)
    if name == "plantnet300k" and (Path(options["root"]) / METADATA_FILE).is_file():
        known = plantnet_metadata(options["root"])
        named = {"observation": "obs_id", "source": "url"}

        def about(image: str) -> Mapping[str, str]:
            entry = known.get(Path(image).stem, {})
            return plain_about({key: entry.get(named.get(key, key)) for key in ABOUT})

        return about
    if name == "image_folder" and (Path(options["root"]) / "metadata.json").is_file():
        return _about_of_benchmark(Path(options["root"]))
    return _nothing


def _about_of_benchmark(root: Path) -> About:
    """Return what ``shortlist data build`` noted about the images of a benchmark."""
    content = read_json(root / "metadata.json")
    known = content.get("images", {}) if isinstance(content, dict) else {}

    def about(image: str) -> Mapping[str, str]:
        entry = known.get(os.path.relpath(image, root), {})
        return plain_about({key: entry.get(key) for key in ABOUT if key != "source"})

    return about
