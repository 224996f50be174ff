import torch

from shortlist.losses._smooth_rows import smooth_topk_rows
from shortlist.ops import log_esp_ratio


def test_smooth_loss_is_that_of_the_ratio_of_the_others():
    scores = torch.randn(6, 9, dtype=torch.float64).mul(5).requires_grad_()
    with torch.no_grad():
        scores[1, 3:5] = -torch.inf
    target, want = torch.randint(3, (6,)), []
    for row, true in zip(scores, target.tolist(), strict=True):
        others = torch.cat([row[:true], row[true + 1 :]])
        ratio = log_esp_ratio((others - row[true])[None] / (4 * 0.7), k=4)[0]
        want.append(0.7 * torch.log1p(torch.exp(ratio + 1.5 / 0.7)))
    got = smooth_topk_rows(scores, target, k=4, temperature=0.7, margin=1.5)
    torch.testing.assert_close(got, torch.stack(want))
    upstream = torch.randn(6, dtype=torch.float64)
    gradients = [torch.autograd.grad(value @ upstream, scores)[0] for value in (got, torch.stack(want))]
    torch.testing.assert_close(*gradients)


def test_smooth_loss_of_masked_scores():
    scores = torch.tensor([[1.0, -torch.inf, 2.0, 0.0], [3.0, 1.0] + [-torch.inf] * 2], requires_grad=True)
    rows = smooth_topk_rows(scores, torch.tensor([1, 0]), k=2, temperature=1.0, margin=1.0)
    assert rows.tolist() == [torch.inf, 0.0]  # the target is masked; there are no two others
    (gradient,) = torch.autograd.grad(rows.sum(), scores)
    assert (gradient == 0).all()
