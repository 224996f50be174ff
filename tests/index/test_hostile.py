"""An index that a stranger made: its manifest is sealed, and what it says is a lie."""

import os
from pathlib import Path
from typing import Any

import pytest

from shortlist._store.manifest import read_sealed, write_sealed
from shortlist.index import ImageIndex, ImageIndexError, IndexWriter
from shortlist.index.doctor import examine_index
from tests.index.small import make_rows, name_of, start

HUGE = 2**62
LIES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("num_classes must be <= 10,000,000", {"num_classes": HUGE}, {}),
    ("num_classes times dimension must be <=", {"num_classes": 10**7, "dimension": 10**9}, {}),
    ("num_classes times dimension must be <=", {"dimension": HUGE, "segments": [], "deleted": None}, {}),
    ("next must be <=", {"next": 10**300}, {}),
    ("next must be of type int and not negative", {"next": -1}, {}),
    ("a segment must have name, rows", {"segments": [{}]}, {}),
    ("'../../etc/passwd' is no name of a file of an index", {}, {"name": "../../etc/passwd"}),
    ("is no name of a file of an index", {}, {"name": "/dev/zero"}),
    ("is no name of a file of an index", {}, {"name": "segment-000001\n"}),
    ("its size is another one", {}, {"rows": HUGE}),
    ("its size is another one", {}, {"thumbnail_bytes": HUGE}),
    ("its size is another one", {}, {"size": HUGE}),
    ("its head", {}, {"head_check": 0}),
]


def make(folder: Path) -> Path:
    rows = make_rows(12, 0)
    start(folder, rows, make_rows(4, 1))
    with IndexWriter.open(folder) as writer:
        writer.delete([name_of(int(rows.classes[0]), bytes(rows.digests[0]))])
    return folder


def write(folder: Path) -> None:
    with IndexWriter.open(folder) as writer:
        writer.append(make_rows(2, 3))


def seal(folder: Path, change: dict[str, Any]) -> dict[str, Any]:
    content = read_sealed(folder / "index.json") | change
    write_sealed(folder / "index.json", content)
    return content


@pytest.mark.errors
@pytest.mark.parametrize(("message", "of_index", "of_segment"), LIES)
def test_a_lie_is_refused_by_name(message, of_index, of_segment, tmp_path):
    folder = make(tmp_path / "index")
    content = seal(folder, of_index)
    if of_segment:
        first, *others = content["segments"]
        seal(folder, {"segments": [first | of_segment, *others]})
    for use in (ImageIndex.open, write):
        with pytest.raises(ImageIndexError, match=r"index\.json|segment-000001") as refused:
            use(folder)
        assert message in str(refused.value) and len(str(refused.value)) < 2000
    examine_index(folder)  # says what it can, and ends


@pytest.mark.errors
def test_a_segment_counts_once(tmp_path):
    folder = make(tmp_path / "index")
    segments = read_sealed(folder / "index.json")["segments"]
    seal(folder, {"segments": [segments[0]] * 3})
    with pytest.raises(ImageIndexError, match="segments must have a name each, got one twice"):
        ImageIndex.open(folder)


@pytest.mark.errors
@pytest.mark.parametrize("target", ["/etc/passwd", "/dev/zero", "pipe", "segment-000001"])
@pytest.mark.parametrize("kind", ["index.json", "segment", "deleted"])
def test_links_and_pipes_are_never_read_as_files_of_an_index(kind, target, tmp_path):
    folder = make(tmp_path / "index")
    (path,) = sorted(folder.glob(f"{kind}*"))[:1]
    path.unlink()
    os.mkfifo(folder / "pipe")
    path.symlink_to(target if target.startswith("/") else folder / target)
    for use in (ImageIndex.open, write):
        with pytest.raises(ImageIndexError):
            use(folder)
