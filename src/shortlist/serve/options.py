"""The options of requests for lists, as they are in the address."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shortlist._text import composed
from shortlist.serve.limits import MAX_IMAGES

MAX_CLASSES = 2000
"""Most classes that come with a request."""
# ids of classes are in the composed form of Unicode; a client may send the same word in another form
Language = Annotated[
    str | None,
    Field(max_length=20, description="Language of names; by default that of the header Accept-Language."),
]
Id = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(composed)]


class ScopeOptions(BaseModel):
    """Options that say which objects lists are for, and in which language they are."""

    model_config = ConfigDict(extra="forbid")

    lang: Language = None
    place: str | None = Field(
        default=None,
        max_length=200,
        description="Name of a place of the server: only its classes are possible.",
    )
    classes: list[Id] = Field(
        default_factory=list,
        max_length=MAX_CLASSES,
        description="Ids of the possible classes, as a place without a name where all are equally frequent.",
    )
    group: str | None = Field(
        default=None,
        max_length=500,
        description="What the photos show, as COLUMN:VALUE, where the calibration photos have such a column.",
        examples=["organ:leaf"],
    )
    organ: str | None = Field(default=None, max_length=200, description="The same for the column organ.")
    macro: bool = Field(
        default=False, description="Each class counts the same, which is good for rare classes."
    )


class LadderOptions(ScopeOptions):
    """Options of the steps of a control."""

    photos: int = Field(default=1, ge=1, le=MAX_IMAGES, description="Number of photos of each object.")


class BatchOptions(ScopeOptions):
    """Options of a request with one photo for each object."""

    predictor: str | None = Field(
        default=None,
        max_length=200,
        description="Name of one of the model's predictors; by default its first one with a promise.",
    )
    top: int | None = Field(default=None, ge=1, le=100_000, description="Number of classes in each set.")
    average: float | None = Field(
        default=None,
        ge=1,
        le=100_000,
        allow_inf_nan=False,
        description="Number of classes in a set on average.",
    )
    coverage: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="Share of sets that hold the true class, as promised.",
    )
    at_least: int = Field(
        default=0, ge=0, le=100_000, description="With average or coverage: fewest classes in a set."
    )
    at_most: int | None = Field(
        default=None, ge=1, le=100_000, description="With average or coverage: most classes in a set."
    )
    related_images: int = Field(default=0, ge=0, le=10, description="Known images beside each candidate.")
    limit: int = Field(
        default=20,
        ge=1,
        le=100,
        description="Candidates that are listed: those in the set, then the next best.",
    )


class IdentifyOptions(BatchOptions):
    """Options of a request with photos of one object."""

    receipt: bool = Field(
        default=False, description="Give a receipt, with which a person's answer to the list can be recorded."
    )
