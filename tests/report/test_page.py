import json
import re
import shutil
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from shortlist.class_table import ClassTable
from shortlist.cli.report import report
from shortlist.compare.comparison import Best, compare_groups, compare_runs
from shortlist.compare.promises import kept_words
from shortlist.metrics import Estimate, aggregate
from shortlist.predictors import Measured, Promise
from shortlist.preprocessing import to_pixels
from shortlist.recipes.build import build_data
from shortlist.recipes.recipe import make_recipe
from shortlist.report import page as page_module
from shortlist.report.columns import group_columns, score_columns, set_names
from shortlist.report.page import METHOD_SECTIONS, SECTIONS, make_page, write_page
from shortlist.report.pictures import Pictures
from shortlist.report.render import render
from shortlist.report.rows import measure_method
from shortlist.report.sections.beside_published import published_table
from shortlist.report.sections.summary import compare_sentence, set_sentences
from shortlist.runs.experiments import Experiment, group_by_data
from shortlist.runs.folder import RunFolder
from shortlist.runs.groups import Group, group_runs, read_runs
from shortlist.runs.kept_epoch import KeptEpoch
from shortlist.runs.run import Run
from shortlist.sentences import promise_words
from tests.run_factory import scored_run, seal
from tests.training.small import silent

PREDICTORS = {
    "top_3": {"name": "topk", "k": 3},
    "average_2": {"name": "average_k", "k": 2},
    "conformal_80": {"name": "conformal", "coverage": 0.8},
}
HOSTILE = '<script>alert("1")</script> & <b>'
COUNTS = [300, 200, 150, 120, *range(100, 20, -10), *range(19, 3, -2)]  # of 20 classes
GLYPHS = {"name": "glyphs", "characters": "abcdefghijklmnopqrst", "train_images": 300}
FIGURES = ("sizes", "frequency", "reliability", "classes", "confused", "lists")


def page_run(
    path: Path, content: dict, *, table: ClassTable, targets: dict, skill: float = 2.0, **info
) -> Run:
    """A finished run with random scores and three epochs."""
    content = {"predictors": PREDICTORS, **content}
    info = {"kept_epoch": KeptEpoch(3, 3, "top1", 0.2).to_dict(), **info}
    run = scored_run(path, table, targets, content, skill=skill, scale=2, **info)
    lines = [f"{e},0.1,{0.1 * e},{3 - e}" for e in range(3)]
    (run.path / "epochs.csv").write_text("\n".join(["epoch,lr,val_top1,train_loss", *lines]) + "\n")
    seal(run)
    return run


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Two methods with two seeds each on letters, one class with a hostile name."""
    folder = tmp_path_factory.mktemp("runs")
    content = GLYPHS | {"cache": str(folder / "cache")}
    data = build_data(make_recipe({"data": content}))
    names = [HOSTILE, *data.class_table.names[1:]]
    table = ClassTable(names, data.class_table.ids, COUNTS, data.class_table.parents)
    targets = {"val": data.val.targets, "test": data.test.targets}
    for loss, skill in (("cross_entropy", 1.5), ("noised_topk", 3.0)):
        for seed in (0, 1):
            recipe = {"name": f"{loss}-{seed}", "data": content, "loss": {"name": loss}, "seed": seed}
            page_run(folder / f"{loss}-{seed}", recipe, table=table, targets=targets, skill=skill)
    return folder


def folders(runs: Path) -> list[Path]:
    return sorted(path.parent for path in runs.glob("*/run.json"))


@pytest.fixture(scope="session")
def page(runs) -> str:
    html, outcome = make_page(folders(runs))
    assert (outcome.runs, list(outcome.left_out), list(outcome.remarks)) == (4, [], [])
    return html


def simple_run(path: Path, content: dict | None = None, *, n: int = 120, **more) -> Run:
    """A run on data that is not there."""
    table = ClassTable([f"class {i}" for i in range(20)], counts=COUNTS)
    targets = {"val": torch.arange(n) % 20, "test": torch.arange(n) % 20}
    content = {"data": {"name": "cifar100", "root": str(path / "gone")}, **(content or {})}
    return page_run(path, content, table=table, targets=targets, **more)


class Checker(HTMLParser):
    """Balanced tags, all ids and links, all text."""

    VOID = ("meta", "link", "img", "br", "col")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.images: list[dict] = []
        self.drawings: list[dict] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags[tag] += 1
        self.ids[given.get("id", "")] += "id" in given
        self.links += [given[key] for key in ("src", "href", "srcset", "data") if key in given]
        if tag == "img":
            self.images.append(given)
        if given.get("class") == "plot":
            self.drawings.append(given)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_says_which_epoch_was_kept_and_why(page):
    caption = "The epoch that was kept of each run"
    table = page[page.index(f"<caption><span>{caption}") :].partition("</table>")[0]
    row = '<tr><th scope="row">cross_entropy-0</th><td class="n">3</td><td class="n">3</td>'
    assert row in table and table.count("it has the best top1 on the validation rows, 20.0 %") == 4


def test_the_page_is_whole_and_loads_nothing(page):
    checked = Checker(page)
    names = {f"{name}-1-{place}" for name in FIGURES for place in (1, 2)} | {"accuracy-1", "learning-1"}
    names.add("sizes-beside-1")
    assert names <= set(checked.ids)
    assert all(number <= 1 for name, number in checked.ids.items() if name)
    assert all(link.startswith(("data:", "#")) for link in checked.links)
    assert not re.search(r"url\(|@import|https?://", page)
    assert len(page.encode()) < 1_000_000
    assert all(drawing["role"] == "img" and drawing["aria-label"] for drawing in checked.drawings)
    assert len(checked.drawings) == 2 + 2 + 2 + 2 * (2 + 1 + 1)
    assert checked.tags["script"] == 0
    assert checked.tags["caption"] == checked.tags["table"] - 2 * 9  # the lists' tables are labeled
    assert len(checked.images) > 30
    assert all("alt" in image and image["src"].startswith("data:image/png") for image in checked.images)


def experiments(runs) -> list[Experiment]:
    return group_by_data(group_runs(runs)[0])


def test_hostile_names_are_text(page):
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt; &amp; &lt;b&gt;" in page


def test_hostile_names_are_text_wherever_they_come_from(tmp_path):
    """Names of runs, methods, predictors, epochs and reasons, and the title."""
    recipe = {"predictors": {"top_3": PREDICTORS["top_3"]}, "about": HOSTILE}
    run = simple_run(tmp_path / "<i>run", recipe)
    (run.path / "epochs.csv").write_text("epoch,val_<u>top1\n0,0.5\n1,0.6\n")
    seal(run)
    RunFolder(run.path).set_state("finished", versions={HOSTILE: "<em>1"})
    html, _ = make_page([run.path, tmp_path / "<s>none"], title="<h6>")
    tags = set(Checker(html).tags)
    assert not {"script", "b", "i", "u", "em", "s", "h6"} & tags
    words = {"&lt;i&gt;run", "&lt;u&gt;top1", "&lt;em&gt;1", "&lt;s&gt;none", "&lt;h6&gt;", "&lt;script&gt;"}
    assert all(word in html for word in words)


def test_every_section_has_its_template_and_its_file():
    folder = Path(page_module.__file__).parent
    names = {*SECTIONS, *METHOD_SECTIONS, "own"}  # the last one is of functions of the caller
    templates = {path.stem for path in (folder / "templates").glob("[!_]*.html")}
    assert templates == names | {"page"}
    assert {path.stem for path in (folder / "sections").glob("[!_]*.py")} == names - {"methods"}
    sections = [path.read_text() for path in (folder / "sections").glob("*.py")]
    assert not any(re.search(r"""["']</?\w""", text) for text in sections)  # markup is in templates
    for path in (folder / "templates").glob("*.html"):
        assert ("| safe" in path.read_text()) == (path.name == "page.html")  # its own style sheet


