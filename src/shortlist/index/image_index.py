"""The index of known images: those most like a photo, inside each candidate class."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import check_number
from shortlist.index.contents import Contents, Piece, id_of, open_contents, parse_id
from shortlist.index.manifest import NAME, check_model
from shortlist.index.segment import ImageIndexError, Segment
from shortlist.model import Model

# Numbers that are compared at a time: so few that torch takes one thread. Two threads, on cores that are
# busy otherwise, mostly wait for each other. It also bounds the memory of a class with very many images.
_BLOCK = 32_768


@dataclass(frozen=True)
class SimilarImage:
    """A known image of a class.

    Args:
        id: Id of the image in the index, for :meth:`ImageIndex.thumbnail`; it says nothing about files.
        class_index: Class of the image.
        similarity: Cosine similarity of its features to those of the photo.
        author: Author, or an empty text if the data do not say; so for all that follow.
        license: License.
        source: Where it comes from, such as an address.
        date: Date.
        organ: What part of the object it shows.
        observation: Id of the observation that it belongs to.
    """

    id: str
    class_index: int
    similarity: float
    author: str = ""
    license: str = ""
    source: str = ""
    date: str = ""
    organ: str = ""
    observation: str = ""


_ABOUT = ("author", "license", "source", "date", "organ", "observation")


def unit_vectors(features: Tensor) -> Tensor:
    """Scale features (n, d) to length 1, in float32 on the CPU; those of length 0 stay as they are."""
    return torch.nn.functional.normalize(features.detach().to("cpu", torch.float32), dim=1)


class ImageIndex:
    """An index of known images, opened to be read; several threads may use it at once.

    The vectors stay on disk: a search reads those of the candidate classes, and compares them with one matrix
    product for each class. What is read is checked the first time.

    Example:
        ``index = ImageIndex.open("runs/plants/index")``, then
        ``index.similar(model.features(model.prepare(["photo.jpg"]))[0], classes=[3, 17], limit=5)``.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._stamp = self._new_stamp()
        self._contents = self._open({})

    @staticmethod
    def open(folder: str | Path, *, model: Model | None = None) -> "ImageIndex":
        """Open an index.

        Args:
            folder: Folder that ``shortlist index`` or :func:`~shortlist.index.build_index` made.
            model: Model that the index must have been made with; see :meth:`check_model`.

        Raises:
            ImageIndexError: If it is not an index, is not finished, or a file is missing or damaged.
        """
        index = ImageIndex(folder)
        if model is not None:
            index.check_model(model)
        return index

    def _open(self, ready: Mapping[str, Segment]) -> Contents:
        contents = open_contents(self.folder, ready)
        if not contents.manifest.whole:
            raise ImageIndexError(
                f"{self.folder} is not finished: shortlist index was stopped, or is still running. "
                "Give the same command again"
            )
        return contents

    def _new_stamp(self) -> tuple[int, int, int] | None:
        try:
            state = os.stat(self.folder / NAME)
        except OSError:
            return None  # opening it says what is wrong
        return state.st_ino, state.st_mtime_ns, state.st_size

    def refresh(self) -> bool:
        """Follow what was appended, deleted or compacted since, and return whether anything was.

        If nothing was, this takes one look at the manifest; otherwise only new segments are opened.
        """
        stamp = self._new_stamp()
        if stamp is not None and stamp == self._stamp:
            return False
        ready = {segment.path.name: segment for segment in self._contents.segments}
        self._contents = self._open(ready)  # in one step: other threads have the old contents or the new
        self._stamp = stamp
        return True

    def check_model(self, model: Model) -> None:
        """Refuse a model whose features are not comparable with those of the index."""
        check_model(self._contents.manifest, model, self.folder)

    def __len__(self) -> int:
        return int(self.classes.sum())

    @property
    def classes(self) -> Tensor:
        """Number of images of each class (c,), int64."""
        return torch.from_numpy(self._contents.counts.copy())

    @property
    def dimension(self) -> int:
        """Length of the feature vectors."""
        return self._contents.manifest.dimension

    def similar(self, features: Tensor, classes: Sequence[int], limit: int) -> list[list[SimilarImage]]:
        """Return the images of each class that are most like a photo, or several photos of one object.

        The search is exact. The similarity is the cosine of the features, and with several photos the largest
        over them: an image that is like one of the photos is found, whatever the others show. Of images that
        are equally similar, the one with the smaller id comes first.

        Args:
            features: Features of a photo (d,), or of several photos of one object (n, d).
            classes: Indices of the candidate classes.
            limit: Largest number of images of each class.

        Returns:
            For each class its images, the most similar first; none if it has none.
        """
        contents = self._contents
        queries = self._queries(features, contents)
        check_number("limit", limit, low=0)
        return [self._best(contents, queries, self._class(contents, index), limit) for index in classes]

    def examples(self, class_index: int, limit: int) -> list[SimilarImage]:
        """Return typical images of a class: those nearest to the mean of the class, the nearest first."""
        contents = self._contents
        check_number("limit", limit, low=0)
        if not contents.counts[self._class(contents, class_index)]:
            return []
        mean = unit_vectors(contents.class_means[class_index][None])
        return self._best(contents, mean, class_index, limit)

    def class_means(self) -> Tensor:
        """Return the mean of the unit vectors of each class (c, d), float32; NaN for classes without images.

        They are sums that the segments keep, so that no vector is read but those of deleted images.
        """
        return self._contents.class_means

    def nearest_distance(self, features: Tensor) -> Tensor:
        """Return the cosine distance of features (n, d) to the nearest class mean (n,), between 0 and 2.

        It is a strangeness score: large for photos unlike every class.
        """
        contents = self._contents
        queries = self._queries(features, contents)
        means = contents.class_means[torch.from_numpy(contents.counts > 0)]
        if not len(means):
            raise ImageIndexError(f"{self.folder} has no images: there are no class means")
        return 1 - (queries @ unit_vectors(means).T).amax(1)

    def thumbnail(self, image_id: str) -> bytes:
        """Return the thumbnail of an image, a JPEG whose longest side is at most 320 pixels.

        Raises:
            KeyError: If there is no such image.
            ImageIndexError: If it is damaged.
        """
        segment, slot, place = self._find(image_id)
        return segment.thumbnail(slot, place)

    def vector(self, image_id: str) -> np.ndarray:
        """Return the features of an image (d,), float16 of length 1.

        Raises:
            KeyError: If there is no such image.
            ImageIndexError: If it is damaged.
        """
        segment, slot, place = self._find(image_id)
        return segment.vectors(slot)[place].numpy()

    def _find(self, image_id: str) -> tuple[Segment, int, int]:
        parsed = parse_id(image_id)
        place_of_image = None if parsed is None else self._contents.find(*parsed)
        if place_of_image is None:
            raise KeyError(image_id)
        return place_of_image

    def verify(self) -> list[str]:
        """Check every file against the manifest, and return the names of those that are not as it says.

        All of the index is read. A search checks only what it uses.
        """
        from shortlist.index.doctor import damaged_files

        return sorted(damaged_files(self.folder, self._contents.manifest))

    def _class(self, contents: Contents, index: int) -> int:
        if not 0 <= index < len(contents.counts):
            raise ValueError(f"classes must be >= 0 and < {len(contents.counts)}, got {index}")
        return int(index)

    def _queries(self, features: Tensor, contents: Contents) -> Tensor:
        features = features[None] if features.ndim == 1 else features
        dimension = contents.manifest.dimension
        if features.ndim != 2 or not len(features) or features.shape[1] != dimension:
            shape = tuple(features.shape)
            raise ValueError(f"features must be of shape ({dimension},) or (n, {dimension}), got {shape}")
        if not features.isfinite().all():
            raise ValueError("features must be finite numbers, got NaN or infinity")
        return unit_vectors(features)

    def _best(self, contents: Contents, queries: Tensor, class_index: int, limit: int) -> list[SimilarImage]:
        best = [entry for piece in contents.pieces(class_index) for entry in _best_of(piece, queries, limit)]
        best.sort(key=lambda entry: entry[:2])
        return [_image(class_index, *entry) for entry in best[:limit]]


