"""A threshold that follows the share of misses, wherever the rows come from."""

from shortlist._checks import check_number
from shortlist.predictors._sealed_rule import SealedRule


class AdaptingThreshold(SealedRule):
    r"""A threshold that rises after each miss and falls a little after each hit.

    This is adaptive conformal inference. After each reply :math:`q \leftarrow q + g (\mathrm{miss} - a)`,
    with ``coverage`` :math:`1 - a` and ``step`` g. For scores in [0, 1] the share of misses over T replies is
    then within :attr:`bound` of a, :math:`(\max(q_1, 1 - q_1) + g) / (g T)`, for *any* sequence of rows:
    shifts, trends, or an adversary. It promises nothing about a single list; while it recovers, some lists
    are empty and some hold all classes.

    Args:
        coverage: Share of lists with the true class in the long run, in (0, 1).
        step: How far one reply moves the threshold, > 0. A larger one follows faster and wavers more.
        start: First threshold, in [0, 1], for scores in [0, 1] such as ``lac`` or ``aps``.

    Example:
        >>> rule = AdaptingThreshold(coverage=0.75, step=0.125, start=0.5)
        >>> rule.observe(hit=False)
        >>> rule.threshold  # 0.5 + 0.125 * 0.75
        0.59375
        >>> rule.observe(hit=True)
        >>> rule.threshold
        0.5625

    References:
        I. Gibbs, E. Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
    """

    _format = "shortlist adapting threshold 1"

    def __init__(self, *, coverage: float = 0.9, step: float = 0.02, start: float = 0.5) -> None:
        self.coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        self.step = check_number("step", step, above=0.0)
        self.start = check_number("start", start, low=0.0, below=1 + 1e-12)
        self.threshold = float(self.start)
        self.rounds = 0
        self.misses = 0

    def observe(self, *, hit: bool) -> None:
        """Count the reply to one list: whether the true class was in it.

        Do not call it for a list that nobody replied to: no reply is not a miss.
        """
        if not isinstance(hit, bool):
            raise ValueError(f"hit must be True or False, got {hit!r}; leave out lists without a reply")
        self.rounds += 1
        self.misses += not hit
        self.threshold += self.step * ((not hit) - (1 - self.coverage))

    @property
    def bound(self) -> float:
        """How far the share of misses can be from the promised one so far, at most 1."""
        reach = max(self.start, 1 - self.start) + self.step
        return min(1.0, reach / (self.step * self.rounds)) if self.rounds else 1.0

    def merge(self, other: "AdaptingThreshold") -> None:
        """Refuse: each list must be made by the threshold that all replies before it have moved.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "AdaptingThreshold cannot be merged: its promise needs each list to be made by the threshold "
            "that all earlier replies have moved. Send all replies to one rule, or keep one for each stream"
        )
