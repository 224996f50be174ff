import pytest
import torch

from shortlist import ClassTable, Taxonomy
from tests.predictors.tree_oracle import leaves_of

NAMES = ("robur", "cerris", "sylvatica", "pendula", "nana", "biloba")
GENUS = ("Quercus", "Quercus", "Fagus", "Betula", "Betula", "Ginkgo")
FAMILY = ("Fagaceae", "Fagaceae", "Fagaceae", "Betulaceae", "Betulaceae", "Ginkgoaceae")
DIVISION = ("flowers", "flowers", "flowers", "flowers", "flowers", "gymnosperms")
LEVELS = {"genus": GENUS, "family": FAMILY, "division": DIVISION}


def table(*levels):
    return ClassTable(NAMES, parents={level: LEVELS[level] for level in levels})


def named(tree):
    """Name, level and parent of each node, and the names of its classes."""
    leaves = leaves_of(tree.parents, tree.num_classes)
    return {
        (name, level): (tree.names[parent] if parent >= 0 else None, {tree.names[i] for i in sorted(held)})
        for name, level, parent, held in zip(tree.names, tree.levels, tree.parents, leaves, strict=True)
    }


def test_only_children_are_skipped_and_the_lower_name_stays():
    found = named(Taxonomy.from_class_table(table("genus", "family", "division")))
    above = {name: parent for (name, _), (parent, _) in found.items()}
    assert above == {
        **{"robur": "Quercus", "cerris": "Quercus", "sylvatica": "Fagaceae", "Quercus": "Fagaceae"},
        **{"pendula": "Betula", "nana": "Betula", "Betula": "flowers", "Fagaceae": "flowers"},
        **{"flowers": "all classes", "biloba": "all classes", "all classes": None},
    }
    assert found["Quercus", "genus"][1] == {"robur", "cerris"}
    assert found["all classes", "root"][1] == set(NAMES)


def test_the_order_of_the_levels_in_the_table_does_not_matter():
    trees = {
        Taxonomy.from_class_table(table(*levels))
        for levels in (("genus", "family", "division"), ("division", "family", "genus"))
    }
    assert len(trees) == 1
    assert trees.pop().level_names == ("class", "genus", "family", "division", "root")


def test_of_levels_with_the_same_parents_the_lower_one_stays():
    for levels in (("genus", "tribe", "family"), ("family", "tribe", "genus")):
        columns = LEVELS | {"tribe": [f"tribe of {genus}" for genus in GENUS]}
        tree = Taxonomy.from_class_table(
            ClassTable(NAMES, parents={level: columns[level] for level in levels})
        )
        assert "Quercus" in tree.names and "tribe of Quercus" not in tree.names


def test_chosen_levels_and_names_that_occur_twice():
    assert Taxonomy.from_class_table(table("genus", "family"), levels=["family"]).level_names == (
        *("class", "family"),
        "root",
    )
    same = ClassTable(("a", "b", "c", "d"), parents={"genus": list("xxyz"), "family": list("xxxy")})
    found = named(Taxonomy.from_class_table(same))
    assert found["x", "genus"] == ("x", {"a", "b"}) and found["x", "family"][1] == {"a", "b", "c"}


def test_a_level_called_class_and_one_parent_above_all():
    levels = {"class": ["birds", "birds", "mammals"], "kingdom": ["animals"] * 3}
    tree = Taxonomy.from_class_table(ClassTable(("a", "b", "c"), parents=levels))
    assert tree.level_names == ("leaf", "class", "kingdom")
    assert tree.names == ("a", "b", "c", "birds", "animals")


def test_one_class_is_its_own_root():
    tree = Taxonomy.from_class_table(ClassTable(("a",), parents={"genus": ["A"]}))
    assert tree.names == ("a",) and tree.parents == (-1,) and tree.num_classes == 1
    assert [part.tolist() for part in tree.nodes_of(torch.tensor([[True], [False]]))] == [[0], [0]]


def test_places_and_sizes_are_those_of_the_classes():
    tree = Taxonomy.from_class_table(table("genus", "family", "division"))
    start, end = tree.bounds
    for node, held in enumerate(leaves_of(tree.parents, 6)):
        assert set(tree.order[start[node] : end[node]].tolist()) == held
        assert int(tree.sizes[node]) == len(held)
    assert tree.heights.tolist() == [tree.level_names.index(level) for level in tree.levels]
    assert Taxonomy.from_dict(tree.to_dict()) == tree


def test_nodes_of_sets_are_the_fewest_that_make_them_up():
    tree = Taxonomy.from_class_table(table("genus", "family", "division"))
    leaves = leaves_of(tree.parents, 6)
    sets = torch.tensor([[bool(number >> i & 1) for i in range(6)] for number in range(64)])
    rows, nodes = tree.nodes_of(sets)
    for i, row in enumerate(sets):
        held = frozenset(row.nonzero().squeeze(1).tolist())
        whole = [v for v in range(len(tree)) if leaves[v] <= held]
        largest = [v for v in whole if not any(leaves[v] < leaves[u] for u in whole)]
        assert nodes[rows == i].tolist() == largest
        assert frozenset().union(*(leaves[v] for v in largest)) == held


@pytest.mark.errors
def test_what_is_no_tree_is_refused():
    crossed = ClassTable(NAMES, parents={"genus": GENUS, "script": ["x", "y", "x", "x", "x", "x"]})
    with pytest.raises(
        ValueError,
        match=r"must make a tree: .*'Quercus'.*'script', 'x' and 'y'",
    ):
        Taxonomy.from_class_table(crossed)
    assert Taxonomy.from_class_table(crossed, levels=["genus"]).level_names == ("class", "genus", "root")
    for given, levels, message in (
        (ClassTable(NAMES), None, "the class table has no parents"),
        (table("genus"), ["tribe"], r"level must be one of the table's \(genus\), got 'tribe'"),
        (table("genus"), "genus", "levels must be a list of names, got 'genus'"),
    ):
        with pytest.raises(ValueError, match=message):
            Taxonomy.from_class_table(given, levels=levels)
    for parents, message in (
        ((2, 2), "parents must be larger than their children, got 2 of node 0"),
        ((1, -1), "parents must have two children or more"),
        ((2, 2, 0), "got 0 of node 2"),
        ((2, 2, 4, 4, -1), "come after all classes"),
    ):
        with pytest.raises(ValueError, match=message):
            Taxonomy(tuple("abcdef"[: len(parents)]), ("class",) * len(parents), parents)
    with pytest.raises(ValueError, match=r"sets must be a bool tensor of shape \(n, 6\), got torch.float32"):
        Taxonomy.from_class_table(table("genus")).nodes_of(torch.zeros(2, 6))


def test_an_empty_name_is_no_parent():
    """Classes without a genus are groups of their own, in the tree and wherever parents are numbered."""
    names = ("robur", "cerris", "oak", "tree", "fern")
    genus, family = ("Quercus", "Quercus", "", "", ""), ("Fagaceae", "Fagaceae", "Fagaceae", "", "")
    found = ClassTable(names, parents={"family": family, "genus": genus})
    number, parents = found.parent_index("genus")
    assert number.tolist() == [0, 0, 1, 2, 3] and parents == ("Quercus", "", "", "")
    above = {name: parent for (name, _), (parent, _) in named(Taxonomy.from_class_table(found)).items()}
    assert above == {
        **{"robur": "Quercus", "cerris": "Quercus", "Quercus": "Fagaceae", "oak": "Fagaceae"},
        **{"Fagaceae": "all classes", "tree": "all classes", "fern": "all classes", "all classes": None},
    }
