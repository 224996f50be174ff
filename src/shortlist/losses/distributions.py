"""Distributions over k for each class, from the class table: for the ranked top-k loss."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist.class_table import ClassTable

_FEW, _MANY = 20, 100  # training images of the papers' groups of classes


def distribution_by_class(
    table: ClassTable,
    named: Mapping[str, Sequence[float]],
    *,
    default: Sequence[float],
    level: str = "class",
) -> Float[Tensor, "c k"]:
    """Make one distribution over k for each class, for ``ranked_topk_loss(..., per="class")``.

    So a class, or all species of a genus, can be wanted in first place, and others among the first five only.

    Args:
        table: Class table, with the classes' parents and training counts.
        named: Distribution over k = 1, 2, ... of each name that does not have the default.
        default: Distribution of all other classes.
        level: What is named: ``"class"``, a level of the table such as ``"genus"``, or ``"frequency"`` for
            ``few`` (less than 20 training images), ``medium`` and ``many`` (more than 100).

    Returns:
        A tensor (c, K) in float64; shorter distributions are filled up with zeros.

    Raises:
        ValueError: If a name is not in the table, or the table has no such level.

    Example:
        >>> table = ClassTable(["oak", "elm", "fir"], parents={"kind": ["broad", "broad", "needle"]})
        >>> distribution_by_class(table, {"needle": [1.0]}, default=[0.5, 0.5], level="kind")
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000],
                [1.0000, 0.0000]], dtype=torch.float64)
    """
    if level == "class":
        groups = list(table.names)
    elif level == "frequency":
        counts = table.class_counts.tolist()
        groups = ["few" if n < _FEW else "many" if n > _MANY else "medium" for n in counts]
    else:
        number, names = table.parent_index(level)
        groups = [names[i] for i in number.tolist()]
    group_names = {"few", "medium", "many"} if level == "frequency" else set(groups)
    for name in named:
        if name not in group_names:
            shown = ", ".join(sorted(group_names)[:8])
            raise ValueError(f"distribution must name what is at the level {level} ({shown}), got {name!r}")
    length = max(len(chances) for chances in (default, *named.values()))
    rows = [
        [*chances, *([0.0] * (length - len(chances)))] for chances in (named.get(n, default) for n in groups)
    ]
    return torch.tensor(rows, dtype=torch.float64)
