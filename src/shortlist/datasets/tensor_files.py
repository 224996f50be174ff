"""Files of tensors that people give: scores or embeddings, as ``.safetensors``, ``.npz`` or ``.pt``."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._messages import missing

SUFFIXES = (".safetensors", ".npz", ".pt", ".p")
HELP = (
    "Expected train, val and test files in one folder, each .safetensors, .npz or .pt with an array "
    "'embeddings' (n, d) and an array 'targets' (n,), or one such file with 'train_embeddings', "
    "'train_targets', 'test_embeddings' and so on. Make them with shortlist embed, or with "
    "shortlist.datasets.embeddings.save_embeddings from any frozen network's features; the images of "
    "ImageNet-21K-P are at image-net.org, its list of classes in the repository of Ridnik and others, "
    "'ImageNet-21K Pretraining for the Masses'."
)


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a ``.safetensors``, ``.npz``, ``.pt`` or ``.p`` file; no file can run code.

    Those of ``.safetensors`` and of what ``torch.save`` wrote (``.pt``, ``.p``) are mapped: the system reads
    what of them is used. The one array of a ``.npy`` file has no name: it is taken for ``embeddings``.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not of the format its suffix says, or holds something else than tensors.
    """
    path = Path(path)
    if not path.is_file():
        raise missing(path, HELP)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        if path.suffix == ".npz":
            import numpy as np

            with np.load(path, allow_pickle=False) as arrays:
                return {name: _tensor_of(name, arrays[name]) for name in arrays.files}
        if path.suffix == ".npy":
            import numpy as np

            return {"embeddings": _tensor_of("embeddings", np.load(path, allow_pickle=False))}
        if path.suffix in (".pt", ".p"):
            mapped = zipfile.is_zipfile(path)  # those of old versions of PyTorch cannot be
            content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
            if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
                raise TypeError("it holds no dictionary of tensors")
            return content
    except Exception as error:  # each format has errors of its own
        raise ValueError(f"{path} cannot be read as {path.suffix}: {' '.join(str(error).split())}") from error
    raise ValueError(f"{path} must end in {', '.join(SUFFIXES)}, got {path.suffix!r}")


def _tensor_of(name: str, array: Any) -> Tensor:
    if array.dtype.kind in "US":
        raise TypeError(
            f"the array {name!r} holds text: number the classes from 0, and put their names into a "
            "class_table.json beside it"
        )
    return torch.from_numpy(array)
