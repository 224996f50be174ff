"""A network of one's own, with no recipe and no run: index its images, and serve it.

``python examples/serve_own_model.py`` serves at http://127.0.0.1:8000/ until Ctrl-C. What is between the two
marks is all that a model of your own needs; the rest makes a small network and images to show it with.
"""

import sys
from pathlib import Path

import torch
from PIL import Image
from torch import nn

from shortlist import ClassTable, Model, Preprocessing
from shortlist.model import keep_rows
from shortlist.predictors import Conformal
from shortlist.scores import PriorRecord, ScoreMap

COLORS = ("red", "green", "blue", "gray")


def make_images(folder: Path) -> None:
    """Write ten images of each color, one folder for each."""
    generator = torch.Generator().manual_seed(0)
    for color in COLORS:
        (folder / color).mkdir(parents=True, exist_ok=True)
        for number in range(10):
            image = Image.new("RGB", (16, 16), color)
            noise = torch.randint(0, 60, (16, 16, 3), generator=generator, dtype=torch.uint8)
            blended = Image.blend(image, Image.fromarray(noise.numpy()), 0.4)
            blended.save(folder / color / f"{number}.png")


def my_network() -> nn.Module:
    """A network that compares the mean color with those of the classes; yours is trained."""
    head = nn.Linear(3, 4, bias=False)
    head.weight.data = torch.tensor([[9.0, -4, -4], [-4, 6, -4], [-4, -4, 9], [2, 2, 2]])
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


def my_service(images: Path, index: Path):
    """Return what is served: the model, and an index of its images."""
    held_out = torch.rand(500, 3, 16, 16, generator=torch.Generator().manual_seed(1)).mean(
        (2, 3), keepdim=True
    )
    # ---- from here
    from shortlist.index import ImageIndex, build_index, source_of_images
    from shortlist.serve.service import Service

    table = ClassTable(COLORS, counts=[10] * 4)
    score_map = ScoreMap(4, contains=PriorRecord.training(table.class_counts))
    prepare = Preprocessing(height=16, width=16, resize=16, mean=(0.0,) * 3, std=(1.0,) * 3)
    parts = {"preprocessing": prepare, "score_map": score_map, "classifier": "2", "about": {"name": "colors"}}
    network = my_network()
    scores = Model.from_parts(network, table, **parts).scores(held_out)
    target = scores.argmax(1)  # yours are the labels of the held-out rows
    parts["predictors"] = {"conformal90": Conformal(coverage=0.9).calibrate(scores, target)}
    parts["calibration_rows"] = keep_rows(scores, target, score_map, table)
    model = Model.from_parts(network, table, **parts)
    build_index(model, source_of_images(images, model), index)
    return Service(model, index=ImageIndex.open(index, model=model))
    # ---- to here


if __name__ == "__main__":
    from shortlist.serve.server import serve

    place = Path(sys.argv[1] if len(sys.argv) > 1 else "own_model")
    make_images(place / "images")
    serve(my_service(place / "images", place / "index"))
