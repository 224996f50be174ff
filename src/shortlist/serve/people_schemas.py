"""The forms of what people say and observe, for OpenAPI."""

from datetime import datetime, timedelta, timezone
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from shortlist._text import check_distinct
from shortlist.feedback import COARSE
from shortlist.serve.limits import MAX_IMAGES
from shortlist.serve.options import Id
from shortlist.serve.receipts import MAX_RECEIPT
from shortlist.serve.schemas import Flag, RelatedImageForm


def _distinct(name: str | None, info: ValidationInfo) -> str | None:
    """Refuse a name by which somebody, or something, could look like another."""
    check_distinct(info.field_name or "name", name or "")
    return name


def _spaced(name: str | None, info: ValidationInfo) -> str | None:
    """Check a proposed name as the store keeps it, with single blanks."""
    _distinct(" ".join((name or "").split()), info)
    return name


PersonName = Annotated[str, Field(max_length=500), AfterValidator(_distinct)]


class WhereSeen(BaseModel):
    """Where photos were taken. It is made coarse before anything is kept."""

    model_config = ConfigDict(extra="forbid")

    latitude: float = Field(ge=-90, le=90, description="Degrees north, in WGS84.")
    longitude: float = Field(ge=-180, le=180, description="Degrees east.")
    uncertainty: float | None = Field(default=None, gt=0, le=1e7, description="Meters.")
    degrees: float = Field(
        default=COARSE, ge=0.001, le=10, description="Side of the cell that alone is kept, in degrees."
    )


class AboutPhotos(BaseModel):
    """What is known of photos; it travels with them into data sets and indexes."""

    model_config = ConfigDict(extra="forbid")

    observation: str = Field(
        default="", max_length=500, description="The person's own name for it, which all its photos share."
    )
    organs: list[Annotated[str, Field(max_length=100)]] = Field(
        default_factory=list,
        max_length=MAX_IMAGES,
        description="Part or view that each photo shows, such as leaf: as many as photos, or none.",
    )
    author: PersonName = Field(default="", description="Who is named beside the photo.")
    license: Literal["", "CC0 1.0", "CC BY 4.0", "CC BY-NC 4.0"] = ""
    date: str = Field(
        default="",
        max_length=40,
        pattern=r"^(\d{4}(-\d\d(-\d\d(T\d\d:\d\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d\d:[0-5]\d)?)?)?)?)?$",
        description="When it was taken, in ISO 8601.",
        examples=["2026-05-01"],
    )
    location: WhereSeen | None = None

    @field_validator("date")
    @classmethod
    def _is_past(cls, date: str) -> str:
        """Refuse what is in no calendar, and what nobody can have seen yet."""
        if date:
            day, _, time = date.partition("T")
            if day.startswith("0000"):
                raise ValueError("date must be of a year after 0")
            first = datetime.fromisoformat(day + "0000-01-01"[len(day) :])
            datetime.strptime(time[:5] or "00:00", "%H:%M")
            if first.replace(tzinfo=timezone.utc) > datetime.now(timezone.utc) + timedelta(days=1):
                raise ValueError("date must not be in the future")
        return date


class Observed(BaseModel):
    """Photos of one object, by the receipt of their list, and what is known of them."""

    model_config = ConfigDict(extra="forbid")

    id: Id | None = Field(
        default=None, description="Name of this request. Sent again with the same, it is recorded once."
    )
    person: PersonName | None = Field(
        default=None, description="Opaque name of the person: no address, no real name."
    )
    receipt: str | None = Field(
        default=None,
        max_length=MAX_RECEIPT,
        description="Receipt of the list, from identify?receipt=true. Without one, nothing is recorded.",
    )
    consent: bool | None = Field(
        default=None,
        description="Whether copies of the photos may be kept, and shown to others. False takes back what "
        "the person allowed for this observation before; null leaves it as it was.",
    )
    about: AboutPhotos = Field(default_factory=AboutPhotos)
    note: str | None = Field(default=None, max_length=2000)


class Said(BaseModel):
    """What a person says that an object is."""

    verb: Literal[
        "confirm", "other_class", "new_name", "none_of_these", "do_not_know", "bad_image", "not_this_kind"
    ]
    class_id: Id | None = Field(default=None, description="Class that is meant, for confirm and other_class.")
    name: Annotated[str, Field(max_length=200), AfterValidator(_spaced)] | None = Field(
        default=None, description="Name that the model does not know, for new_name."
    )


