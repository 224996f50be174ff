"""Which runs of a suite share a training, and which of them belong together in a part of the suite."""

import json
from collections import defaultdict
from collections.abc import Sequence

from shortlist.recipes import Recipe, first_stage_content
from shortlist.suites.plan import Cell, Point, resolve, source_cell
from shortlist.suites.suite import Suite, SuiteError

_SMALL = 0.05  # share of the work of a training that the runs made from it take


class Sharing:
    """The trainings of a suite, by what their first stages depend on."""

    def __init__(self, suite: Suite, cells: Sequence[Cell]) -> None:
        self._groups: dict[str, list[tuple[Cell, Point]]] = defaultdict(list)
        self._keys: dict[tuple[str, ...], str] = {}
        self._metrics: dict[str, dict[str, None]] = defaultdict(dict)
        for cell in cells:
            for point in cell.points if cell.method.trains else ():
                recipe = resolve(suite, cell, point, 0)  # that of another seed differs by the seed alone
                key = json.dumps(first_stage_content(recipe), sort_keys=True)
                self._keys[(*cell.place, cell.name, point.label)] = key
                self._groups[key].append((cell, point))
                self._metrics[key][recipe.selection.metric] = None

    def key(self, cell: Cell, point: Point) -> str:
        """Return what is the same for grid points that share their trainings, seed by seed."""
        return self._keys[(*cell.place, cell.name, point.label)]

    def alike(self, cell: Cell, point: Point) -> list[tuple[Cell, Point]]:
        """Return all grid points that share their trainings with one, in the order of the suite."""
        return self._groups[self.key(cell, point)]

    def keeping(self, cell: Cell, point: Point, recipe: Recipe) -> Recipe:
        """Return a recipe that keeps the best epochs of all metrics that runs of this training ask for."""
        others = [name for name in self._metrics[self.key(cell, point)] if name != recipe.selection.metric]
        kept = dict.fromkeys([*recipe.selection.keep, *others])
        selection = recipe.selection.model_copy(update={"keep": list(kept)})
        return recipe.model_copy(update={"selection": selection})


def check_part(part: tuple[int, int] | None) -> None:
    """Refuse a part that is not one of 1/n to n/n."""
    if part is not None and not 1 <= part[0] <= part[1]:
        raise SuiteError(f"--part must be i/n with 1 <= i <= n, got {part[0]}/{part[1]}")


def split_cells(
    suite: Suite, cells: Sequence[Cell], sharing: Sharing, parts: int
) -> dict[tuple[tuple[str, ...], int], int]:
    """Return the part, from 1, of each method (place and name) and seed.

    Runs that need each other are in one part: the grid points that are compared, the runs that share a
    training, and those of their scores. So no part waits for another one.
    """
    units = [unit for group in _connected(cells, sharing) for unit in _units(suite, group)]
    weights = [_weight(group, seeds, sharing) for group, seeds in units]
    loads, part_of = [0.0] * parts, {}
    for number in sorted(range(len(units)), key=lambda number: -weights[number]):
        lightest = loads.index(min(loads))
        loads[lightest] += weights[number]
        group, seeds = units[number]
        part_of |= {((*cell.place, cell.name), seed): lightest + 1 for cell in group for seed in seeds}
    return part_of


def _connected(cells: Sequence[Cell], sharing: Sharing) -> list[list[Cell]]:
    """Group cells that need each other, in the order of the suite."""
    group_of = {(*cell.place, cell.name): number for number, cell in enumerate(cells)}

    def join(a: Cell, b: Cell) -> None:
        old, new = group_of[(*b.place, b.name)], group_of[(*a.place, a.name)]
        for name, number in group_of.items():
            group_of[name] = new if number == old else number

    for cell in cells:
        if (source := source_cell(cell, list(cells))) is not None:
            join(source, cell)
        for point in cell.points if cell.method.trains else ():
            first = sharing.alike(cell, point)[0][0]
            if first is not cell:
                join(first, cell)
    groups: dict[int, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[group_of[(*cell.place, cell.name)]].append(cell)
    return list(groups.values())


def _units(suite: Suite, group: list[Cell]) -> list[tuple[list[Cell], list[int]]]:
    """Divide a group by its seeds, unless something is chosen in it."""
    if any(len(cell.points) > 1 for cell in group):
        return [(group, sorted({*suite.seeds, *suite.tune.seeds}))]
    return [(group, [seed]) for seed in suite.seeds]


def _weight(group: list[Cell], seeds: list[int], sharing: Sharing) -> float:
    points = [(cell, point) for cell in group for point in cell.points]
    trainings = {sharing.key(*pair) for pair in points if pair[0].method.trains}
    return len(seeds) * (len(trainings) + _SMALL * (len(points) - len(trainings)))
