"""A model of 12 classes, each of which is a bright pixel."""

import torch

from shortlist import ClassTable, Model, Preprocessing
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import Conformal
from shortlist.scores import PriorRecord, ScoreMap

C = 12
COUNTS = (200,) * 8 + (5,) * 4
PREPARE = Preprocessing(height=4, width=4, resize=4, mean=(0.0,), std=(1.0,), color="L")


def pixel_model(
    *, wrong: tuple[int, ...] = (), shift: float = 0.0, names: str = "c", rows: int = 500
) -> Model:
    """A model that reads the class from the first 12 pixels; some classes it never finds."""
    table = ClassTable(tuple(f"{names[i % len(names)]}{i:02d}" for i in range(C)), counts=COUNTS)
    spec = NetworkSpec(name="linear", num_classes=C, input_shape=(1, 4, 4))
    network = build_network(spec)
    parameters = {tuple(parameter.shape): parameter for parameter in network.parameters()}
    weight = 8 * torch.eye(C, 16)
    for index in wrong:
        weight[index] = 0.0
    parameters[C, 16].data, parameters[C,].data = weight, torch.zeros(C)
    score_map = ScoreMap(C, contains=PriorRecord.training(table.class_counts))
    generator = torch.Generator().manual_seed(5)
    target = torch.randint(C, (rows,), generator=generator)
    scores = torch.randn(rows, C, generator=generator)
    scores[torch.arange(rows), target] += 2 + shift
    conformal = Conformal(coverage=0.9).calibrate(scores, target)
    return Model.from_parts(
        network, table, preprocessing=PREPARE, score_map=score_map, predictors={"c90": conformal}, spec=spec
    )
