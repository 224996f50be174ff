"""Turn sets into lists that people read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._checks import check_count, check_scores, check_sets
from shortlist.class_table import ClassTable
from shortlist.predictors._size_bounds import first_classes
from shortlist.predictors.population import Population, Values
from shortlist.taxonomy import Taxonomy


class EntersAt(NamedTuple):
    """The smallest sets that hold a candidate.

    Attributes:
        top: Place of the candidate among all classes: it is in every list of so many classes or more.
        coverage: The candidate is in the set of every larger coverage; ``None`` without calibration rows.
        average: The candidate is in the set of this average size and of larger ones; ``None`` if unknown.
    """

    top: int
    coverage: float | None = None
    average: float | None = None


class Candidate(NamedTuple):
    """One class of a short list; a named tuple, since lists are made by the thousand.

    Attributes:
        index: Index of the class in the class table.
        id: Id of the class.
        name: Name of the class.
        parents: Parent of the class at each level of the class table, such as ``{"genus": "Quercus"}``.
        probability: Probability of the class, if the classes are as frequent as in the training rows;
            ``None`` if nobody knows it.
        in_set: Whether the class is in the predicted set; if not, it is listed as one of the best classes.
        enters_at: Smallest sets that hold the class.
        node: Node of the answer that holds the class, if it is in a set made of nodes of a taxonomy.
    """

    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - nobody searches a candidate
    id: str
    name: str
    parents: Mapping[str, str]
    probability: float | None
    in_set: bool
    enters_at: EntersAt
    node: "Node | None" = None


@dataclass(frozen=True)
class Node:
    """One node of a taxonomy in an answer.

    Args:
        index: Number of the node in the taxonomy; for a class, its index in the class table.
        name: Name of the node.
        level: Level of the node, such as ``"genus"``.
        mass: Sum of the probabilities of its classes, if these are known.
        size: Number of its classes.
    """

    index: int
    name: str
    level: str
    mass: float | None
    size: int


def sizes(sets: Bool[Tensor, "n c"]) -> Int[Tensor, " n"]:
    """Return the number of classes in each set (n,).

    Example:
        >>> sizes(torch.tensor([[True, False, True], [False, False, False]]))
        tensor([2, 0])
    """
    check_sets(sets)
    return sets.sum(1)


def to_lists(
    sets: Bool[Tensor, "n c"],
    probabilities: Float[Tensor, "n c"] | None,
    class_table: ClassTable,
    *,
    order: Float[Tensor, "n c"] | None = None,
    at_least: int = 0,
    limit: int | None = None,
    taxonomy: Taxonomy | None = None,
    population: Population | None = None,
    values: Values | None = None,
) -> list[list[Candidate]]:
    """List the classes of each set by name, the best first; ties are in the order of the table.

    A class whose value in ``order`` is ``-inf`` is impossible: it is never listed.

    Args:
        sets: Sets (n, c).
        probabilities: Probabilities (n, c) of the classes, to sort by and to show; ``None`` if they are not
            known: then ``order`` must be given.
        class_table: Names, ids and parents of the c classes.
        order: Scores (n, c) to sort by instead of the probabilities, such as those that made the sets.
        at_least: Number of best classes that are listed in any case, in the set or not.
        limit: Largest number of classes in a list, those of the set first; any number if ``None``.
        taxonomy: Tree over the c classes, if the sets are made of its nodes: classes in a set are then listed
            with the node that holds them.
        population: Calibration rows that say at which coverage and average size a class enters the set.
        values: Values of the classes for it; see :meth:`Population.values`.

    Returns:
        One list per row.

    Raises:
        ValueError: If shapes do not go together, or a probability is not a number.

    Example:
        >>> table = ClassTable(names=("oak", "beech", "birch"))
        >>> sets, probabilities = torch.tensor([[True, False, False]]), torch.tensor([[0.25, 0.125, 0.625]])
        >>> [(c.name, c.in_set) for c in to_lists(sets, probabilities, table, at_least=1)[0]]
        [('birch', False), ('oak', True)]
    """
    order = _check_listed(sets, probabilities, class_table, order)
    check_count("at_least", at_least, low=0)
    picked = _pick(sets, order, at_least, limit)
    rows, columns = picked.rows, picked.columns
    indices, parents = columns.tolist(), class_table.parents_by_class
    entries: Sequence[Sequence[float | None]] = [[None] * len(indices)] * 2
    if population is not None and values is not None:
        entries = population.enters_at(values, (rows.cpu().numpy(), columns.cpu().numpy()))
    nodes = None
    if taxonomy is not None:
        held = _nodes_by_class(to_nodes(sets, probabilities, taxonomy), taxonomy)
        nodes = [held[row].get(index) for row, index in zip(rows.tolist(), indices, strict=True)]
    columns_of_list = zip(  # without a function call for each class
        indices,
        [class_table.ids[index] for index in indices],
        [class_table.names[index] for index in indices],
        [parents[index] for index in indices],
        repeat(None) if probabilities is None else probabilities[rows, columns].tolist(),
        sets[rows, columns].tolist(),
        map(EntersAt, picked.places.tolist(), *entries),
        nodes or repeat(None),
        strict=False,  # some are the same for all
    )
    candidates = list(map(Candidate._make, columns_of_list))
    ends = rows.bincount(minlength=len(sets)).cumsum(0).tolist()
    return [candidates[start:end] for start, end in zip([0, *ends], ends, strict=False)]


class _Picked(NamedTuple):
    """The listed classes of all rows: row, class, and place among all classes from 1, each (m,)."""

    rows: Tensor
    columns: Tensor
    places: Tensor


def _pick(sets: Tensor, order: Tensor, at_least: int, limit: int | None) -> _Picked:
    """Choose the classes to list, row after row, the best first."""
    shown = sets | first_classes(order, at_least) if at_least else sets
    shown = shown & (order > -torch.inf)
    rows, columns = shown.nonzero(as_tuple=True)
    best_first = order[rows, columns].argsort(descending=True, stable=True)
    best_first = best_first[rows[best_first].argsort(stable=True)]
    rows, columns = rows[best_first], columns[best_first]
    places = _places_in_row(rows, len(sets)) + 1
    lowest = order.masked_fill(~shown, torch.inf).amin(1, keepdim=True)
    gaps = ((order >= lowest) & ~shown).any(1)  # classes between those that are listed
    if bool(gaps.any()):
        ranks = order[gaps].argsort(dim=1, descending=True, stable=True).argsort(1)
        inside, number = gaps[rows], gaps.cumsum(0) - 1
        places[inside] = ranks[number[rows[inside]], columns[inside]] + 1
    if limit is None or len(rows) <= limit:
        return _Picked(rows, columns, places)
    members_first = (2 * rows + ~sets[rows, columns]).argsort(stable=True)
    kept = members_first[_places_in_row(rows, len(sets)) < limit].sort().values
    return _Picked(rows[kept], columns[kept], places[kept])


def _places_in_row(rows: Tensor, number: int) -> Tensor:
    """Return, for rows in order (m,), how many of the same row come before."""
    counts = rows.bincount(minlength=number)
    return torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]


def to_nodes(
    sets: Bool[Tensor, "n c"], probabilities: Float[Tensor, "n c"] | None, taxonomy: Taxonomy
) -> list[list[Node]]:
    """List the nodes that make up each set, the fewest that do, those of the largest mass first.

    Args:
        sets: Sets (n, c).
        probabilities: Probabilities (n, c) of the classes, whose sums are shown; ``None`` if they are not
            known: the largest nodes are then first.
        taxonomy: Tree over the c classes.

    Returns:
        One list per row.

    Example:
        >>> parents = {"genus": ["Quercus", "Quercus", "Fagus"]}
        >>> tree = Taxonomy.from_class_table(ClassTable(("robur", "cerris", "sylvatica"), parents=parents))
        >>> [[node]] = to_nodes(torch.tensor([[True, True, False]]), torch.tensor([[0.5, 0.25, 0.25]]), tree)
        >>> node
        Node(index=3, name='Quercus', level='genus', mass=0.75, size=2)
    """
    rows, nodes = taxonomy.nodes_of(sets)
    node_sizes = taxonomy.sizes[nodes]
    masses = None if probabilities is None else _masses(sets, probabilities, taxonomy)[rows, nodes]
    best_first = (node_sizes if masses is None else masses).argsort(descending=True, stable=True)
    shown = [None] * len(rows) if masses is None else masses[best_first].tolist()
    parts = (part[best_first].tolist() for part in (rows, nodes, node_sizes))
    lists: list[list[Node]] = [[] for _ in range(len(sets))]
    for row, node, size, mass in zip(*parts, shown, strict=True):
        lists[row].append(Node(node, taxonomy.names[node], taxonomy.levels[node], mass, size))
    return lists


def _masses(sets: Tensor, probabilities: Tensor, taxonomy: Taxonomy) -> Tensor:
    """Return the sum of the probabilities of each node's classes (n, v)."""
    check_scores(probabilities, name="probabilities")
    if sets.shape != probabilities.shape:
        raise ValueError(
            f"probabilities must be of shape {tuple(sets.shape)}, got {tuple(probabilities.shape)}"
        )
    start, end = taxonomy.bounds
    in_order = probabilities.detach().cpu()[:, taxonomy.order]
    sums = torch.nn.functional.pad(in_order.double().cumsum(1), (1, 0))
    return sums[:, end] - sums[:, start]