class AppChoice(BaseModel):
    """What made the list of an app."""

    model_config = ConfigDict(extra="forbid")

    predictor: str | None = Field(default=None, max_length=200)
    top: int | None = None
    average: float | None = None
    coverage: float | None = None
    macro: bool | None = None
    at_least: int | None = None
    at_most: int | None = None
    place: str | None = Field(default=None, max_length=200)
    group: str | None = Field(default=None, max_length=500)
    promised: float | None = Field(default=None, gt=0, lt=1)


class AppList(BaseModel):
    """A list that an app made without a server: nobody signed it."""

    model_config = ConfigDict(extra="forbid")

    images: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = Field(
        min_length=1, max_length=MAX_IMAGES, description="SHA-256 of each photo."
    )
    shown: list[tuple[Id, Annotated[float, Field(ge=0, le=1)], bool]] = Field(
        max_length=100, description="Id, probability, and whether it was in the set, of each class shown."
    )
    choice: AppChoice
    model: str = Field(min_length=1, max_length=100, description="Version of the app's model.")
    status: Literal["ok", "not_confident", "novel"]


class Feedback(Observed, Said):
    """What a person says about a list of photos of his own."""

    listed: AppList | None = Field(
        default=None,
        description="The list of an app, in place of a receipt; for a server with --app-answers.",
    )

    shown: list[Id] | None = Field(
        default=None, max_length=100, description="Ids that the person saw, if not those of the set."
    )


class ReviewVote(Said):
    """What a person says about somebody else's observation."""

    model_config = ConfigDict(extra="forbid")

    id: Id | None = Field(
        default=None, description="Name of this request. Sent again with the same, it is recorded once."
    )
    person: PersonName = Field(min_length=1, description="Opaque name of the person.")
    note: str | None = Field(default=None, max_length=2000)


class PhotoForm(BaseModel):
    """A photo of an observation."""

    address: str = Field(description="Where the copy of the photo is.")
    organ: str


class ListedForm(BaseModel):
    """A class of the list that the owner of an observation saw."""

    id: str
    name: str
    author: str
    common_names: list[str]
    parents: dict[str, str]
    rare: bool
    probability: float
    in_set: bool
    related_images: list[RelatedImageForm]


class VoteForm(BaseModel):
    """Something that people said, and how many."""

    verb: str
    class_id: str | None
    name: str | None
    people: int


class ObservationForm(BaseModel):
    """What may be seen of an observation."""

    id: str
    own: bool = Field(description="Whether it is of the person who asks.")
    photos: list[PhotoForm] = Field(description="Only with consent.")
    author: str
    license: str
    date: str
    location: dict[str, float] | None
    candidates: list[ListedForm]
    status: str
    flags: list[Flag] = Field(description="Why it waits for a look of others.")
    model: str
    vote: VoteForm | None = Field(description="What the person who asks said.")
    votes: list[VoteForm] | None = Field(
        description="What all people said, the most frequent first. Null for who has not voted: votes of "
        "others must not lead."
    )


class ReviewNext(BaseModel):
    """An observation to review, or none."""

    waiting: int = Field(description="About how many observations wait.")
    observation: ObservationForm | None


class FeedbackKept(BaseModel):
    """The answer is on disk."""

    kept: Literal[True]
    number: int = Field(description="Its number in the log.")
    new: bool = Field(description="False if this request was recorded before.")
    observation: str = Field(description="Id of the observation.")
    flags: list[Flag] = Field(
        description="What may be wrong with the photos. With a flag, the observation counts only after "
        "somebody else has said what it is."
    )


class FeedbackStats(BaseModel):
    """How many answers there are."""

    events: int
    verbs: dict[str, int]
    people: int
    images: int
    copies: int = Field(description="Photos of which a copy is kept.")
    deletions: int
    erased_events: int
    first: str | None
    last: str | None


class Deletion(BaseModel):
    """Of whom or of what all is deleted: either a person or a photo."""

    model_config = ConfigDict(extra="forbid")

    person: str | None = Field(default=None, min_length=1, max_length=500, description="Name of the person.")
    image: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", description="SHA-256 of the photo.")


class FeedbackErased(BaseModel):
    """What was deleted."""

    events: int
    copies: int
    pending: bool = Field(
        description="Whether something is left, such as old pages that somebody reads; it is tried again."
    )
