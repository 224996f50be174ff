"""The sections of losses, made from the signatures of their classes."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from torch import nn

from shortlist.recipes.loss_use import TRAINABLE_LOSSES, find_loss, takes_class_weights
from shortlist.recipes.options import options_model
from shortlist.recipes.sections import Beta, NamedSection, Section

_PROVIDED = frozenset(
    {"weight", "class_counts", "estimates", "noise", "generator", "ignore_index", "reduction"}
)


class DistributionSection(Section):
    """Distributions over k by class; see :func:`shortlist.losses.distribution_by_class`."""

    default: list[float]
    named: dict[str, list[float]] = Field(default_factory=dict)
    level: str = "class"


def _loss_section(name: str, make: Callable[..., nn.Module]) -> type[BaseModel]:
    more: dict[str, Any] = {"name": (Literal[name], name)}  # type: ignore[valid-type]
    if takes_class_weights(name):
        more["class_balanced"] = (Annotated[float | None, Field(ge=0, lt=1)], None)
    if name == "ranked_topk":  # with a mapping, one distribution for each class
        chances = inspect.signature(make).parameters["distribution"].default
        more["distribution"] = (list[float] | DistributionSection, list(chances))
    return options_model(f"{name} loss", make, provided=_PROVIDED, more=more)


class OwnLossSection(NamedSection):
    """A loss of somebody's own, ``package.module:Class``: its options are checked once its code may run."""

    class_balanced: Beta | None = None

    def checked(self) -> BaseModel:
        """Return all options, of the types that its constructor asks for."""
        return own_loss_model(self.name).model_validate(self.model_dump(exclude_defaults=True))


def own_loss_model(name: str) -> type[BaseModel]:
    """Return the section of a loss of somebody's own, from the signature of its constructor."""
    return _loss_section(name, find_loss(name))


def loss_options(section: BaseModel) -> dict[str, Any]:
    """Return all options of a loss's section, without those that are about class weights."""
    whole = section.checked() if isinstance(section, OwnLossSection) else section
    return whole.model_dump(exclude={"name", "class_balanced"})


# The tensors that a loss wants come from the trainer; class_balanced is the beta of class-balanced weights.
LOSS_SECTIONS = {name: _loss_section(name, make) for name, make in TRAINABLE_LOSSES.items()}
