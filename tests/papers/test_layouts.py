"""The printed tables: each published number in a cell, runs in the cells that they are, in every form."""

import csv
import io
import re
from collections import Counter

import pytest
import torch

from shortlist._sheets import to_csv, to_html, to_latex, to_markdown
from shortlist.class_table import ClassTable
from shortlist.papers import load_published
from shortlist.papers.filling import fill_layout
from shortlist.papers.layouts import find_place, layout_names, list_tables, load_layout
from shortlist.papers.printing import table_sheet
from shortlist.runs import group_runs, read_runs
from tests.commands import invoke, output_of
from tests.latex import check_latex, compile_latex
from tests.papers.test_published import text_of
from tests.run_factory import scored_run

TEXTS = {"garcin2022": "000", "thesis": "001", "garcin2023": "002", "petersen2022": "003", "menon2021": "004"}
TABLE = ClassTable(names=tuple("abcdefgh"), counts=(1, 2, 3, 4, 5, 6, 7, 8))


def test_each_published_number_has_one_cell_in_its_document():
    wanted = Counter(
        (table.name, row.method, column.name, number.metric)
        for table in load_published()
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        for number in cell
    )
    by_document: dict[str, Counter] = {}
    for layout in list_tables():
        cells = by_document.setdefault(layout.document, Counter())
        cells.update((*place.key, n.metric) for place in layout.places() for n in place.numbers)
    papers = Counter()
    for document, cells in by_document.items():
        assert set(cells.values()) == {1}, document  # none twice
        papers += cells if document != "thesis" else Counter()
    thesis = Counter({key: 1 for t in load_published() if t.thesis for key in wanted if key[0] == t.name})
    assert by_document["thesis"] == thesis
    assert papers | thesis == wanted and len(wanted) == 823


@pytest.mark.parametrize("name", layout_names())
def test_a_table_is_a_whole_rectangle(name, tmp_path):
    layout = load_layout(name)
    sheet = table_sheet(layout)
    width = len(sheet.heads[-1])
    assert width == len(layout.stubs) + len(layout.columns)
    assert all(len(row) == width for row in [*sheet.heads, *sheet.rows])
    assert len(sheet.rows) == len(layout.rows)
    rows = check_latex(to_latex(sheet))
    titles = sum(bool(part.title) for part in sheet.parts)
    assert len(rows) == len(sheet.heads) + len(sheet.rows) + titles
    assert len(list(csv.reader(io.StringIO(to_csv(sheet))))) == 1 + len(sheet.rows)
    assert to_html(sheet).count("<tr>") == len(sheet.heads) + len(sheet.rows) + titles
    markdown = [line for line in to_markdown(sheet).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in markdown} == {width + 1}


def test_tables_compile(tmp_path):
    compile_latex("\n\\clearpage\n".join(to_latex(table_sheet(t)) for t in list_tables()), tmp_path)


@pytest.mark.parametrize("name", [t.name for t in list_tables() if t.has_numbers])
def test_cells_are_printed_as_in_the_text(name):
    """With the same digits: 52.00, not 52.0."""
    text = text_of(TEXTS[name.partition(":")[0]])
    layout = load_layout(name)
    if name == "thesis:3.1":  # shares there
        return
    for cell in (text for row in table_sheet(layout).rows for text, _ in row[len(layout.stubs) :]):
        for number in re.findall(r"\d+(?:\.\d+)?", re.sub(r" \[\w+\]", "", cell)):
            pattern = rf"(?<![\d.]){re.escape(number)}(?!\.?\d)"
            # in one text a sign of a footnote is read as a digit behind its number
            assert re.search(pattern, text) or re.search(rf"(?<![\d.]){re.escape(number)}1", text), number


def test_the_thesis_prints_two_tables_with_methods_as_rows():
    paper, thesis = load_layout("garcin2022:5"), load_layout("thesis:4.5")
    assert (paper.methods_are_rows, thesis.methods_are_rows) == (False, True)
    cells = [[text for text, _ in row[1:]] for row in table_sheet(paper).rows]
    turned = [[text for text, _ in row[1:]] for row in table_sheet(thesis).rows]
    assert [list(row) for row in zip(*turned, strict=True)] == cells
    assert turned[0][0] == "36.3 ± 0.3 (12.6/42.9/71.7)"


