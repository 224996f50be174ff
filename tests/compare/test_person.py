"""A person's sets beside those of runs: sets and numbers against loops, and what is wrong with a file."""

import json
from pathlib import Path

import pytest
import torch
from scipy import stats

from shortlist.class_table import ClassTable
from shortlist.compare.answers import read_answers
from shortlist.compare.person import compare_with_person, sets_of_mean_size, sets_of_row_sizes
from shortlist.compare.significance import paired_bootstrap_test
from shortlist.datasets.folders import image_folder
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from tests.commands import invoke
from tests.datasets.trees import class_folders
from tests.run_factory import finished_run, save_scores, scored_run, seal

ROWS, CLASSES = 60, 5
NAMES = ("Lupinus albus", "Lupinus luteus", "Crotalaria pallida", "Crotalaria; alata", "albus")
TABLE = ClassTable(names=NAMES, ids=("la", "ll", "cp", "ca", "x"), counts=(90, 50, 30, 20, 10))
TARGET = torch.arange(ROWS) % CLASSES
TARGET[7] = -100  # a row that could not be read


def plant_run(path: Path, *, seed: int = 0, skill: float = 1.5, name: str = "method", table=TABLE) -> Run:
    settings = [f"seed={seed}", f"name={name}", f"optimizer.lr={len(name)}"]  # so that names are methods
    targets = {"val": TARGET.clamp_min(0), "test": TARGET}
    return scored_run(path, table, targets, overrides=settings, draw=seed + len(name), skill=skill)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """One run of a method, three seeds of another."""
    folder = tmp_path_factory.mktemp("runs")
    plant_run(folder / "alone", seed=3, name="alone", skill=0.5)
    for seed in range(3):
        plant_run(folder / f"several-{seed}", seed=seed, name="several", skill=2.5)
    return folder


ANSWERED = [row for row in range(30) if row != 7]


def answer(row: int) -> list[int]:
    """From none to four classes, right in two of three rows."""
    size = (row * 7) % 5
    classes = [(int(TARGET[row]) + (row % 3 == 0) + i) % CLASSES for i in range(size)]
    return classes


@pytest.fixture
def answers(tmp_path) -> Path:
    """By number, ids and names, several in a line or on several lines."""
    lines = ["row,class"]
    for row in ANSWERED:
        ids = [TABLE.ids[index] for index in answer(row)]
        if row % 2:
            lines += [f"{row},{one}" for one in ids or [""]]
        else:
            lines.append(f"{row},{'; '.join(ids)}")
    path = tmp_path / "answers.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def softmax(row: list[float]) -> list[float]:
    values = torch.tensor(row, dtype=torch.float64).exp()
    return (values / values.sum()).tolist()


def slow_sets(scores: list[list[float]], sizes: list[int]) -> tuple[list[set[int]], list[set[int]]]:
    """Sets by one threshold that together have as many classes, and sets of each size."""
    chances = [softmax(row) for row in scores]
    pairs = sorted(((p, i, j) for i, row in enumerate(chances) for j, p in enumerate(row)), reverse=True)
    same_mean: list[set[int]] = [set() for _ in scores]
    for _, i, j in pairs[: sum(sizes)]:
        same_mean[i].add(j)
    same_sizes = [
        set(sorted(range(CLASSES), key=lambda j: -row[j])[:size])
        for row, size in zip(scores, sizes, strict=True)
    ]
    return same_mean, same_sizes


