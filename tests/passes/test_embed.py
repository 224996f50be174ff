"""``shortlist embed``: features of images as a data set, the same from one process and from two."""

import errno
import json
import os
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open

from shortlist._row_facts import observation_number
from shortlist._tables import write_columns
from shortlist.datasets import embeddings, facts_of
from shortlist.datasets.embeddings import embedding_files, read_manifest
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.preprocessing import Preprocessing
from tests.commands import run
from tests.datasets.trees import class_folders, image, truncate
from tests.index.small import SMALL

OWN = "tests.passes.small"
BACKBONE = f"{OWN}:make_backbone"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for number, (part, counts) in enumerate(
        {"train": {"ash": 40, "oak": 7}, "test": {"ash": 3, "oak": 5}}.items()
    ):
        for name, count in counts.items():
            for i in range(count):
                image(root / part / name / f"image {i:02d}.png", seed=100 * number + i, size=(30, 20 + i))
    truncate(root / "train" / "ash" / "image 03.png")
    return root


def expected(path, prepare):
    """By NumPy from Pillow's own pixels."""
    with Image.open(path) as opened:
        pixels = np.asarray(opened.resize((prepare.width, prepare.height), Image.Resampling.BICUBIC))
    values = (pixels.astype(np.float64) / 255 - 0.5) / 0.25
    return np.concatenate([values.mean((0, 1)), values.max((0, 1))])


@pytest.mark.parametrize(("workers", "shard_rows"), [(1, 1000), (1, 10)])
def test_embeddings_of_a_folder_are_the_features_of_its_images(photos, tmp_path, workers, shard_rows):
    source = EmbedderSource(BACKBONE, SMALL, allow_code=True)
    told = []
    counts = embed_images(
        source, photos, tmp_path, workers=workers, shard_rows=shard_rows, progress=lambda *at: told.append(at)
    )
    assert counts.rows == {"train": 46, "test": 8} and (counts.dimensions, counts.classes) == (6, 2)
    shards = {1000: 2, 10: 6}[shard_rows]
    assert (counts.unreadable, counts.kept, told[-1]) == (1, 0, (shards, shards))
    splits = embeddings(tmp_path, val_fraction=0)
    assert splits.class_table.names == ("ash", "oak") and splits.class_table.counts == (39, 7)
    files = [
        path
        for path in sorted((photos / "train").rglob("*.png"))
        if path.parts[-2:] != ("ash", "image 03.png")
    ]
    wanted = np.stack([expected(path, SMALL) for path in files])
    np.testing.assert_allclose(torch.stack([x for x, _ in splits.train]).numpy(), wanted, atol=2e-3)
    assert (
        splits.train.targets.tolist() == [0] * 39 + [1] * 7
        and splits.test.targets.tolist() == [0] * 3 + [1] * 5
    )
    # a network of float32 takes all rows as they are, as in the tutorial of one's own training loop
    assert torch.nn.Linear(6, 2)(splits.train.inputs).shape == (46, 2)
    stored = embeddings(tmp_path, val_fraction=0, as_stored=True).train.inputs
    assert stored.dtype == torch.float16 and torch.equal(stored.float(), splits.train.inputs)
    manifest = read_manifest(tmp_path)
    assert list(manifest["examples"]) == ["train/ash/image 03.png"]
    ids = []
    for path in embedding_files(tmp_path)["train"]:
        with safe_open(path, "pt") as file:
            ids += json.loads(file.metadata()["shortlist"])["ids"]
    assert ids == [str(path.relative_to(photos)) for path in files]


@pytest.mark.slow
def test_one_process_and_two_and_any_size_of_shards_give_the_same_bits(photos, tmp_path):
    source, found = EmbedderSource(f"{OWN}:make_projection", SMALL, allow_code=True), []
    for number, (workers, shard_rows) in enumerate([(1, 1000), (1, 7), (2, 33)]):
        embed_images(source, photos, tmp_path / str(number), workers=workers, shard_rows=shard_rows)
        splits = embeddings(tmp_path / str(number), val_fraction=0)
        found.append((splits.train.inputs, splits.test.inputs))
    assert all(torch.equal(a, b) for one in found[1:] for a, b in zip(one, found[0], strict=True))


