"""The finished model: preprocessing, network, score map, predictors and classes in one object."""

from shortlist.model.blocks import Block, loaded_blocks
from shortlist.model.card import FIGURE as CARD_FIGURE, card_files
from shortlist.model.choice import Choice
from shortlist.model.doctor import examine_model
from shortlist.model.exporting import LISTS_FORMAT, export_lists
from shortlist.model.files import (
    ModelError,
    description_of,
    model_folder,
    read_manifest,
    write_calibration,
    write_description,
    write_network,
    write_promises,
)
from shortlist.model.hashing import model_hash, model_version, network_hash
from shortlist.model.list_writers import (
    COLUMNS,
    COMMON_NAME,
    NODE_COLUMNS,
    NOVEL,
    Counts,
    Form,
    Item,
    check_suffix,
    open_lists,
)
from shortlist.model.listing import NodesAnswer, ShortList
from shortlist.model.model import Model
from shortlist.model.network import needs_code, network_by_name
from shortlist.model.next_photo import NextPhoto, NextPhotos
from shortlist.model.populations import keep_rows
from shortlist.model.saved import SavedModel
from shortlist.model.weights import WEIGHTS, Weights, round_weights

__all__ = [
    "WEIGHTS",
    "Block",
    "Choice",
    "Model",
    "ModelError",
    "ShortList",
    "export_lists",
    "keep_rows",
    "model_hash",
    "model_version",
    "needs_code",
    "network_by_name",
    "network_hash",
    "round_weights",
]