def _best_of(piece: Piece, queries: Tensor, limit: int) -> list[tuple[float, bytes, Segment, int, int]]:
    """Return the best of a piece as (negative similarity, digest, segment, slot, place)."""
    segment, slot, dead = piece
    vectors, digests = segment.vectors(slot), segment.digests(slot)
    size = max(1, _BLOCK // vectors.shape[1])
    with torch.inference_mode():
        products = torch.cat([block.float() @ queries.T for block in vectors.split(size)])
        negative = -products.numpy().max(1)
    negative[dead] = np.inf
    # rows are in the order of their digests, and a stable sort keeps it among equal ones
    order = np.argsort(negative, kind="stable")[: min(limit, len(vectors) - len(dead))]
    best = zip(negative[order].tolist(), order.tolist(), strict=True)
    return [(value, bytes(digests[place]), segment, slot, place) for value, place in best]


def _image(
    class_index: int, negative: float, digest: bytes, segment: Segment, slot: int, place: int
) -> SimilarImage:
    about: Any = segment.about(slot, place)
    fields = {name: about[name] for name in _ABOUT if name in about}
    similarity = min(1.0, max(-1.0, -negative))  # of float16 vectors, whose length is nearly 1
    return SimilarImage(id_of(class_index, digest), class_index, similarity, **fields)
