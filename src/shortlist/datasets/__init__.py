"""Data sets: an embedded one, synthetic ones with a known limit, and the published ones by path.

Needs ``pip install 'shortlist[data]'``.
"""

from collections.abc import Callable

from shortlist.datasets.cifar import cifar10, cifar10_lt, cifar100, cifar100_lt
from shortlist.datasets.embeddings import embeddings
from shortlist.datasets.folders import image_folder
from shortlist.datasets.gaussians import gaussian_genera, two_gaussians
from shortlist.datasets.glyphs.dataset import glyphs, glyphs_full
from shortlist.datasets.idx import fashion_mnist
from shortlist.datasets.imagenet import imagenet, imagenet_lt
from shortlist.datasets.inaturalist import inaturalist2018
from shortlist.datasets.lists import image_list, image_lists
from shortlist.datasets.plantnet import plantnet300k
from shortlist.datasets.splits import ChangedSplit, Split, Splits, TensorSplit

__all__ = [
    "DATASETS",
    "ChangedSplit",
    "Split",
    "Splits",
    "TensorSplit",
    "cifar10",
    "cifar10_lt",
    "cifar100",
    "cifar100_lt",
    "embeddings",
    "fashion_mnist",
    "gaussian_genera",
    "glyphs",
    "glyphs_full",
    "image_folder",
    "image_list",
    "image_lists",
    "imagenet",
    "imagenet_lt",
    "inaturalist2018",
    "plantnet300k",
    "two_gaussians",
]

DATASETS: dict[str, Callable[..., Splits]] = {
    "glyphs": glyphs,
    "glyphs_full": glyphs_full,
    "gaussian_genera": gaussian_genera,
    "two_gaussians": two_gaussians,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "cifar10_lt": cifar10_lt,
    "cifar100_lt": cifar100_lt,
    "fashion_mnist": fashion_mnist,
    "plantnet300k": plantnet300k,
    "imagenet": imagenet,
    "imagenet_lt": imagenet_lt,
    "inaturalist2018": inaturalist2018,
    "embeddings": embeddings,
    "image_folder": image_folder,
    "image_list": image_list,
    "image_lists": image_lists,
}
