"""Small parts of a server, for the tests: a model, an index in memory, images."""

import io
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor, nn

from shortlist import ClassTable, Model, Preprocessing
from shortlist._row_facts import RowFacts
from shortlist.model import keep_rows
from shortlist.predictors import AverageK, Conformal, TopK
from shortlist.scores import PriorRecord, ScoreMap

TREES = ClassTable(
    names=(
        "Quercus robur",
        "Quercus petraea",
        "Fagus sylvatica",
        "Betula pendula",
        "Betula nana",
        "Alnus/glutinosa",
    ),
    ids=("q1", "q2", "f1", "b1", "b2", "a/1"),
    counts=(400, 300, 150, 100, 30, 5),
    parents={
        "family": ("Fagaceae", "Fagaceae", "Fagaceae", "Betulaceae", "Betulaceae", "Betulaceae"),
        "genus": ("Quercus", "Quercus", "Fagus", "Betula", "Betula", "Alnus"),
    },
)
TREES_WITH_AUTHORS = ClassTable(
    names=(
        "Quercus robur L.",
        "Quercus petraea (Matt.) Liebl.",
        "Fagus sylvatica L.",
        "Betula pendula Roth",
        "Betula nana L.",
        "Alnus glutinosa (L.) Gaertn.",
    ),
    ids=TREES.ids,
    counts=TREES.counts,
    parents=TREES.parents,
)
PREPARE = Preprocessing(height=2, width=2, resize=2, mean=(0.0,), std=(1.0,), color="L")


class Gray(nn.Module):
    """A network whose features are four gray levels, and whose scores are a fixed map of them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.head = nn.Linear(4, 6)
        self.head.weight.data = 3 * torch.randn(6, 4, generator=generator)
        self.head.bias.data.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1))


def tree_model(table: ClassTable = TREES, **parts) -> Model:
    network, priors = Gray(), PriorRecord.training(table.class_counts)
    score_map = ScoreMap(6, contains=PriorRecord.balanced(6)).under(priors)
    generator = torch.Generator().manual_seed(2)
    inputs = torch.rand(400, 1, 2, 2, generator=generator)
    scores = Model.from_parts(network, table, score_map=score_map).scores(inputs).clone()
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    predictors = {
        "conformal90": Conformal(coverage=0.9).calibrate(scores, target),
        "top2": TopK(2),
        "average2_macro": AverageK(2, priors=priors.priors.float()).calibrate(scores),
    }
    parts = {
        "preprocessing": PREPARE,
        "score_map": score_map,
        "predictors": predictors,
        "about": {"name": "trees"},
        "calibration_rows": keep_rows(scores, target, score_map, table),
    } | parts
    return Model.from_parts(network, table, **parts)


def photographed_model(table=TREES) -> Model:
    """A model whose 900 calibration rows are 300 objects with three photos each, of a leaf or a flower."""
    plain = tree_model(table)
    generator = torch.Generator().manual_seed(5)
    target = torch.arange(300) % 6
    noise = torch.randn(300, 1, 6, generator=generator) + torch.randn(300, 3, 6, generator=generator)
    scores = (noise + 2 * torch.eye(6)[target][:, None]).flatten(0, 1) + plain.score_map.now.priors.log()
    scores, target = scores.float(), target.repeat_interleave(3)
    organs = [organ for i in range(300) for organ in ["leaf" if i % 5 else "flower"] * 3]
    facts = RowFacts.of_columns({"observation": [f"o{i // 3}" for i in range(900)], "organ": organs})
    rows = keep_rows(scores, target, plain.score_map, table, facts)
    parts = {"preprocessing": PREPARE, "score_map": plain.score_map, "predictors": dict(plain.predictors)}
    return Model.from_parts(Gray(), table, calibration_rows=rows, about={"name": "trees"}, **parts)


@dataclass(frozen=True)
class Known:
    """An image of the index."""

    id: str
    class_index: int
    similarity: float
    author: str = ""
    license: str = ""
    source: str = ""
    date: str = ""
    organ: str = ""


class Index:
    """An index with two images of each class, the first of which is more similar."""

    def __len__(self) -> int:
        return 12

    def similar(self, features: Tensor, classes, limit: int):
        assert features.ndim == 2 and features.shape[1] == 4
        return [self.examples(index, limit) for index in classes]

    def examples(self, class_index: int, limit: int):
        about = {"author": "A. Person", "license": "CC BY", "date": "2024-05-01", "organ": "leaf"}
        images = [Known(f"{class_index}-{i}", class_index, 0.9 - 0.1 * i, **about) for i in range(2)]
        return images[:limit]

    def thumbnail(self, id: str) -> bytes:
        class_index, number = map(int, id.split("-"))
        if not (0 <= class_index < 6 and 0 <= number < 2):
            raise KeyError(id)
        return encoded(Image.new("RGB", (8, 8), (class_index, 0, 0)), "JPEG")


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture(seed: int = 0, size: tuple[int, int] = (2, 2)) -> Image.Image:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (size[1], size[0]), generator=generator, dtype=torch.uint8)
    return Image.fromarray(pixels.numpy())


def png(seed: int = 0, size: tuple[int, int] = (2, 2)) -> bytes:
    return encoded(picture(seed, size))


def receipt_of(post, photo: bytes | None = None, *, address: str = "", **options) -> str:
    """Ask for a list of a photo, and return its receipt."""
    sent = files(png(1) if photo is None else photo)
    return post(f"{address}/v1/identify?receipt=true", files=sent, **options).json()["receipt"]


def files(*contents: bytes, name: str = "photo.png"):
    return [("images", (name, content, "image/png")) for content in contents]
