"""Which epochs of a first stage a run has kept, for other runs to begin with."""

from pathlib import Path

from shortlist.recipes import Recipe, first_stage_content
from shortlist.runs.run import Run, RunError

_FOLDER = "checkpoints"


def kept_file(metric: str) -> str:
    """Return the name of the checkpoint of the best epoch by a further metric.

    Args:
        metric: The metric, as in ``selection.keep`` of the recipe.
    """
    return "last.ckpt" if metric == "last" else f"best_{metric}.ckpt"


def first_stage_files(run: Run, recipe: Recipe) -> dict[str, Path]:
    """Return the files of a run that a run of another recipe begins with, by their names there.

    These are the best epoch by the metric of that recipe, the last epoch, and the metrics of all epochs.

    Args:
        run: A finished run.
        recipe: The recipe of the other run. It may have another ``selection.metric``, of which the run has
            kept the best epoch, a second stage, and other keys that are used after the training.

    Raises:
        RunError: If the run is not finished, has another first stage, or did not keep that epoch.
    """
    if run.state != "finished":
        raise RunError(f"{run.path} is not finished: its state is {run.state!r}")
    made, asked = first_stage_content(run.recipe), first_stage_content(recipe)
    if changed := [key for key in asked if made.get(key) != asked[key]]:
        raise RunError(
            f"{run.path} was trained with another {changed[0]}: only selection.metric, second_stage and what "
            "follows from the scores may differ"
        )
    metric = recipe.selection.metric
    names = {"best.ckpt": "best.ckpt" if metric == run.recipe.selection.metric else kept_file(metric)}
    if f"{_FOLDER}/{names['best.ckpt']}" not in run.info["files"]:
        kept = ", ".join(dict.fromkeys([*run.recipe.selection.metrics, "last"]))
        raise RunError(
            f"{run.path} has not kept the best epoch by {metric}: it has {kept}. Train with "
            f"--set 'selection.keep=[{metric}]' to keep it"
        )
    files = {f"{_FOLDER}/{name}": f"{_FOLDER}/{source}" for name, source in names.items()}
    files |= {name: name for name in (f"{_FOLDER}/last.ckpt", "epochs.csv")}
    return {name: run.checked(source) for name, source in files.items()}
