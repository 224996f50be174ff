import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck

from shortlist.ops import sparse_top
from tests import references
from tests.conftest import tensor


def test_golden(golden):
    reference = golden("sparse_top")
    for case in reference.cases:
        got = sparse_top(reference.inputs(case)["s"], k=case["params"]["K"])
        torch.testing.assert_close(got, tensor(case["q"]), rtol=0, atol=1e-10)


@given(
    c=st.integers(1, 12),
    scale=st.sampled_from([1e-3, 0.5, 3.0, 1e4]),
    ties=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_equals_bisection(c, scale, ties, seed, data):
    k = data.draw(st.integers(1, c))
    scores = torch.randn(3, c, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    scores = scale * (scores.round() if ties else scores)
    got = sparse_top(scores, k=k)
    want = references.rows(references.sparse_top, scores, [k] * 3)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-11 * (1 + scale))
    torch.testing.assert_close(
        got.sum(1), torch.full((3,), float(k), dtype=torch.float64), rtol=1e-11, atol=0
    )


def test_one_k_per_row():
    scores = torch.randn(4, 9, dtype=torch.float64)
    sizes = torch.tensor([1, 9, 3, 5])
    got = sparse_top(scores, k=sizes)
    for i, k in enumerate(sizes.tolist()):
        torch.testing.assert_close(got[i : i + 1], sparse_top(scores[i : i + 1], k=k))


def test_large_rows_where_most_classes_are_left_out():
    scores = 3 * torch.randn(5, 2000, dtype=torch.float64)
    want = references.rows(references.sparse_top, scores, [7] * 5)
    torch.testing.assert_close(sparse_top(scores, k=7), want, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("c", "k"), [(4, 1), (6, 3), (9, 8)])
def test_gradcheck(c, k):
    scores = (0.4 * torch.randn(3, c, dtype=torch.float64)).requires_grad_()
    assert gradcheck(lambda s: sparse_top(s, k=k), (scores,))


def test_jacobian_product_is_the_formula():
    scores = torch.tensor([[0.5, 0.3, 0.1, -1.0, 5.0]], dtype=torch.float64, requires_grad=True)
    weights = sparse_top(scores, k=3)
    upstream = torch.randn(1, 5, dtype=torch.float64)
    (got,) = torch.autograd.grad(weights, scores, upstream)
    inner = torch.tensor([[1.0, 1, 1, 0, 0]], dtype=torch.float64)  # the last is 1, the fourth 0
    assert ((weights > 0) & (weights < 1)).double().equal(inner)
    jacobian = torch.diag(inner[0]) - inner.T @ inner / 3
    torch.testing.assert_close(got, upstream @ jacobian)


def test_masked_and_nan_scores():
    scores = torch.tensor([[1.0, -torch.inf, 0.5, -torch.inf], [0.0, torch.nan, 0.0, 0.0]])
    assert sparse_top(scores, k=2)[0].tolist() == [1, 0, 1, 0]
    assert sparse_top(scores, k=3)[0].tolist() == [1, 0, 1, 0]  # only two can be chosen
    assert sparse_top(scores, k=1)[1].isnan().all()


@pytest.mark.errors
def test_bad_input():
    scores = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="k must be an integer >= 1, got 0"):
        sparse_top(scores, k=0)
    with pytest.raises(ValueError, match=r"k must be <= the number of classes \(3\), got 4"):
        sparse_top(scores, k=4)
    with pytest.raises(ValueError, match=r"k must be in \[1, 3\], got 0 to 2"):
        sparse_top(scores, k=torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"int64 of shape \(2,\)"):
        sparse_top(scores, k=torch.tensor([1, 2, 3]))


def test_sparse_top_of_large_scores():
    assert sparse_top(torch.full((1, 3000), 1e4), k=1).sum().item() == pytest.approx(1, abs=1e-3)
    weights = sparse_top(torch.tensor([[1e8] * 3 + [0.0] * 21]), k=2)
    torch.testing.assert_close(weights[0, :3], torch.full((3,), 2 / 3))
    scores = torch.randn(4, 1000)
    torch.testing.assert_close(sparse_top(scores, k=999).sum(1), torch.full((4,), 999.0), rtol=1e-6, atol=0)


def test_scores_that_are_not_contiguous():
    scores = (5 * torch.randn(1000, 8)).T
    torch.testing.assert_close(sparse_top(scores, k=3), sparse_top(scores.contiguous(), k=3))
