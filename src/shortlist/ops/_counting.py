"""Distribution of how many independent events happen: truncated products of (q_j + p_j z), and derivatives.

Coefficient i of the product over j is the chance that exactly i of the events happen (a Poisson-binomial
distribution). All terms are products and sums of non-negative numbers, so nothing cancels and every
coefficient has full relative accuracy. The factors are multiplied in pairs, then pairs of pairs: O(m k) work
for m factors and k coefficients in about log2(m) vectorized steps. Coefficients come first in every shape, so
that each step runs over long contiguous stretches.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shortlist.ops.workspaces import cached_workspace

# Numbers in one slab of factors: small enough for the cache, large enough to hide the cost of a call.
_SLAB = 1 << 18

Steps = list[tuple[Callable[..., Any], tuple[Tensor, ...]]]
"""Calls and what they are made with, in turn."""


def slab_points(num_factors: int) -> int:
    """Return how many points to treat at once for a given number of factors."""
    return max(1, _SLAB // max(1, num_factors))


def _level_shapes(num_factors: int, size: int) -> list[tuple[int, int]]:
    """Return (coefficients, factors) of each level of the tree, from the given factors to their product."""
    shapes = [(min(size, 2), num_factors)]
    while shapes[-1][1] > 1:
        degree, count = shapes[-1]
        shapes.append((min(size, 2 * degree - 1), count - count // 2))
    return shapes


def count_tree(like: Tensor, num_factors: int, size: int, points: int) -> "CountTree":
    """Return a :class:`CountTree`, or the one that this thread made before for the same shape."""
    numbers = 2 * points * _numbers(num_factors, size)
    key = (CountTree, num_factors, size, points)
    return cached_workspace(like, key, numbers, lambda: CountTree(like, num_factors, size, points))


def _numbers(num_factors: int, size: int) -> int:
    """Return how many numbers all levels of the tree have at one point."""
    return sum(degree * count for degree, count in _level_shapes(num_factors, size))


class CountTree:
    """A workspace for products of (q_j + p_j z), whose memory is allocated once and reused.

    Args:
        like: Any tensor of the wanted type and device.
        num_factors: Largest number of factors m.
        size: Number of coefficients kept.
        points: Largest number of products computed side by side.
    """

    def __init__(self, like: Tensor, num_factors: int, size: int, points: int) -> None:
        self.size = size
        self.memory = like.new_empty(2, _numbers(num_factors, size) * points)
        self.shape = (-1, -1)
        self.reset(num_factors, points)

    def reset(self, num_factors: int, points: int) -> None:
        """Choose the shape of the next product, no larger than the workspace was made for."""
        if self.shape == (num_factors, points):
            return
        self.shape = (num_factors, points)
        shapes = _level_shapes(num_factors, self.size)
        sizes = [degree * count * points for degree, count in shapes]
        self.levels, self.gradients = (
            [
                flat.view(degree, count, points)
                for flat, (degree, count) in zip(half[: sum(sizes)].split(sizes), shapes, strict=True)
            ]
            for half in self.memory
        )
        self._up: Steps | None = None
        self._down: dict[int, Steps] = {}

    @property
    def factors(self) -> Tensor:
        """Return the tensor for the factors, (2, m, points): q, then p (q alone if size is 1)."""
        return self.levels[0]

    def multiply(self) -> Tensor:
        """Return the first ``size`` coefficients of the product of the factors, (size, points)."""
        if self._up is None:
            pairs = zip(self.levels[:-1], self.levels[1:], strict=True)
            self._up = [step for level, out in pairs for step in _step_up(level, out)]
        _run(self._up)
        return self.levels[-1][:, 0]

    def gradient(self, seed: Tensor, part: int) -> Tensor:
        """Return the derivative with respect to the q (part 0) or the p (part 1) of each factor, (m, points).

        Args:
            seed: Derivative of the result with respect to the coefficients, (size, points).
            part: 0 for the derivative in q, 1 for the derivative in p.
        """
        if len(self.levels) == 1:
            return seed[part, None]
        self.gradients[-1][:, 0] = seed
        if part not in self._down:
            self._down[part] = self._plan_down(part)
        _run(self._down[part])
        return self.gradients[0][0]

    def _plan_down(self, part: int) -> Steps:
        steps, above = [], self.gradients[-1]
        for level, below in zip(self.levels[-2:0:-1], self.gradients[-2:0:-1], strict=True):
            steps += _step_down(above, level, below)
            above = below
        return steps + _step_down(above[part:], self.levels[0], self.gradients[0][:1])


def _run(steps: Steps) -> None:
    for call, tensors in steps:
        call(*tensors)


def _step_up(level: Tensor, out: Tensor) -> Steps:
    """Multiply the two halves of a level."""
    degree, half = level.shape[0], level.shape[1] // 2
    steps = _convolve(level[:, :half], level[:, half : 2 * half], out[:, :half])
    if level.shape[1] % 2:  # the odd factor out is carried up as it is
        steps += [(Tensor.copy_, (out[:degree, -1], level[:, -1])), (Tensor.zero_, (out[degree:, -1],))]
    return steps


def _step_down(above: Tensor, level: Tensor, below: Tensor) -> Steps:
    """Return the gradient in a level's coefficients, from the gradient in the product of its halves."""
    half = level.shape[1] // 2
    steps = _correlate(above[:, :half], level[:, half : 2 * half], below[:, :half])
    steps += _correlate(above[:, :half], level[:, :half], below[:, half : 2 * half])
    if level.shape[1] % 2:
        steps.append((Tensor.copy_, (below[:, -1], above[: below.shape[0], -1])))
    return steps


def _convolve(left: Tensor, right: Tensor, out: Tensor) -> Steps:
    """Compute out_i = sum_j left_j right_{i-j}, as far as ``out`` is long."""
    degree, length = left.shape[0], out.shape[0]
    steps: Steps = [(_multiply, (left[:1], right, out[:degree])), (Tensor.zero_, (out[degree:],))]
    for i in range(1, degree):
        reach = min(degree, length - i)
        steps.append((Tensor.addcmul_, (out[i : i + reach], left[i : i + 1], right[:reach])))
    return steps


def _correlate(gradient: Tensor, factor: Tensor, out: Tensor) -> Steps:
    """Compute out_i = sum_j gradient_{i+j} factor_j, a product's gradient in one factor, given the other."""
    length = gradient.shape[0]
    steps: Steps = [(_multiply, (gradient[: out.shape[0]], factor[:1], out))]
    for j in range(1, factor.shape[0]):
        reach = min(out.shape[0], length - j)
        if reach > 0:
            steps.append((Tensor.addcmul_, (out[:reach], gradient[j : j + reach], factor[j : j + 1])))
    return steps


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    torch.mul(left, right, out=out)
