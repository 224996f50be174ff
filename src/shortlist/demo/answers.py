"""What the demo shows of its model: lists of three test images, four kinds of answers, what changes them."""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from shortlist._text import format_percent
from shortlist.demo.run import K
from shortlist.model import Choice, Model
from shortlist.place import Place
from shortlist.recipes import build_data
from shortlist.runs import Run, place_numbers

COVERAGE = 0.9
PROMISE = "conformal90"
SIZES = (1, 2, 4)  # of the lists of the three images
LATIN = "Latin"  # the script of the place
# dots of a Braille sign by row and column
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class Example(NamedTuple):
    """A test image with its short list.

    Attributes:
        picture: Lines of Braille signs that draw the image.
        listed: Characters of the list with their probabilities, the best first.
        right: The right character.
    """

    picture: list[str]
    listed: list[tuple[str, float]]
    right: str


def braille(image: Tensor) -> list[str]:
    """Draw an image (h, w) of bytes as lines of Braille signs, each of 4 x 2 pixels; the ink is what is rare.

    Example:
        >>> braille(torch.tensor([[255, 0], [0, 0], [0, 0], [0, 0]], dtype=torch.uint8))
        ['⠁']
    """
    pixels = image.double()
    bright = pixels > (pixels.min() + pixels.max()) / 2
    ink = (bright if bright.double().mean() < 0.5 else ~bright).numpy()
    ink = np.pad(ink, ((0, -len(ink) % 4), (0, -ink.shape[1] % 2)))
    dots = ink.reshape(len(ink) // 4, 4, -1, 2).transpose(0, 2, 1, 3)  # (lines, signs, 4, 2)
    codes = 0x2800 + (dots * np.array(_DOTS)).sum((2, 3))
    return ["".join(map(chr, line)) for line in codes.tolist()]


def examples(run: Run) -> list[Example]:
    """Return test images whose promised list has one, two and four names: each is the next one that has."""
    scores, target = run.scored("test")
    model = Model.load(run.path / "model")
    lists = model.lists(run.score_map(scores), Choice(predictor=PROMISE))
    images: Any = build_data(run.recipe).test
    chosen: list[Example] = []
    for row, made in enumerate(lists):
        if made is None or len(chosen) == len(SIZES) or len(made) != SIZES[len(chosen)]:
            continue
        listed = [(character(candidate.id), float(candidate.probability or 0)) for candidate in made]
        right = character(run.class_table.ids[int(target[row])])
        chosen.append(Example(braille(images.inputs[row, 0]), listed, right))
    return chosen


def character(id: str) -> str:
    """Return the character of a class id.

    Example:
        >>> character("U+0041")
        'A'
    """
    return chr(int(id.removeprefix("U+"), 16))


def four_answers(run: Run) -> list[tuple[str, str, str]]:
    """Return the kinds of answers with the share of test images (percent) that they hold, and their names."""
    results = run.results
    answers = [
        ("the best guess", results.scores.topk[1].micro, "1"),
        (f"the {K} best guesses", results.scores.topk[K].micro, str(K)),
    ]
    for words, name in (
        (f"as many as the image needs, {K} on average", "average5"),
        (f"as many as it takes to be right {100 * COVERAGE:.0f} times in 100", PROMISE),
    ):
        sets = results.sets[name]
        answers.append((words, sets.coverage.micro, f"{sets.size.micro.value:.1f}"))
    return [(words, format_percent(share.value), size) for words, share, size in answers]


def sentences(run: Run) -> list[str]:
    """Say what adapts, what is promised, and what three photos and a place change."""
    results, table = run.results, run.class_table
    promised = results.sets[PROMISE]
    single = promised.size_histogram[1] / sum(promised.size_histogram)
    said = [
        f"Lists adapt: {format_percent(single, 0)} of 100 lists have one name, the longest has "
        f"{len(promised.size_histogram) - 1}.",
        f"The promise: {100 * COVERAGE:.0f} of 100 lists contain the right name. "
        f"Measured: {format_percent(promised.coverage.micro.value)}.",
    ]
    photos = {} if results.populations is None else results.populations.photos
    if "3" in photos and (three := photos["3"].own) is not None:
        said.append(f"Three photos of a glyph: the same promise takes {three.size:.1f} names.")
    scripts = zip(table.ids, table.parents["superclass"], strict=True)
    place = Place.of([id for id, script in scripts if script == LATIN])
    there = place_numbers(run, place.vector(table), COVERAGE)
    if there.own is not None:
        hits = format_percent(there.own.coverage.value, 0), format_percent(there.common.coverage.value, 0)
        said.append(
            f"A place with {LATIN} classes alone: {there.own.size:.1f} names, right {hits[0]} times in 100 "
            f"(a list that is cut to it: {hits[1]})."
        )
    return said