@pytest.mark.errors
def test_unknown_tables_and_cells():
    with pytest.raises(ValueError, match=r"table must be one of .* got 'garcin2022:55'; the nearest is "):
        load_layout("garcin2022:55")
    with pytest.raises(ValueError, match=r"numbers must be one of .*, got x"):
        find_place({"numbers": "x"})
    with pytest.raises(ValueError, match=r"method of ImageNet, top-K accuracy must be one of .*, got y"):
        find_place({"numbers": "ImageNet, top-K accuracy", "method": "y", "column": "K = 1"})


def noise_run(path, loss, noise, seed=0, *overrides):
    content = {"data": {"name": "cifar100", "root": "."}, "loss": {"name": loss}}
    if loss == "smooth_topk":
        content["loss"] |= {"k": 5}
    targets = {part: torch.arange(397) % 8 for part in ("val", "test")}
    draw = [f"seed={seed}", f"data.label_noise={noise}", *overrides]
    return scored_run(path, TABLE, targets, content, overrides=draw, skill=2 - noise, epochs=[])


@pytest.fixture(scope="module")
def noise_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise")
    for seed in (0, 1, 2):
        noise_run(folder / f"ce-{seed}", "cross_entropy", 0.1, seed)
    noise_run(folder / "smooth", "smooth_topk", 0.2, 0, "epochs=300", "batch_size=64")
    for noise in (0.1, 0.2):
        noise_run(folder / f"own-{noise}", "focal", noise)
    targets = {part: torch.arange(80) % 8 for part in ("val", "test")}
    scored_run(folder / "elsewhere", TABLE, targets, {"data": {"name": "gaussian_genera"}})
    return folder


def filled(name, folder):
    runs, left_out = read_runs([folder])
    groups, others = group_runs(runs)
    layout = load_layout(name)
    return layout, fill_layout(layout, groups, left_out | others)


def test_runs_stand_in_the_cells_that_they_are(noise_runs):
    layout, cells = filled("garcin2022:4", noise_runs)
    sheet = table_sheet(layout, cells)
    rows = [[text for text, _ in row] for row in sheet.rows]
    assert sheet.heads[-1] == [
        *(
            "label noise",
            "",
            "cross-entropy",
            "smooth top-5, τ = 1",
            "noised top-5, ε = 0.2, 10 draws",
            "focal",
        )
    ]
    assert [row[:2] for row in rows[:6]] == [
        *(["0.0", "published"], ["", "ours"], ["0.1", "published"], ["", "ours"], ["", "difference"]),
        ["0.2", "published"],
    ]
    assert rows[1][2:] == ["no run", "no run", "no run", ""]
    accuracies = torch.tensor(
        [run.results.metrics()["top5.micro"].value for run in read_runs([*noise_runs.glob("ce-*")])[0]]
    )
    mean = 100 * accuracies.double().mean().item()
    half = 4.302653 * 100 * accuracies.double().std().item() / 3**0.5  # Student's t with 2 degrees, 95 %
    assert rows[2][2] == "90.3 ± 0.2"
    assert rows[3][2].startswith(f"{mean:.1f} ± {half:.1f} [")
    assert rows[4][2] == f"{mean - 90.3:+.1f}"
    assert rows[3][3:5] == ["no run", "no run"] and rows[3][5] and not rows[2][5] and not rows[4][5]
    mark = rows[3][2][-2]
    (said,) = [note for note in sheet.notes if note.startswith(f"[{mark}]")]
    assert "epochs" in said and "there 300" in said and "loss." not in said
    (other,) = [note for note in sheet.notes if note.startswith(f"[{rows[6][3][-2]}]")]
    assert "epochs" not in other and "batch_size" not in other  # as in the paper
    assert "no run: 13 of 15 cells have none of these runs" in sheet.notes
    assert any(note.startswith("fits no cell: ") for note in sheet.notes)
    check_latex(to_latex(sheet))


