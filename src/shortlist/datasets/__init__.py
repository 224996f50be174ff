"""Data sets: an embedded one, synthetic ones with a known Bayes limit, and published ones on disk.

Needs ``pip install 'shortlist[data]'``.
"""

from shortlist.datasets.cifar import cifar10, cifar10_lt, cifar100, cifar100_lt
from shortlist.datasets.embeddings import embeddings
from shortlist.datasets.folders import image_folder
from shortlist.datasets.gaussians import gaussian_genera, two_gaussians
from shortlist.datasets.glyphs import glyphs, glyphs_full
from shortlist.datasets.idx import fashion_mnist
from shortlist.datasets.imagenet import imagenet, imagenet_lt
from shortlist.datasets.inaturalist import inaturalist2018
from shortlist.datasets.lists import image_list, image_lists
from shortlist.datasets.plantnet import plantnet300k
from shortlist.datasets.registry import DATASETS, DatasetInfo
from shortlist.datasets.splits import ChangedSplit, Split, Splits, TensorSplit

__all__ = [
    "DATASETS",
    "ChangedSplit",
    "DatasetInfo",
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
