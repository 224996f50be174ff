"""How many of many independent events happen: products of (q_j + p_j z), truncated, and their derivatives.

Coefficient i of the product over j is the chance that exactly i of the events happen (a Poisson-binomial
distribution). All terms are products and sums of non-negative numbers, so nothing cancels and every
coefficient has full relative accuracy. The factors are multiplied in pairs, then pairs of pairs: O(m k) work
for m factors and k coefficients in about log2(m) vectorised steps. Coefficients come first in every shape, so
that each step runs over long contiguous stretches.
"""

import torch
from torch import Tensor

__all__ = ["CountTree", "slab_points"]

# Numbers in one slab of factors: small enough for the cache, large enough to hide the cost of a call.
_SLAB = 1 << 18


def slab_points(num_factors: int) -> int:
    """How many points to treat at once for a given number of factors."""
    return max(1, _SLAB // max(1, num_factors))


def _level_shapes(num_factors: int, size: int) -> list[tuple[int, int]]:
    """(coefficients, factors) of each level of the tree, the given factors first, their product last."""
    shapes = [(min(size, 2), num_factors)]
    while shapes[-1][1] > 1:
        degree, count = shapes[-1]
        shapes.append((min(size, 2 * degree - 1), count - count // 2))
    return shapes


class CountTree:
    """A workspace for products of (q_j + p_j z): memory is taken once and used for slab after slab.

    Args:
        like: A tensor of the wanted type and device.
        num_factors: Largest number of factors m.
        size: Number of coefficients kept.
        points: Largest number of products computed side by side.
    """

    def __init__(self, like: Tensor, num_factors: int, size: int, points: int) -> None:
        self.size = size
        numbers = sum(degree * count for degree, count in _level_shapes(num_factors, size))
        self.memory = like.new_empty(2, numbers * points)
        self.reset(num_factors, points)

    def reset(self, num_factors: int, points: int) -> None:
        """Choose the shape of the next product, no larger than the workspace was made for."""
        shapes = _level_shapes(num_factors, self.size)
        sizes = [degree * count * points for degree, count in shapes]
        self.levels, self.gradients = (
            [
                flat.view(degree, count, points)
                for flat, (degree, count) in zip(half[: sum(sizes)].split(sizes), shapes, strict=True)
            ]
            for half in self.memory
        )

    @property
    def factors(self) -> Tensor:
        """Where the caller writes the factors, (2, m, points): q, then p (q alone if size is 1)."""
        return self.levels[0]

    def multiply(self) -> Tensor:
        """The first ``size`` coefficients of the product of the factors, (size, points)."""
        for level, out in zip(self.levels[:-1], self.levels[1:], strict=True):
            degree, half = level.shape[0], level.shape[1] // 2
            if level.shape[1] % 2:  # the odd factor out is carried up as it is
                out[:degree, -1] = level[:, -1]
                out[degree:, -1] = 0
            _convolve(level[:, :half], level[:, half : 2 * half], out[:, :half])
        return self.levels[-1][:, 0]

    def gradient(self, seed: Tensor, part: int) -> Tensor:
        """Derivative with respect to the q (part 0) or the p (part 1) of each factor, (m, points).

        Args:
            seed: The derivative with respect to the coefficients, (size, points).
            part: Which half of the factors is asked for.
        """
        above = seed[:, None]
        if len(self.levels) == 1:
            return above[part]
        for level, below in zip(self.levels[-2:0:-1], self.gradients[-2:0:-1], strict=True):
            _step_down(above, level, below)
            above = below
        asked = self.gradients[0][:1]
        _step_down(above[part:], self.levels[0], asked)
        return asked[0]


def _step_down(above: Tensor, level: Tensor, below: Tensor) -> None:
    """From the gradient of the products of a level's halves to that of the level's coefficients."""
    half = level.shape[1] // 2
    _correlate(above[:, :half], level[:, half : 2 * half], below[:, :half])
    _correlate(above[:, :half], level[:, :half], below[:, half : 2 * half])
    if level.shape[1] % 2:
        below[:, -1] = above[: below.shape[0], -1]


def _convolve(left: Tensor, right: Tensor, out: Tensor) -> None:
    """out_i = sum_j left_j right_{i-j}, as far as ``out`` is long."""
    degree, length = left.shape[0], out.shape[0]
    torch.mul(left[:1], right, out=out[:degree])
    out[degree:] = 0
    for i in range(1, degree):
        reach = min(degree, length - i)
        out[i : i + reach].addcmul_(left[i : i + 1], right[:reach])


def _correlate(gradient: Tensor, factor: Tensor, out: Tensor) -> None:
    """out_i = sum_j gradient_{i+j} factor_j: a product's gradient in one factor, given the other."""
    length = gradient.shape[0]
    torch.mul(gradient[: out.shape[0]], factor[:1], out=out)
    for j in range(1, factor.shape[0]):
        reach = min(out.shape[0], length - j)
        if reach > 0:
            out[:reach].addcmul_(gradient[j : j + reach], factor[j : j + 1])
