"""What ``shortlist demo`` prints is what its run holds."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from shortlist.demo.answers import braille
from shortlist.runs import Run


def dots_of(sign: str) -> np.ndarray:
    """The 4 x 2 pixels of a Braille sign, by the numbers of its dots (1 to 8) in Unicode."""
    bits = ord(sign) - 0x2800
    return np.array([[bits >> dot - 1 & 1 for dot in row] for row in ((1, 4), (2, 5), (3, 6), (7, 8))], bool)


def test_a_picture_in_braille_has_the_pixels_of_the_image():
    generator = torch.Generator().manual_seed(0)
    image = torch.where(torch.rand(12, 6, generator=generator) < 0.3, 20, 250).to(torch.uint8)
    for drawn in (image, 255 - image):  # ink is what is rare, dark or bright
        lines = braille(drawn)
        pixels = np.vstack([np.hstack([dots_of(sign) for sign in line]) for line in lines])
        assert (pixels == (image == 20).numpy()).all()


def test_a_picture_of_odd_size_is_drawn_whole():
    lines = braille(
        torch.tensor([[0, 0, 0], [0, 255, 0], [0, 0, 0], [0, 0, 0], [0, 0, 255]], dtype=torch.uint8)
    )
    assert [[dots_of(sign).sum() for sign in line] for line in lines] == [[1, 0], [0, 1]]


def lac_sets(calibration: tuple[np.ndarray, np.ndarray], probs: np.ndarray) -> np.ndarray:
    """Split conformal sets of 90 % by the probability of the class."""
    known, target = calibration
    values = np.sort(1 - known[np.arange(len(target)), target])
    return 1 - probs <= values[int(np.ceil(0.9 * (len(values) + 1))) - 1]


@pytest.mark.slow
def test_the_demo_shows_its_model_in_25_lines(tmp_path):
    command = [sys.executable, "-m", "shortlist", "demo", "--out", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    printed, progress = done.stdout.decode(), done.stderr.decode()  # read as text, a rewritten line is many
    assert done.returncode == 0, progress
    assert len(printed.splitlines()) + progress.count("\n") <= 25
    run = Run.open(tmp_path / "demo/cross_entropy")
    probs, targets = {}, {}
    for split in ("val", "test"):
        scores, target = run.scored(split)
        probs[split], targets[split] = run.probabilities(scores).double().numpy(), target.numpy()
    rows, test = np.arange(len(targets["test"])), targets["test"]
    sets = lac_sets((probs["val"], targets["val"]), probs["test"])
    ranks = (probs["test"] > probs["test"][rows, test][:, None]).sum(1)
    expected = {
        "the best guess": ((ranks < 1).mean(), 1),
        "the 5 best guesses": ((ranks < 5).mean(), 5),
        "as many as it takes to be right 90 times in 100": (sets[rows, test].mean(), sets.sum(1).mean()),
    }
    for words, (share, size) in expected.items():
        shown = re.search(rf"^{words} +([\d.]+) +([\d.]+)$", printed, flags=re.M)
        assert float(shown[1]) == pytest.approx(100 * share, abs=0.08), words  # one row is 0.07
        assert float(shown[2]) == pytest.approx(size, abs=0.051), words
    shown = [line.partition(": ") for line in printed.splitlines() if line.startswith("An image of")]
    assert [len(re.findall(r"\S+ \d+ %", listed)) for _, _, listed in shown] == [1, 2, 4]
    assert f"{100 * (sets.sum(1) == 1).mean():.0f} of 100 lists have one name" in printed
    assert (tmp_path / "demo/short_lists.svg").read_text().startswith("<?xml")
