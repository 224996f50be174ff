from pathlib import Path

import pytest
import torch
from PIL import Image

from shortlist.datasets.label_set_lists import label_set_list

ROWS = [("a.png", "oak;birch", "train"), ("b.png", "birch", "train"), ("c.png", "ash ; oak", "val")]
ROWS += [("d.png", "oak", "test")]


def write(folder: Path, rows: list[tuple[str, str, str]]) -> Path:
    for number, (name, _, _) in enumerate(rows):
        Image.new("RGB", (20, 20), (50 * number, 0, 0)).save(folder / name)
    lines = ["path,labels,split", *(",".join(row) for row in rows)]
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return folder / "list.csv"


def test_images_with_several_labels(tmp_path):
    data = label_set_list(write(tmp_path, ROWS), image_size=16)
    assert data.class_table.names == ("ash", "birch", "oak") and data.class_table.counts == (0, 2, 1)
    assert data.train.label_sets.labels.tolist() == [[False, True, True], [False, True, False]]
    assert data.val.label_sets.labels.tolist() == [[True, False, True]]
    rows, labels = data.train.label_sets.batch(torch.tensor([1, 0]))
    assert rows.shape == (2, 3, 16, 16) and labels.tolist() == data.train.label_sets.labels.flip(0).tolist()
    test, label = data.test.label_sets[0]
    assert test[0].mean() > data.val[0][0][0].mean() and label.tolist() == [False, False, True]  # redder


@pytest.mark.errors
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, ("e.png", "oak", "tset")], "column 'split' must hold train, val or test, got .*tset"),
        ([*ROWS, ("e.png", "oak;", "test")], "column 'labels' must hold names between ';', got 'oak;'"),
        (ROWS[:3], "list.csv lists no test images"),
    ],
)
def test_bad_lists(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        label_set_list(write(tmp_path, rows))


@pytest.mark.errors
def test_an_image_that_cannot_be_read_is_named(tmp_path):
    path = write(tmp_path, ROWS)
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(ValueError, match=r"a\.png"):
        label_set_list(path).train.label_sets.batch(torch.tensor([0]))