def test_own_methods_are_rows_where_methods_are_rows(tmp_path):
    content = {"data": {"name": "cifar100_lt", "root": "."}, "loss": {"name": "focal"}}
    targets = {part: torch.arange(400) % 8 for part in ("val", "test")}
    scored_run(tmp_path / "own", TABLE, targets, {**content, "name": "mine_1"})
    scored_run(tmp_path / "ce", TABLE, targets, {**content, "loss": {"name": "cross_entropy"}})
    layout, cells = filled("menon2021:2", tmp_path)
    sheet = table_sheet(layout, cells)
    row = [text for text, _ in sheet.rows[-1]]
    assert row[:2] == ["mine_1", "ours"] and row[2] == row[4] == row[5] == "" and row[3]
    assert "without a published number: your own methods" in sheet.notes
    assert r"mine\_1 & ours" in to_latex(sheet)
    check_latex(to_latex(sheet))


def test_each_number_is_of_the_epoch_that_is_best_by_it(tmp_path):
    """As Petersen et al. print them; runs of one training, which differ in the selected epoch alone."""
    content = {"data": {"name": "cifar100", "root": "."}, "loss": {"name": "cross_entropy"}}
    targets = {part: torch.arange(397) % 8 for part in ("val", "test")}
    values = {}
    for skill, metric in ((1, "top1"), (3, "top5")):
        path = tmp_path / metric
        run = scored_run(path, TABLE, targets, content, overrides=[f"selection.metric={metric}"], skill=skill)
        values[metric] = 100 * run.results.metrics()[f"{metric}.micro"].value
    sheet = table_sheet(*filled("petersen2022:1", tmp_path))
    rows = [[cell for cell, _ in row[2:]] for row in sheet.rows]
    ((label, text),) = [row for row in rows if row[0].startswith("ours") and row[1] != "no run"]
    top1, top5 = (part.split()[0] for part in text.split(" | "))
    assert (label, top1, top5) == ("ours", f"{values['top1']:.2f}", f"{values['top5']:.2f}")
    assert not [note for note in sheet.notes if "selection.metric" in note]


def test_larger_networks_have_columns_of_their_own(tmp_path):
    for name in ("resnet50", "resnet152"):
        content = {
            "data": {"name": "imagenet_lt", "root": ".", "lists": "."},
            "model": {"name": f"timm:{name}"},
        }
        targets = {part: torch.arange(80) % 8 for part in ("val", "test")}
        scored_run(tmp_path / name, TABLE, targets, content, overrides=[f"seed={len(name)}"])
    _, cells = filled("menon2021:3", tmp_path)
    assert {key[2] for key in cells.fits} == {"ResNet-50", "ResNet-152"}
    assert all(len(fits) == 1 for fits in cells.fits.values())


def test_a_table_of_words_takes_no_runs(noise_runs):
    with pytest.raises(ValueError, match="RUNS go with a table of numbers, got menon2021:1"):
        filled("menon2021:1", noise_runs)


def test_the_verb(noise_runs, tmp_path):
    listed = output_of("papers")
    assert all(f"    {name}: " in listed for name in layout_names())
    assert "94.2 ± 0.1" in output_of("papers", "table", "garcin2022:4")
    latex = output_of("papers", "table", "garcin2022:4", noise_runs, "--latex")
    check_latex(latex)
    compile_latex(latex, tmp_path)
    lines = list(csv.reader(io.StringIO(output_of("papers", "table", "garcin2022:4", "--csv").strip())))
    assert lines[1] == ["0.0", "94.2 ± 0.1", "93.3 ± 0.0", "94.4 ± 0.1"]
    assert "<td>94.2 ± 0.1</td>" in output_of("papers", "table", "garcin2022:4", "--html")
    assert "| 0.0 | 94.2 ± 0.1 |" in output_of("papers", "table", "garcin2022:4", "--markdown")


@pytest.mark.errors
def test_the_verb_refuses(tmp_path):
    result = invoke("papers", "table", "garcin2022:4", "--latex", "--csv")
    assert "only one of --markdown, --latex, --csv and --html can be given" in str(result.exception)
    result = invoke("papers", "table", "garcin2022:4", tmp_path)
    assert "RUNS must hold at least one finished run" in str(result.exception)