def test_the_tables_hold_the_metrics(runs, page):
    read, _ = read_runs(folders(runs))
    (experiment,) = experiments(read)
    assert [method.label for method in experiment.methods] == ["cross_entropy", "noised_topk"]
    assert [len(method.runs) for method in experiment.methods] == [2, 2]
    for method in experiment.methods:
        assert method.metrics == aggregate([run.results for run in method.runs]).metrics
        for name in ("top5.macro", "sets.conformal_80.coverage.few", "balanced_error"):
            assert f">{100 * method.metrics[name].value:.1f}<" in page
        assert f">{method.metrics['sets.average_2.size.micro'].value:.2f}<" in page
    assert page.count("recipe") > 1
    assert f">{read[0].info['versions']['torch']}<" in page
    assert "loss.noise_std" in page


def test_rows_of_a_method_against_loops(runs):
    read, _ = read_runs(folders(runs))
    method = experiments(read)[0].methods[0]
    rows = measure_method(method)
    names, mistakes = list(rows.predictors), Counter()
    histograms = {name: Counter() for name in names}
    for run in method.runs:
        scores, target = run.load_scores("test")
        for name in names:
            sizes = run.predictors[name](scores).sum(1)
            for size, true in zip(sizes.tolist(), target.tolist(), strict=True):
                group = "few" if COUNTS[true] < 20 else "many" if COUNTS[true] > 100 else "medium"
                histograms[name][group, size] += 1
        for row, true in zip(scores.tolist(), target.tolist(), strict=True):
            guess = row.index(max(row))
            mistakes[min(true, guess), max(true, guess)] += true != guess
    for name in names:
        found = {
            (group, size): number
            for group, histogram in rows.histograms[name].items()
            for size, number in enumerate(histogram)
            if number
        }
        assert found == dict(histograms[name])
    assert [pair.mistakes for pair in rows.pairs] == sorted(mistakes.values(), reverse=True)[
        : len(rows.pairs)
    ]
    scores, target = method.runs[0].load_scores("test")
    for pair, ways in zip(rows.pairs, rows.pair_rows, strict=True):
        for (true, guess), chosen in zip((pair.classes, pair.classes[::-1]), ways, strict=True):
            assert all(target[row] == true and scores[row].argmax() == guess for row in chosen)
    chances = [float(scores[each.row].softmax(0)[each.true]) for each in rows.lists]
    assert chances == sorted(chances, reverse=True)
    every = scores.softmax(1)[torch.arange(len(target)), target]
    assert (chances[0], chances[-1]) == pytest.approx((float(every.max()), float(every.min())))