def _nodes_by_class(lists: list[list[Node]], taxonomy: Taxonomy) -> list[dict[int, Node]]:
    """Return, for each row, the node that holds each class that one of its nodes holds."""
    start, end = taxonomy.bounds
    order, found = taxonomy.order.tolist(), []
    for nodes in lists:
        held = ((order[int(start[n.index]) : int(end[n.index])], n) for n in nodes)
        found.append({index: node for classes, node in held for index in classes})
    return found


def _check_listed(
    sets: Tensor, probabilities: Tensor | None, class_table: ClassTable, order: Tensor | None
) -> Tensor:
    """Check what lists are made of; return the numbers (n, c) to sort by."""
    if probabilities is not None:
        check_scores(probabilities, name="probabilities")
    check_sets(sets)
    if probabilities is not None and sets.shape != probabilities.shape:
        raise ValueError(
            f"sets must have the probabilities' shape {tuple(probabilities.shape)}, got {tuple(sets.shape)}"
        )
    if len(class_table) != sets.shape[1]:
        raise ValueError(f"class_table must have {sets.shape[1]} classes, got {len(class_table)}")
    if probabilities is not None and bool(probabilities.isnan().any()):
        row = int(probabilities.isnan().any(1).nonzero()[0])
        raise ValueError(f"probabilities must be numbers, got NaN in row {row}")
    if order is None and probabilities is not None:
        return probabilities
    if order is None:
        raise ValueError("order must be given where there are no probabilities, got None")
    if order.shape != sets.shape or bool(order.isnan().any()):
        raise ValueError(f"order must be numbers of shape {tuple(sets.shape)}, got {tuple(order.shape)}")
    return order
