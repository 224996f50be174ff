"""A small set of test photos for a person, and a page that collects the person's sets of classes."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist._store.files import check_place, write_text
from shortlist.class_table import ClassTable
from shortlist.datasets import data_uri, row_image
from shortlist.recipes import build_data, moved
from shortlist.runs import Run
from shortlist.sentences import speaking, strings

_SIDE = 480  # pixels


def draw_mini_set(
    target: Tensor,
    class_table: ClassTable,
    groups: Sequence[str],
    *,
    level: str = "genus",
    per_class: int = 5,
    seed: int = 0,
) -> tuple[list[int], list[int]]:
    """Draw test rows of all classes of some groups, at most ``per_class`` of each class.

    Args:
        target: Class index of each test row (n,); -100 for none.
        class_table: The classes, with parents of the level.
        groups: Names of the groups, such as genera.
        level: Level of the groups.
        per_class: Largest number of rows of a class.
        seed: Seed of the choice and of the order.

    Returns:
        The rows in an order that says nothing, and the indices of the classes of the groups.

    Example:
        >>> table = ClassTable(["a", "b", "c"], parents={"genus": ["A", "A", "C"]})
        >>> draw_mini_set(torch.tensor([0, 0, 0, 1, 2]), table, ["A"], per_class=2, seed=1)[1]
        [0, 1]
    """
    check_count("per_class", per_class)
    check_count("seed", seed, low=0)
    if level not in class_table.parents:
        levels = ", ".join(class_table.parents) or "none"
        raise ValueError(f"level must be one of the class table ({levels}), got {level!r}")
    parents = class_table.parents[level]
    for group in groups:
        if group not in parents:
            raise ValueError(f"group must be a {level} of the class table, got {group!r}")
    classes = [index for index, parent in enumerate(parents) if parent in groups]
    generator = torch.Generator().manual_seed(seed)
    rows: list[int] = []
    for index in classes:
        of_class = (target == index).nonzero()[:, 0]
        rows += of_class[torch.randperm(len(of_class), generator=generator)[:per_class]].tolist()
    if not rows:
        raise ValueError(f"group must have at least one test row, got none of {', '.join(groups)}")
    order = torch.randperm(len(rows), generator=generator).tolist()
    return [rows[place] for place in order], classes


def write_ask_page(
    run: str | Path,
    groups: Sequence[str],
    out: str | Path,
    *,
    level: str = "genus",
    per_class: int = 5,
    seed: int = 0,
    data: str | Path | None = None,
    language: str = "en",
) -> int:
    """Write a page with a mini-set of the test photos of a run, and return their number.

    The page is one file without a server. It does not say which class is right. Its answers are what
    :func:`~shortlist.compare.compare_with_person` reads.

    Args:
        run: Run folder, whose test rows and classes are asked about.
        groups: Names of the groups of classes, such as genera.
        out: The page, ``.html``.
        level: Level of the groups.
        per_class: Largest number of photos of a class.
        seed: Seed of the choice and of the order.
        data: Place where the data of the run lie now, if they were moved.
        language: Language of the page.
    """
    check_place(out)
    opened = Run.open(run)
    target = opened.score_blocks("test")[1]
    table = opened.class_table
    rows, classes = draw_mini_set(target, table, groups, level=level, per_class=per_class, seed=seed)
    test = build_data(moved(opened.recipe, data)).test
    counted = target != -100
    if len(test.targets) != len(target) or not torch.equal(test.targets[counted], target[counted]):
        raise ValueError(f"the test rows of {opened.path} are no longer those that were scored")
    with speaking(language):
        words = strings()["ask"]
    photos = []
    for row in rows:
        source, small = data_uri(row_image(test, row), _SIDE)
        photos.append({"row": row, "source": source, "small": small})
    names = [{"id": table.ids[index], "name": table.names[index]} for index in classes]
    key = f"shortlist-ask:{opened.path.name}:{level}:{','.join(sorted(groups))}:{per_class}:{seed}"
    content = {"words": words, "photos": photos, "classes": names, "key": key, "language": language}
    write_text(out, _page(content))
    return len(rows)


def _page(content: dict[str, Any]) -> str:
    """Put the content into the page, where no name can end its script."""
    text = json.dumps(content, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    page = files("shortlist.compare").joinpath("ask.html").read_text(encoding="utf-8")
    return page.replace("CONTENT", text)