def test_pictures_are_the_rows_own(runs):
    import base64
    import io

    import numpy
    from PIL import Image

    read, _ = read_runs(folders(runs)[:1])
    data = build_data(read[0].recipe)
    picture = Pictures(data).test(7, alt='a "b"')
    encoded = picture.source.partition("base64,")[2]
    image = numpy.array(Image.open(io.BytesIO(base64.b64decode(encoded))))
    assert (image == data.test.inputs[7, 0].numpy()).all()  # uint8, as it is: not standardized
    assert (picture.alt, picture.is_small) == ('a "b"', True)
    small = Pictures(data, budget=len(encoded) + 100)
    assert small.test(7, alt="") is not None
    assert small.test(8, alt="") is None
    assert small.refused == 1
    index = int(data.train.targets[0])
    first = Pictures(data).of_class(index, alt="")
    image = Image.open(io.BytesIO(base64.b64decode(first.source.partition("base64,")[2])))
    assert (numpy.array(image) == data.train.inputs[0, 0].numpy()).all()


def test_colors_are_stretched_and_kept():
    inputs = torch.tensor([[[0.0, 1.0]], [[0.5, 0.5]], [[1.0, 0.0]]])
    assert to_pixels(inputs).tolist() == [[[0, 128, 255], [255, 128, 0]]]
    assert to_pixels(torch.zeros(1, 2, 2)).tolist() == [[[0] * 3] * 2] * 2


def test_without_pictures(tmp_path):
    """Data that has moved, data that is no pictures, and pictures that were not wanted."""
    simple_run(tmp_path / "a")
    html, outcome = make_page([tmp_path / "a"])
    assert len(outcome.remarks) == 1
    assert outcome.remarks[0].startswith("without pictures: the data set of a could not be opened: ")
    assert "Without pictures: the data set of a" in html
    assert Checker(html).tags["img"] == 0
    assert make_page([tmp_path / "a"], pictures=False)[1].remarks == []
    options = {"num_classes": 20, "num_genera": 4, "num_rows": 200, "num_val_rows": 100, "num_test_rows": 100}
    recipe = {"data": {"name": "gaussian_genera", **options}, "predictors": {}}
    data = build_data(make_recipe(recipe))
    targets = {"val": data.val.targets, "test": data.test.targets}
    page_run(tmp_path / "b", recipe, table=data.class_table, targets=targets)
    html, outcome = make_page([tmp_path / "b"])
    assert outcome.remarks[0] == "without pictures: the rows of gaussian_genera are not pictures"
    checked = Checker(html)
    assert "reliability-1-1" in checked.ids
    assert "The run has no predictors: these are the 5 best scores." in html
    assert "in no set" not in html
    assert html.count('<th scope="row">') > 9 * 5
    assert not {"sizes-1-1", "frequency-1-1"} & set(checked.ids)  # it has no predictors
    targets["test"] = targets["test"].flip(0)
    page_run(tmp_path / "c", recipe, table=data.class_table, targets=targets)
    assert "no longer those that were scored" in make_page([tmp_path / "c"])[1].remarks[0]


def damage(run: Run, what: str) -> None:
    def change(file: str, old: str, new: str) -> None:
        text = (run.path / file).read_text()
        assert old in text
        (run.path / file).write_text(text.replace(old, new, 1))

    if what == "older":
        change("run.json", "shortlist run 3", "shortlist run 0")
    elif what == "recipe":
        change("recipe.yaml", "batch_size", "size_of_batch")
    elif what == "not json":
        (run.path / "results.json").write_text("{")
    elif what == "list":
        (run.path / "run.json").write_text("[]")
    elif what == "scores":
        path = run.path / "scores" / "test.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    elif what == "predictor":
        change("model/predictors/top_3.json", '"sha256": "', '"sha256": "0')
    elif what == "other predictors":
        (run.path / "model" / "predictors" / "top_3.json").unlink()
    elif what == "score map":
        (run.path / "model" / "score_map.json").write_text("{}")
    elif what == "unfinished":
        RunFolder(run.path).set_state("trained")
    elif what == "epochs":
        (run.path / "epochs.csv").write_text("epoch,lr\n0,much\n")
    else:
        (run.path / what).unlink()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("older", "written by another version"),
        ("recipe", "recipe.yaml is damaged or was changed"),
        ("not json", "results.json is damaged or was changed"),
        ("list", "must hold a mapping of keys to values, got list"),
        ("scores", "test.safetensors is damaged or was changed"),
        ("predictor", "top_3.json is damaged or was changed"),
        ("other predictors", "top_3.json"),
        ("epochs", "epochs.csv is damaged or was changed"),
        ("score map", "score_map.json"),
        ("model/score_map.json", "score_map.json"),
        ("unfinished", "not finished: its state is 'trained'"),
        ("results.json", "lacks results.json"),
        ("model/class_table.json", "lacks model/class_table.json"),
        ("scores/test.safetensors", "lacks scores/test.safetensors"),
        ("run.json", "is not a run folder"),
    ],
)
@pytest.mark.errors
def test_a_damaged_run_is_named_and_left_out(runs, tmp_path, what, reason):
    good, bad = folders(runs)[:2]
    shutil.copytree(bad, tmp_path / "bad <run>")
    damage(Run.open(tmp_path / "bad <run>"), what)
    html, outcome = make_page([good, tmp_path / "bad <run>", good], pictures=False)
    assert outcome.runs == 1
    (left_out,) = outcome.left_out.values()
    assert reason in left_out
    assert 'id="left-out"' in html
    assert "bad &lt;run&gt;" in html
    Checker(html)


