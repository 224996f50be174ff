"""A loss with a network of its own that it trains, step by step, against the clock."""

from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor, nn

from papers.figures._loss_cases import make_loss
from shortlist.models import small_cnn
from shortlist.models.classifiers import replace_classifier
from shortlist.models.heads import CosineHead, LinearHead, TwoHead, TwoHeadScores

__all__ = ["TrainingCase", "random_images"]

_RATE = 1e-3  # at which random labels do no harm


def random_images(number: int, num_classes: int) -> tuple[Tensor, Tensor]:
    """Grey images (number, 1, 32, 32) and their classes (number,), the same at each call."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(number, 1, 32, 32, generator=generator)
    return images, torch.randint(num_classes, (number,), generator=generator)


class TrainingCase:
    """A loss, the demonstration's network with the head that the loss wants, and an optimiser.

    Args:
        name: Name of a loss, with words after a comma.
        k: Its k, if it has one.
        options: Its plain options.
        num_classes: Number of classes.
        data: Images and target.
    """

    def __init__(
        self, name: str, k: int | None, options: dict[str, Any], num_classes: int, data: tuple[Tensor, Tensor]
    ) -> None:
        self.name, self.k, self.options, self.num_classes = name, k, options, num_classes
        self.images, self.target = data
        made = dict(options)
        if "margins" in made:
            made["margins"] = torch.full((num_classes, num_classes), made["margins"])
        counts = self.target.bincount(minlength=num_classes).clamp_min(1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.loss = make_loss(name.partition(",")[0], made, class_counts=counts, target=self.target)
            self.needs = getattr(self.loss, "needs", frozenset())
            model = replace_classifier(small_cnn(num_classes, in_channels=1), self._head)
        self.model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        groups: list[dict[str, Any]] = [{"params": list(self.model.parameters())}]
        if "sample_ids" in self.needs:
            groups.append(self.loss.estimates.parameter_group(lr=_RATE))  # type: ignore[union-attr]
        self.optimiser = torch.optim.SGD(groups, lr=_RATE, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def _head(self, length: int) -> nn.Module:
        if "two_heads" in self.needs:
            return TwoHead(length, self.num_classes)
        make = CosineHead if "cosine_scores" in self.needs else LinearHead
        return make(length, self.num_classes)

    def step(self, rows: Tensor, clock: Callable[[], float]) -> tuple[float, float]:
        """One step of training; returns its seconds, and those from scores to their gradient."""
        start = clock()
        images = self.images[rows].contiguous(memory_format=torch.channels_last)
        extra = self._extra(rows)
        output = self.model(images)
        self.optimiser.zero_grad()
        before = clock()
        # the loss ends at leaves of its own, so that its backward pass is not mixed with the network's
        outputs = tuple(output) if isinstance(output, TwoHeadScores) else (output,)
        leaves = [part.detach().requires_grad_() for part in outputs]
        scores = TwoHeadScores(*leaves) if isinstance(output, TwoHeadScores) else leaves[0]
        self.loss(scores, *extra).backward()
        after = clock()
        torch.autograd.backward(outputs, [leaf.grad for leaf in leaves])
        self.optimiser.step()
        return clock() - start, after - before

    def _extra(self, rows: Tensor) -> tuple[Tensor, ...]:
        target = self.target[rows]
        if "label_sets" in self.needs:  # the class, and those after it
            sets = (target[:, None] + torch.arange(self.k or 1)) % self.num_classes
            return (torch.zeros(len(rows), self.num_classes).scatter_(1, sets, 1.0),)
        return (target, rows) if "sample_ids" in self.needs else (target,)

    def describe(self, taken: list[tuple[float, float]], per_epoch: int) -> dict[str, Any]:
        """Medians and quartiles of the seconds of an epoch, and of the milliseconds of a loss."""
        epochs, alone = [per_epoch * whole for whole, _ in taken], [1e3 * loss for _, loss in taken]
        return {
            "loss": self.name,
            "k": self.k,
            "options": self.options,
            "epoch_seconds": median(epochs),
            "epoch_quartiles": _quartiles(epochs),
            "loss_milliseconds": median(alone),
            "loss_quartiles": _quartiles(alone),
        }


def _quartiles(values: list[float]) -> list[float]:
    """First and third; of one value, the value twice."""
    if len(values) < 2:
        return [values[0], values[0]]
    first, _, third = quantiles(values, method="inclusive")
    return [first, third]
