"""Sets held in memory: CIFAR, Fashion-MNIST, embeddings."""

import os
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader

from shortlist.class_table import ClassTable
from shortlist.datasets.cifar import cifar10, cifar10_lt, cifar100, cifar100_lt, load_pickle
from shortlist.datasets.embeddings import embeddings, save_embeddings
from shortlist.datasets.idx import fashion_mnist, read_idx
from shortlist.datasets.splits import TensorSplit
from shortlist.datasets.transforms import BatchTransform, random_crop_and_flip
from shortlist.preprocessing import normalize
from tests.datasets import trees


def true_labels(split: TensorSplit, *, step: int = 1) -> torch.Tensor:
    """The labels painted into the test images."""
    return split.inputs[:, 0, 0, 0].long() // step


def test_cifar100_is_read_as_written(tmp_path):
    trees.cifar100(tmp_path)
    splits = cifar100(tmp_path, val_size=20)
    assert [len(splits.train), len(splits.val), len(splits.test)] == [40, 20, 20]
    for part in (splits.train, splits.val, splits.test):
        assert torch.equal(true_labels(part), part.targets)
        assert part.targets.bincount().unique().numel() == 1  # balanced
    table = splits.class_table
    assert table.names[3] == "fine 3"
    assert table.parents["superclass"][:4] == ("coarse 0", "coarse 0", "coarse 1", "coarse 1")
    assert table.counts == (4,) * 10
    # the image comes normalized: byte 7 of channel 2, by hand
    row = int((splits.test.targets == 7).nonzero()[0])
    pixel = splits.test[row][0][2, 5, 5]
    assert pixel.item() == pytest.approx((7 / 255 - 0.4409) / 0.2762, rel=1e-5)