def test_what_is_finished_is_kept_and_nothing_else_is_taken_for_it(photos, tmp_path):
    source = EmbedderSource(BACKBONE, SMALL, allow_code=True)
    out = tmp_path / "out"
    embed_images(source, photos, out, workers=1, shard_rows=20)
    before = {path.name: path.read_bytes() for path in out.glob("*.safetensors")}
    (out / "train-00001.safetensors").unlink()
    (out / "embeddings.json").unlink()
    with pytest.raises(ValueError, match=r"is not finished, it has no embeddings.json"):
        embeddings(out)
    counts = embed_images(source, photos, out, workers=1, shard_rows=20)
    assert counts.kept == 3 and counts.unreadable == 1 and counts.rows == {"train": 46, "test": 8}
    assert {path.name: path.read_bytes() for path in out.glob("*.safetensors")} == before
    other = EmbedderSource(
        BACKBONE, Preprocessing(**{**SMALL.to_dict(), "mean": (0.4,) * 3}), allow_code=True
    )
    with pytest.raises(ValueError, match=r"train-00000.safetensors was made with another model"):
        embed_images(other, photos, out, workers=1, shard_rows=20)
    with pytest.raises(ValueError, match=r"was made of other rows"):
        embed_images(source, photos, out, workers=1, shard_rows=30)
    cut = out / "train-00000.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"train-00000.safetensors is missing or damaged"):
        embeddings(out)
    with pytest.raises(ValueError, match=r"train-00000.safetensors is damaged: remove it"):
        embed_images(source, photos, out, workers=1, shard_rows=20)


def test_the_manifest_of_an_earlier_call_goes_before_a_part_is_written(tmp_path):
    class_folders(tmp_path / "photos", {"ash": 3})
    source, out = EmbedderSource(BACKBONE, SMALL, allow_code=True), tmp_path / "out"
    embed_images(source, tmp_path / "photos", out, workers=1, shard_rows=2)
    (out / "train-00001.safetensors").unlink()

    def stopped(work, shards, *, workers):
        assert [shard.name for shard in shards] == ["train-00001"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_images(source, tmp_path / "photos", out, workers=1, shard_rows=2, engine=stopped)
    with pytest.raises(ValueError, match=r"is not finished, it has no embeddings.json"):
        embeddings(out)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (EmbedderSource(BACKBONE, SMALL), "add --allow-code"),
        (EmbedderSource(BACKBONE, allow_code=True), "give --size, --mean and --std"),
        (EmbedderSource("nothing"), "MODEL must be the folder of a run or a model, timm:NAME"),
        (EmbedderSource(f"{OWN}:expected_not", SMALL, allow_code=True), "has no such function"),
        (EmbedderSource("builtins:dict", SMALL, allow_code=True), "must make a network"),
        (EmbedderSource(f"{OWN}:make_map", SMALL, allow_code=True), r"must be of shape \(n, d\)"),
    ],
)
def test_what_cannot_embed_is_refused(photos, tmp_path, source, words):
    with pytest.raises(ValueError, match=words):
        embed_images(source, photos, tmp_path / "out", workers=1)


@pytest.mark.errors
def test_a_worker_with_another_network_is_refused(photos, tmp_path):
    """Each call of the function draws other weights, for the command and for its worker."""
    source = EmbedderSource(f"{OWN}:make_random", SMALL, allow_code=True)
    with pytest.raises(ValueError, match=r"another model than the command: tests.passes.small:make_random"):
        embed_images(source, photos, tmp_path / "out", workers=1)
    assert not list((tmp_path / "out").glob("*.safetensors"))


def test_features_too_large_for_half_precision_are_told(tmp_path):
    class_folders(tmp_path / "photos", {"ash": 2})
    loud = Preprocessing(height=8, width=8, resize=None, mean=(0.0,) * 3, std=(1e-6,) * 3)
    with pytest.raises(ValueError, match="too large for half precision"):
        embed_images(
            EmbedderSource(BACKBONE, loud, allow_code=True), tmp_path / "photos", tmp_path / "out", workers=1
        )


