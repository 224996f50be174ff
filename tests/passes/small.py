"""Small networks for the tests of the passes; light to import, since worker processes do it."""

import torch
from torch import nn


class Backbone(nn.Module):
    """Features that can be computed by hand: mean and largest value of each channel."""

    def forward(self, images):
        return torch.cat([images.mean((2, 3)), images.amax((2, 3))], 1)


def make_backbone():
    return Backbone()


def make_map():
    torch.manual_seed(3)
    return nn.Conv2d(3, 2, 3)


def make_projection():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 5))


def make_random():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
