"""The populations that choices are about, each made once from the calibration rows of a model."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._recent import Recent
from shortlist._row_facts import RowFacts
from shortlist.class_table import ClassTable
from shortlist.coverage_law import rows_needed
from shortlist.model.choice import Choice
from shortlist.place import Place, PlaceMatch
from shortlist.predictors import CalibrationRows, Population, pool_memory
from shortlist.promise import Scope, Void
from shortlist.scores import PriorRecord, ScoreMap

_KEPT = 64  # places and populations that are remembered
_COMMON = 0.9  # a coverage whose number of rows is enough to measure sizes and shares on


class ChosenPopulation(NamedTuple):
    """A population, which objects it is of, and why its promise is not about the chosen ones, if so."""

    population: Population
    scope: Scope
    void: Void | None


class Populations:
    """Finds the population of a choice.

    Args:
        rows: Calibration rows of the model.
        classes: Table of its classes.
    """

    def __init__(self, rows: CalibrationRows | None, classes: ClassTable) -> None:
        self.rows, self._classes = rows, classes
        self._matches: Recent[PlaceMatch] = Recent(_KEPT)
        self._objects: Recent[Tensor] = Recent(_KEPT)
        self._made: Recent[Population] = Recent(_KEPT)
        self._pools = pool_memory()

    def match(self, place: Place) -> PlaceMatch:
        """Return the classes that occur at a place.

        Raises:
            ValueError: If there are none.
        """
        return self._matches.get(place, lambda: place.match(self._classes))

    def weights(self, choice: Choice) -> tuple[Tensor | None, Tensor | None]:
        """Return how much each class counts, and how frequent it is (c,); ``None`` if as in the rows."""
        frequency = None if choice.place is None else self.match(choice.place).vector
        if not choice.macro:
            return frequency, frequency
        occurs = torch.ones(len(self._classes)) if frequency is None else frequency > 0
        return occurs.double() / occurs.sum(), frequency

    def of(self, choice: Choice) -> ChosenPopulation | None:
        """Return the population of a choice: fewer photos, or all groups, if too few rows are like it.

        ``None`` if the model kept no rows, or none of a class of the place.
        """
        if self.rows is None:
            return None
        if self.rows.priors is None and (choice.macro or choice.place is not None):
            return None
        importance, frequency = self.weights(choice)
        occurs = None if importance is None else importance > 0
        needed = rows_needed(_COMMON if choice.coverage is None else choice.coverage)
        group, photos = choice.group, choice.photos
        if group is not None and self._count(1, group, occurs) < needed:
            group = None
        while photos > 1 and self._count(photos, group, occurs) < needed:
            photos -= 1
        if not self._count(photos, group, occurs):
            return None
        key = (choice.place, choice.macro, choice.photos, photos, group)
        options = {"photos": choice.photos, "importance": importance, "frequency": frequency}
        options |= {"pools": self._pools}
        rows, objects = self.rows, self._rows_of(photos, group)
        population = self._made.get(key, lambda: Population(rows, objects, **options))
        return ChosenPopulation(population, self._scope(choice, group, photos), self._void(choice, photos))

    def _rows_of(self, photos: int, group: tuple[str, str] | None) -> Tensor:
        """Return the rows of objects with so many photos of a group."""
        rows = self.rows
        assert rows is not None
        return self._objects.get(
            (photos, group), lambda: rows.objects(photos, None if group is None else rows.members(*group))
        )

    def _count(self, photos: int, group: tuple[str, str] | None, occurs: Tensor | None) -> int:
        """Return how many objects with so many photos of a group are of classes that occur."""
        assert self.rows is not None
        objects = self._rows_of(photos, group)
        if occurs is None:
            return len(objects)
        return int(occurs[self.rows.target[objects[:, 0]].long()].sum())

    def _void(self, choice: Choice, photos: int) -> Void | None:
        if photos == choice.photos:
            return None
        assert self.rows is not None
        return "photos" if self.rows.facts.observation is None else "few photos"

    def _scope(self, choice: Choice, group: tuple[str, str] | None, photos: int) -> Scope:
        column, value = choice.group or ("", "")
        return Scope(
            unknown=0 if choice.place is None else len(self.match(choice.place).unknown),
            photos=choice.photos,
            calibrated_photos=None if photos == choice.photos else photos,
            column=column,
            value=value,
            joined=group != choice.group,
            macro=choice.macro,
        )


def keep_rows(
    scores: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    score_map: ScoreMap,
    class_table: ClassTable,
    facts: RowFacts | None = None,
) -> CalibrationRows | None:
    """Keep calibration rows for a model.

    Args:
        scores: Scores (n, c) that went through the score map, of rows held out from training.
        target: True classes (n,), int64; -100 leaves a row out.
        score_map: Map that the scores went through.
        class_table: Table of the c classes.
        facts: Which rows are photos of one object, and groups of rows such as organs, if the data say so.

    Returns:
        The rows; ``None`` if there is none.
    """
    if not bool((target != -100).any()):
        return None
    frequencies = None
    if class_table.counts and min(class_table.counts) > 0:
        frequencies = PriorRecord.training(class_table.class_counts).priors
    priors = None if score_map.now is None else score_map.now.priors
    return CalibrationRows.of_rows(scores, target, priors=priors, frequencies=frequencies, facts=facts)
