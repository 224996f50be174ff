"""The search is exact: equal to loops in float64, whatever was appended, deleted and compacted."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from shortlist.index import ImageIndex, ImageIndexError, IndexWriter
from tests.index.small import (
    CLASSES,
    brute_force,
    check_equal_to_brute_force,
    make_rows,
    name_of,
    projection_model,
    start,
)


def names_of(rows, numbers):
    return {name_of(int(rows.classes[n]), bytes(rows.digests[n])) for n in numbers}


def test_one_segment_and_appended_ones(tmp_path):
    parts = [make_rows(60, 0), make_rows(1, 1), make_rows(20, 2)]
    folder = start(tmp_path / "index", parts[0])
    check_equal_to_brute_force(ImageIndex.open(folder), parts[:1])
    with IndexWriter.open(folder) as writer:
        for rows in parts[1:]:
            ids = writer.append(rows)
            assert ids == [name_of(int(c), bytes(d)) for c, d in zip(rows.classes, rows.digests, strict=True)]
    index = ImageIndex.open(folder)
    assert len(index) == 81
    check_equal_to_brute_force(index, parts)
    assert index.similar(torch.randn(5), [CLASSES - 1], 3) == [[]]
    assert index.similar(torch.randn(5), [], 3) == []


@pytest.mark.parametrize("segment_rows", [8, 50, 10_000])
def test_with_deleted_images_and_after_compaction(tmp_path, segment_rows):
    parts = [make_rows(60, 0), make_rows(30, 1), make_rows(20, 2)]
    folder = start(tmp_path / "index", *parts)
    gone = names_of(parts[0], range(0, 60, 3)) | names_of(parts[2], range(20))
    with IndexWriter.open(folder) as writer:
        assert writer.delete([*gone, "0-" + 32 * "0", "../../etc/passwd", ""]) == len(gone)
        assert writer.delete(gone) == 0
    index = ImageIndex.open(folder)
    check_equal_to_brute_force(index, parts, gone)
    with IndexWriter.open(folder) as writer:
        assert writer.compact(segment_rows=segment_rows)
        assert not writer.compact(segment_rows=segment_rows) or segment_rows == 8
    check_equal_to_brute_force(index, parts, gone)  # the old files, which are still mapped
    assert index.refresh() and not index.refresh()
    check_equal_to_brute_force(index, parts, gone)
    check_equal_to_brute_force(ImageIndex.open(folder), parts, gone)
    assert index.verify() == []


def test_equally_similar_images_come_in_the_order_of_their_ids(tmp_path):
    rows = make_rows(40, 3)
    rows = replace(rows, vectors=np.repeat(rows.vectors[:1], 40, axis=0), classes=np.zeros(40, np.int64))
    folder = start(tmp_path / "index", rows.take(np.arange(25)), rows.take(np.arange(25, 40)))
    (found,) = ImageIndex.open(folder).similar(torch.randn(5), [0], 40)
    assert [one.id for one in found] == sorted(names_of(rows, range(40)))


def test_more_images_than_are_compared_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("shortlist.index.image_index._BLOCK", 35)
    rows = make_rows(100, 4)
    check_equal_to_brute_force(ImageIndex.open(start(tmp_path / "index", rows)), [rows])


def test_digests_that_end_in_zeros(tmp_path):
    rows = make_rows(4, 5)
    digests = np.array([b"a", b"a" * 15, b"", b"\0\0b"], dtype="S16")
    rows = replace(rows, digests=digests, classes=np.zeros(4, np.int64))
    folder = start(tmp_path / "index", rows)
    index = ImageIndex.open(folder)
    for number in range(4):
        (name,) = names_of(rows, [number])
        assert index.thumbnail(name) == rows.thumbnails[number]
    with IndexWriter.open(folder) as writer:
        writer.delete(names_of(rows, [0, 2]))
    check_equal_to_brute_force(ImageIndex.open(folder), [rows], names_of(rows, [0, 2]))


def test_thumbnails_by_id(tmp_path):
    parts = [make_rows(30, 0), make_rows(10, 1)]
    folder = start(tmp_path / "index", *parts)
    index = ImageIndex.open(folder)
    for rows in parts:
        for number in range(len(rows)):
            (name,) = names_of(rows, [number])
            assert index.thumbnail(name) == rows.thumbnails[number]
    (name,) = names_of(parts[0], [0])
    with IndexWriter.open(folder) as writer:
        writer.delete([name])
    index.refresh()
    for unknown in (
        name,
        "0-" + 32 * "0",
        "99-" + 32 * "0",
        "",
        "segment-000001",
        "../index.json",
        name + "\n",
    ):
        with pytest.raises(KeyError):
            index.thumbnail(unknown)


def test_class_means_examples_and_the_distance_to_the_nearest_mean(tmp_path):
    parts = [make_rows(60, 0), make_rows(30, 1)]
    folder = start(tmp_path / "index", *parts)
    gone = names_of(parts[1], range(0, 30, 2))
    with IndexWriter.open(folder) as writer:
        writer.delete(gone)
    index = ImageIndex.open(folder)
    means = np.full((CLASSES, 5), np.nan)
    for c in range(CLASSES):
        own = [
            rows.vectors[n].astype(np.float64)
            for rows in parts
            for n in range(len(rows))
            if rows.classes[n] == c and not names_of(rows, [n]) & gone
        ]
        if own:
            means[c] = np.mean(own, axis=0)
    assert np.allclose(index.class_means().numpy(), means, atol=1e-5, equal_nan=True)
    queries = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    known = means[:-1] / np.linalg.norm(means[:-1], axis=1, keepdims=True)
    units = queries.numpy() / np.linalg.norm(queries.numpy(), axis=1, keepdims=True)
    assert np.allclose(index.nearest_distance(queries).numpy(), 1 - (units @ known.T).max(1), atol=1e-5)
    expected = brute_force(parts, torch.from_numpy(means[2]), 2, gone)
    assert [one.id for one in index.examples(2, 4)] == [entry[0] for entry in expected[:4]]
    assert index.examples(CLASSES - 1, 4) == []


@pytest.mark.errors
def test_bad_questions(tmp_path):
    index = ImageIndex.open(start(tmp_path / "index", make_rows(10, 0)))
    for features, message in (
        (torch.randn(4), r"features must be of shape \(5,\) or \(n, 5\), got \(1, 4\)"),
        (torch.randn(0, 5), r"features must be of shape"),
        (torch.randn(2, 2, 5), r"features must be of shape"),
        (torch.full((5,), torch.nan), "features must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            index.similar(features, [0], 3)
    with pytest.raises(ValueError, match="classes must be >= 0 and < 6, got 6"):
        index.similar(torch.randn(5), [6], 3)
    with pytest.raises(ValueError, match="limit must be >= 0, got -1"):
        index.similar(torch.randn(5), [0], -1)


@pytest.mark.errors
def test_texts_of_strangers(tmp_path):
    rows = make_rows(3, 0)
    texts = [b"[" * 5000, b"3", b"\xff"]
    for number, text in enumerate(texts):
        folder = start(tmp_path / f"index {number}", replace(rows, about=[text] * 3))
        with pytest.raises(ImageIndexError, match="the text of an image cannot be read"):
            ImageIndex.open(folder).similar(torch.randn(5), range(CLASSES), 3)


@pytest.mark.errors
def test_a_model_whose_features_are_others_is_refused(tmp_path):
    folder = start(tmp_path / "index", make_rows(10, 0), model=projection_model(0))
    ImageIndex.open(folder, model=projection_model(0))
    with pytest.raises(ImageIndexError, match="was made with another model"):
        ImageIndex.open(folder, model=projection_model(1))
    other = projection_model(0)
    changed = replace(other, classes=replace(other.classes, ids=[f"d{c}" for c in range(CLASSES)]))
    with pytest.raises(ImageIndexError, match="was made with another model"):
        ImageIndex.open(folder, model=changed)
    with (
        pytest.raises(ImageIndexError, match="was made with another model"),
        IndexWriter.open(folder, model=projection_model(1)),
    ):
        pass


def test_many_segments_hold_no_file_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    index = ImageIndex.open(start(tmp_path / "index", *(make_rows(3, seed) for seed in range(30))))
    assert len(index) == 90 and len(os.listdir("/proc/self/fd")) == before
