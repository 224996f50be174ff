"""Look at somebody's own data, and write a first recipe for them."""

import json
import re
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import torch
import yaml

from shortlist._messages import one_line
from shortlist._store.files import check_regular
from shortlist.class_table import ClassTable
from shortlist.datasets import ARRAYS, DATASETS, data_at, embedding_files
from shortlist.recipes.default_sets import default_predictors, default_size

_LISTS = (".csv", ".parquet", ".txt")
_LOOKED_AT = 100  # images whose size is read
_MANY_CLASSES = 50  # of fewer, an early epoch has all of them among its first guesses
_LONG_TAIL = 10  # times as many rows in the largest class as in the smallest


@dataclass(frozen=True)
class Found:
    """What was found in somebody's folder or list.

    Args:
        data: Entries of the recipe's section ``data`` that open it.
        class_table: Classes with their training counts.
        rows: Number of training, validation and test rows.
        input_shape: Median width and height of the images that were looked at, or the length of embeddings.
        notes: Sentences about what the user should know before training.
    """

    data: dict[str, Any]
    class_table: ClassTable
    rows: dict[str, int]
    input_shape: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def are_images(self) -> bool:
        """Whether the rows are images."""
        return self.data["name"] != "embeddings"

    @property
    def imbalance(self) -> float:
        """Training rows of the largest class for each one of the smallest."""
        counts = self.class_table.counts
        return max(counts) / max(1, min(counts))

    @property
    def is_long_tailed(self) -> bool:
        """Whether the classes are so uneven that rare ones need help."""
        return self.imbalance >= _LONG_TAIL


@dataclass(frozen=True)
class Features:
    """Features to compute before training.

    Args:
        network: What ``shortlist embed`` takes: ``timm:NAME`` or ``package.module:function``.
        folder: Folder for the features.
    """

    network: str
    folder: Path


def look_at(path: str | Path) -> Found:
    """Find out what is in a folder of images, a list of images or a folder of embeddings.

    Raises:
        FileNotFoundError: If there is nothing at the path.
        ValueError: If it holds nothing to train on; the message says what is expected.
    """
    path = Path(path).absolute()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data, splits = _open(path)
    table = splits.class_table
    if len(table) < 2:
        raise ValueError(f"{path} must hold at least 2 classes, got {len(table)}: {', '.join(table.names)}")
    rows = {part: len(getattr(splits, part)) for part in ("train", "val", "test")}
    if data["name"] == "embeddings":
        shape = tuple(splits.train[0][0].shape)
    else:
        shape = _median_size(splits.train.paths)
    notes = [str(warning.message) for warning in caught]
    notes += [*_notes_on_counts(table), *_notes_on_names(table.names)]
    return Found(data, table, rows, shape, tuple(dict.fromkeys(map(one_line, notes))))


def _open(path: Path) -> tuple[dict[str, Any], Any]:
    """Return the section ``data`` of a recipe for what is at a path, and the data themselves."""
    if path.is_file() and path.suffix.lower() not in _LISTS:
        raise ValueError(f"{path} must be a folder or a list ({', '.join(_LISTS)}), got another file")
    data: dict[str, Any] = data_at(path)
    if data["name"] == "embeddings" and not {"val", "test"} <= set(embedding_files(path)):
        # what is drawn is a tenth, as of images: a twentieth of a few hundred rows calibrates little
        data["val_fraction"] = 0.1
    elif data["name"] == "image_folder":
        _refuse_other_arrays(path)
    options = {key: value for key, value in data.items() if key != "name"}
    return data, DATASETS[data["name"]].build(**options)


def _refuse_other_arrays(folder: Path) -> None:
    """Say how embeddings are named, if a folder holds arrays of other names and no folders."""
    files = sorted(folder.iterdir())
    arrays = [file.name for file in files if file.suffix.lower() in ARRAYS]
    if arrays and not any(file.is_dir() for file in files):
        names = ", ".join(arrays[:3]) + (", ..." if len(arrays) > 3 else "")
        raise ValueError(
            f"{folder} holds neither folders of images nor embeddings with the name that is looked for, got "
            f"{names}: write train.npz (or .safetensors, .pt; val and test beside it if you have them) with "
            "numpy.savez(path, embeddings=..., targets=...), of shapes (n, d) and (n,)"
        )