def test_numbers_in_a_slow_loop(runs, answers):
    found = compare_with_person([runs], answers)
    sizes = [len(answer(row)) for row in ANSWERED]
    person = [int(TARGET[row]) in answer(row) for row in ANSWERED]
    n = len(ANSWERED)
    assert (found.num_rows, found.mean_size, found.sizes) == (n, pytest.approx(sum(sizes) / n), (0, 4))
    assert found.coverage.value == pytest.approx(sum(person) / n)
    ends = stats.binomtest(sum(person), n).proportion_ci(method="exact")
    assert (found.coverage.low, found.coverage.high) == pytest.approx((ends.low, ends.high))
    p_values = {"same_mean": [], "same_sizes": []}
    for row in found.rows:
        hits = {"same_mean": [], "same_sizes": []}
        shown = {"same_mean": [], "same_sizes": []}
        for path in row.runs:
            scores = Run.open(Path(path)).scored("test")[0][ANSWERED].tolist()
            for kind, sets in zip(hits, slow_sets(scores, sizes), strict=True):
                rows = zip(ANSWERED, sets, strict=True)
                hits[kind].append([int(TARGET[number]) in own for number, own in rows])
                shown[kind] += [len(own) for own in sets]
        for kind, right in hits.items():
            sets = getattr(row, kind)
            shares = [sum(one) / n for one in right]
            assert sets.coverage.value == pytest.approx(sum(shares) / len(shares))
            assert sets.difference == pytest.approx(sum(shares) / len(shares) - sum(person) / n)
            assert sets.sizes == (min(shown[kind]), max(shown[kind]))
            p_values[kind].append(expected_p(right, person))
            if len(right) > 1:
                assert (sets.coverage.low, sets.coverage.high) == pytest.approx(over_seeds(shares, n))
    assert [row.label for row in found.rows] == ["alone", "several"]
    for kind, values in p_values.items():  # Holm by hand: the smaller one counts twice
        small, large = sorted(values)
        corrected = {small: min(1, 2 * small), large: max(min(1, 2 * small), large)}
        for row, value in zip(found.rows, values, strict=True):
            assert getattr(row, kind).p_value == pytest.approx(corrected[value])
            assert getattr(row, kind).significant == (corrected[value] < 0.05)
    assert "McNemar" in found.rows[0].same_mean.test and "bootstrap" in found.rows[1].same_mean.test


def over_seeds(shares: list[float], rows: int) -> tuple[float, float]:
    """Student's interval; seeds that are all the same, as on few rows, say nothing, so that of the rows."""
    if len(set(shares)) == 1:
        return tuple(stats.binomtest(round(shares[0] * rows), rows).proportion_ci(method="exact"))
    return stats.t.interval(0.95, len(shares) - 1, sum(shares) / len(shares), stats.sem(shares))


def expected_p(right: list[list[bool]], person: list[bool]) -> float:
    if len(right) == 1:
        gained = sum(a and not b for a, b in zip(right[0], person, strict=True))
        lost = sum(b and not a for a, b in zip(right[0], person, strict=True))
        return stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    mean = torch.tensor(right, dtype=torch.float64).mean(0)
    own = torch.tensor(person, dtype=torch.float64)
    return paired_bootstrap_test(mean, own, TARGET[ANSWERED], num_classes=CLASSES).p_value


def test_ties_and_extremes_keep_the_sizes():
    scores = torch.zeros(3, 4)
    assert sets_of_mean_size(scores, 5).tolist() == [[True] * 4, [True] + [False] * 3, [False] * 4]
    assert sets_of_mean_size(scores, 0).sum() == 0 and sets_of_mean_size(scores, 12).all()
    sizes = torch.tensor([0, 4, 2])
    assert torch.equal(sets_of_row_sizes(scores, sizes).sum(1), sizes)
    far = torch.tensor([[0.0, -800.0, -900.0], [0.0, -700.0, -1000.0]])  # probabilities that are 0 as doubles
    assert sets_of_mean_size(far, 4).tolist() == [[True, True, False], [True, True, False]]


