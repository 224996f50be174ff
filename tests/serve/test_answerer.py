"""The answerer against loops over single images."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from shortlist import ClassTable, Model
from shortlist.model import Choice
from shortlist.place import Place
from shortlist.predictors import (
    AverageK,
    CalibrationRows,
    CalibrationWarning,
    Conformal,
    NoveltyDetector,
    TaxonomyNodes,
    TopK,
)
from shortlist.scores import PriorRecord, ScoreMap, UnknownPriorError
from shortlist.serve.answerer import Answerer
from shortlist.serve.exchange import Query
from shortlist.serve.lineage import Lineage
from shortlist.taxonomy import Taxonomy
from tests.serve.parts import PREPARE, TREES, Index, tree_model


def inputs(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 1, 2, 2, generator=torch.Generator().manual_seed(seed))


def test_a_list_has_the_models_own_probabilities_and_set(model):
    batch = inputs(20)
    answers = Answerer(model).answer([Query(image[None]) for image in batch])
    expected = model.short_lists(batch, "conformal90", at_least=6)
    for answer, candidates in zip(answers, expected, strict=True):
        assert answer.listed.choice.predictor == "conformal90"
        assert [(c.id, c.name, c.in_set) for c in answer.listed] == [
            (c.id, c.name, c.in_set) for c in candidates
        ]
        assert [c.probability for c in answer.listed] == pytest.approx([c.probability for c in candidates])
        assert len(answer.listed.members) == sum(c.in_set for c in candidates)
        assert answer.listed.mass == pytest.approx(sum(c.probability for c in candidates if c.in_set))
        assert [dict(c.parents) for c in answer.listed] == [dict(c.parents) for c in candidates]


def test_several_photos_count_by_the_mean_of_their_log_posteriors(model):
    batch = inputs(3)
    [answer] = Answerer(model).answer([Query(batch, Choice(top=6, photos=3))])
    posteriors = [model.probabilities(model.scores(image[None]))[0].double() for image in batch]
    product = torch.stack(posteriors).log().mean(0).exp()
    expected = product / product.sum()
    found = {c.index: c.probability for c in answer.listed}
    assert [found[i] for i in range(6)] == pytest.approx(expected.tolist(), abs=1e-6)
    assert not answer.listed.promise.holds and answer.listed.promise.void == "photos"


def test_the_classes_of_a_place_share_all_the_probability(model):
    image = inputs(1)
    place = Place({"q2": 2, "b1": 1, "Betula nana": 1}, name="fen")
    [answer] = Answerer(model).answer([Query(image, Choice(coverage=0.8, place=place))])
    [whole] = Answerer(model).answer([Query(image, Choice(coverage=0.8))])
    before, weights = {c.index: c.probability for c in whole.listed}, {1: 0.5, 3: 0.25, 4: 0.25}
    here = {i: before[i] * weight / TREES.counts[i] for i, weight in weights.items()}
    assert {c.index for c in answer.listed} == {1, 3, 4}
    for c in answer.listed:
        assert c.probability == pytest.approx(here[c.index] / sum(here.values()), rel=1e-5)
    promise = answer.listed.promise
    assert promise.holds and (promise.about, promise.level) == ("place", 0.8)
    assert (promise.place, promise.classes, promise.scope.unknown) == ("fen", 3, 0)
    assert whole.listed.promise.holds and whole.listed.promise.level == 0.8


SIZES = ({"top": 1}, {"top": 4}, {"average": 1.5}, {"average": 3})


@pytest.mark.parametrize(
    ("choice", "macro"),
    [(choice, macro) for choice in SIZES for macro in (False, True)]
    + [({"coverage": level}, macro) for level in (0.6, 0.95) for macro in (False, True)],
)
def test_any_choice_makes_the_sets_of_its_predictor(choice, macro):
    generator = torch.Generator().manual_seed(2)  # the calibration rows of the model
    rows = torch.rand(400, 1, 2, 2, generator=generator)
    scores = tree_model().scores(rows).clone()
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    training = (TREES.class_counts / TREES.class_counts.sum()).float()
    priors = training if macro else None
    exact = CalibrationRows.of_rows(scores, target, priors=training, dtype=torch.float64)
    model = tree_model(calibration_rows=exact)
    change = training.log() if macro else torch.zeros(6)
    if "top" in choice:
        predictor = TopK(choice["top"], priors=priors)
    elif "average" in choice:
        predictor = AverageK(choice["average"], priors=priors).calibrate(scores)
    else:
        rule = "macro" if macro else "marginal"
        predictor = Conformal(coverage=choice["coverage"], rule=rule, score="lac")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # of classes with few rows
            predictor.calibrate(scores - change, target)
    batch = inputs(30, seed=7)
    answers = Answerer(model).answer([Query(image[None], Choice(**choice, macro=macro)) for image in batch])
    new = model.scores(batch)
    sets = predictor(new - change if "coverage" in choice else new).numpy()
    for answer, row in zip(answers, sets, strict=True):
        assert {c.index for c in answer.listed if c.in_set} == set(np.flatnonzero(row))
        entries = [c.enters_at for c in answer.listed]
        if "coverage" in choice:
            assert [e.coverage < choice["coverage"] for e in entries] == [c.in_set for c in answer.listed]
        if "average" in choice:
            assert [e.average <= choice["average"] for e in entries] == [c.in_set for c in answer.listed]
        assert [e.top for e in entries] == list(range(1, 7))
        coverages = [e.coverage for e in entries]
        assert macro or coverages == sorted(coverages)  # with macro each class has its own threshold


def test_answers_do_not_depend_on_the_batch(model):
    batch = inputs(12)
    choices = [Choice(), Choice(top=2), Choice(average=2, macro=True), Choice(predictor="average2_macro")]
    queries = []
    for i in range(10):
        options = {"place": Place.of(["q1", "f1", "a/1"]) if i % 3 == 0 else None, "photos": 1 + i % 2}
        queries.append(Query(batch[i : i + 1 + i % 2], dataclasses.replace(choices[i % 4], **options)))
    answerer = Answerer(model)
    together, alone = answerer.answer(queries), [answerer.answer([query])[0] for query in queries]
    for first, second in zip(together, alone, strict=True):
        one, other = first.listed, second.listed
        assert [(c.index, c.in_set, c.enters_at.top) for c in one] == [
            (c.index, c.in_set, c.enters_at.top) for c in other
        ]
        assert [c.probability for c in one] == pytest.approx([c.probability for c in other])
        assert one.members == other.members and one.choice == other.choice and one.promise == other.promise
        assert (first.status, first.common_ancestor) == (second.status, second.common_ancestor)
    assert answerer.answer([]) == []


def test_the_limit_keeps_the_set_first():
    table = ClassTable([f"c{i}" for i in range(5)], counts=[10] * 5)
    scores = torch.tensor([[0.3, 0.28, 0.22, 0.15, 0.05]]).log()
    predictor = Conformal(coverage=0.5, rule="class_conditional").calibrate(
        torch.cat([scores] * 5), torch.arange(5)
    )
    predictor.threshold = 1 - torch.tensor([0.9, 0.2, 0.9, 0.1, 0.01])  # classes 1, 3 and 4
    model = Model.from_parts(
        nn.Identity(),
        table,
        score_map=make_map(table),
        predictors={"odd": predictor},
    )
    listed = [Answerer(model).answer([Query(scores, limit=limit)])[0].listed for limit in (1, 2, 4, 9)]
    assert [[c.index for c in found] for found in listed] == [
        [1],
        [1, 3],
        [0, 1, 3, 4],
        [0, 1, 2, 3, 4],
    ]
    assert [c.enters_at.top for c in listed[2]] == [1, 2, 4, 5]


def make_map(table: ClassTable) -> ScoreMap:
    return ScoreMap(len(table), contains=PriorRecord.training(table.class_counts))


def test_status_says_when_the_model_does_not_know():
    table = ClassTable([f"c{i}" for i in range(40)], counts=[10] * 40)
    model = Model.from_parts(nn.Identity(), table, score_map=make_map(table))
    sure, flat = torch.zeros(1, 40), torch.zeros(1, 40)
    sure[0, 3] = 9.0
    answerer = Answerer(model)
    statuses = [answerer.answer([Query(x, Choice(top=k))])[0].status for x in (sure, flat) for k in (1, 21)]
    assert statuses == ["ok", "ok", "not_confident", "ok"]  # 21 of 40 equal classes hold 52 %
    assert answerer.answer([Query(flat)])[0].listed.choice.top == 5  # of a model without predictors


def test_images_are_beside_their_candidates(model):
    queries = [
        Query(inputs(2), Choice(photos=2), related_images=1),
        Query(inputs(1)),
        Query(inputs(1), related_images=10, limit=2),
    ]
    first, second, third = Answerer(model, Index()).answer(queries)
    for c, images in zip(first.listed, first.related_images, strict=True):
        assert [image.id for image in images] == [f"{c.index}-0"]
    assert [*second.related_images] == [()] * len(second.listed)
    assert [len(images) for images in third.related_images] == [2, 2]
    assert third.related_images[0][1].similarity == pytest.approx(0.8)


def test_a_parent_that_all_share_is_the_most_specific_one():
    lineage = Lineage(TREES)
    assert lineage.common_ancestor([0, 1]) == ("genus", "Quercus", 2)
    assert lineage.common_ancestor([0, 2]) == ("family", "Fagaceae", 3)
    assert lineage.common_ancestor([0, 3]) is None
    assert lineage.common_ancestor([0]) is None
    assert Lineage(ClassTable(["a", "b"], parents={"genus": ["", ""]})).common_ancestor([0, 1]) is None


@pytest.mark.parametrize("strangeness", ["distance", "probability"])
def test_strangers_are_told_if_each_photo_is_strange(strangeness):
    model, known, batch = tree_model(), inputs(300, seed=3), inputs(40, seed=4)
    means = model.features(known).mean(0, keepdim=True) if strangeness == "distance" else None
    detector = NoveltyDetector(strangeness=strangeness, level=0.3, means=means, num_classes=6)
    target = torch.zeros(300, dtype=torch.int64)
    detector.calibrate(target, scores=model.scores(known), features=model.features(known))
    judging = tree_model(novelty=detector)
    answers = Answerer(judging).answer([Query(batch[i : i + 2], Choice(photos=2)) for i in range(0, 40, 2)])
    flags = detector.flag(scores=model.scores(batch), features=model.features(batch)).tolist()
    expected = [first and second for first, second in zip(flags[::2], flags[1::2], strict=True)]
    assert [answer.status == "novel" for answer in answers] == expected and any(expected)
    p_values = detector.p_values(scores=model.scores(batch), features=model.features(batch)).tolist()
    largest = [max(pair) for pair in zip(p_values[::2], p_values[1::2], strict=True)]
    assert [answer.listed.novelty.p_value for answer in answers] == pytest.approx(largest)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice(top=2, coverage=0.9), "at most one of"),
        (Choice(predictor="best"), "predictor must be one of conformal90, top2"),
        (Choice(predictor="top2", macro=True), "macro goes with top"),
        (Choice(top=7), "top must be from 1 to 6, got 7"),
        (Choice(average=5.999), "average must be from 1 to"),
        (Choice(coverage=1.0), "coverage must be < 1"),
        (Choice(place=Place.of(["yeti"])), "the place must name at least 1 class of the model by id or name"),
        (Choice(coverage=0.9, group=("organ", "leaf")), "group must be of a column of the calibration rows"),
        (Choice(coverage=0.9, at_least=3, at_most=2), r"at_most must be >= at_least \(3\), got 2"),
        (Choice(top=2, at_most=3), "at_most goes with average or coverage, got it with top"),
        (Choice(average=4, at_most=3), "average must be from 1 to 3, got 4"),
        (Choice(photos=0), "photos must be an integer >= 1, got 0"),
    ],
)
def test_a_choice_that_cannot_be_is_named(model, choice, words):
    with pytest.raises(ValueError, match=words):
        model.resolve(choice)


@pytest.mark.errors
def test_what_a_model_lacks_is_named():
    plain = tree_model(calibration_rows=None)
    with pytest.raises(ValueError, match="kept nothing of its calibration rows"):
        plain.resolve(Choice(coverage=0.9))
    [answer] = Answerer(plain).answer([Query(inputs(1), Choice(top=2))])
    assert answer.listed[0].enters_at == (1, None, None)
    with pytest.raises(UnknownPriorError):
        Answerer(Model.from_parts(nn.Identity(), TREES, preprocessing=PREPARE))


def test_a_coverage_of_the_average_class_is_promised(model):
    _, promise = model.resolve(Choice(coverage=0.9, macro=True))
    assert promise.holds and promise.about == "average class" and promise.rows == 400
    by_name = tree_model(predictors={"lac": model.predictors["conformal90"]})
    place = Place.of(["q1", "q2"], name="park")
    for several in (Choice(predictor="lac", place=place), Choice(coverage=0.9, place=place)):
        made = by_name.resolve(several)[1]
        assert made.holds and made.about == "place" and made.classes == 2


def test_a_taxonomy_predictor_answers_with_its_nodes(model):
    tree = Taxonomy.from_class_table(TREES)
    scores = model.scores(inputs(200, seed=3)).clone()
    generator = torch.Generator().manual_seed(4)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    one, two = (TaxonomyNodes(tree, coverage=0.8, nodes=n).calibrate(scores, target) for n in (1, 2))
    with_trees = tree_model(predictors={"top2": TopK(2), "one": one, "two": two})
    batch = inputs(20, seed=5)
    choices = [Choice(), Choice(predictor="two"), Choice(coverage=0.9), Choice(predictor="one")]
    queries = [Query(image[None], choices[i % 4]) for i, image in enumerate(batch)]
    for i, answer in enumerate(Answerer(with_trees).answer(queries)):
        name = "two" if i % 4 == 1 else "one"
        row = with_trees.scores(batch[i : i + 1])
        [expected] = with_trees.predictors[name].nodes(row, with_trees.probabilities(row))
        nodes = answer.listed.nodes
        assert nodes.predictor == name and nodes.promise.level == 0.8
        assert [n.name for n in nodes.nodes] == [n.name for n in expected]
        assert [n.mass for n in nodes.nodes] == pytest.approx([n.mass for n in expected])
        held = {name for node in nodes.nodes for name in _names_below(node.name)}
        if i % 4 in (1, 3):
            assert held == {c.name for c in answer.listed if c.in_set}
    assert Answerer(model).answer([Query(batch[:1])])[0].listed.nodes is None
    [several] = Answerer(with_trees).answer([Query(batch[:2], Choice(photos=2))])
    assert not several.listed.nodes.promise.holds


def _names_below(name: str) -> list[str]:
    """The classes of a node, by its name, from the table alone."""
    columns = zip(TREES.names, *TREES.parents.values(), strict=True)
    return [names[0] for names in columns if name in names or name == "all classes"]
