"""Priors, rows and the likelihood that the tests of scores share."""

import itertools

import numpy
import torch
from scipy.special import log_softmax

HALF = [torch.float16, torch.bfloat16]

# how often each of five inputs comes with each of three classes: all rows there are, no sampling error
JOINT = torch.tensor([[40, 4, 1], [10, 8, 3], [6, 2, 2], [4, 6, 4], [20, 5, 5]])


def random_priors(c, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(c, dtype=torch.float64, generator=generator).mul(1.5).softmax(0)


def calibrated_rows(n=1500, c=6, *, seed=0, spread=2.0, shift=None):
    """Scores whose softmax is the true posterior of the targets."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(n, c, dtype=torch.float64, generator=generator)
    if shift is not None:
        logits = logits + shift
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


def all_rows():
    """Of ``JOINT``: log-posteriors (n, c), targets (n,) and class priors (c,)."""
    logits = (JOINT / JOINT.sum(1, keepdim=True)).double().log()
    rows = [(x, j) for x, j in itertools.product(range(5), range(3)) for _ in range(int(JOINT[x, j]))]
    index, target = torch.tensor(rows).T
    return logits[index], target, JOINT.sum(0).double() / JOINT.sum()


def negative_log_likelihood(logits, target, row_weight, offset):
    rows = log_softmax(logits + offset, axis=1)[numpy.arange(len(target)), target]
    return -(row_weight * rows).sum() / row_weight.sum()
