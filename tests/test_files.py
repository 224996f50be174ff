import os
from contextlib import ExitStack

import pytest
import torch
from safetensors.torch import save_file

from shortlist._store.files import lock_folder, replacing, write_text


def test_files_have_the_mode_of_new_files(tmp_path):
    """Safetensors writes files that only their owner can read: others share caches and runs."""
    (tmp_path / "plain").touch()
    usual = (tmp_path / "plain").stat().st_mode
    with replacing(tmp_path / "a.safetensors") as temporary:
        save_file({"x": torch.zeros(1)}, temporary)
        os.chmod(temporary, 0o600)
    write_text(tmp_path / "a.txt", "text")
    assert (tmp_path / "a.safetensors").stat().st_mode == usual
    assert (tmp_path / "a.txt").stat().st_mode == usual


@pytest.mark.errors
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(RuntimeError, match="full"), replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("half")
        raise RuntimeError("disk full")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.errors
def test_a_lock_that_is_no_file_is_named_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(ValueError, match=r"\.lock is no regular file"):
        with lock_folder(tmp_path, ValueError("in use")):
            pass
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").symlink_to(tmp_path / "made elsewhere")
    with pytest.raises(ValueError, match="a link to a file that does not exist"):
        with lock_folder(tmp_path, ValueError("in use")):
            pass
    assert not (tmp_path / "made elsewhere").exists()


@pytest.mark.errors
def test_a_lock_can_be_waited_for(tmp_path, monkeypatch):
    holder = ExitStack()
    holder.enter_context(lock_folder(tmp_path, ValueError("in use")))
    with pytest.raises(ValueError, match="in use"), lock_folder(tmp_path, ValueError("in use")):
        pass
    monkeypatch.setattr("shortlist._store.files.time.sleep", lambda seconds: holder.close())
    with lock_folder(tmp_path, ValueError("in use"), wait=60):
        with pytest.raises(ValueError, match="in use"), lock_folder(tmp_path, ValueError("in use")):
            pass
