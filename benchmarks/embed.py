"""Time of embedding photos, beside decoding alone and the network alone.

Photos of 500 x 375 pixels are made up. Decoding alone reads, decodes and resamples them; the network alone
gets inputs that are ready; the pass does both, in one process, to files. Times are of the processor. The
network has the shape of EfficientNet-Lite0, and random weights.

    python benchmarks/embed.py   # a minute
"""

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from score import measure
from torch import nn

from shortlist.passes.blocks import IMAGES, padded, read_blocks
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.passes.local import keep_memory
from shortlist.passes.planning import shards_to_embed
from shortlist.preprocessing import Preprocessing

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PREPARE = Preprocessing(height=224, width=224, resize=256, mean=MEAN, std=STD)


# kernel, stride, factor of the inner channels, channels, number of blocks
BLOCKS = [
    *((3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3)),
    *((5, 1, 6, 112, 3), (5, 2, 6, 192, 4), (3, 1, 6, 320, 1)),
]


class Residual(nn.Module):
    """Wider by 1 x 1, filtered channel by channel, narrower by 1 x 1; added to the input where that fits."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, factor: int) -> None:
        super().__init__()
        inner, self.adds = factor * channels, stride == 1 and channels == out
        self.body = nn.Sequential(
            *convolution(channels, inner, 1),
            *convolution(inner, inner, kernel, stride=stride, groups=inner),
            *convolution(inner, out, 1)[:-1],
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the features."""
        found = self.body(inputs)
        return inputs + found if self.adds else found


def convolution(channels: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution with its normalization and its activation."""
    own = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [own, nn.BatchNorm2d(out), nn.ReLU6()]


def make_network() -> nn.Module:
    """A network of the shape of EfficientNet-Lite0, with random weights."""
    torch.manual_seed(0)
    parts, channels = [*convolution(3, 32, 3, stride=2)], 32
    for kernel, stride, factor, out, number in BLOCKS:
        for i in range(number):
            parts.append(Residual(channels, out, kernel, stride if i == 0 else 1, factor))
            channels = out
    return nn.Sequential(*parts, *convolution(channels, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def make_photos(folder: Path, number: int) -> None:
    """Write smooth color patches with noise, as JPEG files of about 60 kB."""
    from PIL import Image

    generator = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for i in range(number):
        coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC))
        noisy = (smooth + generator.normal(0, 8, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{i:05d}.jpg", quality=88)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--network", default="embed:make_network", help="module:function of a network")
    given = parser.parse_args()
    keep_memory()
    torch.set_num_threads(1)
    source = EmbedderSource(given.network, PREPARE, allow_code=True)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as pool:
        folder = Path(name)
        make_photos(folder / "photos" / "one", given.images)
        shards = shards_to_embed(folder / "photos", shard_rows=given.images)[0]["train"]
        embedder, rows = source.open(), shards[0].open()
        inputs = next(read_blocks(rows, PREPARE, pool, IMAGES)).inputs
        assert inputs is not None
        padded(embedder.features, inputs, IMAGES)  # the first call prepares itself
        blocks = -(-given.images // IMAGES)
        steps = {
            "decoding alone": lambda: [None for _ in read_blocks(rows, PREPARE, pool, IMAGES)],
            "network alone": lambda: [padded(embedder.features, inputs, IMAGES).sum() for _ in range(blocks)],
            "the pass": lambda: embed_images(source, folder / "photos", folder / "out", workers=1),
        }
        times = {step: measure(function)[1] / given.images * 1e3 for step, function in steps.items()}
    for step, one in times.items():
        print(f"{step:14} {one:6.2f} ms of the processor an image")
    slower = max(times["decoding alone"], times["network alone"])
    print(f"the pass / the slower of the two: {times['the pass'] / slower:.2f}")


if __name__ == "__main__":
    main()
