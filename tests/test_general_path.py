"""The contracts of losses and predictors once more, on the paths that an accelerator takes.

Where values are hidden, nothing of ``ops/_cpu`` is used and no check looks at values. Left out are therefore
tests of bad values (marked ``errors``; checks of shapes and of options are the same on all paths); besides,
those that compile, which never looks at values, and those that start processes of their own.
"""

import types

import pytest
import torch

from shortlist._checks import can_read_values, values_hidden
from shortlist.ops._cpu import draws, selection, workspaces
from tests import test_losses_common
from tests.losses import test_average_k, test_noised_topk, test_ranked_topk, test_smooth_topk, test_sparse_top
from tests.ops import test_selection
from tests.predictors import test_conformal, test_interface, test_plug_in
from tests.test_package import public_names

LEFT_OUT_MARKS = {"errors", "compiled", "slow"}
LEFT_OUT = {
    # of the ways there are, this one is not taken where values are hidden: scores come back as they are
    "test_pack_above_keeps_what_is_above_in_order",
    # accelerators have one formula for all numbers; the CPU, which stands in for them, has two
    "test_sigmoids_are_the_same_in_any_batches",
}
LEFT_OUT_FIXTURES = {"monkeypatch", "tmp_path"}  # they reach for what is inside, or start processes


def chosen_of(module: types.ModuleType) -> dict:
    """Tests of a module under names of this one, but for those left out."""
    chosen = {}
    for name, test in vars(module).items():
        if not name.startswith("test_") or not isinstance(test, types.FunctionType):
            continue
        marks = {mark.name for mark in getattr(test, "pytestmark", [])}
        fixtures = set(test.__code__.co_varnames[: test.__code__.co_argcount])
        if name not in LEFT_OUT and not marks & LEFT_OUT_MARKS and not fixtures & LEFT_OUT_FIXTURES:
            stem = module.__name__.rpartition(".")[2].removeprefix("test_")
            chosen[f"{name}__{stem}"] = test
    return chosen


for reused in (
    test_losses_common,
    test_average_k,
    test_noised_topk,
    test_ranked_topk,
    test_smooth_topk,
    test_sparse_top,
    test_selection,
    test_conformal,
    test_interface,
    test_plug_in,
):
    globals().update(chosen_of(reused))
del reused


@pytest.fixture(autouse=True)
def door_closed(monkeypatch):
    """Values are hidden, and nothing that is for the CPU alone is called."""

    def refuse(*args, **kwargs):
        raise AssertionError("what is for the CPU alone was called behind the closed door")

    for module in (draws, selection, workspaces):
        for name in public_names(module):
            monkeypatch.setattr(module, name, refuse)
    with values_hidden():
        yield


def test_the_door_is_closed():
    assert not can_read_values(torch.zeros(2))
    with pytest.raises(AssertionError, match="closed door"):
        selection.largest(torch.zeros(2, 3), 1)
