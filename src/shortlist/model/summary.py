"""What a model keeps of its calibration rows: ladders of sets, and which classes look alike."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist.class_table import ClassTable
from shortlist.predictors import Ladder
from shortlist.scores import PriorRecord, ScoreMap

CONFUSED = 5  # look-alikes that are kept of each class


@dataclass(frozen=True, eq=False)
class CalibrationSummary:
    """A few megabytes of calibration rows, from which sets can be made that no saved predictor makes.

    Args:
        plain: Ladder of sets that are right for all rows together.
        macro: The same with the class priors, for rare classes; ``None`` where priors are not known.
        confused: For each class, the others that get most of the probability of its rows (c, 5), most first;
            -1 where there is none.
        confused_share: Mean probability (c, 5) of these.
    """

    plain: Ladder
    macro: Ladder | None
    confused: Int[Tensor, "c m"]
    confused_share: Float[Tensor, "c m"]

    @staticmethod
    def of_rows(
        scores: Float[Tensor, "n c"], target: Int[Tensor, " n"], score_map: ScoreMap, class_table: ClassTable
    ) -> "CalibrationSummary | None":
        """Keep what is needed of calibration rows.

        Args:
            scores: Scores (n, c) that went through the score map, of rows held out from training.
            target: True classes (n,), int64; -100 leaves a row out.
            score_map: Map that the scores went through.
            class_table: Table of the c classes.

        Returns:
            The summary; ``None`` if there is no row.
        """
        if not bool((target != -100).any()):
            return None
        macro = None
        if score_map.now is not None and class_table.counts and min(class_table.counts) > 0:
            training = PriorRecord.training(class_table.class_counts)
            own = None if score_map.now.same_as(training) else score_map.now.priors.float()
            macro = Ladder.of_rows(scores, target, priors=training.priors.float(), scores_priors=own)
        return CalibrationSummary(Ladder.of_rows(scores, target), macro, *_confusions(scores, target))

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.confused)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors, for a file."""
        tensors = {"confused": self.confused, "confused_share": self.confused_share}
        for name, ladder in (("plain", self.plain), ("macro", self.macro)):
            if ladder is not None:
                tensors |= {f"{name}.{key}": value for key, value in ladder.to_tensors().items()}
        return tensors

    @staticmethod
    def from_tensors(tensors: dict[str, Tensor]) -> "CalibrationSummary":
        """Restore what :meth:`to_tensors` returned."""
        parts = {name: _below(tensors, f"{name}.") for name in ("plain", "macro")}
        macro = Ladder.from_tensors(parts["macro"]) if parts["macro"] else None
        return CalibrationSummary(
            Ladder.from_tensors(parts["plain"]), macro, tensors["confused"], tensors["confused_share"]
        )


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _confusions(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the other classes with the largest mean probability on each class's rows, and that mean."""
    num_classes = scores.shape[1]
    kept = min(CONFUSED, num_classes - 1)
    classes = torch.full((num_classes, CONFUSED), -1, dtype=torch.int32)
    shares = torch.zeros(num_classes, CONFUSED)
    for index in target.unique().tolist():
        if index < 0:
            continue
        mean = scores[target == index].float().softmax(1).mean(0)
        mean[index] = -1.0
        found = mean.topk(kept)
        classes[index, :kept], shares[index, :kept] = found.indices.to(torch.int32), found.values
    return classes, shares
