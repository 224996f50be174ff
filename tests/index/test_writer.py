"""Appending, deleting, compacting and refreshing an index."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from shortlist.index import ImageIndex, ImageIndexError, IndexWriter, NewRows
from shortlist.index.doctor import examine_index
from shortlist.index.spread import farthest_points
from tests.index.small import check_equal_to_brute_force, make_rows, name_of, projection_model, start


def names(rows):
    return [name_of(int(c), bytes(d)) for c, d in zip(rows.classes, rows.digests, strict=True)]


def test_an_image_is_kept_once(tmp_path):
    rows = make_rows(20, 0)
    folder = start(tmp_path / "index", rows)
    twice = NewRows.joined([make_rows(5, 1), rows, make_rows(5, 1)])
    with IndexWriter.open(folder) as writer:
        assert writer.append(twice) == names(twice)
    check_equal_to_brute_force(ImageIndex.open(folder), [rows, make_rows(5, 1)])


def test_a_deleted_image_comes_back_when_it_is_appended(tmp_path):
    rows = make_rows(20, 0)
    folder = start(tmp_path / "index", rows)
    for compacted in (False, True, False):
        with IndexWriter.open(folder) as writer:
            writer.delete(names(rows)[:6])
            if compacted:
                writer.compact()
            assert writer.contents.was_deleted(int(rows.classes[0]), bytes(rows.digests[0]))
            check_equal_to_brute_force(ImageIndex.open(folder), [rows], set(names(rows)[:6]))
            writer.append(rows.take(np.arange(3)))
            check_equal_to_brute_force(ImageIndex.open(folder), [rows], set(names(rows)[3:6]))
            writer.append(rows)
        index = ImageIndex.open(folder)
        check_equal_to_brute_force(index, [rows])
        assert index.verify() == [] and examine_index(folder) == []


def test_all_images_deleted(tmp_path):
    rows = make_rows(10, 0)
    folder = start(tmp_path / "index", rows)
    with IndexWriter.open(folder) as writer:
        writer.delete(names(rows))
        writer.compact()
        assert not list(folder.glob("segment-*"))
        check_equal_to_brute_force(ImageIndex.open(folder), [rows], set(names(rows)))
        writer.append(rows)
    check_equal_to_brute_force(ImageIndex.open(folder), [rows])


def test_bytes_of_deleted_images_are_gone_after_compaction(tmp_path):
    rows = make_rows(10, 0)
    folder = start(tmp_path / "index", rows)
    with IndexWriter.open(folder) as writer:
        writer.delete(names(rows)[:1])
        writer.compact()
    kept = b"".join(path.read_bytes() for path in folder.glob("segment-*"))
    assert rows.thumbnails[0] not in kept and rows.thumbnails[1] in kept


def test_compaction_merges_small_segments_and_leaves_full_ones(tmp_path):
    parts = [make_rows(50, 0), *(make_rows(3, seed) for seed in range(1, 6))]
    folder = start(tmp_path / "index", *parts)
    with IndexWriter.open(folder) as writer:
        assert writer.compact(segment_rows=60)
    assert sorted(path.name for path in folder.glob("segment-*")) == ["segment-000001", "segment-000013"]
    check_equal_to_brute_force(ImageIndex.open(folder), parts)


def test_compaction_keeps_spread_images_of_large_classes(tmp_path):
    parts = [make_rows(40, seed, classes=3) for seed in range(3)]
    folder = start(tmp_path / "index", *parts)
    with IndexWriter.open(folder) as writer:
        assert writer.compact(max_per_class=10) and not writer.compact(max_per_class=10)
    index = ImageIndex.open(folder)
    assert index.classes.tolist() == [10, 10, 0, 0, 0, 0]
    rows = NewRows.joined(parts)
    own = rows.take(np.flatnonzero(rows.classes == 0))
    vectors = torch.from_numpy(own.vectors).float()
    kept = {one.id for one in index.similar(vectors[0], [0], 100)[0]}
    spread = [n for n, name in enumerate(names(own)) if name in kept]
    # farther apart than a random choice
    nearest = (vectors @ vectors[spread].T).amax(1).min()
    for seed in range(20):
        drawn = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))[:10]
        assert nearest >= (vectors @ vectors[drawn].T).amax(1).min()


def test_farthest_points_against_a_loop():
    vectors = torch.nn.functional.normalize(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)))
    rows = vectors.double().tolist()
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]

    def dot(one, other):
        return sum(a * b for a, b in zip(one, other, strict=True))

    chosen = [max(range(50), key=lambda n: dot(rows[n], mean))]
    while len(chosen) < 12:
        left = [n for n in range(50) if n not in chosen]
        chosen.append(min(left, key=lambda n: max(dot(rows[n], rows[m]) for m in chosen)))
    assert farthest_points(vectors, 12).tolist() == sorted(chosen)
    assert farthest_points(vectors, 50).tolist() == list(range(50))
    same = torch.ones(5, 1)  # of equal ones no one is chosen twice
    assert len(set(farthest_points(same, 3).tolist())) == 3


def test_an_unfinished_index_is_not_opened(tmp_path):
    with IndexWriter.open(tmp_path / "index", model=projection_model()) as writer:
        writer.append(make_rows(5, 0))
        with pytest.raises(ImageIndexError, match="is not finished"):
            ImageIndex.open(tmp_path / "index")
        assert [one.file for one in examine_index(tmp_path / "index")] == ["index.json"]
        writer.finish()
    assert len(ImageIndex.open(tmp_path / "index")) == 5


@pytest.mark.errors
def test_one_writer_at_a_time(tmp_path):
    folder = start(tmp_path / "index", make_rows(5, 0))
    with IndexWriter.open(folder), pytest.raises(ImageIndexError, match="is in use"):
        with IndexWriter.open(folder):
            pass
    with IndexWriter.open(folder):
        pass


@pytest.mark.errors
def test_folders_that_are_no_index(tmp_path):
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(ImageIndexError, match="is not an index of images"):
            ImageIndex.open(folder)
        with pytest.raises(ImageIndexError, match="is not an index of images"), IndexWriter.open(folder):
            pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "letter.txt").write_text("dear")
    opened = IndexWriter.open(tmp_path, model=projection_model())
    with pytest.raises(ImageIndexError, match=r"it has no index.json, but letter.txt"), opened:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.errors
def test_rows_that_do_not_fit(tmp_path):
    folder = start(tmp_path / "index", make_rows(5, 0))
    rows = make_rows(5, 1)
    odd = rows.vectors.copy()
    odd[0, 0] = np.nan
    with IndexWriter.open(folder) as writer:
        for changed, message in (
            ({"vectors": rows.vectors[:, :4]}, r"vectors must be float16 of shape \(5, 5\)"),
            ({"vectors": rows.vectors.astype(np.float32)}, "vectors must be float16"),
            ({"vectors": odd}, "vectors must be finite"),
            ({"classes": rows.classes + 6}, "classes must be >= 0 and < 6, got"),
        ):
            with pytest.raises(ValueError, match=message):
                writer.append(replace(rows, **changed))
    assert len(ImageIndex.open(folder)) == 5


def test_threads_search_while_another_appends_and_compacts(tmp_path):
    parts = [make_rows(20, seed) for seed in range(12)]
    folder = start(tmp_path / "index", parts[0])
    index, stop, failures = ImageIndex.open(folder), threading.Event(), []

    def search():
        query = torch.randn(5, generator=torch.Generator().manual_seed(0))
        while not stop.is_set():
            try:
                index.refresh()
                for images in index.similar(query, [0, 1, 2, 3, 4], 5):
                    assert images == sorted(images, key=lambda one: (-one.similarity, one.id))
                    for one in images:
                        assert index.thumbnail(one.id).startswith(b"\xff\xd8")
            except Exception as error:
                failures.append(repr(error))
                return

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number, rows in enumerate(parts[1:]):
        with IndexWriter.open(folder) as writer:
            writer.append(rows)
            if number % 4 == 3:
                writer.compact()
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    index.refresh()
    check_equal_to_brute_force(index, parts)
