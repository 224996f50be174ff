"""Scores written some rows at a time."""

from contextlib import closing

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from shortlist.runs.score_writer import ScoreWriter


def written(path, blocks, *, room, norms=None):
    with closing(ScoreWriter(path, room, norms)) as writer:
        for scores, target in blocks:
            writer.add(scores, target)
        writer.finish()
    return load_file(path)


@pytest.mark.parametrize("room", [17, 18, 1000])
@pytest.mark.parametrize("c", [1, 3, 10])
def test_what_is_read_is_what_was_added(tmp_path, monkeypatch, room, c):
    monkeypatch.setattr("shortlist.runs.score_writer._PIECE", 40)  # so that rows are moved in several pieces
    heads = {"set": torch.randn(17, c), "proposal": torch.randn(17, c)}
    target, norms = torch.arange(17) % c, (torch.rand(c), torch.randn(c))
    pieces = [slice(0, 5), slice(5, 6), slice(6, 6), slice(6, 17)]
    blocks = [({head: found[rows] for head, found in heads.items()}, target[rows]) for rows in pieces]
    got = written(tmp_path / "a.safetensors", blocks, room=room, norms={"set": norms, "proposal": None})
    wanted = {f"{head}.scores": found for head, found in heads.items()} | {"target": target}
    wanted |= {"set.norms": norms[0], "set.offsets": norms[1]}
    assert got.keys() == wanted.keys()
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert torch.equal(file.get_slice("proposal.scores")[3:9], heads["proposal"][3:9])


@pytest.mark.parametrize("room", [4, 9])
def test_half_precision_and_columns_out_of_order_are_written_as_float32(tmp_path, room):
    scores, target = torch.randn(5, 4).half().T.contiguous().T[:4], torch.tensor([0, 3, 1, 2])
    got = written(tmp_path / "a.safetensors", [({"set": scores}, target)], room=room)
    assert got["set.scores"].dtype == torch.float32 and torch.equal(got["set.scores"], scores.float())


@pytest.mark.errors
def test_no_row_at_all_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least one row that can be read, got 0"):
        written(tmp_path / "a.safetensors", [], room=3)