@pytest.mark.parametrize("how", ["the library", "the system"])
def test_a_full_disk_is_an_error_that_names_the_file_and_the_next_call_goes_on(tmp_path, monkeypatch, how):
    class_folders(tmp_path / "photos", {"ash": 3, "oak": 2})
    source, out = EmbedderSource(BACKBONE, SMALL, allow_code=True), tmp_path / "out"
    given = {"workers": 1, "shard_rows": 2}
    embed_images(source, tmp_path / "photos", tmp_path / "calm", **given)
    calls = []

    def full(*_, **__):
        calls.append(1)
        if len(calls) == 2:
            if how == "the system":
                raise OSError(errno.ENOSPC, "No space left on device")
            raise SafetensorError("Error while serializing: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        if how == "the system":
            patch.setattr(os, "fsync", full)
        else:
            real = safetensors.torch.save_file
            patch.setattr(safetensors.torch, "save_file", lambda *a, **k: (full(), real(*a, **k)))
        with pytest.raises(OSError, match=r"(No space left.*train-00001|train-00001.*No space left)"):
            embed_images(source, tmp_path / "photos", out, **given)
    assert [path.name for path in out.iterdir() if path.name != ".lock"] == ["train-00000.safetensors"]
    assert embed_images(source, tmp_path / "photos", out, **given).kept == 1
    before, after = ({p.name: p.read_bytes() for p in place.iterdir()} for place in (tmp_path / "calm", out))
    assert before == after


def test_the_command(tmp_path, monkeypatch):
    class_folders(tmp_path / "photos", {"ash": 3, "oak": 2})
    (tmp_path / "own.py").write_text("from tests.passes.small import make_backbone\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    out, given = tmp_path / "out", ("embed", "own:make_backbone", tmp_path / "photos", "--workers", 1)
    code, _, err = run(*given, "-o", out, "--size", 8)
    assert code == 2 and "--allow-code" in err
    options = ("--size", 8, "--resize", 8, "--mean", "127", "--std", "128", "--pixels", "levels")
    code, said, err = run(*given, "-o", out, *options, "--interpolation", "bicubic", "--allow-code")
    assert code == 0 and said == f"{out}: 5 train, 6 features, 2 classes\n", err
    kept = read_manifest(out)["preprocessing"]
    assert kept["mean"] == [127.0] * 3 and (kept["pixels"], kept["interpolation"]) == ("levels", "bicubic")
    code, said, _ = run(*given, "-o", out, *options, "--interpolation", "bicubic", "--allow-code", "--json")
    assert code == 0 and json.loads(said)["kept"] == 1
    code, _, err = run(*given, "-o", out, "--size", 8, "--mean", "a,b", "--allow-code")
    assert code == 2 and "--mean must be one number, or three with commas, got 'a,b'" in err


def test_observation_and_organ_of_a_list_go_with_the_embeddings_and_the_scores(tmp_path):
    rows = []
    for i in range(24):
        image(tmp_path / "photos" / f"{i}.png", seed=i)
        split, organ = ("train", "val", "test")[i // 2 % 3], ("leaf", "", "bark")[i % 3]
        rows.append({"path": f"{i}.png", "label": f"class {i // 12}", "split": split})
        rows[-1] |= {"observation": f"o{i // 2}", "organ": organ}
    path = tmp_path / "photos" / "list.csv"
    write_columns(path, {key: [row[key] for row in rows] for key in rows[0]})
    source = EmbedderSource(BACKBONE, SMALL, allow_code=True)
    for number, shard_rows in enumerate((3, 100)):
        out = tmp_path / f"out{number}"
        embed_images(source, path, out, workers=1, shard_rows=shard_rows)
        splits = embeddings(out)
        for part in ("train", "val", "test"):
            facts = facts_of(getattr(splits, part))
            listed = [row for row in rows if row["split"] == part]
            codes, names = facts.groups["organ"]
            assert facts.observation.tolist() == [observation_number(row["observation"]) for row in listed]
            assert ["" if c < 0 else names[c] for c in codes.tolist()] == [row["organ"] for row in listed]
    # other facts are other rows: what was made of the old ones is not taken for them
    rows[0]["observation"] = "another"
    write_columns(path, {key: [row[key] for row in rows] for key in rows[0]})
    with pytest.raises(ValueError, match="of other rows"):
        embed_images(source, path, out, workers=1, shard_rows=100)