def _median_size(paths: Sequence[str]) -> tuple[int, int]:
    """Return the median width and height of some images, spread evenly over all."""
    from PIL import Image

    sizes = []
    for path in paths[:: max(1, len(paths) // _LOOKED_AT)]:
        try:
            check_regular(path)
            with Image.open(path) as image:  # which reads no pixels yet
                sizes.append(image.size)
        except Exception:  # decoders fail in many ways on broken files
            continue  # it is counted by the training, and by `shortlist data check`
    if not sizes:
        raise ValueError(f"none of the images that were looked at can be read, such as {paths[0]}")
    width, height = torch.tensor(sizes).median(0).values.tolist()
    return width, height


def _notes_on_counts(table: ClassTable) -> list[str]:
    few = [name for name, count in zip(table.names, table.counts, strict=True) if count < 5]
    if not few:
        return []
    return [
        f"{len(few)} of {len(table)} classes have fewer than 5 training rows ({', '.join(few[:3])}"
        f"{', ...' if len(few) > 3 else ''}): expect little of them, and look at the metrics of rare classes"
    ]


def _notes_on_names(names: Sequence[str]) -> list[str]:
    """Name classes whose names differ only in case, accents, spaces and signs: they may be one class."""
    seen: dict[str, str] = {}
    notes = []
    for name in names:
        plain = unicodedata.normalize("NFKD", name).casefold()
        plain = re.sub(r"[\W_]+", "", "".join(c for c in plain if not unicodedata.combining(c)))
        if plain in seen and plain:
            notes.append(f"the classes {seen[plain]!r} and {name!r} have nearly the same name: are they one?")
        seen.setdefault(plain, name)
    return notes


def explain(opened: Found, features: Features | None) -> list[str]:
    """Say in a sentence each why the recipe is as it is."""
    if features is not None:
        reasons = [
            f"features of {features.network}, a pretrained network, and one linear layer on them: the best "
            "start with few photos, and it trains in seconds"
        ]
    elif opened.are_images:
        reasons = [
            "a small network from nothing, to see that all works: pretrained features are much better, and "
            "need timm (pip install 'shortlist[pretrained]'); then run init again"
        ]
    else:
        reasons = ["one linear layer on your features"]
    if opened.is_long_tailed:
        reasons.append(
            f"the largest class has {opened.imbalance:.0f} times the rows of the smallest: class priors are "
            "divided out, so that rare classes are named as readily as frequent ones, and the promise is "
            "about the average class"
        )
    return reasons


def starter_recipe(opened: Found, name: str, features: Features | None = None) -> str:
    """Write a recipe with comments, as text, that trains on what was found or on features of it."""
    classes, train = len(opened.class_table), opened.rows["train"]
    k = default_size(classes)
    from_nothing = opened.are_images and features is None
    # few epochs for images: a laptop does them in minutes, and the recipe only shows that all works
    epochs = 40 if not from_nothing else 15 if train < 2000 else 10 if train < 50_000 else 5
    counts = opened.class_table.counts
    lines = [
        f"# {train} training, {opened.rows['val']} validation and {opened.rows['test']} test rows of "
        f"{classes} classes ({min(counts)} to {max(counts)} training rows each).",
        *(line for reason in explain(opened, features) for line in _comment(reason)),
        f"# Train with: shortlist train {name}.yaml",
        f"name: {json.dumps(name)}",  # in quotes: 2024, yes and null are names too
        "data:",
        *_indented(yaml.safe_dump(_data(opened, features), sort_keys=False, allow_unicode=True)),
        f"model: {{name: {'small_cnn' if from_nothing else 'linear'}}}",
        "# The loss. Others for short lists and rare classes: noised_topk, average_k, logit_adjusted, ...",
        "loss: {name: cross_entropy}",
        f"optimizer: {{name: sgd, lr: {0.05 if from_nothing else 0.1}}}",
        f"epochs: {epochs}",
        f"batch_size: {32 if train < 2000 else 128}",
        *_selection_lines(k if classes >= _MANY_CLASSES else 1, from_nothing),
        *_set_lines(opened, k),
        "# Processes that load images; 0 loads them in the training process itself.",
        f"workers: {2 if from_nothing and train > 5000 else 0}",
    ]
    return "\n".join(lines) + "\n"


def _comment(sentence: str) -> list[str]:
    return wrap(
        f"{one_line(sentence[0].upper() + sentence[1:])}.", 100, initial_indent="# ", subsequent_indent="# "
    )


def _data(opened: Found, features: Features | None) -> dict[str, Any]:
    if features is not None:  # a split that the photos have not is drawn, a tenth as of photos
        return {"name": "embeddings", "root": str(features.folder), "val_fraction": 0.1}
    if not opened.are_images:
        return opened.data
    size = 32 if min(opened.input_shape) <= 40 else 64
    return {**opened.data, "image_size": size, "prepared": True}


def _set_lines(opened: Found, k: int) -> list[str]:
    predictors = default_predictors(k)
    lines = [
        "# The sets to make: k classes, k classes on average, and a promise. These are the defaults.",
        "# coverage: auto promises the highest of 90, 95, 98 and 99 % with at most 3 classes on average.",
    ]
    if opened.is_long_tailed:
        predictors["conformal"] |= {"rule": "macro", "macro": "true"}
        lines = [
            "# Class priors are divided out of the scores: rare classes count as much as frequent ones.",
            "adjust: {tau: 1}",
            "# The sets to make: k classes, k classes on average, and a promise about the average class",
            "# (rule: macro). coverage: auto promises the highest of 90, 95, 98 and 99 % with at most",
            "# 3 classes on average.",
        ]
    return [*lines, "predictors:", *(f"  {key}: {_in_line(value)}" for key, value in predictors.items())]


def _selection_lines(k: int, from_nothing: bool) -> list[str]:
    if not from_nothing:  # of easy features every epoch is right among k, and the first would be kept
        return [
            "schedule: {name: cosine}",
            "# The last epoch is kept, so that the validation rows choose no epoch. With a number in place",
            "# of auto as coverage they choose nothing, and the promise is exact.",
            "selection: {metric: last}",
        ]
    among = "in first place" if k == 1 else f"among {k} guesses"
    return [
        f"# The epoch is kept that has the right class most often {among}, as a mean over classes",
        "# (macro), on the validation rows.",
        f"selection: {{metric: macro_top{k}}}",
    ]


def _in_line(content: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in content.items()) + "}"


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.rstrip("\n").split("\n")]
