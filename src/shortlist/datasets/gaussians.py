"""Data sets of Gaussian classes: small, quick to learn, and with a Bayes limit that is known exactly."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist._checks import check_count, check_k, check_number
from shortlist.class_table import ClassTable
from shortlist.datasets._bayes import BayesAccuracy, bayes_accuracy
from shortlist.datasets.splits import Splits, TensorSplit

# both classes are sqrt(2) standard deviations away from the best separator
TWO_GAUSSIANS_BALANCED_ERROR = 0.5 * math.erfc(1.0)


@dataclass(frozen=True, repr=False)
class GaussianSplits(Splits):
    """A data set of Gaussian classes of unit variance, and its distribution.

    Args:
        train: Training part, float32 rows.
        val: Validation part.
        test: Test part.
        class_table: Names and training counts; ``genus`` groups classes that lie close together.
        means: Center of each class (c, d), float64.
        priors: Probability of each class (c,), float64.
    """

    train: TensorSplit
    val: TensorSplit
    test: TensorSplit
    means: Tensor
    priors: Tensor

    def log_posterior(self, inputs: Tensor) -> Tensor:
        """Return the logarithm of the exact probability of each class given the input (n, c), float64."""
        return log_posterior(inputs, means=self.means, priors=self.priors)

    def draw(
        self, num_rows: int, *, generator: torch.Generator, balanced: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Draw new rows (n, d), float64, and their classes (n,); ``balanced`` draws all classes alike."""
        check_count("num_rows", num_rows)
        weights = torch.ones_like(self.priors) if balanced else self.priors
        return _draw(num_rows, means=self.means, priors=weights, generator=generator)

    def bayes_accuracy(self, *, k: float, num_samples: int = 50_000, seed: int = 0) -> BayesAccuracy:
        """Compute the accuracy of the best sets of size ``k`` on this distribution, with standard errors.

        Args:
            k: Size of the sets; on average it need not be whole.
            num_samples: Number of rows over which exact posteriors are averaged, at least 2.
            seed: Seed of these rows.
        """
        check_count("num_samples", num_samples)
        if num_samples < 2:
            raise ValueError(f"num_samples must be >= 2, got {num_samples}")
        generator = torch.Generator().manual_seed(seed)
        rows, _ = self.draw(num_samples, generator=generator)
        balanced, _ = self.draw(num_samples, generator=generator, balanced=True)
        return bayes_accuracy(self.log_posterior, self.priors.log(), rows, balanced, k=k)


def log_posterior(inputs: Tensor, *, means: Tensor, priors: Tensor) -> Tensor:
    r"""Compute :math:`\log P(y | x)` (n, c) for unit-variance Gaussians, in float64.

    Example:
        >>> means, priors = torch.tensor([[0.0], [2.0]]), torch.tensor([0.5, 0.5])
        >>> log_posterior(torch.tensor([[1.0], [2.0]]), means=means, priors=priors).exp()
        tensor([[0.5000, 0.5000],
                [0.1192, 0.8808]], dtype=torch.float64)
    """
    inputs, means, priors = inputs.double(), means.double(), priors.double()
    # |x|^2 is the same for all classes
    return (inputs @ means.T - means.square().sum(-1) / 2 + priors.log()).log_softmax(-1)


