import math
from collections import defaultdict

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, strategies as st

from shortlist._tables import write_columns
from shortlist.curation._ballot import AGAINST
from shortlist.curation.votes import aggregate_votes, read_votes, save_consensus, save_users


def slow_consensus(rows, *, theta, b0, rounds=100):
    """One dictionary after another, as the rule is written."""
    last = {}
    authors = {}
    for item, user, label, author in rows:
        last[item, user] = label
        authors[item] = author
    proposed = defaultdict(set)
    for (_, user), label in last.items():
        proposed[user].add(label)
    users = {user for _, user in last}
    n = {user: len(proposed[user]) for user in users}
    history = []
    for _ in range(rounds):
        history.append(dict(n))
        weight = {user: n[user] ** 0.5 - n[user] ** 0.2 + b0 for user in users}
        sums = defaultdict(lambda: defaultdict(list))
        for (item, user), label in last.items():
            sums[item][label].append(weight[user])
        result = {}
        species = defaultdict(set)
        for item, by_label in sums.items():
            totals = {label: round(math.fsum(parts), 9) for label, parts in by_label.items()}
            best = min(totals, key=lambda label: (-totals[label], label))
            result[item] = (best, totals[best], totals[best] > theta)
            if totals[best] > theta and authors[item] is not None:
                species[authors[item]].add(best)
        n = {user: len(proposed[user]) + len(species[user]) for user in users}
        if n == history[-1]:
            return result, weight, True
        if n in history:
            return result, weight, False
    return result, weight, False


def random_rows(seed, *, items=40, users=12, labels=6, votes=200):
    rng = np.random.default_rng(seed)
    made = [int(u) if u < users else None for u in rng.integers(users + 3, size=items)]
    rows = []
    for _ in range(votes):
        item = int(rng.integers(items))
        label = item % labels if rng.random() < 0.6 else int(rng.integers(labels))
        rows.append((item, int(rng.zipf(1.5)) % users, label, made[item]))
    return rows


def check_against_slow(rows, **options):
    slow, weights, converged = slow_consensus(rows, **options)
    item, user, label, author = (pyarrow.array(column) for column in zip(*rows, strict=True))
    found = aggregate_votes(item, user, label, author, rule="adaptive", **options)
    assert found.converged == converged
    assert found.items.tolist() == sorted(slow)
    for i, name in enumerate(found.items.tolist()):
        label, weight, valid = slow[name]
        assert (found.labels[i], found.valid[i]) == (label, valid)
        assert found.weights[i] == pytest.approx(weight, abs=1e-8)
    assert dict(zip(found.users.tolist(), found.user_weights, strict=True)) == pytest.approx(weights)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("theta", "b0"), [(2.0, math.log(2.1)), (3.0, 1.7), (0.5, 0.0)])
def test_votes_against_the_slow_rule(seed, theta, b0):
    found = check_against_slow(random_rows(seed), theta=theta, b0=b0)
    assert found.iterations >= 2


@given(
    st.lists(st.tuples(*(st.integers(0, 3) for _ in range(3))), min_size=1, max_size=25), st.integers(0, 9)
)
def test_votes_with_many_ties_and_repeats(votes, shift):
    rows = [(item, user, label, (item + shift) % 4) for item, user, label in votes]
    check_against_slow(rows, theta=1.0, b0=0.5)


def test_weights_by_hand():
    """User a proposed two labels and made a valid item; b and c proposed one each."""
    rows = [("x", "a", "oak"), ("x", "b", "oak"), ("x", "c", "ash"), ("y", "a", "ash")]
    author = ["a", "a", "a", "b"]
    item, user, label = map(list, zip(*rows, strict=True))
    found = aggregate_votes(item, user, label, author, rule="adaptive", theta=1.5, b0=0.75)
    assert found.labels.tolist() == ["oak", "ash"]
    assert found.valid.tolist() == [True, False]
    assert found.user_counts.tolist() == [3, 1, 1]  # the published n_u: oak was proposed and photographed
    assert found.user_species.tolist() == [2, 1, 1]
    a = 3**0.5 - 3**0.2 + 0.75
    assert found.user_weights.tolist() == pytest.approx([a, 0.75, 0.75])
    assert found.weights.tolist() == pytest.approx([a + 0.75, a])