def test_a_run_without_curves_stays(tmp_path):
    run = simple_run(tmp_path / "a")
    (run.path / "epochs.csv").unlink()
    seal(run)
    html, outcome = make_page([tmp_path / "a"], pictures=False)
    assert outcome.runs == 1
    assert "No run has metrics by epoch." in html


@pytest.mark.errors
def test_no_run_at_all_is_an_error_and_writes_nothing(tmp_path):
    (tmp_path / "report.html").write_text("before")
    with pytest.raises(ValueError, match=r"there is no run to report: .*no such folder"):
        write_page([tmp_path / "none"], tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "before"


def test_data_sets_are_kept_apart_and_methods_named(tmp_path):
    simple_run(tmp_path / "a")
    simple_run(tmp_path / "b", {"loss": {"name": "noised_topk", "k": 5, "noise_std": 0.5}, "seed": 3})
    simple_run(tmp_path / "c", {"loss": {"name": "noised_topk", "k": 5, "noise_std": 1.0}, "workers": 1})
    simple_run(tmp_path / "d", {"loss": {"name": "noised_topk", "k": 5, "noise_std": 1.0}, "seed": 1})
    other = {"name": "cifar100", "root": str(tmp_path), "noise": 0.25}
    simple_run(tmp_path / "e", {"data": other, "name": "mine"})
    paths = [tmp_path / name for name in "abcd"]
    for path in paths:  # of one data set
        recipe = (path / "recipe.yaml").read_text()
        (path / "recipe.yaml").write_text(recipe.replace(str(path / "gone"), str(tmp_path)))
        seal(Run.open(path))
    first, second = experiments(read_runs([*paths, tmp_path / "e"])[0])
    assert [method.label for method in first.methods] == [
        "cross_entropy",
        "noised_topk, noise_std 0.5",
        "noised_topk, noise_std 1.0",
    ]
    assert [run.path.name for run in first.methods[2].runs] == ["c", "d"]  # by seed; workers do not matter
    assert [method.label for method in second.methods] == ["mine"]
    assert first.title == "cifar100, 20 classes, noise not set"
    assert second.title == "cifar100, 20 classes, noise 0.25"
    html, _ = make_page([*paths, tmp_path / "e"], pictures=False)
    assert {"data-1", "data-2", "accuracy-2", "lists-1-3", "lists-2-1"} <= set(Checker(html).ids)


def test_published_metrics_stand_beside_ours(tmp_path):
    simple_run(tmp_path / "a", {"loss": {"name": "noised_topk", "k": 5}})
    (experiment,) = experiments(read_runs([tmp_path / "a"])[0])
    found = published_table(experiment)
    markup, sources = render("beside_published.html", section=found), found.sources
    ours = 100 * experiment.methods[0].metrics["top5.micro"].value
    assert ">94.4<" in markup and "± 0.1" in markup
    assert "yes: outside of the published interval" in markup
    assert f">{ours - 94.4:+.1f}<" in markup
    assert "model.name small_cnn, there densenet40_40" in markup
    assert "ICML 2022" in sources[0]
    assert "Beside published results" in make_page([tmp_path / "a"], pictures=False)[0]
    simple_run(tmp_path / "b", {"data": {"name": "glyphs"}})
    assert "Beside published results" not in make_page([tmp_path / "b"], pictures=False)[0]


def compared(values: list[float], published: dict, **info) -> list[str]:
    """Whether runs with these top-5 accuracies are told apart from each published number."""
    recipe = make_recipe({"data": {"name": "cifar100", "root": "."}, **published})
    results = [
        SimpleNamespace(metrics=lambda value=value: {"top5.micro": Estimate(value)}) for value in values
    ]
    epochs = [{"val_top5": 0.5}, {"val_top5": 0.9446}, {"val_top1": 0.3}]
    about = {"epochs": epochs, "is_limit": False, "info": info}
    runs = [SimpleNamespace(recipe=recipe, results=one, **about) for one in results]
    group = method("ours", runs, **{"top5.micro": Estimate(sum(values) / len(values))})
    found = published_table(Experiment("cifar100", [group]))
    return [f"{row[1]}: {row[3].text}: {row[5].text}" for row in found.table.rows]


def test_published_intervals_and_tests_tell_apart():
    noised = {"loss": {"name": "noised_topk", "k": 5, "noise_std": 0.2}, "model": {"name": "densenet40_40"}}
    lines = compared([0.9434], noised)  # published 94.4 +- 0.1
    assert "top5.micro: 94.3: no: inside the published interval" in lines
    assert "top1.micro: -: the run has no top1.micro" in lines
    assert "epoch_seconds: -: the run has no epoch_seconds" in lines
    lines = compared([0.9434, 0.9434], noised, epoch_seconds=[90.0, 61.5, 62.5, 61.0])
    assert "epoch_seconds: 62.00: no interval published" in lines  # of the median, since the first warms up
    assert "top5.micro: 94.6: yes: outside of the published interval" in compared([0.9456], noised)
    draws = {**noised, "loss": noised["loss"] | {"num_samples": 5}}
    assert "validation.top5: 94.5: no interval published" in compared([0.9], draws)
    softmax = {"model": {"name": "torchvision:resnet18"}}  # published 85.31, no interval, a t-test at 0.01
    (line,) = [line for line in compared([0.8631, 0.8431, 0.8531], softmax) if "top5" in line]
    assert line == "top5.micro: 85.3: no: p = 1, t-test of 3 runs at 0.01, as the paper's"
    (line,) = [line for line in compared([0.90, 0.901, 0.899], softmax) if "top5" in line]
    (apart,) = [text for text in compared([0.34, 0.34, 0.34], softmax) if "top5" in text]
    assert apart == "top5.micro: 34.0: yes: all 3 runs have another number"  # 51 points from it
    (same,) = [text for text in compared([0.8531, 0.8531], softmax) if "top5" in text]
    assert same == "top5.micro: 85.3: no: all 2 runs have the printed number"
    # t = (0.90 - 0.8531) / (0.001 / sqrt(3)) = 81.2 with 2 degrees of freedom: p = 0.00015
    assert line == "top5.micro: 90.0: yes: p = 0.00015, t-test of 3 runs at 0.01, as the paper's"


def method(label: str, runs=(), **metrics: Estimate) -> Group:
    group = Group(label, runs)
    group.__dict__["metrics"] = metrics
    return group


class NoLimit:
    is_limit = False


def test_sentences_say_what_the_test_says():
    def sentence(*values: tuple, test: Best | None = None) -> str:
        methods = [method(name, [NoLimit()], top=Estimate(*numbers)) for name, *numbers in values]
        return compare_sentence(methods, "top", "Top-1 accuracy", test)

    a, b, c = ("a", 0.5, 0.45, 0.55), ("b", 0.7, 0.6, 0.8), ("c", 0.52, 0.5, 0.61)
    apart = Best("b", "a", "paired t-test over 5 seeds", 0.2, 0.0012, significant=True)
    assert sentence(a, b, test=apart) == (
        "Top-1 accuracy: b is highest with 70.0 % (60.0 to 80.0), then a with 50.0 % (45.0 to 55.0). "
        "The difference is significant (+20.0 points, p = 0.0012, paired t-test over 5 seeds)."
    )
    close = Best("b", "c", "McNemar's test over 90 test rows", 0.18, 0.3)
    assert sentence(a, b, c, test=close).endswith(
        "then c with 52.0 % (50.0 to 61.0). The difference may be chance (+18.0 points, p = 0.3, McNemar's "
        "test over 90 test rows): this does not settle which is better."
    )
    untested = Best("b", "a", "no test: not the same test rows")
    assert sentence(a, b, test=untested).endswith("said about chance (no test: not the same test rows).")
    assert sentence(a) == "Top-1 accuracy of a: 50.0 % (45.0 to 55.0)."
    assert "a and d are level at 50.0 %" in sentence(a, ("d", 0.5))
    assert "b and d are highest with 70.0 % (60.0 to 80.0), then c with" in sentence(a, b, c, ("d", 0.7))
    assert sentence(("d", None)) is None
    assert "(0.0 to 100.0)" in sentence(("d", 0.5, -0.4, 1.4))  # what a share can be


@pytest.mark.parametrize("seeds", [1, 3])
def test_page_and_compare_name_the_same_best(tmp_path, seeds):
    """Bold and words follow the tests of the comparison, for single runs and for seeds."""
    skills = {"cross": 1.5, "focal": 1.51, "ldam": 0.5}
    for name, skill in skills.items():
        for seed in range(seeds):
            content = {"loss": {"name": "cross_entropy" if name == "cross" else name}, "seed": seed}
            content["data"] = {"name": "cifar100", "root": str(tmp_path)}
            simple_run(tmp_path / f"{name}-{seed}", content, skill=skill, n=400)
    paths = sorted(tmp_path.iterdir())
    (experiment,) = experiments(read_runs(paths)[0])
    names = ["top1.micro", "top5.macro", "top1.few", "nll", "calibration_error"]
    leaders = leaders_of(experiment, names)
    comparison = compare_runs(paths, names)
    labels = {row.label: Path(row.runs[0]).name.split("-")[0] for row in comparison.rows}
    for name in names:
        own, other = leaders[name], comparison.best[name]
        assert labels[own.row] == labels[other.row]
        assert (own.test, own.p_value) == (other.test, other.p_value)
        assert own.significant == other.significant
    html, _ = make_page(paths, pictures=False)
    best = leaders["top1.micro"]
    assert not best.significant
    assert f"The difference may be chance ({100 * best.difference:+.1f} points" in html
    assert html.count('class="best"') == sum(
        len(one.rows) for one in page_leaders(experiment).values() if one.significant
    )
    (close,) = [path for path in paths if path.name == "focal-0"]
    assert make_page([close], pictures=False)[0].count('class="best"') == 0


def leaders_of(experiment, names) -> dict:
    measured = [name for name in names if any(name in method.metrics for method in experiment.methods)]
    return compare_groups(experiment.methods, measured).best


def page_leaders(experiment) -> dict:
    columns = score_columns(experiment) + group_columns(experiment)
    return leaders_of(experiment, [name for _, name, _ in columns] + set_names(experiment))


def test_a_clear_best_is_bold(tmp_path):
    for loss, skill in (("cross_entropy", 0.5), ("focal", 3.0)):
        content = {"loss": {"name": loss}, "data": {"name": "cifar100", "root": str(tmp_path)}}
        simple_run(tmp_path / loss, content, skill=skill, n=400)
    html, _ = make_page([tmp_path / "cross_entropy", tmp_path / "focal"], pictures=False)
    assert "The difference is significant (+" in html
    assert "McNemar&#39;s test over 400 test rows" in html
    (experiment,) = experiments(read_runs([tmp_path / "cross_entropy", tmp_path / "focal"])[0])
    ours = 100 * experiment.methods[1].metrics["top1.micro"].value
    assert f'<span class="best">{ours:.1f}</span>' in html


def test_scores_at_another_temperature_share_the_first_place(tmp_path):
    """They have the same accuracy, which is no reason to say nothing about the others."""
    data = {"name": "cifar100", "root": str(tmp_path)}
    simple_run(tmp_path / "a", {"loss": {"name": "focal"}, "data": data}, skill=0.5, n=400)
    simple_run(tmp_path / "b", {"name": "b", "data": data}, skill=3.0, n=400)
    simple_run(tmp_path / "c", {"name": "c", "data": data, "adjust": {"temperature": 2.0}}, skill=3.0, n=400)
    html, _ = make_page([tmp_path / name for name in "abc"], pictures=False)
    (experiment,) = experiments(read_runs([tmp_path / name for name in "abc"])[0])
    leader = page_leaders(experiment)["top1.micro"]
    assert leader.rows == ("b", "c")
    assert leader.second == "focal"
    assert leader.significant
    assert "b and c are highest with " in html
    ours = 100 * experiment.methods[1].metrics["top1.micro"].value
    assert html.count(f'<span class="best">{ours:.1f}</span>') >= 2


def test_methods_with_the_same_scores_are_level(tmp_path):
    """Another loss in the recipe, the same scores: nothing is bold, nothing is claimed."""
    for loss in ("cross_entropy", "focal"):
        content = {"loss": {"name": loss}, "data": {"name": "cifar100", "root": str(tmp_path)}}
        simple_run(tmp_path / loss, content)
    html, _ = make_page([tmp_path / "cross_entropy", tmp_path / "focal"], pictures=False)
    assert html.count("are level at") == 3
    assert 'class="best"' not in html


def test_a_copy_is_no_other_seed(runs, tmp_path):
    one = folders(runs)[0]
    shutil.copytree(one, tmp_path / "copy")
    html, outcome = make_page([one, tmp_path / "copy"], pictures=False)
    assert outcome.runs == 1
    assert outcome.left_out == {
        str(tmp_path / "copy"): f"{tmp_path / 'copy'} has the recipe and the seed of {one}"
    }
    assert "1 run of 1 method" in html


def test_sentences_about_sets(runs):
    (experiment,) = experiments(read_runs(folders(runs))[0])
    test = Best("1", "0", "a test", 0.1, 0.2)
    tests = {f"sets.{key}.coverage.micro": test for key in ("average_2", "top_3")}
    sentences = dict(sentence.split(": ", 1) for sentence in set_sentences(experiment, tests))
    assert set(sentences) == {"average_2", "conformal_80"}  # top_3 is top-3 accuracy
    assert sentences["average_2"].startswith("set to 2 classes on average. ")
    assert sentences["average_2"].endswith(
        "Most often by noised_topk, then cross_entropy. The difference may be chance (+10.0 points, p = 0.2, "
        "a test): this does not settle which is better."
    )
    promises = [run.results.sets["conformal_80"].promise for m in experiment.methods for run in m.runs]
    assert sentences["conformal_80"].startswith(promise_words(promises[0].with_measured(None)))
    assert "80 of 100 such lists contain the right class." in sentences["conformal_80"]
    assert (
        f"calibrated on {promises[0].rows} photos, so the true share is probably between"
        in sentences["conformal_80"]
    )
    for name, text in sentences.items():
        for each in experiment.methods:
            size = each.metrics[f"sets.{name}.size.micro"].value
            assert f"{each.label} {100 * each.metrics[f'sets.{name}.coverage.micro'].value:.1f} %" in text
            assert f"with {size:.2f} classes" in text
    low = [promise for promise in promises if promise.measured.coverage < 0.8]
    assert ("All reach the promise" in sentences["conformal_80"]) == (not low)
    below = [promise for promise in promises if promise.measured.p_value < 0.025]
    assert ("Below the promise" in sentences["conformal_80"]) == bool(below)


def test_words_about_kept_and_broken_promises():
    def promise(coverage, p_value, level=0.9):
        plain = Promise("rows", level=level, asked=level, rows=84, has_law=True)
        return plain.with_measured(Measured(1000, coverage, 0.8, 0.99, 3.0, p_value))

    good, chance, bad = promise(0.91, 0.6), promise(0.87, 0.2), promise(0.7, 1e-9)
    assert kept_words({"a": [good]}) == "The promise was reached."
    assert kept_words({"a": [good], "b": [good]}) == "All reach the promise."
    explained = "Where the promise is missed, chance among calibration and test rows explains it."
    assert kept_words({"a": [good], "b": [chance]}) == explained
    assert kept_words({"a": [good], "b": [chance, bad, bad], "c": [bad]}) == (
        "Below the promise, by more than chance explains: b (2 of 3 runs), c."
    )
    assert kept_words({"a": [promise(0.7, None)]}).startswith("No law is known")
    assert kept_words({"a": [Promise("probabilities", asked=0.9)]}) == ""


def test_the_worst_class_is_shown_with_its_rows(tmp_path):
    simple_run(tmp_path / "a")
    html, _ = make_page([tmp_path / "a"], pictures=False)
    (experiment,) = experiments(read_runs([tmp_path / "a"])[0])
    run = experiment.first
    for sets in run.results.sets.values():
        worst, name = sets.worst_coverage[0], run.class_table.names[sets.worst_classes[0]]
        rows = f"{sets.worst_rows[0]} row{'' if sets.worst_rows[0] == 1 else 's'}"
        assert f"{100 * worst.low:.1f} to {100 * worst.high:.1f} ({name}, {rows})" in html


def test_the_datas_own_probabilities_are_no_method(tmp_path):
    simple_run(tmp_path / "a")
    simple_run(tmp_path / "b", skill=5.0, scores_from="posterior")
    for path in (tmp_path / "a", tmp_path / "b"):
        recipe = (path / "recipe.yaml").read_text()
        (path / "recipe.yaml").write_text(recipe.replace(str(path / "gone"), str(tmp_path)))
        seal(Run.open(path))
    (experiment,) = experiments(read_runs([tmp_path / "a", tmp_path / "b"])[0])
    assert [m.label for m in experiment.methods] == ["cross_entropy", "the data's own probabilities"]
    sentence = compare_sentence(experiment.methods, "top1.micro", "Top-1 accuracy", None)
    assert sentence.startswith("Top-1 accuracy of cross_entropy: ")
    assert "The data's own probabilities reach " in sentence


@pytest.fixture
def own_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_command(runs, tmp_path, own_threads):
    app = Typer()
    app.command()(report)
    output = tmp_path / "report.html"
    paths = list(map(str, folders(runs)))
    result = CliRunner().invoke(app, [*paths, str(tmp_path / "no"), "-o", str(output), "--title", "A & B"])
    assert result.exit_code == 0, result.exception
    assert f"{output}: 4 runs, {output.stat().st_size:,} bytes" in result.stdout.replace("\n", "")
    assert f"shortlist: left out {tmp_path / 'no'} is not a run folder" in result.stderr
    assert "<h1>A &amp; B</h1>" in output.read_text()
    result = CliRunner().invoke(app, [paths[0], "-o", str(tmp_path / "report.pdf")])
    assert isinstance(result.exception, ValueError)
    assert "--out must end in .html" in str(result.exception)


CUT_CELLS = """[...document.querySelectorAll('th, td')]
    .filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(browser, page, tmp_path, width, scheme):
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, offline=True)
    view, troubles, requests = context.new_page(), [], []
    view.on("console", lambda message: troubles.append(message.text))
    view.on("pageerror", lambda error: troubles.append(str(error)))
    view.on("request", lambda request: requests.append(request.url))
    view.goto((tmp_path / "report.html").as_uri())
    view.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true })")
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    # scrolled to the right, a wide table still says whose numbers they are
    heads = view.evaluate(
        "[...document.querySelectorAll('.scroll')].map(part => { part.scrollLeft = 9999; return ["
        "part.scrollLeft, part.querySelector('tbody th').getBoundingClientRect().left "
        "- part.getBoundingClientRect().left] })"
    )
    assert any(scrolled > 0 for scrolled, _ in heads) or width > 390
    assert all(abs(left) < 1 for _, left in heads)
    # no text runs out of its cell, and on a wide screen no table is cut but those below half a drawing
    assert view.evaluate(CUT_CELLS) == []
    cut = view.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(part => !part.closest('.half') && "
        "part.scrollWidth > part.clientWidth).map(part => part.getAttribute('aria-label'))"
    )
    assert cut == [] or width == 390
    metrics = view.locator("figure")
    assert metrics.count() == 3 + 2 * len(FIGURES)  # three are of all methods
    for i in range(metrics.count()):
        assert metrics.nth(i).is_visible()
    boxes = view.evaluate(
        "[...document.querySelectorAll('svg.plot')].map(s => [s.getBoundingClientRect().width, "
        "s.getBoundingClientRect().right, s.querySelectorAll('path[d^=M], rect').length])"
    )
    assert all(shown >= 250 and right <= width and marks > 0 for shown, right, marks in boxes)
    assert view.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    colors = view.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert contrast(*colors) >= 7
    assert (luminance(colors[1]) < 0.2) == (scheme == "dark")
    for selector in (".soft", "caption", ".interval", ".legend .s1", "tr.true th", "svg text.label"):
        ink, paper = view.evaluate(SHOWN_COLORS, selector)
        assert contrast(ink, paper) >= 4.5, selector
    assert troubles == []
    assert all(url.startswith(("file:", "data:")) for url in requests)
    context.close()


SHOWN_COLORS = """selector => {
    const element = document.querySelector(selector), style = getComputedStyle(element);
    let behind = element;
    while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    const ink = element.tagName === 'text' ? style.fill : style.color;
    return [ink, getComputedStyle(behind).backgroundColor];
}"""


def luminance(color: str) -> float:
    """As in the accessibility guidelines (WCAG 2)."""
    levels = [int(number) / 255 for number in re.findall(r"\d+", color)[:3]]
    linear = [level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in levels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
def test_a_trained_run(tmp_path):
    from shortlist.training.fit import train

    data = GLYPHS | {"cache": str(tmp_path / "cache")}
    recipe = make_recipe({"data": data, "predictors": PREDICTORS, "epochs": 2, "batch_size": 50})
    run = train(recipe, tmp_path / "run", progress=silent)
    html, outcome = make_page([run.path])
    assert (outcome.runs, list(outcome.left_out), list(outcome.remarks)) == (1, [], [])
    checked = Checker(html)
    assert {"learning-1", *(f"{name}-1-1" for name in FIGURES)} <= set(checked.ids)
    assert checked.tags["img"] > 9
    results = json.loads((run.path / "results.json").read_text())
    assert f">{100 * results['scores']['topk']['5']['micro']['value']:.1f}<" in html


@pytest.mark.slow
def test_a_thousand_classes_and_ten_runs_stay_small(tmp_path):
    table = ClassTable(
        [f"A class with a long name, number {i}" for i in range(1000)], counts=[*range(1, 1001)]
    )
    target = torch.arange(3000) % 1000
    for seed, loss in enumerate(("cross_entropy", "focal", "ldam", "logit_adjusted", "noised_topk") * 2):
        content = {"loss": {"name": loss}, "seed": seed // 5, "batch_size": 1 + seed}
        page_run(tmp_path / str(seed), content, table=table, targets={"val": target, "test": target})
    html, outcome = make_page(sorted(tmp_path.iterdir()), pictures=False)
    assert outcome.runs == 10
    assert len(html.encode()) < 3_000_000  # up to 6,000,000 more for pictures
    assert "lists-1-10" in Checker(html).ids


def test_the_page_and_a_comparison_name_and_group_the_same_runs_alike(tmp_path):
    table = ClassTable(list("abcde"), counts=[50, 30, 20, 10, 5])
    targets = {part: torch.arange(60) % 5 for part in ("val", "test")}

    def make(name: str, content: dict, **info) -> Run:
        content = {"data": {"name": "gaussian_genera", "num_classes": 5}, **content}
        return page_run(tmp_path / name, content, table=table, targets=targets, **info)

    for seed in (0, 1):
        make(f"named-{seed}", {"name": "mine", "seed": seed})
        for k in (2, 3):  # told apart by an option
            make(f"noised-{k}-{seed}", {"loss": {"name": "noised_topk", "k": k}, "seed": seed})
    make("alone", {"name": "hand-made", "loss": {"name": "focal", "gamma": 1.0}})
    other = {"name": "gaussian_genera", "num_classes": 5, "num_rows": 77}
    make("other", {"data": other, "loss": {"name": "focal"}})  # of other data, which the page shows apart
    make("limit", {"loss": {"name": "focal"}}, scores_from="posterior")
    RunFolder(make("unfinished", {"loss": {"name": "ldam"}}).path).set_state("trained")
    shutil.copytree(tmp_path / "named-1", tmp_path / "a copy")

    compared = compare_runs([tmp_path])
    html, report = make_page([tmp_path], pictures=False)
    shown = re.findall(r"<summary>(.*?) \((\d+) runs?\)</summary>", html)
    on_page = sorted((unescape(label), int(number)) for label, number in shown)
    assert on_page == sorted((row.label, len(row.runs)) for row in compared.rows)
    labels = ["noised_topk, k 2", "noised_topk, k 3", "mine", "hand-made", "focal"]
    assert {label for label, _ in on_page} == {*labels, "the data's own probabilities"}
    assert report.left_out == compared.left_out and len(report.left_out) == 2
