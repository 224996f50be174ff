"""The posterior in a population, of kept rows and of new ones."""

import torch
from torch import Tensor

from shortlist.predictors.at_place import place_offset
from shortlist.predictors.calibration_rows import CalibrationRows, Kept


class PopulationPosterior:
    """A function from kept posteriors of photos to those of objects; see :class:`Population`.

    Args:
        rows: Calibration rows of the model.
        importance: How much each class counts (c,); ``None`` if as in the rows.
        frequency: How frequent the classes are (c,); ``None`` if as in the rows.

    Attributes:
        columns: Classes that occur (k,), in order; ``None`` if all do.
    """

    def __init__(self, rows: CalibrationRows, importance: Tensor | None, frequency: Tensor | None) -> None:
        self._num_classes = rows.num_classes
        self.columns: Tensor | None = None
        self._offset: Tensor | None = None
        self._ratio: Tensor | None = None
        if importance is None:
            return
        if rows.priors is None:
            raise ValueError("place must not be given: nobody knows which priors the model's scores contain")
        self._offset = place_offset(importance, rows.priors)
        inside = self._offset > -torch.inf
        if not bool(inside.all()):
            self.columns = inside.nonzero().squeeze(1)
        as_in_rows = rows.priors if rows.frequencies is None else rows.frequencies
        frequency = as_in_rows if frequency is None else frequency
        if not torch.equal(frequency, importance):
            self._ratio = (frequency / importance).where(inside, 0.0)

    def __call__(self, kept: Kept, photos: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return fits and values for sizes (n, m) of objects of ``photos`` rows each, and their classes.

        It is the same for calibration and new rows, computed in float64 and rounded: equal rows are equal.
        Without classes, the columns are those of ``columns``.
        """
        log_p, classes = kept.log_p.double(), None if kept.classes is None else kept.classes.long()
        if photos > 1:
            log_p, classes = self._fused(log_p, classes, photos), None
        elif classes is None and self.columns is not None:
            log_p = log_p[:, self.columns]
        where = self.columns if classes is None else classes
        if self._offset is not None:
            log_p = log_p + (self._offset if where is None else self._offset[where])
        fit = log_p.softmax(1).nan_to_num(nan=0.0)  # 0 where nothing of the place is kept
        precision = torch.float64 if kept.log_p.dtype == torch.float64 else torch.float32
        rounded = fit.to(precision)
        if self._ratio is None:
            return rounded, rounded, classes
        total = (fit * (self._ratio if where is None else self._ratio[where])).sum(1, keepdim=True)
        return rounded, (fit / total).nan_to_num(nan=0.0).to(precision), classes

    def _fused(self, log_p: Tensor, classes: Tensor | None, photos: int) -> Tensor:
        """Return the mean log-posteriors (n, k) of photos; a class that no photo keeps is ruled out.

        A class that only some photos keep has, in the others, its share of what is left of the probability.
        """
        if classes is None:
            log_p = log_p if self.columns is None else log_p[:, self.columns]
            return log_p.unflatten(0, (-1, photos)).mean(1)
        left = (1 - log_p.exp().sum(1, keepdim=True)).clamp_min(1e-7) / (self._num_classes - log_p.shape[1])
        wide = left.log().repeat(1, self._num_classes).scatter_(1, classes, log_p)
        seen = torch.zeros_like(wide, dtype=torch.bool).scatter_(1, classes, True)
        wide, seen = wide.unflatten(0, (-1, photos)), seen.unflatten(0, (-1, photos)).any(1)
        fused = wide.mean(1).masked_fill(~seen, -torch.inf)
        return fused if self.columns is None else fused[:, self.columns]
