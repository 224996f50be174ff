"""Average-K accuracy of all rows of a data set, with thresholds from their own scores."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from shortlist.metrics.class_means import average_rows
from shortlist.predictors import AverageK


class AverageKAccuracy:
    """Average-K accuracies for several K: the share of rows whose true class is above a threshold.

    The threshold is that of sets with K classes on average over the rows themselves. ``compute()`` has, by
    name, the accuracy over rows (``average5``) and over classes with rows (``macro_average5``). Where several
    processes have rows, it is called in all of them, and gives the same metrics in each.

    Args:
        sizes: By name, the mean size K of the sets.
        num_classes: Number of classes c.
        max_rows: Number of rows up to which thresholds are exact.
        ignore_index: Rows with this target are ignored.
    """

    def __init__(
        self, sizes: Mapping[str, float], *, num_classes: int, max_rows: int, ignore_index: int = -100
    ) -> None:
        self.sizes, self.num_classes = dict(sizes), num_classes
        self.max_rows, self.ignore_index = max_rows, ignore_index
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._predictors = {name: AverageK(k, max_rows=self.max_rows) for name, k in self.sizes.items()}
        self._true: list[Tensor] = []

    def update(self, scores: Tensor, target: Tensor) -> None:
        """Add a batch of scores (n, c) with class indices (n,)."""
        counted = target != self.ignore_index
        if not self.sizes or not bool(counted.any()):
            return
        scores, target = scores[counted], target[counted]
        for predictor in self._predictors.values():
            predictor.update(scores)
        probability = scores.softmax(1).gather(1, target[:, None]).squeeze(1)
        self._true.append(torch.stack([probability.double(), target.double()], 1).cpu())

    def compute(self) -> dict[str, Tensor]:
        """Compute the metrics by name."""
        if not self.sizes:
            return {}
        true = torch.cat(self._true) if self._true else torch.zeros(0, 2, dtype=torch.float64)
        collected = [(self._predictors, true)]
        if dist.is_initialized():
            collected = collected * dist.get_world_size()
            dist.all_gather_object(collected, (self._predictors, true))
        true = torch.cat([part for _, part in collected])
        metrics = {}
        for name in self.sizes:
            first, *others = [predictors[name] for predictors, _ in collected]
            for other in others:
                first.merge(other)
            hits, target = true[:, 0] >= first.finish().threshold, true[:, 1].long()
            metrics[name] = average_rows(hits, target, num_classes=self.num_classes)
            of_classes = average_rows(hits, target, num_classes=self.num_classes, average="macro")
            metrics[f"macro_{name}"] = of_classes
        return metrics
