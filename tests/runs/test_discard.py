"""The folder of a run that failed before its first epoch ended is removed as a whole, or left as it is."""

import os
import shutil

from shortlist.recipes.recipe import make_recipe
from shortlist.runs.folder import RunFolder
from tests.test_kills import TINY, files_of, in_a_child


def started_run(folder):
    run = RunFolder.create(folder / "run", make_recipe(TINY))
    (run.path / "checkpoints").mkdir()
    return run


def test_a_kill_in_the_removal_leaves_no_half_folder(tmp_path):
    run = started_run(tmp_path)
    wanted = files_of(tmp_path)

    def killed():
        def half(path, **_):
            for name in ("run.json", "run/run.json"):
                if os.path.exists(os.path.join(path, name)):
                    os.remove(os.path.join(path, name))
                    os._exit(9)

        shutil.rmtree = half  # in the child alone
        run.discard_if_untrained()

    assert in_a_child(killed, tmp_path, 10**9) == -1
    assert not run.path.exists()
    again = started_run(tmp_path)
    assert again.state == "started" and files_of(tmp_path) == wanted  # nothing is left of the first


def test_only_a_run_without_epochs_is_removed(tmp_path):
    run = started_run(tmp_path)
    (run.path / "checkpoints" / "last.ckpt").touch()
    run.discard_if_untrained()
    assert run.state == "started"
    (run.path / "checkpoints" / "last.ckpt").unlink()
    run.discard_if_untrained()
    assert list(tmp_path.iterdir()) == []
    run.discard_if_untrained()  # nothing is there, and that is no error


def test_a_run_that_another_process_goes_on_with_stays(tmp_path):
    run = started_run(tmp_path)
    with run.locked():
        in_a_child(run.discard_if_untrained, tmp_path)
        assert run.state == "started"
