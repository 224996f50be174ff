import copy
import itertools
import math
import pickle
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from shortlist.datasets.sampling import ClassBalancedSampler, DeferredReweighting, deferred_weights
from shortlist.losses import LOSSES
from tests.processes import in_two_processes

# classes 1 and 4 have no image; the others have 60, 5, 1 and 34, in mixed order
TARGET = torch.tensor([0] * 60 + [2] * 5 + [3] * 1 + [5] * 34)[
    torch.randperm(100, generator=torch.Generator().manual_seed(7))
]


def sampler(**options) -> ClassBalancedSampler:
    return ClassBalancedSampler(TARGET, **{"num_samples": 101, "seed": 3, **options})


def shard(rank: int, world_size: int, **options) -> ClassBalancedSampler:
    return sampler(rank=rank, world_size=world_size, **options)


def interleave(shards) -> list[int]:
    return [index for draws in zip(*shards, strict=True) for index in draws]


def assert_within_binomial_band(count: int, n: int, p: float) -> None:
    assert abs(count - n * p) < 5 * math.sqrt(n * p * (1 - p)), (count, n * p)


def test_classes_are_drawn_equally_and_images_equally_within_each():
    n = 60_000
    drawn = Counter(sampler(num_samples=n))
    assert set(drawn) == set(range(len(TARGET)))
    labels = TARGET.tolist()
    for wanted in (0, 2, 3, 5):
        images = [i for i, label in enumerate(labels) if label == wanted]
        assert_within_binomial_band(sum(drawn[i] for i in images), n, 1 / 4)
        for i in images:
            assert_within_binomial_band(drawn[i], n, 1 / 4 / len(images))


def test_draws_are_independent_of_each_other():
    """Pairs of successive classes are equally frequent, and images come back: with replacement."""
    n = 32_000
    classes = [int(TARGET[i]) for i in sampler(num_samples=n)]
    pairs = Counter(itertools.pairwise(classes))
    assert len(pairs) == 16
    for count in pairs.values():
        assert_within_binomial_band(count, n, 1 / 16)
    assert max(Counter(sampler(num_samples=len(TARGET))).values()) > 1


def test_length_is_the_number_of_images_unless_given():
    assert len(ClassBalancedSampler(TARGET)) == len(list(ClassBalancedSampler(TARGET))) == 100
    assert len(sampler(num_samples=7)) == len(list(sampler(num_samples=7))) == 7


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_integer_type_and_far_class_indices(dtype):
    assert list(ClassBalancedSampler(TARGET.to(dtype))) == list(ClassBalancedSampler(TARGET))
    far = torch.where(TARGET == 5, 10**15, TARGET)
    assert list(ClassBalancedSampler(far)) == list(ClassBalancedSampler(TARGET))
    assert list(ClassBalancedSampler(torch.tensor([4]), num_samples=3)) == [0, 0, 0]


def test_epochs_and_seeds_differ_and_repeat():
    runs = {}
    for seed, epoch in itertools.product(range(4), range(4)):
        one = sampler(seed=seed)
        one.set_epoch(epoch)
        runs[seed, epoch] = tuple(one)
        assert tuple(one) == runs[seed, epoch]  # without another epoch, the same again
    assert len(set(runs.values())) == 16
    torch.manual_seed(99)  # the global generator is not used
    state = torch.get_rng_state()
    assert tuple(sampler(seed=0)) == runs[0, 0]
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 101])
def test_shards_are_equally_long_and_make_the_sequence_of_one_process(world_size):
    for epoch in (0, 5):
        one, shards = sampler(), [shard(rank, world_size) for rank in range(world_size)]
        for part in (one, *shards):
            part.set_epoch(epoch)
        parts = [list(part) for part in shards]
        assert {len(part) for part in parts} == {len(shards[0])} == {math.ceil(101 / world_size)}
        assert interleave(parts)[:101] == list(one)


def test_more_draws_do_not_change_the_first_ones():
    longest = list(sampler(num_samples=1000))
    for n in (1, 2, 15, 16, 17, 999):
        assert list(sampler(num_samples=n)) == longest[:n]


@pytest.mark.parametrize("taken", [0, 1, 40, 100, 101])
def test_resume_gives_the_rest_of_the_epoch(taken):
    whole = sampler()
    whole.set_epoch(2)
    want = list(whole)
    first = sampler()
    first.set_epoch(2)
    got = list(itertools.islice(first, taken))
    state = pickle.loads(pickle.dumps(first.state_dict()))
    second = sampler()
    second.load_state_dict(state)
    second.set_epoch(2)  # a trainer says so at the start of the epoch
    assert got + list(second) == want
    assert list(second) == want  # once only
    second.load_state_dict(state)
    second.set_epoch(3)
    whole.set_epoch(3)
    assert list(second) == list(whole) != want


