"""What data sets know about their images: observation, organ, author, license, date, place, source."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shortlist.datasets.plantnet import METADATA_FILE, plantnet_metadata
from shortlist.inputs import ABOUT, is_benchmark, is_table, plain_about, read_benchmark, read_list

About = Callable[[str], Mapping[str, str]]


def _nothing(_: str) -> Mapping[str, str]:
    return {}


def _about_of_list(path: str | Path, **columns: Any) -> About:
    """Return a function from the path of an image to what a list says about it."""
    if not is_table(path):
        return _nothing
    rows = read_list(path, about=ABOUT, label_column="", split_column="", **columns)
    numbers = {address: row for row, address in enumerate(rows.addresses())}
    return lambda image: rows.about_row(numbers[image]) if image in numbers else {}


def about_of_data(name: str, options: Mapping[str, Any], *, part: str = "train") -> About:
    """Return what the data set of a recipe knows about the images of a part."""
    if name in ("image_list", "image_lists"):
        columns = {key: options[key] for key in ("root", "path_column") if key in options}
        path = options["path"] if name == "image_list" else options.get(part) or options["train"]
        return _about_of_list(path, **columns)
    if name == "plantnet300k" and (Path(options["root"]) / METADATA_FILE).is_file():
        metadata = plantnet_metadata(options["root"])
        named = {"observation": "obs_id", "source": "url"}

        def about(image: str) -> Mapping[str, str]:
            entry = metadata.get(Path(image).stem, {})
            return plain_about({key: entry.get(named.get(key, key)) for key in ABOUT})

        return about
    if name == "image_folder" and is_benchmark(options["root"]):
        made = read_benchmark(options["root"]).images
        images = {name: plain_about(image.row.about) for name, image in made.items()}
        return lambda image: images.get(os.path.relpath(image, options["root"]), {})
    return _nothing
