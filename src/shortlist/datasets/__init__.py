"""Data sets: an embedded one, synthetic ones with a known Bayes limit, and published ones on disk.

Needs ``pip install 'shortlist[photos]'``.
"""

from shortlist.datasets.about import About, about_of_data
from shortlist.datasets.assembly import assemble
from shortlist.datasets.cifar import cifar10, cifar10_lt, cifar100, cifar100_lt
from shortlist.datasets.embeddings import (
    EMBEDDINGS_FORMAT,
    MANIFEST,
    embedding_files,
    embeddings,
    read_manifest,
    split_of_file,
)
from shortlist.datasets.folders import image_folder
from shortlist.datasets.gaussians import (
    TWO_GAUSSIANS_BALANCED_ERROR,
    draw_two_gaussians,
    gaussian_genera,
    two_gaussians,
)
from shortlist.datasets.glyphs import glyphs, glyphs_full
from shortlist.datasets.idx import fashion_mnist
from shortlist.datasets.imagenet import imagenet, imagenet_lt
from shortlist.datasets.images import ImageFiles, PathList, why_unreadable
from shortlist.datasets.inaturalist import inaturalist2018
from shortlist.datasets.label_sets import LabelPairs, training_rows
from shortlist.datasets.lists import image_list, image_lists
from shortlist.datasets.loaders import evaluation_loader, training_loader
from shortlist.datasets.noise import alphabetical_blocks, redraw_within_groups
from shortlist.datasets.partition import first_rows, proportional_split, rank_within_class, share_of
from shortlist.datasets.pictures import data_uri, row_image
from shortlist.datasets.plantnet import genera_of, plantnet300k
from shortlist.datasets.preparation import preprocessing_of
from shortlist.datasets.registry import DATASETS, DatasetInfo, data_at, dataset_info
from shortlist.datasets.sampling import ClassBalancedSampler, DeferredReweighting
from shortlist.datasets.saved import ARRAYS, are_arrays, saved_rows
from shortlist.datasets.splits import (
    ChangedSplit,
    Split,
    Splits,
    TensorSplit,
    facts_of,
    have_same_rows,
    unchanged,
)
from shortlist.datasets.tensor_files import SUFFIXES
from shortlist.datasets.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    EvalTransform,
    TrainTransform,
    image_to_tensor,
)

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
    "dataset_info",
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