def test_the_person_as_a_run_is_the_run(runs, tmp_path):
    """Answers that are the sets of a run at a threshold give that run the same sets."""
    scores = Run.open(runs / "alone").scored("test")[0]
    sets = sets_of_mean_size(scores[ANSWERED], 70)
    lines = [
        f"{row},{';'.join(TABLE.ids[j] for j in range(CLASSES) if own[j])}"
        for row, own in zip(ANSWERED, sets.tolist(), strict=True)
    ]
    (tmp_path / "own.csv").write_text("row,class\n" + "\n".join(lines))
    found = compare_with_person([runs / "alone"], tmp_path / "own.csv")
    (row,) = found.rows
    assert (row.same_mean.difference, row.same_mean.p_value) == (0, 1)
    assert row.same_mean.coverage == found.coverage == row.same_sizes.coverage
    assert row.same_mean.sizes == found.sizes


# reading


def read(tmp_path, text: str, **options):
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    found = read_answers(path, TABLE, num_rows=ROWS, **options)
    return {row: own.nonzero().flatten().tolist() for row, own in zip(found.rows, found.sets, strict=True)}


def test_answers_by_id_and_name(tmp_path):
    text = (
        "row,class,remark\n3,Lupinus albus;cp,sure\n3,x,\n0,Crotalaria; alata,\n4,,no idea\n5,albus ; ll,\n"
    )
    assert read(tmp_path, text) == {3: [0, 2, 4], 0: [3], 4: [], 5: [1, 4]}
    assert read(tmp_path, "\ufeffrow, class\r\n1, la\r\n") == {1: [0]}  # as spreadsheets write it


def test_answers_by_path(tmp_path):
    paths = ["/data/test/a/1.jpg", "/data/test/b/1.jpg", "/data/test/b/2.jpg"]
    text = "path,class\n/data/test/a/1.jpg,la\nb/1.jpg,ll\n2.jpg,cp\n"
    assert read(tmp_path, text, paths=lambda: paths) == {0: [0], 1: [1], 2: [2]}


@pytest.mark.errors
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,class\n3,la\n60,la\n", r"line 3: row must be an integer in \[0, 59\], a test row, got '60'"),
        ("row,class\n-1,la\n", r"line 2: row must be an integer in \[0, 59\], a test row, got '-1'"),
        ("row,class\n3,Lupinus albs\n", r"line 2: class must be an id or a name .*, got 'Lupinus albs'; did"),
        ("row,class\n3,la;oak\n", r"class must be an id or a name of the class table, got 'oak'"),
        ("row,species\n3,la\n", r"has the columns row, species; expected a .csv file with the column row"),
        ("row,path,class\n3,a,la\n", r"has the columns row, path, class; expected"),
        ("", r"has the columns none; expected"),
        ("row,class\n", r"has no answers, only its head; expected"),
        ("path,class\n1.jpg,la\n", r"one of the 2 test rows, got '1.jpg': it is the end of 2 of them"),
        ("path,class\na/3.jpg,la\n", r"one of the 2 test rows, got 'a/3.jpg': none of them has this end"),
        ("path,class\n,la\n", r"one of the 2 test rows, got '': none of them has this end"),
        ('row,class\n3,"la\n', r"a.csv cannot be read as CSV"),
    ],
)
def test_bad_answers_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text, paths=lambda: ["/x/a/1.jpg", "/x/b/1.jpg"])


@pytest.mark.errors
def test_names_of_two_classes_need_an_id(tmp_path):
    (tmp_path / "a.csv").write_text("row,class\n0,oak\n")
    table = ClassTable(names=("oak", "oak"), ids=("1", "2"))
    with pytest.raises(ValueError, match="class must be one class, got 'oak', the name of 1, 2: write an id"):
        read_answers(tmp_path / "a.csv", table, num_rows=1)


