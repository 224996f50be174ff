"""Answers at the level that is sure: a species, its genus, or its family, with a promised probability."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_count, check_number
from shortlist.coverage_law import conformal_rank
from shortlist.predictors._activation import Activation
from shortlist.predictors._base import SetPredictor
from shortlist.predictors._chunks import sets_in_chunks
from shortlist.predictors._few_nodes import grow
from shortlist.predictors._tree import Tree, climb, first_largest, nodes_hold, tensors_of
from shortlist.predictors.accumulator import Accumulator, CalibrationReport, Finished, Rows, State
from shortlist.predictors.lists import Node, to_nodes
from shortlist.predictors.thresholds import Marginal
from shortlist.promise import Promise
from shortlist.taxonomy import Taxonomy

_MANY = 2**22  # probabilities whose unions grow at once: the number of rows matters more than the cache


class TaxonomyNodes(SetPredictor):
    r"""A predictor of one node of a taxonomy, or of at most ``nodes`` nodes, with a promised coverage.

    With n calibration rows exchangeable with the new ones, a node of the answer holds the true class with
    probability in :math:`[1 - a, 1 - a + 1/(n + 1)]` (without ties), whatever the model, where ``coverage``
    is :math:`1 - a`. Only if the most likely class alone is right more often than that, the coverage is
    higher: each answer is then this class. No answer is empty.

    For one node, the answer is the first of the most likely class, its parent, and so on up to the root,
    whose mass (the sum of the probabilities of its classes) is above a threshold q:

    .. math:: \text{score}(x, y) = \max \{P(v) : v \text{ above the most likely class}, y \notin v\},
        \qquad q = \text{the } \lceil (n + 1)(1 - a) \rceil\text{-th smallest score}

    where a score is 0 if y is the most likely class. For more nodes, unions of nodes take the place of the
    single ones: the next most likely class is added, complete siblings become their parent, and where there
    are too many nodes, two become their lowest common ancestor. Several nodes hold fewer classes in all.

    Args:
        taxonomy: Tree over the classes, such as ``Taxonomy.from_class_table(table)``.
        coverage: Promised share of answers that hold the true class, in (0, 1).
        nodes: Largest number of nodes in an answer.
        activation: ``"softmax"``, or ``"none"`` if the scores are probabilities already.

    Example:
        >>> tree = Taxonomy(("a", "b", "c", "d", "AB", "CD", "all classes"),
        ...                 ("class",) * 4 + ("genus",) * 2 + ("root",), (4, 4, 5, 5, 6, 6, -1))
        >>> predictor = TaxonomyNodes(tree, coverage=0.5, activation="none")
        >>> seen = torch.tensor([[0.6, 0.2, 0.1, 0.1], [0.5, 0.2, 0.2, 0.1], [0.5, 0.2, 0.2, 0.1]])
        >>> _ = predictor.calibrate(seen, torch.tensor([1, 0, 3]))
        >>> predictor.threshold  # the 2nd of 0.6 (it is not a, but in AB), 0 (it is a) and 0.7 (not in AB)
        tensor(0.6000)
        >>> predictor(torch.tensor([[0.5, 0.2, 0.2, 0.1]]))
        tensor([[ True,  True, False, False]])

    The answers of several nodes cannot be part of an exported graph: their number of steps is not fixed.

    References:
        S. Goren, I. Galil, R. El-Yaniv, "Hierarchical selective classification", NeurIPS 2024.
    """

    needs_target = True
    takes_taxonomy: ClassVar[bool] = True
    chunks_at_once: ClassVar[int] = 4
    adds_probabilities = True
    order: Tensor
    chains: Tensor
    starts: Tensor
    ends: Tensor
    parents: Tensor

    def __init__(
        self,
        taxonomy: Taxonomy,
        *,
        coverage: float = 0.9,
        nodes: int = 1,
        activation: Activation = "softmax",
    ) -> None:
        if not isinstance(taxonomy, Taxonomy):
            raise ValueError(f"taxonomy must be a Taxonomy, got {type(taxonomy).__name__}")
        check_choice("activation", activation, ("softmax", "none"))  # sigmoids do not add up to 1
        super().__init__(activation=activation, num_classes=taxonomy.num_classes)
        self.coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        check_count("nodes", nodes)
        self.taxonomy, self.max_nodes = taxonomy, nodes
        for name, tensor in tensors_of(taxonomy)._asdict().items():
            self.register_buffer(name, tensor)

    @property
    def promise(self) -> Promise:
        """That the answer holds the true class, over all rows together, from so many calibration rows."""
        report = self.report
        return Promise(
            "node",
            level=self.coverage,
            asked=self.coverage,
            rows=None if report is None else report.rows,
            has_law=True,
            rows_also="" if report is None else report.rows_also,
        )

    def options(self) -> dict[str, Any]:
        """Return the arguments of this predictor as plain values for JSON."""
        return {
            "taxonomy": self.taxonomy.to_dict(),
            "coverage": self.coverage,
            "nodes": self.max_nodes,
            "activation": self.activation,
        }

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c) of the classes that the nodes of each answer hold."""
        scores = self.checked(scores)
        return sets_in_chunks(scores, lambda _, nodes: self._classes_of(nodes), self._answers(scores))

    def nodes(
        self, scores: Float[Tensor, "n c"] | np.ndarray, probabilities: Float[Tensor, "n c"] | None = None
    ) -> list[list[Node]]:
        """Return the nodes of each answer by name, those of the largest mass first.

        Args:
            scores: Scores (n, c).
            probabilities: Probabilities (n, c) whose sums are shown as masses; those that made the answers by
                default.
        """
        scores = self.checked(scores)
        if probabilities is None:
            probabilities = self.values(scores)
        return to_nodes(self(scores), probabilities, self.taxonomy)

    def _tree(self) -> Tree:
        return Tree(self.order, self.chains, self.starts, self.ends, self.parents)

    def _answers(self, scores: Tensor) -> Int[Tensor, "n r"]:
        """Return the nodes (n, r) of each answer, filled up with the empty one."""
        if self.max_nodes > 1 and torch.compiler.is_compiling():
            raise ValueError(
                f"nodes must be 1 in a graph that is compiled or exported, got {self.max_nodes}: "
                "the answers of several nodes take a number of steps that differs from row to row"
            )
        if not can_read_values(scores):
            return self._answers_at_once(scores)
        step = (
            self._rows_at_once(scores.shape[1]) if self.max_nodes == 1 else max(1, _MANY // scores.shape[1])
        )
        return torch.cat([self._answers_at_once(part) for part in scores.detach().split(step)])

    def _answers_at_once(self, scores: Tensor) -> Tensor:
        values, tree = self.values(scores), self._tree()
        threshold = self.threshold.to(values.dtype)
        if self.max_nodes == 1:
            best = first_largest(values)
            chains = tree.chains[best]
            masses = climb(values, best, tree, (chains != tree.root).sum(1))
            # the masses never fall: so many nodes have too little of it
            below = (masses <= threshold).sum(1, keepdim=True).clamp_max(chains.shape[1] - 1)
            return chains.gather(1, below)
        return grow(values, tree, self.max_nodes, lambda rows, nodes, reached: reached > threshold)[0]

    def _classes_of(self, nodes: Tensor) -> Tensor:
        """Return the classes (n, c) that some nodes (n, r) hold, as sets."""
        place = self.starts[: len(self.order)]
        held = [(place >= self.starts[node]) & (place < self.ends[node]) for node in nodes.split(1, dim=1)]
        return functools.reduce(torch.logical_or, held)

    def measure(self, scores: Tensor, target: Tensor | None) -> tuple[State, tuple[Tensor, Tensor] | None]:
        """Return the scores of rows; which rows have to grow unions first, and their probabilities."""
        assert target is not None  # as labels are needed
        values, tree = self.values(scores), self._tree()
        best = first_largest(values)
        without = (~nodes_hold(tree, tree.chains[best], target)).sum(1)  # nodes on the way up, to hold it
        if self.max_nodes > 1:
            wrong = without.nonzero().squeeze(1)
            return {"scores": values.new_zeros(len(values)), "target": target}, (wrong, values[wrong])
        masses = climb(values, best, tree, without)
        reached = masses.gather(1, (without - 1).clamp_min(0)[:, None]).squeeze(1)
        return {"scores": reached.where(without > 0, 0.0), "target": target}, None

    def accumulator(self, max_rows: int | None = None) -> Accumulator[Finished]:
        """Return an accumulator of scores."""
        return _GrowingRows(self._tree(), self.max_nodes, self._finished)

    def _finished(self, rows: Rows) -> Finished:
        scores = rows["scores"]
        threshold = Marginal()(scores, rows["target"], self.num_classes, self.coverage).values
        inside = scores <= threshold
        ties = int(inside.sum()) - conformal_rank(len(rows), self.coverage) if math.isfinite(threshold) else 0
        report = CalibrationReport(rows=len(rows), coverage=float(inside.double().mean()), ties=ties)
        return Finished({"threshold": threshold}, report)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name, own in self._tree()._asdict().items():
            given = state_dict.get(prefix + name)
            if given is not None and not torch.equal(given.cpu(), own.cpu()):
                raise ValueError(
                    f"the state is of another taxonomy than the predictor's: {prefix}{name} differs"
                )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class _GrowingRows(Rows[Finished]):
    """Rows of which some get their score later: unions of many rows grow about as fast as those of one."""

    def __init__(self, tree: Tree, max_nodes: int, result: Callable[[Rows[Finished]], Finished]) -> None:
        super().__init__(result)
        self._tree, self._max_nodes = tree, max_nodes
        self._growing: list[tuple[Tensor, Tensor]] = []  # places of rows without a score, and their values

    def add(self, measured: Any) -> None:
        """Add rows, and which of them have no score yet, with their probabilities."""
        columns, growing = measured
        if growing is not None:
            self._growing.append((growing[0] + len(self), growing[1]))
        super().add(columns)
        if sum(values.numel() for _, values in self._growing) >= _MANY:
            self._grow()

    def merge(self, state: State) -> None:
        """Add other rows, which have their scores."""
        if state:
            super().add(state)

    def state(self) -> State:
        """Return the columns."""
        self._grow()
        return super().state()

    def finish(self) -> Finished:
        """Return the result of all rows."""
        self._grow()
        return super().finish()

    def _grow(self) -> None:
        if not self._growing:
            return
        places, values = map(torch.cat, zip(*self._growing, strict=True))
        target = self["target"][places]

        def held(rows: Tensor, nodes: Tensor, reached: Tensor) -> Tensor:
            return nodes_hold(self._tree, nodes, target[rows]).any(1)

        self["scores"][places] = grow(values, self._tree, self._max_nodes, held)[1]
        self._growing = []
