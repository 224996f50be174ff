import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from shortlist.class_table import ClassTable
from shortlist.curation.contact_sheet import contact_sheet
from shortlist.datasets.glyphs import (
    faces as _glyph_faces,
    folders as _glyph_folders,
    glyphs,
    glyphs_full,
    standardize,
)
from shortlist.datasets.glyphs.counts import long_tail_counts
from shortlist.datasets.glyphs.faces import lineage, matplotlib_faces, wanted
from shortlist.datasets.glyphs.folders import deal_lineages, faces_in, is_open_license
from shortlist.datasets.glyphs.groups import choose_classes, look_alike_groups
from shortlist.datasets.glyphs.render import make_plan, map_tasks, render
from shortlist.datasets.glyphs.trace import Traces, find_bad, trace_face
from shortlist.datasets.splits import TensorSplit

SMALL = {"characters": "OΟОÖQQHΗНaаbcde7", "train_images": 300}
PARTS = ("train", "val", "test")
LETTERS = "ABCDEFGHIJabcdefghij"


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The default set, built once."""
    return glyphs(cache=tmp_path_factory.mktemp("glyphs"))


@pytest.fixture(scope="module")
def drawings():
    """Some letters as five faces have them."""
    faces, _ = matplotlib_faces()
    characters = [ord(letter) for letter in LETTERS]
    return [trace_face(i, str(faces[i].path), characters) for i in (0, 1, 2, 3, 6)]


def test_sizes(full):
    assert len(full.class_table) == 600
    assert 20_000 <= len(full.train) <= 40_000
    assert 5000 <= len(full.val) == len(full.test) <= 10_000
    assert full.train.inputs.shape == (len(full.train), 1, 32, 32)
    assert full.train.inputs.dtype == torch.uint8
    for part in PARTS:
        targets = getattr(full, part).targets
        counts = targets.bincount(minlength=600)
        assert int(counts.min()) >= 4
        assert full.report["images"][part] == len(targets)
    assert full.class_table.class_counts.tolist() == full.train.targets.bincount(minlength=600).tolist()


def test_tail_is_long(full):
    counts = np.sort(full.class_table.class_counts.numpy())
    assert (counts < 20).mean() > 1 / 3
    assert 0.11 <= counts[:480].sum() / counts.sum() <= 0.25
    assert counts[-1] > 100 * counts[0]


def test_held_out_parts_have_the_frequencies_of_training(full):
    train = full.class_table.class_counts
    frequent = train >= 20
    ratio = full.test.targets.bincount(minlength=600)[frequent] / train[frequent]
    assert ((ratio >= 0.2) & (ratio < 0.2 + 1 / 20)).all()


def test_names_scripts_and_groups(full):
    table = full.class_table
    characters = [chr(int(code[2:], 16)) for code in table.ids]
    assert list(table.names) == [unicodedata.name(character) for character in characters]
    assert {"Latin", "Greek", "Cyrillic", "Georgian", "Arabic"} <= set(table.parents["superclass"])
    genus = dict(zip(characters, table.parents["genus"], strict=True))
    script = dict(zip(characters, table.parents["superclass"], strict=True))
    assert {genus[letter] for letter in "OΟОÖ"} == {"LATIN CAPITAL LETTER O"}
    assert [script[letter] for letter in "OΟО"] == ["Latin", "Greek", "Cyrillic"]
    assert genus["H"] == genus["Η"] == genus["Н"] != genus["O"]
    first = {}
    for character in characters:  # accents never leave the letter's group
        base = unicodedata.name(character).split(" WITH ")[0]
        assert genus[character] == genus[first.setdefault(base, character)]


def test_some_faces_are_seen_in_validation_and_test_only(full):
    names = [face["name"] for face in full.report["faces"]]
    seen = {part: set(full.faces[part].tolist()) for part in PARTS}
    held_out = {names[i] for i in seen["test"] - seen["train"]}
    assert held_out == {names[i] for i in seen["val"] - seen["train"]}
    assert "DejaVu Serif Bold Italic" in held_out and len(held_out) == 5
    assert all(face["license"] for face in full.report["faces"])
    share = np.isin(full.faces["test"], list(seen["test"] - seen["train"])).mean()
    assert 0.2 < share < 0.3


def test_no_image_is_there_twice(full):
    images = torch.cat([getattr(full, part).inputs for part in PARTS]).flatten(1).numpy()
    assert len(np.unique(images.view("V1024"))) == len(images)
    assert images.std(1).min() > 3  # nor is one blank


def test_batches_are_standardized(full):
    loader = DataLoader(full.train, batch_size=500, collate_fn=TensorSplit.collate)
    rows, target = next(iter(loader))
    assert rows.shape == (500, 1, 32, 32) and rows.dtype == torch.float32
    assert torch.equal(rows, (full.train.inputs[:500].float() - 47) / 39)
    assert torch.equal(target, full.train.targets[:500])
    everything = standardize(full.train.inputs)
    assert abs(float(everything.mean())) < 0.05 and abs(float(everything.std()) - 1) < 0.05


def test_nearest_class_mean_beats_chance_by_far(full):
    # the images must show what their class says: a raw classifier, by hand
    train, test = standardize(full.train.inputs).flatten(1), standardize(full.test.inputs).flatten(1)
    sums = torch.zeros(600, 1024).index_add_(0, full.train.targets, train)
    means = sums / full.class_table.class_counts[:, None]
    found = torch.cdist(test, means).argmin(1)
    genus, _ = full.class_table.parent_index("genus")
    assert float((genus[found] == genus[full.test.targets]).float().mean()) > 0.3


def test_same_seed_gives_the_same_bits(tmp_path):
    a = glyphs(cache=tmp_path / "a", **SMALL)
    b = glyphs(cache=tmp_path / "b", **SMALL)
    c = glyphs(cache=tmp_path / "a", seed=1, **SMALL)
    for part in PARTS:
        one, same, other = (getattr(splits, part) for splits in (a, b, c))
        assert torch.equal(one.inputs, same.inputs) and torch.equal(one.targets, same.targets)
        assert not torch.equal(one.inputs, other.inputs)
    assert a.class_table == b.class_table == c.class_table


@pytest.mark.slow
def test_number_of_processes_does_not_matter():
    faces, _ = matplotlib_faces()
    plan = make_plan([65, 66], [700, 700], [[0, 1], [1, 2]], seed=(0,))
    paths = [str(face.path) for face in faces]
    one = render(plan, paths, seed=(1,), workers=1)
    assert np.array_equal(one, render(plan, paths, seed=(1,), workers=2))
    assert map_tasks(divmod, [(7, 2), (9, 4)], workers=1, progress=None, stage="") == [(3, 1), (2, 1)]


def test_cache_is_used_and_repaired(tmp_path, monkeypatch):
    steps = []
    first = glyphs(cache=tmp_path, progress=lambda *step: steps.append(step), **SMALL)
    assert steps[0][0] == "drawings" and steps[-1][0] == "test images" and steps[-1][1] == steps[-1][2]
    steps.clear()
    again = glyphs(cache=tmp_path, progress=lambda *step: steps.append(step), transform=None, **SMALL)
    assert not steps
    assert torch.equal(first.test.inputs, again.test.inputs) and first.report == again.report
    assert torch.equal(first.faces["val"], again.faces["val"])
    assert again.train[0][0].dtype == torch.uint8
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path))
    glyphs(progress=lambda *step: steps.append(step), **SMALL)
    assert not steps

    (images,) = tmp_path.glob("*.safetensors")
    (table,) = tmp_path.glob("*.json")
    good = images.read_bytes()
    flipped = bytearray(good)
    flipped[-5] ^= 1
    for damaged in (bytes(flipped), good[: len(good) // 2], b""):
        images.write_bytes(damaged)
        with pytest.warns(UserWarning, match="is damaged: .*; building it again"):
            repaired = glyphs(cache=tmp_path, **SMALL)
        assert torch.equal(first.test.inputs, repaired.test.inputs)
        assert images.read_bytes() == good
    ClassTable(names=("a", "b")).save(table)
    with pytest.warns(UserWarning, match="does not belong to it"):
        assert glyphs(cache=tmp_path, **SMALL).class_table == first.class_table
    assert json.loads(table.read_text())["ids"] == list(first.class_table.ids)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([images.name, table.name])


def test_wanted_characters():
    assert all(wanted(ord(character)) for character in "aÄΩжא7")
    # punctuation, a ligature, a full-width letter, a mathematical one, a superscript
    assert not any(wanted(ord(character)) for character in ".ﬁＡ𝐀²")


def test_drawings_that_are_not_the_character_are_dropped(drawings):
    good = Traces.cat(drawings)
    clean = find_bad(good)
    assert not any(rows.any() for rows in clean.values())

    def swap(traces, row, other):
        order = np.arange(len(traces))
        order[row] = other
        mixed = traces.select(order)
        return Traces(
            traces.face, traces.character, mixed.raster, mixed.placed, mixed.centered, mixed.stretched
        )

    wrong = find_bad(swap(good, LETTERS.index("F"), LETTERS.index("J")))  # drawn so by the first face
    assert np.flatnonzero(wrong["outlier"]).tolist() == [LETTERS.index("F")]
    assert sum(rows.sum() for rows in wrong.values()) == 1
    repeated = find_bad(swap(good, 20, 0))  # the second face's "A" is the first's
    assert np.flatnonzero(repeated["repeated"]).tolist() == [20]
    mixed_up = [LETTERS.index(letter) for letter in "JjjfJJffCFCJJfJDjJCC"]  # a face of another encoding
    found = find_bad(swap(good, slice(0, 20), mixed_up))
    assert np.flatnonzero(found["other encoding"]).tolist() == list(range(20))
    assert not found["outlier"].any()


def test_character_that_a_face_lacks_is_blank():
    faces, _ = matplotlib_faces()
    computer_modern = next(i for i, face in enumerate(faces) if face.path.stem == "cmr10")
    traces = trace_face(computer_modern, str(faces[computer_modern].path), [ord("A"), ord("Ж"), 0x3000])
    assert find_bad(traces)["blank"].tolist() == [False, True, True]
    assert ord("À") not in faces[computer_modern].characters  # the font has a Greek letter there


def test_groups_chain_and_choice(drawings):
    groups = look_alike_groups(Traces.cat(drawings))
    assert groups[ord("A")] == "LATIN CAPITAL LETTER A" and len(set(groups.values())) == 20
    several = {0x4F: "o", 0x39F: "o", 0x41E: "o"}
    single = {0x41: "a", 0xC1: "a", 0x42: "b"}
    assert choose_classes(several | single, max_classes=None) == [0x41, 0x42, 0x4F, 0xC1, 0x39F, 0x41E]
    assert choose_classes(several | single, max_classes=4) == [0x42, 0x4F, 0x39F, 0x41E]
    assert choose_classes(several | single, max_classes=2) in ([0x41, 0xC1], [0x42])


def test_long_tail_counts_by_hand():
    counts = long_tail_counts([1, 2, 3, 4], [1, 1, 1, 1], total=100, exponent=1.0, offset=0.0, fewest=1)
    assert sorted(counts.tolist(), reverse=True) == [48, 24, 16, 12]  # 100 / (1 + 1/2 + 1/3 + 1/4) = 48
    twice = long_tail_counts([1, 2, 3, 4], [2, 2, 2, 2], total=100, exponent=1.0, offset=0.0, fewest=1)
    assert twice.tolist() == counts.tolist()
    assert long_tail_counts([1, 2], [1, 1], total=3, exponent=5.0, offset=0.0, fewest=4).tolist() == [4, 4]


def test_plan_goes_through_the_faces_in_turn():
    plan = make_plan([65, 66], [7, 2], [[0, 3, 5], [4]], seed=(0, 0))
    first = plan.face[plan.target == 0]
    assert sorted(np.bincount(first, minlength=6)[[0, 3, 5]].tolist()) == [2, 2, 3]
    assert plan.face[plan.target == 1].tolist() == [4, 4]
    assert plan.character[plan.target == 1].tolist() == [66, 66]
    assert (np.abs(plan.motion) <= [2, 2, 6]).all() and set(plan.size) <= {18, 19, 20, 21, 22}


@pytest.mark.parametrize(
    ("families", "same"),
    [
        (("Carlito", "Lato"), True),
        (("Noto Sans Georgian", "Open Sans", "Noto Serif"), True),
        (("TeX Gyre Pagella", "FreeSerif", "Nimbus Roman", "C059", "Palladio Uralic"), True),
        (("EB Garamond", "EB Garamond 12 All SC", "EBGaramond"), True),
        (("DejaVu Sans", "DejaVu Serif", "BPG Excelsior GPL&GNU"), True),
        (("STIXGeneral", "TeX Gyre Termes", "Liberation Serif", "Tinos"), True),
        (("GFS Didot", "GFS Didot Classic"), True),
        (("GFS Didot", "GFS Olga"), False),
        (("DejaVu Sans", "Lato"), False),
        (("B612", "B612 Mono"), True),
    ],
)
def test_relatives(families, same):
    assert (len({lineage(family) for family in families}) == 1) == same


@pytest.mark.parametrize(
    ("license", "is_open"),
    [
        ("This Font Software is licensed under the SIL Open Font License, Version 1.1.", True),
        ("http://www.gnu.org/copyleft/gpl.html GPL", True),
        ("Licensed under the Apache License, Version 2.0", True),
        ("Copyright (c) Greek Font Society, 1995. All rights reserved.", False),
        ("This font is free for personal, non-commercial, or non-profit use.", False),
        ("", False),
    ],
)
def test_licenses(license, is_open):
    assert is_open_license(license) == is_open


@pytest.fixture
def font_folder(tmp_path):
    """Fonts of three designs, a copy, a link, a symbol font and a file that is no font."""
    folder = tmp_path / "fonts"
    (folder / "below").mkdir(parents=True)
    source = matplotlib_faces()[0][0].path.parent
    for name in (
        "DejaVuSans",
        "DejaVuSerif",
        "DejaVuSansMono",
        "STIXGeneral",
        "STIXGeneralBol",
        "cmr10",
        "cmss10",
    ):
        (folder / f"{name}.ttf").write_bytes((source / f"{name}.ttf").read_bytes())
    (folder / "below" / "copy.ttf").write_bytes((source / "DejaVuSans.ttf").read_bytes())
    (folder / "STIXSizOneSymReg.ttf").write_bytes((source / "STIXSizOneSymReg.ttf").read_bytes())
    (folder / "link.ttf").symlink_to(folder / "DejaVuSans.ttf")
    (folder / "broken.otf").write_bytes(b"not a font")
    (folder / "readme.txt").write_text("not a font either")
    return folder


def test_fonts_of_a_folder(font_folder):
    faces, skipped = faces_in([font_folder])
    assert [face.name for face in faces] == [
        "DejaVu Sans Book",
        "DejaVu Sans Mono Book",
        "DejaVu Serif Book",
        "STIXGeneral Regular",
        "STIXGeneral Bold",
        "cmr10 Regular",
        "cmss10 Regular",
    ]
    reasons = {Path(path).name: reason.split(":")[0] for path, reason in skipped}
    twice = {"copy.ttf", "DejaVuSans.ttf"} & set(reasons)
    assert len(twice) == 1 and reasons.pop(twice.pop()) == "same file as another"
    assert reasons == {
        "STIXSizOneSymReg.ttf": "fewer than 20 letters and digits",
        "broken.otf": "unreadable",
    }


def test_license_can_be_required(font_folder, monkeypatch):
    monkeypatch.setattr(_glyph_folders, "OPEN_LICENSE", re.compile("dejavu", re.I))
    faces, skipped = faces_in([font_folder])
    assert {face.family for face in faces} == {"DejaVu Sans", "DejaVu Sans Mono", "DejaVu Serif"}
    assert sum(reason.startswith("no open license: ") for _, reason in skipped) == 5
    assert len(faces_in([font_folder], require_open_license=False)[0]) == 7


def test_styles_of_a_family_are_few(font_folder, monkeypatch):
    monkeypatch.setattr(_glyph_folders, "MOST_STYLES", 1)
    faces, skipped = faces_in([font_folder])
    assert "STIXGeneral Bold" not in [face.name for face in faces]
    assert any(reason == "more than 1 styles" for _, reason in skipped)


def test_lineages_are_dealt_whole():
    face = matplotlib_faces()[0][0]
    faces = [
        _glyph_faces.Face(
            face.path, f"F{i}", "Bold", f"design {i // 2}", "", str(i), frozenset(range(50 - i))
        )
        for i in range(20)
    ]
    parts = deal_lineages(faces)
    assert parts[::2] == parts[1::2]
    assert sorted(parts[:6:2]) == [0, 1, 2]  # each part has one of the three widest
    assert [parts.count(part) for part in range(3)] == [12, 4, 4]


def test_full_set_keeps_designs_apart(font_folder, tmp_path):
    splits = glyphs_full(
        [font_folder],
        cache=tmp_path / "cache",
        characters="ABCDEFGHIJKLMNOP",
        min_faces=3,
        train_images=200,
        workers=1,
    )
    designs = {
        part: {splits.report["faces"][i]["lineage"] for i in splits.faces[part].tolist()} for part in PARTS
    }
    assert all(designs.values()) and not (
        designs["train"] & designs["val"]
        | designs["train"] & designs["test"]
        | designs["val"] & designs["test"]
    )
    assert len(splits.class_table) >= 10 and len(splits.report["skipped"]) == 3
    for part in PARTS:
        assert len(getattr(splits, part).targets.unique()) == len(splits.class_table)


@pytest.mark.parametrize("channels", [1, 3])
def test_contact_sheet_shows_the_images(channels):
    levels = torch.tensor([10, 60, 120, 180, 240, 250], dtype=torch.uint8)
    images = levels[:, None, None, None].expand(6, channels, 8, 8).contiguous()
    split = TensorSplit(images, torch.tensor([0, 0, 1, 2, 2, 2]))
    table = ClassTable(names=("a", "b", "c"), parents={"genus": ("x", "x", "y")})
    sheet = np.asarray(contact_sheet(split, table, num_images=3, side=8))
    assert sheet.shape == (2 * (8 + 28 + 9), 240, 3)
    top, height = 3 + 28, 8 + 28 + 9
    first_row, second_row = sheet[top + 4], sheet[top + height + 4]
    assert {int(v) for v in first_row[:, 0]} == {10, 60, 120, 255}
    assert {int(v) for v in second_row[:, 0]} == {180, 240, 250, 255}
    only = np.asarray(contact_sheet(split, table, groups=["y"], num_images=3, side=8))
    assert np.array_equal(np.unique(only[top + 4]), [180, 240, 250, 255])
    floating = TensorSplit(images / 255 * torch.linspace(0, 1, 8), split.targets)
    assert np.asarray(contact_sheet(floating, table, side=8))[top + 4].min() == 0


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"max_classes": 0}, "max_classes must be an integer >= 1, got 0"),
        ({"min_faces": 1.5}, "min_faces must be an integer >= 1, got 1.5"),
        ({"train_images": 0}, "train_images must be an integer >= 1, got 0"),
        ({"characters": "A"}, "the options leave 1 classes, at least 2 are needed"),
        ({"characters": "!"}, "the options leave 0 classes, at least 2 are needed"),
    ],
)
def test_bad_options(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        glyphs(cache=tmp_path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.errors
def test_bad_folders_and_groups(tmp_path):
    with pytest.raises(ValueError, match="folders must be existing folders, got"):
        glyphs_full([tmp_path / "none"])
    with pytest.raises(ValueError, match="usable fonts of at least 3 designs, one for each split, got 0"):
        glyphs_full([tmp_path])
    with pytest.raises(ValueError, match="workers must be an integer >= 1, got 0"):
        glyphs_full([tmp_path], workers=0)
    split = TensorSplit(torch.zeros(2, 1, 8, 8), torch.tensor([0, 1]))
    table = ClassTable(names=("a", "b"), parents={"genus": ("x", "y")})
    with pytest.raises(ValueError, match="groups must be parents of classes that have images, got 'z'"):
        contact_sheet(split, table, groups=["z"])
    with pytest.raises(ValueError, match="level must be one of"):
        contact_sheet(split, table, level="family")
    with pytest.raises(ValueError, match=r"a picture of shape \(1 or 3, h, w\), got \(8,\)"):
        contact_sheet(TensorSplit(torch.zeros(2, 8), torch.tensor([0, 1])), table)


def test_an_older_matplotlib_has_one_face_less(tmp_path, monkeypatch):
    import matplotlib

    everything, held_out = matplotlib_faces()
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    old = tmp_path / "fonts" / "ttf"
    old.mkdir(parents=True)
    for font in fonts.glob("*.ttf"):
        if font.stem != "cmti10":
            (old / font.name).symlink_to(font)
    monkeypatch.setattr(matplotlib, "get_data_path", lambda: str(tmp_path))
    with pytest.warns(UserWarning, match=r"matplotlib .* lacks the font cmti10"):
        found, found_held_out = matplotlib_faces()
    assert len(found) == len(everything) - 1 == 20 and sum(found_held_out) == sum(held_out) == 5
    kept = [
        (face.name, held)
        for face, held in zip(everything, held_out, strict=True)
        if face.path.stem != "cmti10"
    ]
    assert [(face.name, held) for face, held in zip(found, found_held_out, strict=True)] == kept
    (old / "cmr10.ttf").unlink()
    with pytest.raises(ValueError, match=r"needs cmr10\.ttf"):
        matplotlib_faces()
