"""The record of the class priors that scores contain."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_number, check_priors
from shortlist.priors import ZeroCounts, class_priors

PriorName = Literal["training", "balanced", "given"]
_NAMES = ("training", "balanced", "given")


class PriorRecord:
    r"""A record of class priors by name (training, balanced, or given), to a power.

    The softmax of scores that *contain* a prior is the posterior of rows whose classes occur with that prior.
    Cross-entropy learns scores that contain the training priors; the logit-adjusted loss learns scores that
    contain the training priors to the power ``1 - tau``, which for ``tau=1`` are balanced.

    Args:
        name: ``"training"``, ``"balanced"`` or ``"given"``.
        log_priors: Logarithms of the priors (c,), up to a constant.
        power: Power of the named priors that gives ``log_priors``; for people to read.

    Example:
        >>> record = PriorRecord.training(torch.tensor([6, 3, 1]))
        >>> record.words()
        'the training priors'
        >>> record.priors
        tensor([0.6000, 0.3000, 0.1000], dtype=torch.float64)
        >>> record.to_power(0.0).words()
        'balanced priors'
    """

    def __init__(self, name: PriorName, log_priors: Tensor, *, power: float = 1.0) -> None:
        check_choice("name", name, _NAMES)
        if log_priors.ndim != 1 or not len(log_priors) or not bool(log_priors.isfinite().all()):
            raise ValueError("log_priors must be finite numbers of shape (c,), got others")
        self.name: PriorName = name
        self.power = float(check_number("power", power))
        double = log_priors.detach().cpu().double()
        self.log_priors = double - double.logsumexp(0)

    @staticmethod
    def training(class_counts: Tensor, *, zero_counts: ZeroCounts = "floor") -> "PriorRecord":
        """Record the shares of the classes in the training rows; a class without rows counts as one row."""
        priors = class_priors(class_counts.detach().cpu().double(), zero_counts=zero_counts)
        return PriorRecord("training", priors.log())

    @staticmethod
    def balanced(num_classes: int) -> "PriorRecord":
        """Record the same share for each class."""
        check_count("num_classes", num_classes)
        return PriorRecord("balanced", torch.full((num_classes,), -math.log(num_classes)).double())

    @staticmethod
    def given(priors: Tensor) -> "PriorRecord":
        """Record a vector (c,) of shares, each > 0, that add up to 1."""
        check_priors("priors", priors)
        return PriorRecord("given", priors.detach().cpu().double().log())

    def to_power(self, power: float) -> "PriorRecord":
        """Return these priors to a power, normalized to 1; power 1 changes nothing, power 0 balances them."""
        check_number("power", power)
        if power == 1.0:
            return self
        if power == 0.0:
            return PriorRecord.balanced(len(self))
        return PriorRecord(self.name, power * self.log_priors, power=power * self.power)

    @property
    def priors(self) -> Tensor:
        """The priors (c,), float64."""
        return self.log_priors.exp()

    def __len__(self) -> int:
        return len(self.log_priors)

    def same_as(self, other: "PriorRecord") -> bool:
        """Return whether two records have the same priors, whatever their names are."""
        if len(self) != len(other):
            return False
        return bool(torch.allclose(self.log_priors, other.log_priors, rtol=0.0, atol=1e-9))

    def words(self) -> str:
        """Describe the priors in words."""
        if self.name == "balanced":
            return "balanced priors"
        named = "the training priors" if self.name == "training" else "given priors"
        return named if self.power == 1.0 else f"{named} to the power {self.power:.3g}"

    def __repr__(self) -> str:
        return f"PriorRecord({self.words()}, {len(self)} classes)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"name": self.name, "power": self.power, "log_priors": self.log_priors.tolist()}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "PriorRecord":
        """Make a record from what :meth:`to_dict` returned."""
        log_priors = torch.tensor(content["log_priors"], dtype=torch.float64)
        record = PriorRecord(content["name"], log_priors, power=content["power"])
        record.log_priors = log_priors  # to the bit: they were added up when they were written
        return record
