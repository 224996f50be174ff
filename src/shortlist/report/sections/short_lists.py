"""Short lists of a method's test rows, from easy to hard, with the true class marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shortlist.report.pictures import Picture
from shortlist.report.rows import NUM_FIRST, ListedClass, ShortList
from shortlist.report.views import MethodView

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class ListLine:
    """A class of a list.

    Args:
        name: Name of the class.
        picture: Training picture of the class.
        is_true: Whether it is the true class of the row.
        remark: Rank of the class, if it is listed only because it is the true class.
        probability: Probability, as in :class:`shortlist.report.rows.ListedClass`.
        held_by: By letter of the predictor, whether its set contains the class.
    """

    name: str
    picture: Picture | None
    is_true: bool
    remark: str
    probability: float | None
    held_by: Mapping[str, bool]


@dataclass(frozen=True)
class ListCard:
    """A test row with its list: true class, picture, by letter the sizes of the sets, and the classes."""

    row: int
    true: str
    picture: Picture | None
    sizes: Mapping[str, int]
    lines: Sequence[ListLine]
    more: int


@dataclass(frozen=True)
class ShortLists:
    """The lists of a run, and the letters that stand for its predictors."""

    name: str
    run: str
    seed: int
    predictors: Mapping[str, str]
    num_first: int
    cards: Sequence[ListCard]
    has_pictures: bool


def measure_short_lists(view: MethodView) -> ShortLists:
    """Give the lists of the first run names and pictures."""
    run = view.method.runs[0]
    return ShortLists(
        name=f"lists-{view.name}",
        run=run.name,
        seed=run.recipe.seed,
        predictors=dict(zip(_LETTERS, view.rows.predictors, strict=False)),
        num_first=NUM_FIRST,
        cards=[_card(view, each) for each in view.rows.lists],
        has_pictures=view.pictures is not None,
    )


def _card(view: MethodView, each: ShortList) -> ListCard:
    true = view.method.runs[0].class_table.names[each.true]
    picture = None
    if view.pictures is not None:
        picture = view.pictures.test(each.row, alt=f"Test row {each.row}: {true}", side=80)
    lines = [_line(view, each, listed) for listed in each.candidates]
    return ListCard(each.row, true, picture, dict(zip(_LETTERS, each.sizes, strict=False)), lines, each.more)


def _line(view: MethodView, each: ShortList, listed: ListedClass) -> ListLine:
    picture = None if view.pictures is None else view.pictures.of_class(listed.index, alt="")
    if view.rows.predictors:
        remark = "" if any(listed.held_by) else f"(place {listed.place}, in no set)"
    else:
        remark = "" if listed.place <= NUM_FIRST else f"(place {listed.place})"
    return ListLine(
        name=view.method.runs[0].class_table.names[listed.index],
        picture=picture,
        is_true=listed.index == each.true,
        remark=remark,
        probability=listed.probability,
        held_by=dict(zip(_LETTERS, listed.held_by, strict=False)),
    )
