"""Options of the loss that change over the epochs of a training."""

from typing import TYPE_CHECKING, Any

from shortlist.losses import own_steepness

if TYPE_CHECKING:
    from shortlist.recipes.recipe import Recipe


ANNEALED = ("noise_std", "steepness", "temperature")


def check_annealing(recipe: "Recipe") -> None:
    """Require options that the loss has, with a number > 0 to start from, and a single stage."""
    for option in recipe.anneal:
        if option not in ANNEALED:
            raise ValueError(f"anneal must be of {', '.join(ANNEALED)}, got {option!r}")
        start = _start(recipe, option)
        if not isinstance(start, int | float) or start <= 0:
            raise ValueError(
                f"anneal.{option} needs a loss with {option} > 0 to start from, got {recipe.loss.name} "
                f"with {option} {start}"
            )
    if recipe.anneal and recipe.second_stage is not None:
        raise ValueError("anneal must be left out with a second_stage, which trains with the loss's options")


def _start(recipe: "Recipe", option: str) -> Any:
    """Return the loss's own number; of the ranked loss without a steepness, that of its method."""
    start = getattr(recipe.loss, option, None)
    if start is None and option == "steepness" and recipe.loss.name == "ranked_topk":
        return own_steepness(getattr(recipe.loss, "method", ""))
    return start


def annealed_options(recipe: "Recipe", epoch: int, num_epochs: int) -> dict[str, float]:
    """Return the options of the loss at an epoch, from 0 on.

    From the loss's own number in the first epoch to ``end``, which is reached in epoch ``over`` (the last if
    left out) and kept; by equal factors, or by equal steps if ``curve`` is linear.
    """
    options = {}
    for option, section in recipe.anneal.items():
        start, last = float(_start(recipe, option)), max(1, (section.over or num_epochs) - 1)
        share = min(1.0, epoch / last)
        if section.curve == "linear":
            options[option] = start + share * (section.end - start)
        else:
            options[option] = start * (section.end / start) ** share
    return options