def test_a_new_valid_species_makes_others_valid():
    """The second item becomes valid only because its voter became an author of a valid one."""
    rows = [("x", u, "oak", "expert") for u in "abc"] + [("y", "expert", "elm", None)]
    first = 1 - 1 + math.log(2.1)
    second = 2**0.5 - 2**0.2 + math.log(2.1)
    theta = (first + second) / 2
    found = check_against_slow([tuple(map(str, row[:3])) + row[3:] for row in rows], theta=theta, b0=first)
    assert found.valid.tolist() == [True, True]
    alone = aggregate_votes(["y"], ["expert"], ["elm"], rule="adaptive", theta=theta)
    assert alone.valid.tolist() == [False]


def test_equal_weights_tie_in_any_order_of_summation():
    """Six users, weights that no binary number holds: both labels have the same sum, the first one wins."""
    rows = []
    for user in range(6):
        rows += [(f"own {user} {i}", user, f"z{i}", None) for i in range(user % 3)]
    rows += [("x", user, "b" if user < 3 else "a", None) for user in (0, 1, 2, 5, 4, 3)]
    found = check_against_slow(rows, theta=1.0, b0=0.1)
    assert found.labels[found.items.tolist().index("x")] == "a"


def test_a_circle_is_noticed():
    """Author a outweighs v only while x is an ash, and x is an ash only while a does not outweigh v.

    As ash, x gives a a second species beside elm (y), n_a = 3 > n_v = 2: x becomes an elm. Then n_a = 2, and
    the tie goes to ash again.
    """
    rows = [("x", "v", "ash", "a"), ("x", "a", "elm", "a"), ("y", "v", "elm", "a")]
    found = check_against_slow(rows, theta=0.5, b0=0.75)
    assert not found.converged
    assert found.iterations == 3
    stopped = aggregate_votes(*zip(*rows, strict=True), rule="adaptive", theta=0.5, max_iterations=1)
    assert (stopped.iterations, stopped.converged) == (1, False)


def test_only_the_last_vote_of_a_user_for_an_item_counts():
    found = aggregate_votes([1, 1, 1], ["u", "v", "u"], ["ash", "oak", "oak"], rule="adaptive")
    assert found.labels.tolist() == ["oak"]
    assert found.user_species.tolist() == [1, 1]
    assert found.weights.tolist() == pytest.approx([2 * math.log(2.1)])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_of_votes(tmp_path, suffix):
    table = pyarrow.table(
        {"label": ["é", "é", "b"], "item": [10, 10, 9], "user": ["u", "v", "u"], "author": ["u", "u", None]}
    )
    path = tmp_path / f"votes{suffix}"
    (pyarrow.csv.write_csv if suffix == ".csv" else pyarrow.parquet.write_table)(table, path)
    found = aggregate_votes(**read_votes(path), theta=1.0)
    assert found.items.tolist() == [9, 10]
    assert found.labels.tolist() == ["b", "é"]
    save_consensus(tmp_path / f"out{suffix}", found)
    reader = pyarrow.csv.read_csv if suffix == ".csv" else pyarrow.parquet.read_table
    assert reader(tmp_path / f"out{suffix}").to_pydict()["label"] == ["b", "é"]