def test_cifar100_noise_touches_training_labels_only(tmp_path):
    trees.cifar100(tmp_path, per_class=60)
    clean = cifar100(tmp_path, val_size=100, seed=5)
    noisy = cifar100(tmp_path, val_size=100, seed=5, noise=0.8)
    assert torch.equal(noisy.train.inputs, clean.train.inputs)
    assert torch.equal(noisy.train.clean_targets, true_labels(noisy.train))
    changed = int((noisy.train.targets != noisy.train.clean_targets).sum())
    assert abs(changed - 500 * 0.4) < 5 * (500 * 0.4 * 0.6) ** 0.5
    assert torch.equal(noisy.train.targets // 2, noisy.train.clean_targets // 2)
    assert torch.equal(noisy.val.targets, true_labels(noisy.val))
    assert torch.equal(noisy.test.targets, true_labels(noisy.test))
    assert noisy.class_table.counts == tuple(noisy.train.targets.bincount().tolist())
    other = cifar100(tmp_path, val_size=100, seed=6, noise=0.8)
    assert not torch.equal(noisy.train.targets, other.train.targets)


def test_long_tailed_cifar(tmp_path):
    trees.cifar100(tmp_path, per_class=100)
    splits = cifar100_lt(tmp_path, rho=10)
    assert splits.class_table.counts == (100, 77, 59, 46, 35, 27, 21, 16, 12, 10)
    assert torch.equal(splits.train.targets, true_labels(splits.train))
    assert len(splits.val) == 0
    assert len(splits.test) == 20
    trees.cifar10(tmp_path)
    assert cifar10_lt(tmp_path, profile="step", rho=10).class_table.counts == (10,) * 5 + (1,) * 5


def test_cifar10_in_another_pickle_protocol_and_in_the_folder_itself(tmp_path):
    trees.cifar10(tmp_path)
    splits = cifar10(tmp_path / "cifar-10-batches-py", val_size=10)
    assert [len(splits.train), len(splits.val), len(splits.test)] == [90, 10, 20]
    assert torch.equal(splits.train.targets, true_labels(splits.train))
    assert splits.class_table.names[9] == "thing 9"


def test_cifar_batches_arrive_in_one_piece_in_workers(tmp_path):
    trees.cifar10(tmp_path)
    splits = cifar10(tmp_path, val_size=10)
    loader = DataLoader(splits.train, batch_size=45, collate_fn=TensorSplit.collate, num_workers=1)
    shapes = [(images.shape, images.dtype, target.shape) for images, target in loader]
    assert shapes == [((45, 3, 32, 32), torch.float32, (45,))] * 2


class Evil:
    def __reduce__(self):
        return os.system, ("echo harm > harm",)


@pytest.mark.errors
def test_cifar_pickle_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train"
    path.write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(ValueError, match=r"train is not a file of CIFAR.*it asks for (posix|nt)\.system"):
        load_pickle(path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.errors
def test_cifar_says_what_is_missing_or_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cifar-100-python/train is missing. Get the Python version"):
        cifar100(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"cifar-10-batches-py/batches.meta is missing"):
        cifar10(tmp_path)
    trees.cifar100(tmp_path)
    train = tmp_path / "cifar-100-python" / "train"
    whole = train.read_bytes()
    train.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="train is not a file of CIFAR"):
        cifar100(tmp_path, val_size=10)
    train.write_bytes(pickle.dumps({"data": np.zeros((2, 5), np.uint8), "fine_labels": [0, 1]}))
    with pytest.raises(ValueError, match="no entry 'coarse_labels'; it has data, fine_labels"):
        cifar100(tmp_path, val_size=10)
    content = {"data": np.zeros((2, 5), np.uint8), "fine_labels": [0, 1], "coarse_labels": [0, 0]}
    train.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=r"data must be bytes of shape \(n, 3072\), got uint8 \(2, 5\)"):
        cifar100(tmp_path, val_size=10)
    content = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 10], "coarse_labels": [0, 0]}
    train.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=r"train: fine_labels must be in \[0, 10\), got up to 10"):
        cifar100(tmp_path, val_size=10)
    train.write_bytes(pickle.dumps(content | {"fine_labels": [0]}))
    with pytest.raises(ValueError, match="train has 2 images but 1 fine_labels"):
        cifar100(tmp_path, val_size=10)
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps({"label_names": []}))
    with pytest.raises(ValueError, match="meta has no entry 'fine_label_names'; it has label_names"):
        cifar100(tmp_path, val_size=10)
    (tmp_path / "cifar-100-python" / "meta").unlink()
    with pytest.raises(FileNotFoundError, match="meta is missing"):
        cifar100(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_fashion_mnist(tmp_path, suffix):
    trees.fashion_mnist(tmp_path, suffix=suffix)
    splits = fashion_mnist(tmp_path, val_size=20)
    assert [len(splits.train), len(splits.val), len(splits.test)] == [30, 20, 20]
    for part in (splits.train, splits.val, splits.test):
        assert part.inputs.shape[1:] == (1, 28, 28)
        assert torch.equal(true_labels(part, step=20), part.targets)
    assert splits.class_table.names[9] == "Ankle boot"
    image, label = splits.test[9]
    assert label == 9
    assert image[0, 3, 3].item() == pytest.approx((180 / 255 - 0.2860) / 0.3530, rel=1e-5)


@pytest.mark.errors
def test_idx_errors_have_the_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte is missing.*Zalando"):
        fashion_mnist(tmp_path)
    path = tmp_path / "x-idx3-ubyte"
    trees.idx(path, np.zeros((2, 3)))
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(ValueError, match=r"x-idx3-ubyte must hold 18 bytes for shape \(2, 3\), got 17"):
        read_idx(path)
    path.write_bytes(b"no idx at all")
    with pytest.raises(
        ValueError, match=r"x-idx3-ubyte is cut short or no IDX file of bytes: it starts with 6e6f2069"
    ):
        read_idx(path)
    trees.idx(tmp_path / "y.gz", np.zeros((200, 3)))
    whole = (tmp_path / "y.gz").read_bytes()
    (tmp_path / "y.gz").write_bytes(whole[:-12])
    with pytest.raises(ValueError, match=r"y.gz is cut short"):
        read_idx(tmp_path / "y.gz")


def rows(n: int, c: int) -> tuple[torch.Tensor, torch.Tensor]:
    targets = torch.arange(n) % c
    return torch.stack([targets.float(), torch.arange(n).float()], dim=1), targets


def test_embeddings_in_three_formats(tmp_path):
    inputs, targets = rows(12, 3)
    save_embeddings(tmp_path / "train.safetensors", inputs, targets)
    np.savez(
        tmp_path / "val.npz", embeddings=inputs[:3].numpy(), targets=targets[:3].numpy().astype(np.int32)
    )
    torch.save({"embeddings": inputs[:6].half(), "targets": targets[:6]}, tmp_path / "test.pt")
    ClassTable(["oak", "ash", "été"]).save(tmp_path / "class_table.json")
    splits = embeddings(tmp_path)
    assert [len(splits.train), len(splits.val), len(splits.test)] == [12, 3, 6]
    assert splits.class_table.names == ("oak", "ash", "été")
    assert splits.class_table.counts == (4, 4, 4)
    for part in (splits.train, splits.val, splits.test):
        assert torch.equal(part.inputs[:, 0].long(), part.targets)
        assert part.targets.dtype == torch.int64


@pytest.mark.parametrize(
    ("prefix", "held_out", "classes"),
    [
        ("", "test", "labels"),
        ("", "val", "labels"),
        ("imagenet21k_", "val", "labels"),
        ("", "test", "targets"),
    ],
)
@pytest.mark.parametrize("suffix", ["p", "pt", "npz", "safetensors"])
def test_all_parts_in_one_file(tmp_path, prefix, held_out, classes, suffix):
    """The three layouts of the files that Petersen et al. publish, and one with our own names."""
    inputs, targets = torch.randn(40, 6).half(), torch.arange(40) % 4
    arrays = {"train": (inputs, targets), held_out: (inputs[:9] + 1, targets[:9].clone())}
    named = {f"{prefix}{part}_embeddings": rows for part, (rows, _) in arrays.items()}
    named |= {f"{prefix}{part}_{classes}": own for part, (_, own) in arrays.items()}
    path = tmp_path / f"ImageNet_embeddings_labels_train_test.{suffix}"
    if suffix == "npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in named.items()})
    elif suffix == "safetensors":
        save_file(named, path)
    else:
        torch.save(named, path)
    splits = embeddings(path, val_fraction=0.1)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [36, 4, 9]
    assert torch.equal(splits.test.inputs, inputs[:9] + 1) and torch.equal(splits.test.targets, targets[:9])
    rows = torch.cat([splits.train.inputs, splits.val.inputs])
    assert torch.equal(rows.float().sort(0).values, inputs.float().sort(0).values)
    assert splits.train.inputs.dtype == splits.train[0][0].dtype == torch.float32
    kept = embeddings(path, val_fraction=0.1, as_stored=True)
    assert kept.train.inputs.dtype == torch.float16 and kept.train[0][0].dtype == torch.float32
    assert torch.equal(kept.train.inputs.float(), splits.train.inputs)


@pytest.mark.errors
def test_a_file_of_all_parts_names_what_it_lacks(tmp_path):
    inputs, targets = torch.randn(8, 3), torch.arange(8) % 2
    save_file({"train_embeddings": inputs, "other_labels": targets}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"a.safetensors has no train_targets; it has other_labels, train_e"):
        embeddings(tmp_path / "a.safetensors")
    save_file({"test_embeddings": inputs, "test_labels": targets}, tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match=r"b.safetensors has no array 'train_embeddings'; it has test_"):
        embeddings(tmp_path / "b.safetensors")
    both = {
        f"{prefix}train_{name}": one
        for prefix in ("x_", "y_")
        for name, one in (("embeddings", inputs), ("labels", targets))
    }
    torch.save(both, tmp_path / "c.p")
    with pytest.raises(ValueError, match=r"c.p has several arrays of train embeddings"):
        embeddings(tmp_path / "c.p")


def test_embeddings_of_50000_classes_draw_the_missing_parts(tmp_path):
    inputs, targets = rows(200_000, 50_000)
    save_embeddings(tmp_path / "train.safetensors", (inputs / 100).half(), targets)
    splits = embeddings(tmp_path)
    assert [len(splits.train), len(splits.val), len(splits.test)] == [100_000, 50_000, 50_000]
    assert set(splits.class_table.counts) == {2}
    save_embeddings(tmp_path / "val.safetensors", inputs[:50_000], targets[:50_000])
    splits = embeddings(tmp_path)
    assert torch.equal(splits.test.targets, torch.arange(50_000))
    assert [len(splits.train), len(splits.val)] == [150_000, 50_000]
    splits = embeddings(tmp_path, val_fraction=0)
    assert len(splits.train) == 200_000
    assert splits.val.targets is splits.test.targets


def test_embeddings_warn_of_classes_missing_from_val(tmp_path):
    inputs, targets = rows(12, 4)
    for part in ("train", "test"):
        save_embeddings(tmp_path / f"{part}.safetensors", inputs, targets)
    save_embeddings(tmp_path / "val.safetensors", inputs[:2], targets[:2])
    with pytest.warns(UserWarning, match=r"2 of 4 classes have no image in the val split \(2, 3\)"):
        embeddings(tmp_path)


class Unsafe:
    pass


@pytest.mark.errors
def test_embedding_errors_have_the_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train.safetensors is missing.*save_embeddings"):
        embeddings(tmp_path)
    inputs, targets = rows(6, 3)
    torch.save({"embeddings": Unsafe(), "targets": targets}, tmp_path / "train.pt")
    with pytest.raises(ValueError, match=r"train.pt cannot be read as .pt"):
        embeddings(tmp_path)
    (tmp_path / "train.pt").unlink()
    np.savez(tmp_path / "train.npz", embeddings=np.array([{}]), targets=np.array([0]))
    with pytest.raises(ValueError, match=r"train.npz cannot be read as .npz.*allow_pickle"):
        embeddings(tmp_path)
    save_file({"features": inputs, "targets": targets}, tmp_path / "train.safetensors")
    with pytest.raises(ValueError, match="no array 'embeddings'; it has features, targets"):
        embeddings(tmp_path)
    save_file({"embeddings": inputs, "targets": inputs[:, 0].contiguous()}, tmp_path / "train.safetensors")
    with pytest.raises(ValueError, match="'targets' whole numbers"):
        embeddings(tmp_path)
    (tmp_path / "train.safetensors").write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"train.safetensors cannot be read"):
        embeddings(tmp_path)
    save_embeddings(tmp_path / "train.safetensors", inputs, targets)
    ClassTable(["only"]).save(tmp_path / "class_table.json")
    with pytest.raises(ValueError, match="has 1 classes, but targets go up to 2"):
        embeddings(tmp_path)


