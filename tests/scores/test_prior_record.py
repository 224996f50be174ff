import json
import math
import pickle

import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.scores import PriorRecord
from tests.scores.rows import HALF, random_priors

COUNTS = torch.tensor([600, 300, 100])


def test_training_priors_are_shares_of_the_counts():
    record = PriorRecord.training(COUNTS)
    assert record.priors.tolist() == pytest.approx([0.6, 0.3, 0.1], abs=1e-15)
    assert record.log_priors.tolist() == pytest.approx([math.log(p) for p in (0.6, 0.3, 0.1)], abs=1e-15)
    assert record.priors.dtype == record.log_priors.dtype == torch.float64
    assert (record.name, record.power, len(record)) == ("training", 1.0, 3)
    assert record.words() == "the training priors"
    assert repr(record) == "PriorRecord(the training priors, 3 classes)"


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.int32])
def test_training_priors_are_in_float64_whatever_the_counts_are_in(dtype):
    counts = torch.tensor([1024, 3, 1]).to(dtype)
    expected = [math.log(n / 1028) for n in (1024, 3, 1)]
    assert PriorRecord.training(counts).log_priors.tolist() == pytest.approx(expected, abs=1e-15)


def test_class_without_rows_counts_as_one_with_one():
    record = PriorRecord.training(torch.tensor([3, 0]))
    assert record.priors.tolist() == pytest.approx([0.75, 0.25])
    with pytest.raises(ValueError, match="class_counts must be >= 1, got 0 for class 1"):
        PriorRecord.training(torch.tensor([3, 0]), zero_counts="error")


@pytest.mark.parametrize("c", [1, 2, 7, 1000])
def test_balanced_priors_are_equal(c):
    record = PriorRecord.balanced(c)
    assert record.log_priors.tolist() == pytest.approx([-math.log(c)] * c, abs=1e-12)
    assert (record.name, record.words(), len(record)) == ("balanced", "balanced priors", c)


def test_given_priors_are_the_vector_added_up_to_1():
    record = PriorRecord.given(torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64))
    assert record.priors.tolist() == pytest.approx([0.2, 0.5, 0.3], abs=1e-15)
    assert (record.name, record.words()) == ("given", "given priors")
    rounded = torch.tensor([0.201, 0.5, 0.3], dtype=torch.float64)  # of 1.001
    assert PriorRecord.given(rounded).priors.sum().item() == pytest.approx(1, abs=1e-15)
    for dtype in HALF:
        half = torch.tensor([0.25, 0.5, 0.25], dtype=dtype)
        assert PriorRecord.given(half).priors.tolist() == pytest.approx([0.25, 0.5, 0.25], abs=1e-15)


def test_constant_in_the_logarithms_is_taken_out_and_the_vector_is_the_records_own():
    log_priors = random_priors(5).log()
    record, shifted = PriorRecord("given", log_priors), PriorRecord("given", log_priors + 3.7)
    torch.testing.assert_close(record.log_priors, shifted.log_priors, rtol=0, atol=1e-14)
    before = record.log_priors.clone()
    log_priors[0] = 9.0
    assert torch.equal(record.log_priors, before)


@given(c=st.integers(1, 8), seed=st.integers(0, 99), power=st.floats(-3, 3))
def test_power_is_the_formula(c, seed, power):
    priors = random_priors(c, seed)
    record = PriorRecord.given(priors).to_power(power)
    raised = [float(p) ** power for p in priors]
    expected = [math.log(value / sum(raised)) for value in raised]
    assert record.log_priors.tolist() == pytest.approx(expected, abs=1e-12)


def test_powers_have_names():
    record = PriorRecord.training(COUNTS)
    assert record.to_power(1.0) is record
    assert record.to_power(0.0).name == "balanced"
    half = record.to_power(0.5)
    assert (half.name, half.power, half.words()) == ("training", 0.5, "the training priors to the power 0.5")
    assert half.to_power(3.0).words() == "the training priors to the power 1.5"
    assert half.to_power(2.0).words() == "the training priors" and half.to_power(2.0).same_as(record)
    given_priors = PriorRecord.given(record.priors).to_power(-1.0)
    assert given_priors.words() == "given priors to the power -1"
    assert PriorRecord.balanced(3).to_power(2.0).words() == "balanced priors"


def test_same_priors_are_the_same_whatever_they_are_called():
    training = PriorRecord.training(COUNTS)
    assert training.same_as(PriorRecord.given(torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)))
    assert PriorRecord.training(torch.tensor([5, 5])).same_as(PriorRecord.balanced(2))
    assert not training.same_as(PriorRecord.balanced(3))
    assert not PriorRecord.balanced(2).same_as(PriorRecord.balanced(3))
    for distance, same in ((1e-10, True), (1e-7, False)):
        moved = training.log_priors + distance * torch.tensor([1.0, -2.0, 0.0], dtype=torch.float64)
        assert training.same_as(PriorRecord("given", moved)) == same


@given(c=st.integers(1, 8), seed=st.integers(0, 99), power=st.floats(-2, 2))
def test_record_is_written_and_read_to_the_bit(c, seed, power):
    record = PriorRecord("training", random_priors(c, seed).log()).to_power(power)
    read = PriorRecord.from_dict(json.loads(json.dumps(record.to_dict())))
    assert torch.equal(read.log_priors, record.log_priors)
    assert (read.name, read.power, read.words()) == (record.name, record.power, record.words())
    assert torch.equal(pickle.loads(pickle.dumps(record)).log_priors, record.log_priors)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PriorRecord("uniform", torch.zeros(2)), "name must be one of training, balanced, given"),  # type: ignore
        (lambda: PriorRecord("given", torch.tensor([0.0, -torch.inf])), "log_priors must be finite"),
        (lambda: PriorRecord("given", torch.zeros(2, 2)), r"log_priors must be .* shape \(c,\)"),
        (lambda: PriorRecord("given", torch.zeros(0)), "log_priors must be"),
        (lambda: PriorRecord("given", torch.zeros(2), power=math.inf), "power must be a finite number"),
        (lambda: PriorRecord.balanced(0), "num_classes must be an integer >= 1, got 0"),
        (lambda: PriorRecord.balanced(2).to_power(math.nan), "power must be a finite number, got nan"),
        (lambda: PriorRecord.training(torch.tensor([1, -1])), "class_counts must be .* >= 0, got -1"),
        (lambda: PriorRecord.given(torch.tensor([1.0, 0.0])), "priors must be > 0, got 0.0 for class 1"),
        (lambda: PriorRecord.given(torch.tensor([3.0, 1.0])), "priors must add up to 1, got 4"),
        (lambda: PriorRecord.given(torch.tensor([2.0, -1.0])), "priors must be .* >= 0, got -1"),
        (lambda: PriorRecord.given(torch.tensor([1.0, math.nan])), "priors must be finite .* got nan"),
        (lambda: PriorRecord.given([0.5, 0.5]), "priors must be a tensor"),  # type: ignore
    ],
)
def test_bad_priors_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
