"""Where wrong first guesses lie: how many stay within the genus, or any other parent of the true class."""

from collections.abc import Mapping

from torch import Tensor

from shortlist.coverage_law import clopper_pearson
from shortlist.metrics.results import Estimate


def confused_within(
    guess: Tensor, target: Tensor, parents: Mapping[str, Tensor], *, level: float | None = 0.95
) -> dict[str, Estimate]:
    """Return, by level of the parents, the share of wrong first guesses that have the right parent.

    Args:
        guess: Class of the largest score of each row (n,).
        target: True class of each row (n,).
        parents: By level, such as ``"genus"``, the number of the parent of each class (c,).
        level: Level of the interval of Clopper and Pearson over the wrong guesses; ``None`` for no interval.

    Returns:
        The shares; ``None`` in place of a number if no guess is wrong.

    Example:
        >>> guess, target = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0])
        >>> confused_within(guess, target, {"genus": torch.tensor([0, 0, 1])}, level=None)
        {'genus': Estimate(value=0.5, low=None, high=None)}
    """
    wrong = guess != target
    mistakes = int(wrong.sum())
    if not mistakes:
        return dict.fromkeys(parents, Estimate(None))
    estimates = {}
    for name, parent in parents.items():
        within = int((parent[guess[wrong]] == parent[target[wrong]]).sum())
        ends = () if level is None else clopper_pearson(within, mistakes, level=level)
        estimates[name] = Estimate(within / mistakes, *ends)
    return estimates
