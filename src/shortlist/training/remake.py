"""What a finished run has lost is made again from its checkpoints."""

import shutil
import warnings

from shortlist._manifest import record_files
from shortlist.runs.doctor import damaged_files
from shortlist.runs.network import read_checkpoint
from shortlist.runs.run import Run, RunError
from shortlist.training.callbacks import EpochMetrics, write_lines
from shortlist.training.stage import SECOND_STAGE, first_stage

__all__ = ["prepare_remake"]


def prepare_remake(run: Run) -> bool:
    """Put a finished run back to where it was trained, if it lost something that follows from that.

    Returns:
        Whether anything is to be made again. The lines of lost epochs are, at once.

    Raises:
        RunError: If something is lost that nothing else in the run holds.
    """
    lost = damaged_files(run)
    if not lost:
        return False
    for name in lost:
        if (run.path / name).is_dir():
            raise RunError(f"{run.path / name} is a folder where a file of the run belongs: move it away")
        if name == "recipe.yaml" or name.endswith(".ckpt"):
            raise RunError(
                f"{run.path / name} is missing or damaged, and nothing else in the run holds it: put it back "
                "from a copy, or train the run again"
            )
    if "scores_from" in run.info():
        raise RunError(f"{run.path} was made of other scores: remove it, and run its suite again")
    warnings.warn(f"{run.path}: made again from the checkpoints: {', '.join(lost)}", stacklevel=2)
    for stage in (first_stage(run.recipe), SECOND_STAGE):
        if stage.epochs_file in lost:
            _restore_epochs(run, stage.folder, stage.epochs_file)
    kept = [name for name in run.info()["files"] if name == "recipe.yaml" or name.endswith((".ckpt", ".csv"))]
    shutil.rmtree(run.model_path)
    for name in set(run.own_files()) - set(kept):
        (run.path / name).unlink()
    rewriting = set(run.info()["files"]) - set(kept)
    run.set_state("trained", rewriting=rewriting)
    return True


def _restore_epochs(run: Run, folder: str, file: str) -> None:
    """Write the lines of the epochs, which travel in the last checkpoint, and check them by the manifest."""
    callbacks = read_checkpoint(run.checked(f"{folder}/last.ckpt"))["callbacks"]
    write_lines(run.path / file, callbacks[EpochMetrics.__name__]["lines"])
    if record_files(run.path, [file])[file] != run.info()["files"][file]:
        raise RunError(f"{run.path / file} could not be made again as it was")
