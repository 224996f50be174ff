import pytest
import torch

from shortlist.datasets import TensorSplit, glyphs
from shortlist.datasets.label_sets import LabelPairs, several_glyphs, training_rows

OPTIONS = {"max_classes": 10, "train_images": 200, "seed": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glyphs")
    return folder, several_glyphs(cache=folder, pictures=400, **OPTIONS)


def test_pictures_have_one_to_four_labels_and_the_table_counts_them(data):
    _, found = data
    inputs, labels = found.train.split.inputs, found.train.label_sets.labels
    assert inputs.shape == (400, 1, 56, 56) and inputs.dtype == torch.uint8
    assert len(found.val.label_sets) == len(found.test.label_sets) == 100
    sizes = labels.sum(1)
    assert sizes.min() == 1 and sizes.max() == 4
    assert found.class_table.class_counts.tolist() == [int(of.sum()) for of in labels.T]


@pytest.mark.slow
def test_the_same_seed_makes_the_same_pictures(data):
    folder, found = data
    again = several_glyphs(cache=folder, pictures=400, **OPTIONS)
    other = several_glyphs(cache=folder, pictures=400, **(OPTIONS | {"seed": 4}))
    assert torch.equal(again.test.split.inputs, found.test.split.inputs) and torch.equal(
        again.test.label_sets.labels, found.test.label_sets.labels
    )
    assert not torch.equal(other.test.split.inputs, found.test.split.inputs)


def test_ink_grows_with_the_number_of_glyphs_and_background_tells_nothing(data):
    """A picture of one glyph has background in the three other corners."""
    folder, _ = data
    ones = several_glyphs(cache=folder, pictures=400, max_size=1, **OPTIONS)
    assert (ones.train.label_sets.labels.sum(1) == 1).all()
    pictures = ones.train.split.inputs[:, 0].float()
    level = pictures.flatten(1).median(1).values
    quarters = torch.stack(
        [pictures[:, r : r + 28, s : s + 28].amax((1, 2)) for r in (0, 28) for s in (0, 28)], 1
    )
    inked = (quarters - level[:, None] > 110).sum(1)  # more than noise, which is 25 at most
    assert (inked <= 2).float().mean() > 0.95
    single = glyphs(cache=folder, transform=None, **OPTIONS)
    assert ones.class_table.names == single.class_table.names


def test_rows_are_transformed_when_they_are_fetched(data):
    _, found = data
    rows, labels = found.train.label_sets.batch(torch.tensor([5, 2]))
    assert rows.dtype == torch.float32 and torch.equal(labels, found.train.label_sets.labels[[5, 2]])
    row, label = found.train.label_sets[5]
    assert torch.equal(row, rows[0]) and torch.equal(label, labels[0])


def test_each_label_of_a_picture_is_a_row(data):
    _, found = data
    labels = found.test.label_sets.labels
    pairs = [(row, j) for row, of in enumerate(labels.tolist()) for j, there in enumerate(of) if there]
    assert list(zip(found.test.rows.tolist(), found.test.targets.tolist(), strict=True)) == pairs
    rows, target = found.test.batch(torch.arange(3))
    pictures = found.test.label_sets.batch(found.test.rows[:3])[0]
    assert torch.equal(rows, pictures) and target.tolist() == [j for _, j in pairs[:3]]
    assert training_rows(found.train) is found.train.label_sets
    assert training_rows(found.test.split) is found.test.split


@pytest.mark.errors
def test_bad_options():
    with pytest.raises(ValueError, match="at least one positive in each row, got none in row 1"):
        LabelPairs(TensorSplit(torch.zeros(2, 3), torch.zeros(2).long()), torch.tensor([[1, 0], [0, 0]]))
    with pytest.raises(ValueError, match=r"labels must be of shape \(2, c\), got \(2,\)"):
        LabelPairs(TensorSplit(torch.zeros(2, 3), torch.zeros(2).long()), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="max_size"):
        several_glyphs(max_size=5)
