"""A saved model that carries the results of its run can be reported."""

import json
import re

import pytest

from shortlist import Model
from shortlist.report.page import make_page
from tests.commands import run
from tests.passes.test_join import of_own_code, photos  # noqa: F401


@pytest.fixture(scope="module")
def joined(of_own_code, tmp_path_factory):  # noqa: F811
    out = tmp_path_factory.mktemp("joined") / "my <b>model"
    assert run("join", of_own_code, "-o", out, "--allow-code")[0] == 0
    return out


def numbers(page, start, end):
    """The cells of numbers of the tables between two headings."""
    part = page[page.index(start) :].partition(end)[0]
    return re.findall(r'<td class="n[^"]*">(?:<span[^>]*>)?([\d.,-]+)', part)


@pytest.mark.parametrize(("start", "end"), [(">Accuracy<", ">Sets<"), (">Each class<", "</details>")])
def test_the_numbers_of_a_model_are_those_of_its_run(of_own_code, joined, start, end):  # noqa: F811
    of_run, _ = make_page([of_own_code], pictures=False)
    of_model, outcome = make_page([joined])
    assert numbers(of_model, start, end) == numbers(of_run, start, end) != []
    assert outcome.runs == 1 and not outcome.left_out
    assert list(outcome.remarks) == [f"{joined} is a model: the page has the results of its run, and no rows"]
    measured = json.loads((of_own_code / "results.json").read_text())["sets"]["half"]["coverage"]["micro"]
    sentence = of_model[of_model.index("half:") :].partition("</li>")[0]
    assert f"{100 * measured['value']:.1f} %" in sentence and "50 " in sentence  # of 100 such lists
    assert "my <b>model" not in of_model and "my &lt;b&gt;model" in of_model


def test_the_model_in_a_run_is_reported_with_the_run(of_own_code, tmp_path):  # noqa: F811
    code, said, _ = run("report", of_own_code / "model", of_own_code, "-o", tmp_path / "page.html")
    assert code == 0 and ": 1 run, " in said
    assert 'id="lists-1-1"' in (tmp_path / "page.html").read_text()


def test_a_model_without_results_is_refused_and_a_damaged_one_named(of_own_code, joined, tmp_path):  # noqa: F811
    Model.load(of_own_code).save(tmp_path / "bare")
    code, _, err = run("report", tmp_path / "bare", "-o", tmp_path / "page.html")
    assert code == 2 and err.count("\n") == 1 and "Traceback" not in err
    assert f"{tmp_path / 'bare'} has no results of test rows: report the run that it was made of" in err
    _, outcome = make_page([joined, tmp_path / "bare"])
    assert outcome.runs == 1 and list(outcome.left_out) == [str(tmp_path / "bare")]
    (joined / "results.json").write_text("{}")
    with pytest.raises(ValueError, match=r"results.json is damaged or was changed"):
        make_page([joined])
