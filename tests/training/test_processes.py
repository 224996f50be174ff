from types import SimpleNamespace

import pytest
import torch

from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import RunError
from shortlist.training.processes import connected, decided_by_first, same_everywhere
from tests.processes import in_two_processes


def agreement(rank: int) -> list:
    first = decided_by_first(lambda: f"of {rank}")
    assert same_everywhere("the number", 3) == 3
    try:
        same_everywhere("the first epoch", rank + 4)
    except RunError as error:
        return [first, str(error)]
    return [first, "nothing was said"]


def test_processes_agree_on_what_the_first_one_says(tmp_path):
    assert decided_by_first(lambda: "alone") == "alone" and same_everywhere("the number", 3) == 3
    for first, words in in_two_processes(agreement, tmp_path):
        assert first == "of 0"
        assert words.startswith("the first epoch must be the same for all processes, got [4, 5]")


def test_without_torchrun_nothing_is_connected():
    with connected(make_recipe({})):
        assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("cuda", "changes", "wanted"),
    [
        (True, ["devices=2", "accelerator=gpu"], True),
        (True, ["num_nodes=2"], True),
        (True, [], False),
        (True, ["devices=2", "accelerator=cpu"], False),
        (False, ["devices=2"], False),
    ],
)
def test_batch_norm_is_shared_by_several_processes_on_cuda(cuda, changes, wanted, monkeypatch, tmp_path):
    from shortlist.training import stage  # Lightning, which processes of the other test must not import

    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    monkeypatch.setattr(stage.pl, "Trainer", lambda **options: options)
    run, module = SimpleNamespace(path=tmp_path), SimpleNamespace(steps_per_epoch=1)
    made = stage._trainer(run, make_recipe({}, changes), module, [], [], None)
    assert made["sync_batchnorm"] is wanted