def test_random_crop_and_flip_against_a_slow_oracle():
    images = torch.randint(1, 256, (64, 3, 6, 5), dtype=torch.uint8)
    found = random_crop_and_flip(images, padding=2, generator=torch.Generator().manual_seed(1))
    padded = torch.zeros(64, 3, 10, 9, dtype=torch.uint8)
    padded[:, :, 2:8, 2:7] = images
    places = set()
    for image, result in zip(padded, found, strict=True):
        matches = [
            (top, left, mirrored)
            for top in range(5)
            for left in range(5)
            for mirrored in (False, True)
            for cut in [image[:, top : top + 6, left : left + 5]]
            if torch.equal(cut.flip(2) if mirrored else cut, result)
        ]
        assert matches
        places.update(matches)
    assert {top for top, _, _ in places} == {left for _, left, _ in places} == set(range(5))
    assert {mirrored for _, _, mirrored in places} == {False, True}
    assert torch.equal(random_crop_and_flip(images, padding=0, flip=False), images)


def test_batch_transform_augments_only_when_asked_and_pickles():
    images = torch.randint(256, (8, 1, 12, 12), dtype=torch.uint8)
    plain = pickle.loads(pickle.dumps(BatchTransform(mean=[0.5], std=[0.25])))
    expected = (images.double() / 255 - 0.5) / 0.25
    torch.testing.assert_close(plain(images), expected.float())
    assert not torch.equal(BatchTransform(mean=[0.5], std=[0.25], augment=True)(images), plain(images))
    torch.testing.assert_close(normalize(images.float() / 255, mean=[0.5], std=[0.25]), plain(images))