def test_resume_twice_and_resume_with_another_number_of_processes():
    want = list(sampler())
    parts = [shard(rank, 2) for rank in range(2)]
    got = interleave([itertools.islice(part, 15) for part in parts])
    states = [part.state_dict() for part in parts]
    assert states[0] == states[1] and states[0]["position"] == 30
    parts = [shard(rank, 3) for rank in range(3)]
    for part in parts:
        part.load_state_dict(states[0])
    got += interleave([itertools.islice(part, 10) for part in parts])
    last = sampler()
    last.load_state_dict(parts[2].state_dict())
    assert got + list(last) == want


def test_state_of_what_was_used_rather_than_given_out():
    want = list(sampler())
    ahead = shard(1, 2)
    list(itertools.islice(ahead, 30))  # a loader's workers have taken 30; 8 were trained on
    resumed = shard(1, 2)
    resumed.load_state_dict(ahead.state_dict(consumed=8))
    list(itertools.islice(resumed, 20))
    again = shard(1, 2)
    again.load_state_dict(resumed.state_dict(consumed=5))
    assert list(again)[:30] == want[1::2][13:43]


def test_pickle_and_copy_keep_the_place():
    one = sampler()
    taken = list(itertools.islice(one, 10))
    for twin in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        fresh = sampler()
        fresh.load_state_dict(twin.state_dict())
        assert taken + list(fresh) == list(sampler())


def test_with_a_loader():
    images = torch.arange(100)
    loader = DataLoader(images, batch_size=8, sampler=sampler())  # type: ignore[arg-type]
    assert torch.cat(list(loader)).tolist() == list(sampler())
    assert len(loader) == 13


def test_a_million_images_of_ten_thousand_classes():
    target = torch.randint(10_000, (1_000_000,))
    big = ClassBalancedSampler(target)
    held = [value for value in vars(big).values() if isinstance(value, torch.Tensor)]
    assert sum(value.numel() for value in held) == 1_000_000 + 2 * len(target.unique())
    counts = torch.bincount(target[torch.tensor(list(big))], minlength=10_000).double()
    assert 100 * 0.9 < counts.var() < 100 * 1.1  # that of a binomial, mean 100


def draw_in_process(rank: int, early: ClassBalancedSampler) -> dict:
    late = sampler()
    first = list(itertools.islice(late, 20))
    resumed = sampler()
    resumed.load_state_dict(late.state_dict())
    return {"length": len(late), "early": list(early), "late": first + list(resumed)}


def test_two_processes_find_their_shards(tmp_path):
    want = list(sampler(num_samples=102))
    # the early one is built before the processes know of each other
    for rank, result in enumerate(in_two_processes(draw_in_process, tmp_path, before=sampler)):
        assert result == {"length": 51, "early": want[rank::2], "late": want[rank::2]}


@pytest.mark.errors
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": torch.zeros(3)}, r"target must be an integer tensor .* got torch.float32 \(3,\)"),
        ({"target": torch.zeros(3, 1).long()}, r"target must be .* got torch.int64 \(3, 1\)"),
        ({"target": torch.zeros(0).long()}, r"n >= 1, got torch.int64 \(0,\)"),
        ({"target": [0, 1]}, "got list"),
        ({"target": torch.tensor([0, -1])}, "target must be >= 0, got -1"),
        ({"num_classes": 5}, r"target must be in \[0, 5\), got 5"),
        ({"num_classes": 0}, "num_classes must be an integer >= 1, got 0"),
        ({"num_samples": 0}, "num_samples must be an integer >= 1, got 0"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"rank": 0}, "rank and world_size must go together, got 0 and None"),
        ({"rank": 2, "world_size": 2}, r"rank must be an integer in \[0, 2\), got 2"),
        ({"rank": 0, "world_size": 0}, "world_size must be an integer >= 1, got 0"),
    ],
)
def test_bad_arguments(change, message):
    options = {"target": TARGET, **change}
    with pytest.raises(ValueError, match=message):
        ClassBalancedSampler(options.pop("target"), **options)


@pytest.mark.errors
def test_bad_epochs_and_states():
    one = sampler(num_classes=6)
    for epoch in (-1, 1.0, True):
        with pytest.raises(ValueError, match="epoch must be an integer >= 0, got"):
            one.set_epoch(epoch)
    with pytest.raises(ValueError, match=r"consumed must be an integer in \[0, 102\), got 102"):
        one.state_dict(consumed=102)
    with pytest.raises(ValueError, match=r"seed must be that of the saved state \(4\), got 3"):
        one.load_state_dict(sampler(seed=4).state_dict())
    with pytest.raises(ValueError, match=r"num_samples must be that of the saved state \(50\), got 101"):
        one.load_state_dict(sampler(num_samples=50).state_dict())
    other = TARGET.clone()
    other[0] = (other[0] + 1) % 6
    with pytest.raises(ValueError, match="target_checksum must be that of the saved state"):
        one.load_state_dict(ClassBalancedSampler(other, num_samples=101, seed=3).state_dict())
    for state in ({}, {**one.state_dict(), "more": 1}):
        with pytest.raises(ValueError, match=r"state must have the entries \['epoch', 'num_samples'"):
            one.load_state_dict(state)
    assert list(one) == list(sampler())