@pytest.mark.slow
@pytest.mark.errors
def test_rows_without_a_class_and_runs_that_do_not_fit(runs, tmp_path):
    (tmp_path / "a.csv").write_text("row,class\n7,la\n")
    with pytest.raises(ValueError, match="has an answer to test row 7, which could not be read"):
        compare_with_person([runs], tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("path,class\n7.jpg,la\n")
    with pytest.raises(ValueError, match=r"has test rows without paths \(glyphs\): use the column row"):
        compare_with_person([runs], tmp_path / "a.csv")
    with pytest.raises(ValueError, match="runs must hold at least one finished run, got none"):
        compare_with_person([tmp_path / "nowhere"], tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("row,class\n1,la\n")
    other = ClassTable(names=tuple("abcde"), counts=TABLE.counts)
    plant_run(tmp_path / "more" / "other", name="other", table=other)
    moved = plant_run(tmp_path / "more" / "moved", name="moved")
    target = TARGET.clone()
    target[0] = 4
    save_scores(moved, "test", moved.load_scores("test")[0], target)
    seal(moved)
    found = compare_with_person([runs, tmp_path / "more"], tmp_path / "a.csv")
    assert [row.label for row in found.rows] == ["alone", "several"]
    reasons = sorted(found.left_out.values())
    assert "moved has other test rows than" in reasons[0] and "other has other classes than" in reasons[1]


def test_paths_are_those_of_the_data(tmp_path):
    class_folders(tmp_path / "photos", {"ash": 8, "oak": 8})
    data = image_folder(tmp_path / "photos", val_fraction=0.25)
    recipe = make_recipe(
        {
            "data": {"name": "image_folder", "root": str(tmp_path / "photos"), "val_fraction": 0.25},
            "predictors": {},
        },
        [],
    )
    made = {
        part: (torch.eye(2)[getattr(data, part).targets] * 4, getattr(data, part).targets)
        for part in ("val", "test")
    }
    finished_run(tmp_path / "run", recipe, made, data.class_table)
    path = Path(data.test.paths[1])
    (tmp_path / "a.csv").write_text(f"path,class\n{path.parent.name}/{path.name},ash\n")
    found = compare_with_person([tmp_path / "run"], tmp_path / "a.csv")
    assert found.num_rows == 1
    assert found.coverage.value == (data.test.targets[1] == 0)
    assert found.rows[0].same_sizes.coverage.value == 1
    (tmp_path / "photos").rename(tmp_path / "moved")
    again = compare_with_person([tmp_path / "run"], tmp_path / "a.csv", data=tmp_path / "moved")
    assert again.rows == found.rows


# the command


def test_the_command_prints_the_table(runs, answers):
    found = compare_with_person([runs], answers)
    result = invoke("compare", runs, "--person", answers, "--json")
    content = json.loads(result.stdout)
    assert content["mean_size"] == found.mean_size and content["coverage"]["value"] == found.coverage.value
    assert content["rows"][1]["same_sizes"]["p_value"] == found.rows[1].same_sizes.p_value
    text = invoke("compare", runs, "--person", answers, "--markdown").stdout
    lines = text.splitlines()
    assert lines[0].startswith("| method | runs | same mean size (%) | sizes | difference | p |")
    assert lines[2].startswith(f"| person |  | {100 * found.coverage.value:.1f} ± ")
    assert f"29 test rows of {answers}, {found.mean_size:.2f} classes on average (0–4)" in text
    points = f"{100 * found.rows[1].same_mean.difference:+.1f}"
    shown = f"**{points}**" if found.rows[1].same_mean.significant else points
    assert f"| {shown} |" in lines[4]
    assert r"\begin{tabular}{lrrrrrrrr}" in invoke("compare", runs, "--person", answers, "--latex").stdout
    plain = invoke("compare", runs, "--person", answers).stdout
    assert "person" in plain and "several" in plain and "Holm's correction for 2 methods" in plain


@pytest.mark.errors
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--person", "a.csv", "--metrics", "nll"], "--person has a table of its own: leave out --metrics"),
        (["--person", "a.csv", "--baseline", "x"], "--person has a table of its own"),
        (["--data", "photos"], "--data goes with --person, got photos without it"),
    ],
)
def test_options_that_do_not_go_together(runs, words, message):
    with pytest.raises(ValueError, match=message):
        raise invoke("compare", runs, *words).exception
