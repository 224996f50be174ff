"""Lists of scored rows for a place. They are made during the pass, which has the scores of all classes."""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shortlist.model import Choice, Model
from shortlist.ops import largest
from shortlist.place import Place
from shortlist.predictors import Population


@dataclass(frozen=True)
class PlaceLists:
    """Lists of a coverage at a place.

    Args:
        place: The place.
        coverage: Promised coverage of the lists.
    """

    place: Place
    coverage: float

    def key(self, model: Model) -> dict[str, Any]:
        """Return what the lists depend on, except the scores, for the header of parts.

        Raises:
            ValueError: If the model cannot make such lists.
        """
        self.population(model)
        assert model.calibration_rows is not None
        weights = self.place.match(model.classes).vector
        return {
            "coverage": self.coverage,
            "weights": _digest({"weights": weights}),
            "rows": _digest(model.calibration_rows.to_tensors()),
        }

    def columns(self, model: Model, scores: Tensor, target: Tensor, keep: int) -> dict[str, Tensor]:
        """Return lists for the place from scores (n, c), and the usual lists cut to the place.

        Columns: ``place.classes`` and ``place.probabilities`` (n, m) of the m best classes there, best first;
        ``place.set`` (n, m), whether each of them is in the set; ``place.whole``, whether no other is; and
        ``place.size``, ``place.hit``, ``place.cut.size`` and ``place.cut.hit``.
        """
        scores, index = scores.cpu(), target.cpu().clamp_min(0)[:, None]
        population = self.population(model)
        values = population.values(scores)
        sets = torch.from_numpy(population.sets_of_coverage(values, self.coverage))
        common = _population(model, Choice(coverage=self.coverage))
        cut = torch.from_numpy(common.sets_of_coverage(common.values(scores), self.coverage))
        assert population.frequency is not None  # that of the place
        cut &= population.frequency > 0
        best, classes = largest(torch.from_numpy(values.fit), min(keep, population.num_classes))
        chosen, size = sets.gather(1, classes), sets.sum(1)
        return {
            "place.classes": classes.to(torch.int32),
            "place.probabilities": best.float(),
            "place.set": chosen,
            "place.whole": chosen.sum(1) == size,
            "place.size": size.to(torch.int32),
            "place.hit": sets.gather(1, index)[:, 0],
            "place.cut.size": cut.sum(1).to(torch.int32),
            "place.cut.hit": cut.gather(1, index)[:, 0],
        }

    def population(self, model: Model) -> Population:
        """Return the calibration rows of the place.

        Raises:
            ValueError: If the model cannot make such lists.
        """
        return _population(model, Choice(place=self.place, coverage=self.coverage))


def _population(model: Model, choice: Choice) -> Population:
    population = model.population(choice)
    assert population is not None  # a coverage without rows is refused
    return population


def _digest(tensors: dict[str, Tensor]) -> str:
    """Return a hash of tensors by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
