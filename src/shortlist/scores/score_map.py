"""The score map, which turns a network's output into log-posteriors that contain known class priors."""

import json
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_number, check_scores, promote
from shortlist._precision import KeepsPrecision
from shortlist.scores.prior_record import PriorRecord

_FORMAT = "shortlist score map 1"


class UnknownPriorError(ValueError):
    """Raised if other class priors are asked for, but the priors in the scores are not known."""


class ScoreMap(KeepsPrecision):
    r"""A map of scores by a scale and a shift per class, with a record of the class priors in the result.

    .. math:: s_j \mapsto a_j s_j + b_j + \log \pi^{\text{now}}_j - \log \rho_j

    :math:`\rho` are the priors that :math:`a s + b` contains: its softmax is the posterior of rows whose
    classes occur with these priors. The priors *now* are those that the mapped scores contain. They are
    assigned by :meth:`under`, never added, so that no prior can be applied twice. Where nobody knows
    :math:`\rho` (``contains=None``), scores can be scaled and ranked, and any use of priors is an error.

    A map is a value: its methods return new maps. It may be the last layer of a model. Its numbers are kept
    in float64 and applied in the type of the scores.

    Args:
        num_classes: Number c of classes.
        scale: Factor of the scores, > 0: one number or one per class (c,).
        shift: Number that is then added: one number or one per class (c,).
        contains: Priors that the scaled and shifted scores contain; ``None`` if not known.
        now: Priors that the mapped scores should contain; the same as ``contains`` if ``None``.
        note: Text that says how the numbers were found.

    Example:
        >>> training = PriorRecord.training(torch.tensor([9, 1]))
        >>> score_map = ScoreMap(2, contains=training)
        >>> posterior = torch.tensor([[0.8, 0.2]])  # of which 0.8 / 0.9 < 0.2 / 0.1
        >>> balanced = score_map.under("balanced")
        >>> balanced(posterior.log()).softmax(1)
        tensor([[0.3077, 0.6923]])
        >>> balanced.under("balanced")(posterior.log()).softmax(1)  # assigned, not subtracted once more
        tensor([[0.3077, 0.6923]])

    References:
        A. K. Menon, S. Jayasumana, A. S. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equations 9 and 11.
    """

    scale: Tensor
    shift: Tensor
    offset: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        scale: float | Tensor = 1.0,
        shift: float | Tensor = 0.0,
        contains: PriorRecord | None,
        now: PriorRecord | None = None,
        note: str = "",
    ) -> None:
        super().__init__()
        self.note = note
        self._set(num_classes, scale, shift, contains, now)

    def _set(
        self,
        num_classes: int,
        scale: float | Tensor,
        shift: float | Tensor,
        contains: PriorRecord | None,
        now: PriorRecord | None,
    ) -> None:
        check_count("num_classes", num_classes)
        scale = _per_class("scale", scale, num_classes)
        if not bool((scale > 0).all()):
            raise ValueError(f"scale must be > 0, got {float(scale.min())}")
        shift = _per_class("shift", shift, num_classes)
        for name, record in (("contains", contains), ("now", now)):
            if record is not None and len(record) != num_classes:
                raise ValueError(f"{name} must have one prior per class ({num_classes}), got {len(record)}")
        if contains is None and now is not None:
            raise UnknownPriorError(_unknown(now.words()))
        self.num_classes = num_classes
        self.contains = contains
        self.now = contains if now is None else now
        offset = shift
        if contains is not None and self.now is not None and not contains.same_as(self.now):
            offset = shift + self.now.log_priors - contains.log_priors
        # what is saved is the whole map with its record, see get_extra_state
        for name, value in (("scale", scale), ("shift", shift), ("offset", offset)):
            self.register_buffer(name, value, persistent=False)
        self._is_identity = not bool((scale != 1).any()) and not bool((offset != 0).any())

    def forward(self, scores: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Map scores (n, c); half precision becomes float32."""
        self._check(scores)
        scores = promote(scores)
        if self._is_identity:
            return scores
        return torch.addcmul(self.offset.to(scores.dtype), scores, self.scale.to(scores.dtype))

    def map_(self, scores: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Map scores (n, c) in place, without new memory and without gradients.

        Args:
            scores: Scores in float32 or float64. They are overwritten.
        """
        self._check(scores)
        if self._is_identity:
            return scores
        return torch.addcmul(self.offset.to(scores), scores, self.scale.to(scores), out=scores)

    def invert(self, mapped: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Return the scores (n, c) that are mapped to the given ones."""
        self._check(mapped)
        mapped = promote(mapped)
        return (mapped - self.offset.to(mapped.dtype)) / self.scale.to(mapped.dtype)

    def under(self, priors: PriorRecord | Tensor | Literal["balanced"]) -> "ScoreMap":
        """Return the same map, with other priors in its result.

        Args:
            priors: Priors that the mapped scores should contain: a record, a vector (c,), or
                ``"balanced"``.

        Raises:
            UnknownPriorError: If the priors in the scores are not known.
        """
        record = self._record(priors)
        return self._changed(now=record)

    def with_temperature(self, temperature: float) -> "ScoreMap":
        """Return the map whose scores are divided by a temperature, > 0, before priors come in."""
        check_number("temperature", temperature, above=0.0)
        return self._changed(scale=self.scale / temperature, shift=self.shift / temperature)

    def identified(
        self, training: PriorRecord, *, temperature: float, exponent: float, shifts: float | Tensor = 0.0
    ) -> "ScoreMap":
        r"""Return this map with a fitted temperature and fitted priors; it then contains the training priors.

        By the fit, the softmax of :math:`(a s + b) / T + d + t \log \pi` is the posterior under the training
        priors :math:`\pi`; so :math:`(a s + b) / T + d` contains :math:`\pi^{1 - t}`.

        Args:
            training: Priors of the training rows.
            temperature: Fitted temperature T, > 0.
            exponent: Fitted exponent t of the priors.
            shifts: Fitted shifts d, one number or one per class (c,).
        """
        check_number("exponent", exponent)
        scaled = self.with_temperature(temperature)
        shift = scaled.shift + _per_class("shifts", shifts, self.num_classes).to(scaled.shift.device)
        return scaled._changed(shift=shift, contains=training.to_power(1 - exponent), now=training)

    def then(self, second: "ScoreMap") -> "ScoreMap":
        """Return the map that applies this one and after it another.

        A second map that only converts priors must take what this one gives: one that takes the training
        priors out is refused where they are out already. A second map that scales or shifts comes before
        priors are converted; what its result contains is what it says.

        Raises:
            ValueError: If the second map does not go with this one.
            UnknownPriorError: If the second one converts priors, and those that this one gives are unknown.
        """
        if second.num_classes != self.num_classes:
            raise ValueError(f"second must have {self.num_classes} classes, got {second.num_classes}")
        if not bool((second.scale != 1).any()) and not bool((second.shift != 0).any()):
            if second.contains is None:
                return self
            if self.now is None:
                raise UnknownPriorError(_unknown((second.now or second.contains).words()))
            if not self.now.same_as(second.contains):
                raise ValueError(
                    f"second must take scores that contain what the first map gives ({self.now.words()}), "
                    f"got one that takes {second.contains.words()}: no prior is applied twice"
                )
            return self._changed(now=second.now)
        if self._converts:
            raise ValueError(
                "second must not scale or shift scores whose priors were converted, which comes last: "
                "compose the scales first, then call under(...)"
            )
        if self.contains is not None and second.contains is not None and not bool((second.scale != 1).any()):
            shifted = PriorRecord("given", self.contains.log_priors + second.shift.cpu())
            if not shifted.same_as(second.contains):
                raise ValueError(
                    f"second must say what its shift makes of {self.contains.words()}, got one that says it "
                    f"gives {second.contains.words()}: no prior is applied twice"
                )
        return ScoreMap(
            self.num_classes,
            scale=second.scale * self.scale,
            shift=second.scale * self.shift + second.shift,
            contains=second.contains,
            now=second.now,
        ).to(self.scale.device)

    def log_posterior(
        self, scores: Float[Tensor, "n c"], *, priors: PriorRecord | Tensor | Literal["balanced"]
    ) -> Float[Tensor, "n c"]:
        """Return log-probabilities (n, c) of the classes, for rows whose classes have the given priors."""
        return self.under(priors)(scores).log_softmax(1)

    def converted(
        self, mapped: Float[Tensor, "n c"], *, priors: PriorRecord | Tensor | Literal["balanced"]
    ) -> Float[Tensor, "n c"]:
        """Convert mapped scores (n, c) to other priors, as the map :meth:`under` these priors gives them."""
        self._check(mapped)
        record = self._record(priors)
        assert self.now is not None  # as it is known what they contain
        if record.same_as(self.now):
            return mapped
        mapped = promote(mapped)
        return mapped + (record.log_priors - self.now.log_priors).to(mapped)

    def words(self) -> str:
        """Describe the mapped scores in a sentence."""
        if self.now is None:
            said = "The scores only put the classes in order; they are not log-probabilities"
        else:
            said = f"The scores are log-posteriors under {self.now.words()}"
        return f"{said}: {self.note}." if self.note else f"{said}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "format": _FORMAT,
            "words": self.words(),
            "note": self.note,
            "num_classes": self.num_classes,
            "scale": self.scale.tolist(),
            "shift": self.shift.tolist(),
            "contains": None if self.contains is None else self.contains.to_dict(),
            "now": None if self.now is None else self.now.to_dict(),
        }

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "ScoreMap":
        """Make a map from what :meth:`to_dict` returned."""
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {_FORMAT!r}")
        records = {key: content[key] and PriorRecord.from_dict(content[key]) for key in ("contains", "now")}
        scale, shift = (torch.tensor(content[key], dtype=torch.float64) for key in ("scale", "shift"))
        note = str(content["note"])
        return ScoreMap(content["num_classes"], scale=scale, shift=shift, **records, note=note)

    def get_extra_state(self) -> Tensor:
        """Return the whole map as bytes of JSON, which state dicts and safetensors can hold."""
        return torch.frombuffer(bytearray(json.dumps(self.to_dict()).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the map that :meth:`get_extra_state` returned."""
        other = ScoreMap.from_dict(json.loads(bytes(state.cpu().tolist())))
        device = self.scale.device
        self.note = other.note
        self._set(other.num_classes, other.scale, other.shift, other.contains, other.now)
        self.to(device)

    def extra_repr(self) -> str:
        """Show what the map does, in short."""
        contains = "unknown" if self.contains is None else self.contains.words()
        now = "unknown" if self.now is None else self.now.words()
        return f"{self.num_classes}, contains: {contains}, now: {now}"

    @property
    def _converts(self) -> bool:
        """Whether the result contains other priors than the scaled scores."""
        return self.contains is not None and self.now is not None and not self.contains.same_as(self.now)

    def _record(self, priors: PriorRecord | Tensor | Literal["balanced"]) -> PriorRecord:
        if isinstance(priors, str):
            check_choice("priors", priors, ("balanced",))
            priors = PriorRecord.balanced(self.num_classes)
        record = PriorRecord.given(priors) if isinstance(priors, Tensor) else priors
        if not isinstance(record, PriorRecord):
            kind = type(priors).__name__
            raise ValueError(
                f"priors must be a PriorRecord, a tensor of shape (c,) or 'balanced', got a {kind}"
            )
        if self.contains is None:
            raise UnknownPriorError(_unknown(record.words()))
        return record

    def _changed(self, **changes: Any) -> "ScoreMap":
        values = {"scale": self.scale, "shift": self.shift, "contains": self.contains, "now": self.now}
        changed = ScoreMap(self.num_classes, **({**values, "note": self.note} | changes))
        return changed.to(self.scale.device)

    def noted(self, note: str) -> "ScoreMap":
        """Return the same map, with a note of how its numbers were found."""
        return self._changed(note=note)

    def _check(self, scores: Tensor) -> None:
        check_scores(scores, name="scores")
        if scores.shape[1] != self.num_classes:
            raise ValueError(f"scores must have {self.num_classes} classes, got {scores.shape[1]}")


def _per_class(name: str, value: float | Tensor, num_classes: int) -> Tensor:
    """Return one number, or a vector (c,) if the numbers differ, in float64 on the CPU."""
    if not isinstance(value, Tensor):
        return torch.tensor(float(check_number(name, value)), dtype=torch.float64)
    value = value.detach().cpu().double()
    if not value.ndim:
        return _per_class(name, float(value), num_classes)
    if value.shape != (num_classes,):
        got = f"shape {tuple(value.shape)}"
        raise ValueError(f"{name} must be one number or one per class ({num_classes}), got {got}")
    if not bool(value.isfinite().all()):
        raise ValueError(f"{name} must be finite, got {float(value[~value.isfinite()][0])}")
    return value[0].clone() if bool((value == value[0]).all()) else value.clone()


def _unknown(wanted: str) -> str:
    return (
        f"the scores contain unknown class priors and cannot be converted to {wanted}: fit their temperature "
        "and prior exponent first, on rows that the model was not trained on"
    )
