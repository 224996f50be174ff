"""Processor time of one training step of networks for 32 x 32 images, by memory layout and precision.

``python benchmarks/training_step.py``: one thread, batches of 128, the fastest of three steps after a first.
The processor's time, not the clock's, so that other work on the machine changes it little.
"""

import time

import torch
from torch import nn

from shortlist.models.conv_net import small_cnn
from shortlist.models.resnet_cifar import resnet32_cifar

ROWS, CLASSES, STEPS = 128, 100, 3


def step_seconds(network: nn.Module, *, channels_last: bool, bfloat16: bool) -> float:
    """Train a network on random images, and return the processor time of the fastest step."""
    memory = torch.channels_last if channels_last else torch.contiguous_format
    network = network.to(memory_format=memory)  # type: ignore[call-overload]
    images = torch.randn(ROWS, 3, 32, 32).contiguous(memory_format=memory)
    target = torch.randint(CLASSES, (ROWS,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    seconds = []
    for _ in range(STEPS + 1):
        start = time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            loss = nn.functional.cross_entropy(network(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.process_time() - start)
    return min(seconds[1:])


def main() -> None:
    """Print a line for each network, layout and precision."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for make in (resnet32_cifar, small_cnn):
        for channels_last in (False, True):
            for bfloat16 in (False, True):
                found = step_seconds(make(CLASSES), channels_last=channels_last, bfloat16=bfloat16)
                layout = "channels last" if channels_last else "contiguous"
                precision = "bfloat16" if bfloat16 else "float32"
                print(f"{make.__name__:15} {layout:13} {precision:8} {found:.3f} s a step", flush=True)


if __name__ == "__main__":
    main()
