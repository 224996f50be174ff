"""Fashion-MNIST and other sets in the IDX format."""

import gzip
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from shortlist._messages import missing
from shortlist.class_table import ClassTable
from shortlist.datasets.partition import balanced_split
from shortlist.datasets.splits import Splits, TensorSplit
from shortlist.datasets.transforms import BatchTransform

NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
HELP = (
    "Get the four files of Fashion-MNIST from Zalando Research's repository of that name and put them, "
    "compressed or not, into one folder: train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], "
    "t10k-images-idx3-ubyte[.gz], t10k-labels-idx1-ubyte[.gz]."
)


def read_idx(path: str | Path) -> Tensor:
    """Read an IDX file of bytes, compressed by gzip or not, as a uint8 tensor.

    Raises:
        ValueError: The file is cut short, or is no IDX file of bytes.
    """
    data = Path(path).read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        zero, kind, axes = struct.unpack(">HBB", data[:4])
        if zero or kind != 8:
            raise OSError(f"it starts with {data[:4].hex()}, not with 000008")
        shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise ValueError(f"{path} is cut short or no IDX file of bytes: {error}") from error
    expected = 4 + 4 * axes + torch.Size(shape).numel()
    if len(data) != expected:
        raise ValueError(f"{path} must hold {expected} bytes for shape {tuple(shape)}, got {len(data)}")
    return torch.frombuffer(bytearray(data[4 + 4 * axes :]), dtype=torch.uint8).view(shape)


def _find(root: Path, name: str) -> Path:
    for folder in (root, root / "FashionMNIST" / "raw", root / "fashion-mnist"):
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise missing(root / name, HELP)


def fashion_mnist(root: str | Path, *, val_size: int = 5000, seed: int = 0, augment: bool = False) -> Splits:
    """Open Fashion-MNIST: 10 classes of clothes, gray 28 x 28 images, 60,000 to train on, 10,000 to test.

    On disk: the four IDX files, with or without ``.gz``, in ``<root>`` (or ``<root>/FashionMNIST/raw``, where
    torchvision puts them).

    Args:
        root: Folder of the files.
        val_size: Number of validation images, equally many of each class, taken from the training images.
        seed: Seed of the draw.
        augment: Whether to crop (padding 4) and flip training images at random. All images are normalized,
            float32.

    Raises:
        FileNotFoundError: A file is missing; the message says where to get it.
        ValueError: A file is not of this format.
    """
    root = Path(root)
    parts = {}
    for part in ("train", "t10k"):
        images = read_idx(_find(root, f"{part}-images-idx3-ubyte"))
        labels = read_idx(_find(root, f"{part}-labels-idx1-ubyte"))
        if images.ndim != 3 or labels.shape != images.shape[:1] or int(labels.max()) >= len(NAMES):
            raise ValueError(
                f"{root}: {part} images and labels do not belong together: {tuple(images.shape)} and "
                f"{tuple(labels.shape)}, labels up to {int(labels.max())}"
            )
        parts[part] = (images[:, None], labels.long())
    images, labels = parts["train"]
    kept, held = balanced_split(labels, val_size=val_size, generator=torch.Generator().manual_seed(seed))
    mean, std = (0.2860,), (0.3530,)
    plain = BatchTransform(mean=mean, std=std)
    return Splits(
        TensorSplit(
            images[kept], labels[kept], transform=BatchTransform(mean=mean, std=std, augment=augment)
        ),
        TensorSplit(images[held], labels[held], transform=plain),
        TensorSplit(*parts["t10k"], transform=plain),
        ClassTable(NAMES, counts=labels[kept].bincount(minlength=len(NAMES)).tolist()),
    )
