"""A finished model as one graph, from pictures or prepared inputs to scores, probabilities and sets."""

import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from shortlist._checks import promote
from shortlist._messages import one_line
from shortlist._store.files import replacing
from shortlist.model.inputs import Rows, inputs_for
from shortlist.model.picture_graph import INPUTS, PICTURE, picture_graph
from shortlist.models import NetworkSpec, classifier_name, head_scores, output_and_features
from shortlist.predictors import NoveltyDetector, SetPredictor
from shortlist.preprocessing import Preprocessing
from shortlist.scores import ScoreMap

if TYPE_CHECKING:
    from onnx import ModelProto

    from shortlist.model.model import Model

HeadChoice = Literal["set", "proposal"]
_FEATURES, _NOVEL = "features", "novel"


class ModelGraph(nn.Module):
    """A module from prepared inputs (n, ...) to scores (n, c), probabilities (n, c), and what is asked for.

    Args:
        network: Network from inputs to scores.
        head: Its head to predict from.
        score_map: Map from its scores to log-posteriors.
        shown: What is added to these before the softmax that is shown (c,); nothing if ``None``.
        predictors: Predictors by the name of the output for their sets (n, c).
        classifier: Name of the classifier whose features (n, d) are an output; none if ``None``.
        novelty: Detector whose flags (n,) are an output; none if ``None``.
    """

    def __init__(
        self,
        network: nn.Module,
        head: HeadChoice,
        score_map: ScoreMap,
        shown: Tensor | None,
        predictors: Mapping[str, SetPredictor],
        *,
        classifier: str | None = None,
        novelty: NoveltyDetector | None = None,
    ) -> None:
        super().__init__()
        self.network, self.score_map = network, score_map
        self.register_buffer("shown", shown)
        self.predictors, self.novelty = nn.ModuleDict(predictors), novelty
        self.head: HeadChoice = head
        self.classifier = classifier

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in order."""
        features, novel = [_FEATURES] * (self.classifier is not None), [_NOVEL] * (self.novelty is not None)
        return ["scores", "probabilities", *self.predictors, *features, *novel]

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return what :attr:`outputs` names."""
        features = None
        if self.classifier is None:
            output = self.network(inputs)
        else:
            output, features = output_and_features(self.network, inputs, name=self.classifier)
            features = promote(features)
        scores = self.score_map(head_scores(output, self.head))
        shown = scores if self.shown is None else scores + self.shown
        made = [scores, shown.softmax(1), *(each(scores) for each in self.predictors.values())]
        made += [] if features is None else [features]
        if self.novelty is not None:
            made.append(self.novelty.flag(scores=scores, features=features))
        return tuple(made)


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


def features_name(network: nn.Module, name: str | None) -> str | None:
    """Return the name of the classifier whose features can be exported; ``None`` if it cannot be found."""
    try:
        return classifier_name(network, name)
    except ValueError:
        return None


class _Part(nn.Module):
    """A part as it is in a graph: some cannot be exported alone."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, *given: Tensor) -> Tensor:
        return self.part(*given)


def why_not(part: nn.Module, *example: Tensor) -> str | None:
    """Return why a predictor or a detector cannot be part of a graph; ``None`` if it can."""
    rows = torch.export.Dim("rows")
    shapes = (tuple({0: rows} for _ in example),)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.export.export(_Part(part), example, dynamic_shapes=shapes)
    except Exception as error:  # of whatever kind the exporter's is
        return one_line(error)
    return None


def onnx_of(
    model: "Model",
    predictors: Mapping[str, SetPredictor],
    *,
    batch: Rows | None = None,
    pictures: bool = False,
    classifier: str | None = None,
    novelty: bool = False,
) -> "ModelProto":
    """Return a model in ONNX, from prepared inputs on, or from a picture.

    Args:
        model: A model whose scores have a known meaning.
        predictors: Predictors whose sets are outputs, by the name of the output.
        batch: Inputs (n, ...) that show their shape and type; see :meth:`Model.export_onnx`.
        pictures: Whether it takes a picture.
        classifier: Name of the classifier whose features are an output; none if ``None``.
        novelty: Whether the flags of the detector of strangers are an output.
    """
    if pictures and model.preprocessing is None:
        raise ValueError(
            "pictures must be false for a model without preprocessing, got true: it takes inputs"
        )
    batch = example_inputs(model.spec, model.preprocessing) if batch is None else batch
    model.scores(batch)  # which says what is wrong with it
    graph = ModelGraph(
        model.network,
        model.head,
        model.score_map,
        shift_of_shown(model),
        predictors,
        classifier=classifier,
        novelty=model.novelty if novelty else None,
    ).eval()
    made = _exported(graph, inputs_for(model.network, model.device, batch).contiguous())
    return _of_pictures(made, model.preprocessing) if pictures and model.preprocessing else made


def shift_of_shown(model: "Model") -> Tensor | None:
    """Return what is added to the scores of a model before the softmax that is shown (c,), if anything."""
    shown = model.shown(torch.zeros(1, len(model.classes)))
    return None if shown is None or not bool(shown.any()) else shown[0].clone()


def _exported(graph: ModelGraph, batch: Tensor) -> "ModelProto":
    """Return a graph of any number of rows in ONNX; a batch (n, ...) shows their shape and type."""
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"export needs {package}: pip install 'shortlist[export]'")
    if len(batch) < 2:  # a graph of one row is one for one row only
        batch = torch.cat([batch, batch])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporter's own parts
        program = torch.export.export(graph, (batch,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        made = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=[INPUTS], output_names=graph.outputs
        )
    if made is None:
        raise RuntimeError("torch.onnx.export returned no program")
    model = made.model_proto
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def write_onnx(model: "ModelProto", path: str | Path) -> None:
    """Write one file, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _of_pictures(model: "ModelProto", preprocessing: Preprocessing) -> "ModelProto":
    """Return a model that takes a picture, from one that takes what the preprocessing makes of it."""
    from onnx import compose

    [opset] = [each.version for each in model.opset_import if not each.domain]
    first: Any = picture_graph(preprocessing, opset=opset, ir_version=model.ir_version)
    # so that no name is in both
    first = compose.add_prefix(first, f"{PICTURE}/", rename_inputs=False, rename_outputs=False)
    model = compose.merge_models(first, model, io_map=[(INPUTS, INPUTS)])
    for output in model.graph.output:
        output.type.tensor_type.shape.dim[0].dim_value = 1
    return model
