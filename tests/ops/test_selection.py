import pytest
import torch

from shortlist.ops._cpu.selection import _group_size
from shortlist.ops.selection import (
    descending,
    kth_largest,
    kth_largest_index,
    largest,
    largest_indices,
    pack_above,
)

SIZES = [(c, k) for c in (1, 7, 511, 512, 1000, 4099) for k in (1, 2, 6, 16, 51) if k <= c]


@pytest.mark.parametrize(("c", "k"), SIZES)
def test_largest_is_topk(c, k):
    scores = torch.randint(-50, 50, (17, c)).float() + torch.rand(17, c)
    values, indices = largest(scores, k)
    assert torch.equal(values, scores.topk(k).values)
    assert torch.equal(scores.gather(1, indices), values)
    assert all(len(set(row)) == k for row in indices.tolist())


def test_both_ways_of_selecting_are_reached():
    assert _group_size(4099, 1) > 1 and _group_size(1000, 16) > 1 and _group_size(511, 1) == 1


def test_largest_with_ties_nan_and_infinities():
    scores = torch.zeros(3, 2000)
    scores[1, 1234] = torch.nan
    scores[2] = -torch.inf
    scores[2, 3] = torch.inf
    values, indices = largest(scores, 3)
    assert values[0].tolist() == [0, 0, 0] and len(set(indices[0].tolist())) == 3
    assert values[1, 0].isnan() and indices[1, 0] == 1234
    assert values[2].tolist() == [torch.inf, -torch.inf, -torch.inf]
    assert kth_largest(scores, 3)[1].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("c", "k"), [(1, 1), (7, 7), (150, 15), (511, 51)])
def test_largest_of_short_rows_is_topk(c, k, dtype):
    scores = (torch.randint(-9, 9, (5, 6, c)) / 4).to(dtype)  # many ties, 0 among them
    scores[0, 0, ::2] = -0.0
    scores[0, 1] = -torch.inf
    scores[0, 2, c // 2] = torch.inf
    values, indices = largest(scores, k)
    assert values.dtype == dtype and torch.equal(values, scores.topk(k).values)
    assert torch.equal(scores.gather(-1, indices), values)
    assert all(len(set(row)) == k for row in indices.flatten(0, 1).tolist())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nan_of_either_sign_come_first_in_short_rows(sign):
    scores = torch.randn(2, 100)
    scores[1, 40] = torch.copysign(torch.tensor(torch.nan), torch.tensor(sign))
    values, indices = largest(scores, 7)
    assert values[1, 0].isnan() and indices[1, 0] == 40
    assert torch.equal(values[0], scores[0].topk(7).values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("c", "k"), [(1, 1), (7, 7), (30, 6), (63, 1), (64, 1), (150, 6), (511, 51)])
def test_kth_largest_is_the_last_of_topk(c, k, dtype):
    """Short rows go through another selection than long ones: on both sides of its limits."""
    scores = (torch.randint(-9, 9, (5, 17, c)) / 4).to(dtype)  # many ties
    scores[0, 0] = -torch.inf
    index = kth_largest_index(scores, k)
    assert index.shape == (5, 17)
    assert torch.equal(kth_largest(scores, k), scores.topk(k).values[..., -1])
    scores[1, 2, c // 2] = torch.nan
    assert kth_largest_index(scores, k)[1, 2] == c // 2
    others = torch.ones(5, 17, dtype=torch.bool)
    others[1, 2] = False
    assert torch.equal(kth_largest(scores, k)[others], scores.topk(k).values[..., -1][others])


def test_kth_largest_of_no_rows():
    assert kth_largest_index(torch.zeros(0, 50), 6).shape == (0,)


def test_largest_passes_gradients_to_the_selected():
    scores = torch.randn(2, 5000, requires_grad=True)
    values, indices = largest(scores, 4)
    values.sum().backward()
    assert torch.equal(scores.grad, torch.zeros_like(scores).scatter(1, indices, 1.0))


@pytest.mark.parametrize(("m", "k"), [(10, 3), (10_000, 70), (10_007, 1), (640, 5), (640, 0)])
def test_largest_indices(m, k):
    values = torch.randint(-50, 50, (m,)) + torch.rand(m)
    assert set(largest_indices(values, k).tolist()) == set(values.topk(k).indices.tolist())
    tied = torch.zeros(m)
    tied[m // 2] = 1
    chosen = largest_indices(tied, k).tolist()
    assert len(set(chosen)) == k and (k == 0 or m // 2 in chosen)
    values[1] = torch.nan
    assert k == 0 or 1 in largest_indices(values, k).tolist()


def test_pack_above_keeps_what_is_above_in_order():
    scores = torch.tensor([[5.0, 0, 3, 1, 0, 0, 0, 0], [0, 0, 0, 9, 0, 0, 0, 0]])
    packed, index = pack_above(scores, torch.tensor([[0.5], [2.0]]), at_least=1)
    assert packed.tolist() == [[5, 3, 1], [9, -torch.inf, -torch.inf]]
    assert index.tolist() == [[0, 2, 3], [3, 0, 0]]
    assert pack_above(scores, torch.tensor([[0.5], [2.0]]), at_least=4)[0].shape == (2, 4)


def test_pack_above_gives_way_where_it_does_not_pay():
    scores = torch.randn(4, 10)
    packed, index = pack_above(scores, torch.full((4, 1), -9.0), at_least=1)
    assert packed is scores and index is None


def test_kth_of_one_row():
    row = torch.randn(10)
    assert kth_largest_index(row, 3).shape == kth_largest(row, 3).shape == ()
    assert kth_largest(row, 3) == row.sort(descending=True).values[2] == row[kth_largest_index(row, 3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 255), (3, 256), (2, 2, 5000), (0, 300), (300,)])
def test_descending_is_sort(shape, dtype):
    """Long rows are sorted by digits, short ones by PyTorch."""
    scores = torch.randn(shape).mul_(torch.randint(-20, 20, shape).float().exp2()).to(dtype)
    scores[..., ::3] = scores[..., ::3].round()  # ties, 0 of both signs among them
    scores[..., 7], scores[..., 11], scores[..., 13] = -torch.inf, torch.inf, -0.0
    values, indices = descending(scores)
    assert values.dtype == dtype and torch.equal(values, scores.sort(descending=True).values)
    assert torch.equal(scores.gather(-1, indices), values)
    assert torch.equal(indices.sort().values, torch.arange(shape[-1]).expand(shape))


def test_descending_has_nan_first_and_a_gradient():
    scores = torch.randn(2, 400, requires_grad=True)
    values, indices = descending(scores)
    (values * torch.arange(400)).sum().backward()
    assert torch.equal(scores.grad.gather(1, indices), torch.arange(400.0).expand(2, 400))
    with_nan = scores.detach().clone()
    with_nan[1, 5] = -torch.nan
    values, indices = descending(with_nan)
    assert (
        values[1, 0].isnan()
        and indices[1, 0] == 5
        and torch.equal(values[0], with_nan[0].sort(descending=True).values)
    )
