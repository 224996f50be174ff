"""Small models, vectors and images for the tests of the index, and its slow oracle."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from shortlist import ClassTable, Model
from shortlist.index import ImageIndex, IndexWriter, NewRows
from shortlist.preprocessing import Preprocessing

CLASSES, DIMENSION = 6, 5
SMALL = Preprocessing(height=8, width=8, resize=None, mean=(0.5,) * 3, std=(0.25,) * 3)


def projection_model(seed: int = 0, *, dimension: int = DIMENSION) -> Model:
    """A network whose features are a fixed projection of the pixels."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, dimension), nn.Linear(dimension, CLASSES))
    table = ClassTable([f"class {c}" for c in range(CLASSES)], [f"c{c}" for c in range(CLASSES)])
    return Model.from_parts(network, table, preprocessing=SMALL, classifier="2")


def make_rows(count: int, seed: int, *, dimension: int = DIMENSION, classes: int = CLASSES) -> NewRows:
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(count, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    digests = np.array([generator.bytes(16) for _ in range(count)], dtype="S16")
    about = [b'{"author": "author %d %d"}' % (seed, row) for row in range(count)]
    thumbnails = [b"\xff\xd8 thumbnail %d %d" % (seed, row) for row in range(count)]
    chosen = generator.integers(0, classes - 1, count)  # the last class has no images
    return NewRows(chosen, digests, vectors.astype(np.float16), about, thumbnails)


def start(folder: Path, *parts: NewRows, model: Model | None = None) -> Path:
    """Make an index with a segment of each split."""
    with IndexWriter.open(folder, model=model or projection_model()) as writer:
        for rows in parts:
            writer.append(rows)
        writer.finish()
    return folder


def name_of(class_index: int, digest: bytes) -> str:
    return f"{class_index}-{digest.ljust(16, bytes(1)).hex()}"


def brute_force(
    parts: list[NewRows], queries: Tensor, class_index: int, gone: set[str] = frozenset()
) -> list[tuple[str, float, str]]:
    """All images of a class by loops in float64: (id, similarity, author), the most similar first."""
    found = []
    for rows in parts:
        for row in range(len(rows)):
            name = name_of(class_index, bytes(rows.digests[row]))
            if rows.classes[row] != class_index or name in gone:
                continue
            vector = rows.vectors[row].astype(np.float64)
            cosines = []
            for query in queries.double().reshape(-1, len(vector)).numpy():
                cosines.append(float(vector @ (query / np.linalg.norm(query))))
            author = rows.about[row].decode().split('"')[3]
            found.append((name, max(cosines), author))
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))


def check_equal_to_brute_force(
    index: ImageIndex, parts: list[NewRows], gone: set[str] = frozenset(), *, limit: int = 7, seed: int = 5
) -> None:
    generator = torch.Generator().manual_seed(seed)
    for photos in (1, 1, 3):
        queries = torch.randn(photos, index.dimension, generator=generator)
        classes = list(range(len(index.classes)))
        found = index.similar(queries[0] if photos == 1 else queries, classes, limit)
        for class_index, images in zip(classes, found, strict=True):
            expected = brute_force(parts, queries, class_index, gone)
            assert int(index.classes[class_index]) == len(expected)
            assert [(one.id, one.author) for one in images] == [(e[0], e[2]) for e in expected[:limit]]
            for one, (_, similarity, _) in zip(images, expected, strict=False):
                assert abs(one.similarity - similarity) < 1e-5 and one.class_index == class_index


def jpeg(seed: int, *, size: tuple[int, int] = (40, 30), **options) -> bytes:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(written, "JPEG", **options)
    return written.getvalue()