WEIGHTS = torch.tensor([0.5, 1.0, 1.5, 0.25, 2.0, 0.75])
OPTIONS = {
    "calibrated_topk_hinge": {"k": 2},
    "smooth_topk": {"k": 2},
    "imbalanced_noised_topk": {"k": 2, "noise_std": 0.0, "margins": torch.linspace(0.1, 0.5, 6)},
    "ranked_topk": {"distribution": [0.5, 0.5]},
}


def test_weights_are_ones_before_the_start():
    for epoch in range(6):
        got = deferred_weights(epoch, start_epoch=3, weights=WEIGHTS)
        assert got.tolist() == (WEIGHTS.tolist() if epoch >= 3 else [1.0] * 6)
    assert deferred_weights(0, start_epoch=0, weights=WEIGHTS).equal(WEIGHTS)
    whole = deferred_weights(1, start_epoch=1, weights=torch.tensor([1, 3]))
    assert whole.dtype == torch.float32 and whole.tolist() == [1.0, 3.0]
    got.zero_()  # a copy
    assert WEIGHTS[0] == 0.5


def check_schedule(loss: nn.Module, reference) -> None:
    """Against the same loss made with the weights of each epoch."""
    schedule = DeferredReweighting(loss, weights=WEIGHTS, start_epoch=2)
    logits, target = 2 * torch.rand(8, 6) - 1, torch.randint(6, (8,))
    start = loss(logits, target)
    torch.testing.assert_close(start, reference(torch.ones(6))(logits, target))
    for epoch, weight in enumerate([torch.ones(6), torch.ones(6), WEIGHTS, WEIGHTS]):
        schedule.set_epoch(epoch)
        assert set(loss.state_dict()) >= {"weight"}
        torch.testing.assert_close(loss(logits, target), reference(weight)(logits, target))
    assert not loss(logits, target).equal(start)
    schedule.set_epoch(0)  # a run that starts over
    torch.testing.assert_close(loss(logits, target), start)


def test_deferred_reweighting_of_cross_entropy():
    check_schedule(nn.CrossEntropyLoss(), lambda weight: nn.CrossEntropyLoss(weight=weight))


@pytest.mark.parametrize("name", OPTIONS)
def test_deferred_reweighting_of_our_losses(name):
    check_schedule(LOSSES[name](**OPTIONS[name]), lambda weight: LOSSES[name](**OPTIONS[name], weight=weight))


def test_weights_follow_the_loss_and_leave_the_given_ones_alone():
    loss, weights = nn.CrossEntropyLoss(), WEIGHTS.clone()
    schedule = DeferredReweighting(loss, weights=weights, start_epoch=0)
    loss.double()
    schedule.set_epoch(1)
    assert loss.weight.dtype == torch.float64
    torch.testing.assert_close(loss.weight, WEIGHTS.double())
    loss.weight.zero_()
    assert weights.equal(WEIGHTS)
    other = nn.CrossEntropyLoss(weight=torch.ones(6))
    schedule.set_epoch(1)
    other.load_state_dict(loss.state_dict())
    assert other.weight.equal(WEIGHTS)
    twin = pickle.loads(pickle.dumps(schedule))
    twin.set_epoch(0)
    assert twin.loss.weight.equal(loss.weight)


@pytest.mark.errors
def test_bad_schedules():
    with pytest.raises(ValueError, match="start_epoch must be an integer >= 0, got -1"):
        deferred_weights(0, start_epoch=-1, weights=WEIGHTS)
    with pytest.raises(ValueError, match=r"epoch must be an integer >= 0, got 0\.5"):
        deferred_weights(0.5, start_epoch=1, weights=WEIGHTS)
    with pytest.raises(ValueError, match="weights must be finite and >= 0, got nan"):
        deferred_weights(0, start_epoch=1, weights=torch.tensor([1.0, math.nan]))
    loss = nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match=r"weights must be finite and >= 0, got -1\.0"):
        DeferredReweighting(loss, weights=-torch.ones(3), start_epoch=1)
    assert loss.weight is None
    with pytest.raises(ValueError, match="loss must have a buffer named weight, got Linear"):
        DeferredReweighting(nn.Linear(2, 2), weights=WEIGHTS, start_epoch=1)
    with pytest.raises(ValueError, match="loss must have no weight of its own"):
        DeferredReweighting(nn.CrossEntropyLoss(weight=WEIGHTS), weights=WEIGHTS, start_epoch=1)
