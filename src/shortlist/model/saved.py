"""Read the parts of a saved model back, without any code that it names."""

from pathlib import Path
from typing import Any

from torch import nn

import shortlist.model.files as files
from shortlist._messages import one_line
from shortlist.model.network import network_of
from shortlist.models.spec import NetworkSpec
from shortlist.preprocessing import Preprocessing

__all__ = ["read_parts"]


def read_parts(folder: Path, network: nn.Module | None) -> dict[str, Any]:
    """Return the arguments of :meth:`shortlist.Model.from_parts` that a folder holds.

    Args:
        folder: Folder with ``model.json``.
        network: Network to fill with the weights; the one that the folder describes if ``None``.

    Raises:
        ModelError: If a file is missing, damaged or of another format, or the network does not fit; the
            message names the file.
    """
    content = files.read_description(folder)
    with files.reading(folder / "model.json"):
        spec = None if content["network"] is None else NetworkSpec.from_dict(content["network"])
        prepared = content["preprocessing"]
        preprocessing = None if prepared is None else Preprocessing.from_dict(prepared)
    if network is None:
        try:
            network = network_of(spec)
        except Exception as error:  # nothing is damaged: only the caller, or a package, can make it
            why = one_line(error)
            raise files.ModelError(f"{folder / 'model.json'} alone does not make a network: {why}") from error
    files.read_network(folder, network)
    return {
        "network": network,
        "class_table": files.read_class_table(folder),
        "preprocessing": preprocessing,
        "score_map": files.read_score_map(folder),
        "predictors": files.read_predictors(folder, content["predictors"]),
        "promises": files.read_promises(folder),
        "novelty": files.read_novelty(folder),
        "head": content["head"],
        "classifier": content["classifier"],
        "spec": spec,
        "about": content["about"],
        "summary": files.read_summary(folder),
    }