def test_a_long_tail_of_embeddings_keeps_the_published_counts_and_the_other_parts(tmp_path):
    targets = torch.arange(500) % 5
    inputs = torch.arange(500.0)[:, None]  # a row is its own number
    save_embeddings(tmp_path / "train.safetensors", inputs, targets)
    whole = embeddings(tmp_path, val_fraction=0.1, seed=3)
    tail = embeddings(tmp_path, val_fraction=0.1, seed=3, long_tail="exp", rho=80)
    # 80 rows a class are left for training: 80 * 80 ** (-c / 4), rounded down
    assert tail.train.targets.bincount().tolist() == [80, 26, 8, 2, 1]
    assert tail.class_table.counts == (80, 26, 8, 2, 1)
    assert torch.equal(tail.val.inputs, whole.val.inputs) and torch.equal(tail.test.inputs, whole.test.inputs)
    assert set(tail.train.inputs.flatten().tolist()) <= set(whole.train.inputs.flatten().tolist())
    assert torch.equal(tail.train.targets, tail.train.inputs.flatten().long() % 5)
    with pytest.raises(
        ValueError, match=r"rho must be <= the training rows of the smallest class \(80\).*got 81"
    ):
        embeddings(tmp_path, val_fraction=0.1, seed=3, long_tail="exp", rho=81)


def test_cifar_crops_are_padded_as_asked(tmp_path):
    trees.cifar100(tmp_path)
    for padding in (0, 2):
        splits = cifar100_lt(tmp_path, rho=1, padding=padding)
        images = torch.full((200, 3, 32, 32), 255, dtype=torch.uint8)
        black = splits.train.transform(torch.zeros_like(images))[0, :, 0, 0]
        shown = splits.train.transform(images)
        # padding is black, also after the mean is taken away: rows or columns of it at the edges
        rows = (shown == black[:, None, None]).all(1).all(-1).sum(-1)
        assert int(rows.max()) == padding and int(rows.min()) == 0