@pytest.mark.errors
def test_bad_votes_are_named(tmp_path):
    with pytest.raises(ValueError, match="all columns must have the same length > 0"):
        aggregate_votes([1, 2], [1], [1, 2])
    with pytest.raises(ValueError, match="item, user and label must be given, got 2 rows that lack one"):
        aggregate_votes([1, 2], [1, 1], ["", None])
    with pytest.raises(ValueError, match="author must be the same in all rows of an item"):
        aggregate_votes([1, 1], [1, 2], [0, 0], [1, 2])
    with pytest.raises(ValueError, match="theta must be >= 0, got -1"):
        aggregate_votes([1], [1], [1], theta=-1)
    (tmp_path / "votes.csv").write_text("item,user\n1,2\n")
    with pytest.raises(ValueError, match=r"votes.csv has no column 'label'; its columns are item, user"):
        read_votes(tmp_path / "votes.csv")
    (tmp_path / "votes.csv").write_text("item,user,label,user\n1,a,oak,b\n")
    with pytest.raises(ValueError, match=r"votes.csv has the column 'user' more than once"):
        read_votes(tmp_path / "votes.csv")


def test_three_newcomers_or_one_user_of_eight_species_are_enough_for_the_published_rule():
    def valid(users, known):
        rows = [("x", u, "oak") for u in range(users)]
        rows += [(f"{u} {s}", u, f"species {s}") for u in range(users) for s in range(known - 1)]
        found = aggregate_votes(*zip(*rows, strict=True), rule="adaptive")
        return bool(found.valid[found.items.tolist().index("x")])

    assert [valid(n, 1) for n in (2, 3)] == [False, True]
    assert [valid(1, n) for n in (7, 8)] == [False, True]


def slow_confirmed(rows, *, theta, share, least=1, invited=(), rounds=100):
    """Who named a species that the others alone make valid, knows it; one dictionary after another."""
    last = {}
    for item, user, label in rows:
        last[item, user] = label
    users, items = {user for _, user in last}, {item for item, _ in last}
    n, history = dict.fromkeys(users, 0), []

    def decide(item, weight, without=None):
        voters = [u for u in users if (item, u) in last and u != without]
        total = math.fsum(weight[u] for u in voters)
        sums = {}
        for label in {last[item, u] for u in voters} - {AGAINST}:
            sums[label] = round(math.fsum(weight[u] for u in voters if last[item, u] == label), 9)
        if not sums:
            return AGAINST, 0.0, 0.0
        best = min(sums, key=lambda label: (-sums[label], label))
        return best, sums[best], round(sums[best] / total, 9) if total else 0.0

    for _ in range(rounds):
        history.append(dict(n))
        weight = {u: n[u] ** 0.5 - n[u] ** 0.2 + math.log(2.1) for u in users}
        known = {u: set() for u in users}
        for (item, user), label in last.items():
            if label == decide(item, weight)[0] and not label.startswith("!"):
                others = decide(item, weight, without=user)
                if others[0] == label and others[1] > theta and others[2] > max(0.5, share):
                    known[user].add(label)
        n = {u: len(known[u]) for u in users}
        if n in history:
            break
    result = {item: decide(item, weight) for item in items}
    valid = {}
    for item, (best, heavy, agreed) in result.items():
        voters = {u for u in users if last.get((item, u)) == best}
        enough = len(voters) >= least or any((item, u) in invited for u in voters)
        valid[item] = heavy > theta and agreed > share and enough
    return result, valid, weight, n == history[-1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("theta", "share"), [(2.0, 0.5), (1.4, 0.7), (0.7, 0.2)])
def test_the_confirmed_rule_against_the_slow_one(seed, theta, share):
    names = ["ash", "elm", "fir", "oak", AGAINST, "!bad_image"]
    rows = [(f"i{i}", f"u{u}", names[k]) for i, u, k, _ in random_rows(seed, items=25, users=9, votes=160)]
    slow, valid, weights, converged = slow_confirmed(rows, theta=theta, share=share)
    found = aggregate_votes(*zip(*rows, strict=True), theta=theta, min_agreement=share, min_voters=1)
    assert found.converged == converged and found.items.tolist() == sorted(slow)
    for i, item in enumerate(found.items.tolist()):
        assert (found.labels[i], bool(found.valid[i])) == (slow[item][0], valid[item])
        assert (found.weights[i], found.agreement[i]) == pytest.approx(slow[item][1:], abs=1e-8)
    assert dict(zip(found.users.tolist(), found.user_weights, strict=True)) == pytest.approx(weights)
    assert found.user_species.tolist() == found.user_counts.tolist()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("least", [None, 1, 2, 3])
