"""The forms of requests and answers of ``/v1``, for OpenAPI; the answers themselves are plain values."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class RelatedImageForm(BaseModel):
    """A known image of a candidate that is like the photos."""

    id: str
    similarity: float = Field(description="Cosine of the features of the two images.")
    thumbnail: str = Field(description="Address of a small JPEG.", examples=["/v1/images/0-17"])
    author: str
    license: str
    source: str
    date: str
    organ: str


class EntersAtForm(BaseModel):
    """The smallest sets that hold the candidate, so that a page can redraw the list by itself."""

    top: int = Field(description="It is among the first so many classes.")
    coverage: float | None = Field(description="It is in the set of every coverage above this.")
    average: float | None = Field(
        description="It is in the set of this average size and of every larger one."
    )


class CandidateForm(BaseModel):
    """A class of the list."""

    id: str
    name: str
    author: str = Field(description="Author of the scientific name, if there is one.", examples=["L."])
    common_names: list[str] = Field(description="What people call it, in the language of the request.")
    parents: dict[str, str] = Field(examples=[{"genus": "Quercus", "family": "Fagaceae"}])
    probability: float = Field(ge=0, le=1)
    in_set: bool
    rare: bool = Field(description="Whether the model saw fewer than 20 examples of it.")
    enters_at: EntersAtForm
    related_images: list[RelatedImageForm]


class ChoiceForm(BaseModel):
    """What made the set."""

    predictor: str | None
    top: int | None
    average: float | None
    coverage: float | None
    macro: bool
    at_least: int
    at_most: int | None
    place: str | None = Field(description="Name of the place; empty if its classes came with the request.")
    group: str | None = Field(description="What the photos show, as COLUMN:VALUE.")


class PromiseForm(BaseModel):
    """The promise of sets made like this one; more numbers may come with it."""

    model_config = ConfigDict(extra="allow")

    words: str = Field(description="The promise in whole sentences.")
    about: str
    level: float | None = Field(description="Promised coverage; null if none is promised.")
    size: float | None
    rows: int | None = Field(description="Calibration rows that it comes from.")
    holds: bool = Field(description="Whether a coverage is promised for this very list.")
    why_not: str | None


class AncestorForm(BaseModel):
    """A parent that all classes of the set share."""

    level: str
    name: str
    classes: int = Field(description="Number of classes that it has in all.")


class NodeForm(BaseModel):
    """A node of the taxonomy, such as a genus, or a class."""

    name: str
    level: str
    mass: float = Field(ge=0, le=1, description="Sum of the probabilities of its classes.")
    size: int = Field(description="Number of its classes.")


class NodesForm(BaseModel):
    """The answer of a taxonomy predictor: nodes that hold the true class with the promised coverage."""

    predictor: str
    nodes: list[NodeForm]
    promise: PromiseForm


class ModelName(BaseModel):
    """Which model answered."""

    name: str
    version: str


class ErrorDetails(BaseModel):
    """What is wrong."""

    code: str = Field(examples=["damaged_image"])
    message: str = Field(examples=["The image cannot be decoded: it is cut off or damaged."])


class Error(BaseModel):
    """A refusal."""

    error: ErrorDetails
    status: Literal["bad_image"] | None = Field(
        default=None, description="Only if it is an image that is refused."
    )
    image: int | None = Field(default=None, description="Number of the image that is refused, from 0.")


class NextPhotoForm(BaseModel):
    """A photo that would tell the two best candidates apart, as measured on known objects."""

    organ: str
    classes: list[str]
    told_apart: float = Field(
        description="Share of the objects that photos of the organ put in the right order."
    )
    told_apart_now: float = Field(description="The same share for photos like those that were sent.")
    objects: int
    words: str


class AnswerForm(BaseModel):
    """A short list."""

    status: Literal["ok", "not_confident", "novel"]
    candidates: list[CandidateForm]
    set_size: int
    set_probability: float
    choice: ChoiceForm
    promise: PromiseForm
    common_ancestor: AncestorForm | None
    next_photo: NextPhotoForm | None
    renormalized: bool = Field(
        description="Whether probabilities are of the place or the given classes only."
    )
    novelty: dict[str, Any] | None
    nodes: NodesForm | None = Field(
        description="The answer of the chosen taxonomy predictor, or else of the model's first; null if none."
    )


Flag = Literal["blurred", "small", "duplicate", "stranger"]
"""Why an observation waits: its photos are blurred, small, of an earlier one, or like nothing known."""


class IdentifyAnswer(AnswerForm):
    """The answer of ``/v1/identify``."""

    images: int = Field(description="Number of photos that were taken together.")
    model: ModelName
    seconds: float
    receipt: str | None = Field(
        default=None, description="Only if it was asked for; null if this process has no store of answers."
    )
    audit: bool | None = Field(
        default=None,
        description="With a receipt: whether the request was drawn at random, so that somebody who knows "
        "should answer. The list is wide then.",
    )
    flags: list[Flag] | None = Field(
        default=None,
        description="With a receipt: what may be wrong with the photos. The bounds of blurred and small keep "
        "99 of 100 photos that are as good as those held out in training.",
    )


class BadImageForm(BaseModel):
    """An image of a batch that cannot be used."""

    status: Literal["bad_image"]
    error: ErrorDetails
    image: int | None


class BatchAnswer(BaseModel):
    """The answer of ``/v1/identify/batch``, with an entry for each image in their order."""

    answers: list[AnswerForm | BadImageForm]
    model: ModelName
    seconds: float


class ClassForm(BaseModel):
    """A class that the model knows."""

    id: str
    name: str
    author: str
    common_names: list[str]
    parents: dict[str, str]
    count: int | None = Field(description="Number of training examples.")
    rare: bool


class ClassList(BaseModel):
    """Some of the classes, and how many there are."""

    total: int
    classes: list[ClassForm]


class NameForm(BaseModel):
    """A taxon of a checklist, or a class of the model."""

    id: str
    name: str
    author: str
    rank: str
    parents: dict[str, str]
    common_names: list[str] = Field(description="What people call it, in the language of the request.")
    matched: str = Field(description="The name that was found: its own, a synonym or a common name.")
    mistakes: int = Field(description="Letters that differ between the request and how this name begins.")
    class_id: str | None = Field(description="Id of the class, if the model knows it.")


class NameList(BaseModel):
    """Names that were found, the best first."""

    total: int = Field(description="Number of taxa that are searched.")
    names: list[NameForm]


class ConfusedForm(BaseModel):
    """A class that photos of another class are taken for."""

    id: str
    name: str
    probability: float = Field(description="Mean probability that it gets on held-out photos of the other.")


class ClassDetails(ClassForm):
    """All that is known about a class."""

    synonyms: list[str]
    common_names_by_language: dict[str, list[str]]
    external: dict[str, str] = Field(description="Its ids elsewhere.", examples=[{"gbif": "2878688"}])
    confused_with: list[ConfusedForm]
    example_images: list[RelatedImageForm]


class PlaceForm(BaseModel):
    """A place of the server."""

    name: str
    title: str = Field(description="Name for people, in English if there is one.")
    titles: dict[str, str] = Field(description="Names for people by language.")
    classes: int = Field(description="Number of classes of the model that occur there.")
    unknown: int = Field(description="Number of its names that are no class of the model.")
    unknown_names: list[str] = Field(description="The first 100 of these names.")


class PlaceList(BaseModel):
    """The places of the server."""

    places: list[PlaceForm]


class LadderForm(BaseModel):
    """The steps of a control from fewer to surer, for some objects; see the documentation of the server."""

    rows: int = Field(description="Calibration objects that it comes from.")
    words: str
    scope: str = Field(description="Which objects it is about, and which not, in whole sentences.")
    coverage: list[dict[str, float]]
    average: list[dict[str, float]]
    top: list[dict[str, float]]


class ModelCard(BaseModel):
    """What the model is, what it can do, and how well it does it."""

    model_config = ConfigDict(extra="allow")

    name: str
    version: str
    about: dict[str, Any]
    classes: int
    levels: list[str]
    groups: dict[str, int] | None
    scores: str
    predictors: list[dict[str, Any]]
    choices: dict[str, Any]
    ladder: dict[str, Any] | None
    ladder_macro: dict[str, Any] | None
    metrics: dict[str, Any] | None
    training: dict[str, Any] | None
    index: dict[str, Any] | None
    limits: dict[str, Any]
    page: str = Field(description="The same for people, as Markdown: README.md of the saved model.")
