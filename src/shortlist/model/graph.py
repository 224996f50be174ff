"""A finished model as one graph, from prepared inputs to scores, probabilities and sets, for export."""

import importlib.util
import warnings
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from shortlist._store.files import replacing
from shortlist.models import NetworkSpec, head_scores
from shortlist.predictors import SetPredictor
from shortlist.preprocessing import Preprocessing
from shortlist.scores import ScoreMap

HeadChoice = Literal["set", "proposal"]


class ModelGraph(nn.Module):
    """A module from prepared inputs (n, ...) to scores, probabilities and, with a predictor, sets."""

    def __init__(
        self,
        network: nn.Module,
        head: HeadChoice,
        score_map: ScoreMap,
        to_shown: ScoreMap,
        predictor: SetPredictor | None,
    ) -> None:
        super().__init__()
        self.network, self.score_map, self.to_shown, self.predictor = network, score_map, to_shown, predictor
        self.head: HeadChoice = head

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the scores (n, c), probabilities (n, c), and sets (n, c) if there is a predictor."""
        scores = self.score_map(head_scores(self.network(inputs), self.head))
        probabilities = self.to_shown(scores).softmax(1)
        if self.predictor is None:
            return scores, probabilities
        return scores, probabilities, self.predictor(scores)


def known_shape(spec: NetworkSpec | None, preprocessing: Preprocessing | None) -> tuple[int, ...] | None:
    """Return the shape of one input, where a specification or a preprocessing tells it."""
    if spec is not None:
        return tuple(spec.input_shape)
    return None if preprocessing is None else preprocessing.shape


def example_inputs(spec: NetworkSpec | None, preprocessing: Preprocessing | None) -> Tensor:
    """Return inputs (2, ...) of the shape and type that a specification or a preprocessing tells."""
    shape = known_shape(spec, preprocessing)
    if shape is None:
        raise ValueError(
            "batch must be given for a model that knows no shape of its inputs, got None: pass some prepared "
            "inputs (n, ...), export_onnx(path, batch=inputs[:2])"
        )
    of_bytes = preprocessing is not None and preprocessing.pixels == "bytes"
    return torch.zeros(2, *shape, dtype=torch.uint8 if of_bytes else torch.float32)


def export_onnx(graph: ModelGraph, batch: Tensor, path: str | Path) -> None:
    """Write a graph as one ONNX file for any number of rows, completely or not at all.

    Args:
        graph: Graph in evaluation mode.
        batch: Inputs (n, ...) that show their shape and type.
        path: Path of the file.
    """
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"export needs {package}: pip install 'shortlist[export]'")
    if len(batch) < 2:  # a graph of one row is one for one row only
        batch = torch.cat([batch, batch])
    names = ["scores", "probabilities", "sets"][: 2 if graph.predictor is None else 3]
    with warnings.catch_warnings(), torch.no_grad(), replacing(path) as temporary:
        warnings.simplefilter("ignore")  # of the exporter's own parts
        program = torch.export.export(graph, (batch,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        made = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=["inputs"], output_names=names
        )
        if made is None:
            raise RuntimeError("torch.onnx.export returned no program")
        made.save(temporary, external_data=False)
