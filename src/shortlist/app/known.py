"""Known images of each class for an app, packed in one file with their features."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.index import ImageIndex

_FACTS = ("author", "license", "source", "date", "organ")


def write_known(folder: Path, index: ImageIndex, number: int) -> int:
    """Write the most typical images of each class, ``known.bin`` and ``known.json``; return how many.

    ``known.bin`` has the features of all images (n, d), float16 of length 1, and then their JPEGs one after
    the other. ``known.json`` says of each image its class, the bytes of its JPEG and what is known of it.
    """
    images: list[Any] = []
    vectors, thumbnails = [], []
    for class_index, count in enumerate(index.classes.tolist()):
        for image in index.examples(class_index, min(number, count)):
            thumbnails.append(index.thumbnail(image.id))
            vectors.append(index.vector(image.id))
            facts = {name: value for name in _FACTS if (value := getattr(image, name))}
            images.append([class_index, len(thumbnails[-1]), facts])
    packed = np.asarray(vectors, dtype="<f2").reshape(-1, index.dimension)
    (folder / "known.bin").write_bytes(packed.tobytes() + b"".join(thumbnails))
    content = {"dimension": index.dimension, "images": images}
    (folder / "known.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return len(images)
