"""Make lost files of a finished run again, from its checkpoints."""

import warnings

from shortlist._store.manifest import record_files
from shortlist.runs import RunError, RunFolder, damaged_files, read_checkpoint
from shortlist.training.callbacks import EpochMetrics, write_lines
from shortlist.training.stage import SECOND_STAGE, first_stage


def find_lost(run: RunFolder) -> list[str]:
    """Find the files of a finished run that are lost or damaged and can be made again from its best epoch.

    The lines of lost epochs are written again at once.

    Raises:
        RunError: If something is lost that nothing else in the run holds.
    """
    lost = damaged_files(run)
    for name in lost:
        if (run.path / name).is_dir():
            raise RunError(f"{run.path / name} is a folder where a file of the run belongs: move it away")
        if _is_source(name):
            raise RunError(
                f"{run.path / name} is missing or damaged, and nothing else in the run holds it: put it back "
                "from a copy, or train the run again"
            )
    if lost and "scores_from" in run.info:
        raise RunError(f"{run.path} was made of other scores: remove it, and run its suite again")
    if lost:
        warnings.warn(f"{run.path}: made again from the checkpoints: {', '.join(lost)}", stacklevel=2)
    for stage in (first_stage(run.read().recipe), SECOND_STAGE):
        if stage.epochs_file in lost:
            _restore_epochs(run, stage.folder, stage.epochs_file)
            lost.remove(stage.epochs_file)
    return lost


def prepare_remake(run: RunFolder) -> None:
    """Put a finished run back to the end of its training, without the files that follow from that.

    Files that the run did not write stay where they are.
    """
    rewriting = [name for name in run.info["files"] if not _is_source(name) and not name.endswith(".csv")]
    for name in [*rewriting, "model/model.json", "model/network.safetensors"]:
        (run.path / name).unlink(missing_ok=True)
    run.set_state("trained", rewriting=rewriting)


def _is_source(name: str) -> bool:
    """Return whether a file holds what nothing else in the run does."""
    return name == "recipe.yaml" or name.endswith(".ckpt")


def _restore_epochs(run: RunFolder, folder: str, file: str) -> None:
    """Write the lines of the epochs, which travel in the last checkpoint, and check them by the manifest."""
    callbacks = read_checkpoint(run.read().checked(f"{folder}/last.ckpt"))["callbacks"]
    write_lines(run.path / file, callbacks[EpochMetrics.__name__]["lines"])
    if record_files(run.path, [file])[file] != run.info["files"][file]:
        raise RunError(f"{run.path / file} could not be made again as it was")