def test_a_label_needs_some_voters_or_an_invited_one(seed, least):
    names = ["ash", "elm", "fir", "oak", AGAINST, "!bad_image"]
    rows = [(f"i{i}", f"u{u}", names[k]) for i, u, k, _ in random_rows(seed, items=25, users=9, votes=90)]
    flags = [(user in ("u1", "u2")) * 1 for _, user, _ in rows]  # invited, but for the first half of the rows
    flags[:45] = [0] * 45
    last = {(item, user): flag for (item, user, _), flag in zip(rows, flags, strict=True)}
    invited = {pair for pair, flag in last.items() if flag}
    options = {"theta": 0.6, "share": 0.3}
    _, valid, weights, _ = slow_confirmed(rows, **options, least=least or 2, invited=invited)
    columns = [*zip(*rows, strict=True)]
    found = aggregate_votes(
        *columns,
        invited=flags,
        theta=0.6,
        min_agreement=0.3,
        **({} if least is None else {"min_voters": least}),
    )
    assert dict(zip(found.items.tolist(), found.valid.tolist(), strict=True)) == valid
    assert dict(zip(found.users.tolist(), found.user_weights, strict=True)) == pytest.approx(weights)
    alone = slow_confirmed(rows, **options)[1]
    assert sum(valid.values()) < sum(alone.values()) if least != 1 else valid == alone


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_who_is_invited_is_read_from_files(tmp_path, suffix):
    columns = {"item": ["a", "b", "c", "c"], "user": ["u", "v", "!machine", "w"], "label": ["oak"] * 4}
    write_columns(tmp_path / f"votes{suffix}", columns | {"invited": [1, 0, 0, 0]})
    read = read_votes(tmp_path / f"votes{suffix}")
    options = {"theta": 0.5, "machine_weight": 1.0}
    assert aggregate_votes(**read, **options).valid.tolist() == [True, False, False]  # a machine is nobody
    assert aggregate_votes(**read, **options, min_voters=1).valid.tolist() == [True, True, True]
    assert aggregate_votes(**read, theta=0.5).valid.tolist() == [True, False, False]
    for flags in ([2, 0, 0, 0], ["yes", "", "", ""]):
        with pytest.raises(ValueError, match="invited must be 0 or 1, got"):
            aggregate_votes(**(read | {"invited": flags}))
    with pytest.raises(ValueError, match="min_voters must be an integer >= 1, got 0"):
        aggregate_votes(**read, min_voters=0)


def test_a_stranger_gains_no_weight_by_answers_of_his_own():
    """600 species of his own, then one vote against ten people: it decides by the published rule alone."""
    rows = [(f"own {i}", "stranger", f"species {i}", "stranger") for i in range(600)]
    rows += [("x", f"person {i}", "oak", "person 0") for i in range(10)]
    rows += [("x", "stranger", "ash", "person 0")]
    columns = list(zip(*rows, strict=True))
    place = sorted({row[0] for row in rows}).index("x")
    published = aggregate_votes(*columns, rule="adaptive")
    assert published.labels[place] == "ash" and published.valid[place]
    found = aggregate_votes(*columns)
    assert found.labels[place] == "oak" and found.valid.tolist() == [i == place for i in range(601)]
    assert found.user_weights.tolist() == pytest.approx([math.log(2.1)] * 11)  # of newcomers, all of them
    assert found.user_species[found.users == "stranger"] == 0


