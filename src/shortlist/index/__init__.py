"""Similar known images of each candidate class: an index on disk, searched exactly inside each class.

To build one needs ``pip install 'shortlist[photos]'``, from a run's own data ``'shortlist[train]'``.
"""

from shortlist.index.build import BuildCounts, add_images, build_index
from shortlist.index.doctor import examine_index
from shortlist.index.image_index import ImageIndex, SimilarImage
from shortlist.index.manifest import NAME
from shortlist.index.segment import ImageIndexError, NewRows
from shortlist.index.sources import FileSource, TensorSource, source_of_images, source_of_run
from shortlist.index.writer import IndexWriter

__all__ = [
    "BuildCounts",
    "FileSource",
    "ImageIndex",
    "ImageIndexError",
    "IndexWriter",
    "NewRows",
    "SimilarImage",
    "TensorSource",
    "add_images",
    "build_index",
    "source_of_images",
    "source_of_run",
]