def gaussian_genera(
    *,
    num_classes: int = 200,
    num_genera: int = 25,
    dim: int = 20,
    num_rows: int = 8000,
    num_val_rows: int = 4000,
    num_test_rows: int = 10_000,
    genus_spread: float = 8.0,
    class_spread: float = 1.55,
    zipf_exponent: float = 1.0,
    seed: int = 0,
) -> GaussianSplits:
    r"""Make Gaussian classes in groups of neighbors, some frequent and most rare, with exact probabilities.

    Class c of genus g is :math:`N(\mu_g + \delta_c, I)`, with genus centers
    :math:`\mu_g \sim N(0, a^2 I / d)` and offsets :math:`\delta_c \sim N(0, b^2 I / d)`; the priors are
    :math:`r^{-s} / \sum r^{-s}` with the ranks r in random order. With the defaults, the best sets of 2 hold
    the class in 87.8 % of the rows, those of 2 on average in 92.3 %.

    Args:
        num_classes: Number of classes.
        num_genera: Number of groups, of sizes as equal as possible.
        dim: Number of dimensions of the rows.
        num_rows: Number of training rows. The rarest classes have few of them, or none.
        num_val_rows: Number of validation rows.
        num_test_rows: Number of test rows.
        genus_spread: Typical distance a of a genus from the origin.
        class_spread: Typical distance b of a class from the center of its genus.
        zipf_exponent: Exponent s of the Zipf priors, 0 for equal priors.
        seed: Seed of all random draws.

    Returns:
        The parts, the class table, the means and the priors.
    """
    for name, value in (("num_classes", num_classes), ("dim", dim), ("num_rows", num_rows)):
        check_count(name, value)
    for name, value in (("num_val_rows", num_val_rows), ("num_test_rows", num_test_rows)):
        check_count(name, value)
    check_k(num_genera, num_classes, name="num_genera", up_to=True)
    for name, value in (("genus_spread", genus_spread), ("class_spread", class_spread)):
        check_number(name, value, low=0)
    check_number("zipf_exponent", zipf_exponent, low=0)
    generator = torch.Generator().manual_seed(seed)
    genus = torch.arange(num_classes) * num_genera // num_classes
    normal = {"dtype": torch.float64, "generator": generator}
    centers = torch.randn(num_genera, dim, **normal) * genus_spread / dim**0.5
    means = centers[genus] + torch.randn(num_classes, dim, **normal) * class_spread / dim**0.5
    weights = torch.arange(1, num_classes + 1, dtype=torch.float64) ** -zipf_exponent
    priors = (weights / weights.sum())[torch.randperm(num_classes, generator=generator)]
    place = torch.arange(num_classes) - torch.searchsorted(genus, genus)
    names = [f"genus {g} class {c}" for g, c in zip(genus.tolist(), place.tolist(), strict=True)]
    table = ClassTable(names=names, parents={"genus": [f"genus {g}" for g in genus.tolist()]})
    return _splits(table, means, priors, sizes=(num_rows, num_val_rows, num_test_rows), generator=generator)


def two_gaussians(
    *,
    rare_prior: float = 0.05,
    num_rows: int = 10_000,
    num_val_rows: int = 10_000,
    num_test_rows: int = 10_000,
    seed: int = 0,
) -> GaussianSplits:
    """Make two classes in the plane: unit Gaussians around (-1, -1) and, for the rare class, (1, 1).

    The best separator for the balanced error goes through the origin, whatever the priors; its error is
    ``TWO_GAUSSIANS_BALANCED_ERROR``, 7.86 %.

    Args:
        rare_prior: Probability of class 1, in (0, 1).
        num_rows: Number of training rows.
        num_val_rows: Number of validation rows.
        num_test_rows: Number of test rows.
        seed: Seed of the rows.

    References:
        A. Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, section 6.1.
    """
    check_number("rare_prior", rare_prior, above=0, below=1)
    sizes = (num_rows, num_val_rows, num_test_rows)
    for name, value in zip(("num_rows", "num_val_rows", "num_test_rows"), sizes, strict=True):
        check_count(name, value)
    table = ClassTable(names=("frequent", "rare"))
    means = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    priors = torch.tensor([1 - rare_prior, rare_prior], dtype=torch.float64)
    return _splits(table, means, priors, sizes=sizes, generator=torch.Generator().manual_seed(seed))


def draw_two_gaussians(
    num_rows: int, *, rare_prior: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw rows (n, 2), float64, and classes (n,) of the two Gaussians; class 1 is the rare one."""
    target = (torch.rand(num_rows, generator=generator) < rare_prior).long()
    noise = torch.randn(num_rows, 2, dtype=torch.float64, generator=generator)
    return noise + (2 * target[:, None] - 1), target


def _draw(
    num_rows: int, *, means: Tensor, priors: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    target = torch.multinomial(priors, num_rows, replacement=True, generator=generator)
    noise = torch.randn(num_rows, means.shape[1], dtype=torch.float64, generator=generator)
    return means[target] + noise, target


def _splits(
    table: ClassTable,
    means: Tensor,
    priors: Tensor,
    *,
    sizes: tuple[int, int, int],
    generator: torch.Generator,
) -> GaussianSplits:
    parts = []
    for size in sizes:
        rows, target = _draw(size, means=means, priors=priors, generator=generator)
        parts.append(TensorSplit(rows.float(), target))
    counts = parts[0].targets.bincount(minlength=len(table))
    return GaussianSplits(*parts, class_table=table.with_counts(counts), means=means, priors=priors)