def test_confirmed_by_hand():
    """Four agree on an oak: for each of them, three others do. Two on an ash, which confirm nobody."""
    rows = [("x", u, "oak") for u in "abcd"] + [("y", u, "ash") for u in "ae"]
    found = aggregate_votes(*zip(*rows, strict=True))
    assert found.user_species.tolist() == [1, 1, 1, 1, 0] and found.valid.tolist() == [True, False]
    assert found.user_weights.tolist() == pytest.approx([math.log(2.1)] * 5)
    three = aggregate_votes(*zip(*rows[1:], strict=True))
    assert three.valid.tolist() == [True, False] and not three.user_species.any()


@pytest.mark.parametrize("rule", ["confirmed", "adaptive", "majority", "agreement", "dawid_skene"])
def test_none_of_these_counts_against_and_never_wins(rule):
    """Four people looked and saw none of the list; one named an oak. All saw a birch."""
    rows = [("x", u, AGAINST) for u in "abcd"] + [("x", "e", "oak")] + [("z", u, AGAINST) for u in "abc"]
    rows += [("y", u, "birch") for u in "abcde"]
    options = {"theta": 0.5, "min_agreement": 0.5, "min_voters": 1}
    found = aggregate_votes(*zip(*rows, strict=True), rule=rule, **options)
    assert found.labels.tolist() == ["oak", "birch", AGAINST] and found.valid.tolist() == [False, True, False]
    assert found.agreement[0] < 0.26 and found.weights[2] == found.agreement[2] == 0
    assert found.votes.tolist() == [5, 5, 3]
    without = [row for row in rows if row[2] != AGAINST]
    assert aggregate_votes(*zip(*without, strict=True), rule=rule, **options).valid.tolist() == [True, True]


def test_agreement_is_over_all_who_looked_by_default():
    rows = [("x", u, AGAINST) for u in "abcd"] + [("x", u, "oak") for u in "efg"]
    found = aggregate_votes(*zip(*rows, strict=True))
    assert found.weights.tolist() == pytest.approx([3 * math.log(2.1)]) and not found.valid[0]
    assert found.agreement.tolist() == pytest.approx([3 / 7])
    assert aggregate_votes(*zip(*rows, strict=True), min_agreement=0.4).valid[0]


def test_users_are_said_to_know_each_species_once(tmp_path):
    """29 species, each proposed and photographed: 29, and not 58."""
    rows = [(f"i{i}", u, f"species {i}", "a") for i in range(29) for u in "abcd"]
    rows += [("i30", u, "!bad_image", "a") for u in "abcd"]
    for rule in ("confirmed", "adaptive", "majority"):
        found = aggregate_votes(*zip(*rows, strict=True), rule=rule)
        assert found.user_species.tolist() == [29] * 4
        save_users(tmp_path / "users.csv", found)
        table = pyarrow.csv.read_csv(tmp_path / "users.csv").to_pydict()
        assert table["species"] == [29] * 4 and table["votes"] == [30] * 4
    assert aggregate_votes(*zip(*rows, strict=True), rule="adaptive").user_counts.tolist() == [58, 29, 29, 29]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_that_lack_something_never_stop_the_others(tmp_path, suffix):
    rows = [(1, user, "oak") for user in "uvw"] + [(None, "u", "ash"), (2, " ", "ash"), (3, "u", "")]
    names = ("item", "user", "label")
    table = pyarrow.table({name: pyarrow.array([row[i] for row in rows]) for i, name in enumerate(names)})
    path = tmp_path / f"votes{suffix}"
    (pyarrow.csv.write_csv if suffix == ".csv" else pyarrow.parquet.write_table)(table, path)
    found = aggregate_votes(**read_votes(path))
    assert (found.items.tolist(), found.labels.tolist(), found.valid.tolist()) == ([1], ["oak"], [True])
    assert found.empty_votes == 3 and found.user_votes.tolist() == [1, 1, 1]
