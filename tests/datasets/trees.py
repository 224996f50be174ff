"""Writes small trees of files in the layouts of the real data sets."""

import gzip
import json
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def image(path: Path, *, seed: int = 0, size: tuple[int, int] = (24, 20)) -> Path:
    """A random image, smooth enough to survive JPEG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def truncate(path: Path) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def class_folders(root: Path, counts: dict[str, int], *, suffix: str = ".jpg", seed: int = 0) -> None:
    for name, count in counts.items():
        for i in range(count):
            image(root / name / f"image {i}{suffix}", seed=seed)
            seed += 1


def cifar100(root: Path, *, per_class: int = 6, test_per_class: int = 2, classes: int = 10) -> None:
    """As on disk, with two classes per superclass: protocol 2, bytes keys."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, count in {"train": per_class, "test": test_per_class}.items():
        fine = np.tile(np.arange(classes), count)
        rng.shuffle(fine)
        # the class is readable from each image: a constant
        data = np.repeat(fine[:, None], 3072, axis=1).astype(np.uint8)
        content = {
            b"filenames": [b"x.png"] * len(fine),
            b"batch_label": b"batch",
            b"fine_labels": fine.tolist(),
            b"coarse_labels": (fine // 2).tolist(),
            b"data": data,
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    meta = {
        b"fine_label_names": [f"fine {c}".encode() for c in range(classes)],
        b"coarse_label_names": [f"coarse {c}".encode() for c in range(classes // 2)],
    }
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))


def cifar10(root: Path, *, per_class: int = 2) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        labels = np.tile(np.arange(10), per_class)
        data = np.repeat(labels[:, None], 3072, axis=1).astype(np.uint8)
        content = {"data": data, "labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    names = {"label_names": [f"thing {c}" for c in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names))


def idx(path: Path, array: np.ndarray) -> None:
    data = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    data += array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def fashion_mnist(root: Path, *, suffix: str = ".gz") -> None:
    for part, count in {"train": 5, "t10k": 2}.items():
        labels = np.tile(np.arange(10), count)
        images = np.broadcast_to((labels * 20)[:, None, None], (len(labels), 28, 28))
        idx(root / f"{part}-images-idx3-ubyte{suffix}", images)
        idx(root / f"{part}-labels-idx1-ubyte{suffix}", labels)


SPECIES = {"1355868": "Lactuca virosa L.", "1355870": "Lactuca muralis", "99": "Œnothera été"}


def plantnet(root: Path, *, missing_from_val: str = "") -> None:
    """Two species of one genus and one of another; names with accents."""
    metadata, seed = {}, 0
    for part, count in {"train": 4, "val": 1, "test": 1}.items():
        for species in SPECIES:
            (root / part / species).mkdir(parents=True, exist_ok=True)
            for i in range(0 if part == "val" and species == missing_from_val else count):
                name = f"{part}{species}{i}"
                image(root / part / species / f"{name}.jpg", seed=seed)
                seed += 1
                metadata[name] = {"species_id": species, "organ": "leaf", "author": "Zoë", "split": part}
    (root / "plantnet300K_species_id_2_name.json").write_text(json.dumps(SPECIES), encoding="utf-8")
    (root / "plantnet300K_metadata.json").write_text(json.dumps(metadata), encoding="utf-8")


def inaturalist(root: Path) -> None:
    categories = [
        {"id": 1, "name": "Quercus ilex", "supercategory": "Plantae", "genus": "Quercus"},
        {"id": 0, "name": "Bufo bufo", "supercategory": "Amphibia", "genus": "Bufo"},
    ]
    (root / "categories.json").parent.mkdir(parents=True, exist_ok=True)
    (root / "categories.json").write_text(json.dumps(categories))
    seed = 0
    for part, count in {"train2018": 4, "val2018": 3}.items():
        images, annotations = [], []
        for category in (0, 1):
            for i in range(count):
                name = f"train_val2018/Super/{category}/{part}{i}.jpg"
                image(root / name, seed=seed)
                images.append({"id": seed, "file_name": name, "width": 24, "height": 20})
                annotations.append({"id": seed, "image_id": seed, "category_id": category})
                seed += 1
        short = [{"id": 0, "name": "0", "supercategory": "A"}, {"id": 1, "name": "1", "supercategory": "P"}]
        content = {"images": images[::-1], "annotations": annotations, "categories": short}
        (root / f"{part}.json").write_text(json.dumps(content))
