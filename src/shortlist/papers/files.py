"""The recipes and suites of the publications, which come with the package."""

from difflib import get_close_matches
from pathlib import Path

PREFIX = "papers:"
"""What stands before the name of a recipe or suite of the publications, in the place of a file."""

_FOLDER = Path(__file__).parent


def recipes() -> list[str]:
    """Return the names of the recipes: one for each published experiment, with its own method.

    Example:
        >>> "cifar100_top5_noise" in recipes()
        True
    """
    return sorted(path.stem for path in (_FOLDER / "recipes").glob("*.yaml") if path.stem != "variants")


def suites() -> list[str]:
    """Return the names of the suites: one for each published table, with all its methods and seeds."""
    return sorted(path.stem for path in (_FOLDER / "suites").glob("*.yaml"))


def recipe_path(name: str) -> Path:
    """Return the file of a recipe or a suite of the publications.

    Example:
        >>> recipe_path("garcin2022_label_noise").name
        'garcin2022_label_noise.yaml'
    """
    for folder, names in (("recipes", recipes()), ("suites", suites())):
        if name in names:
            return _FOLDER / folder / f"{name}.yaml"
    near = get_close_matches(name, [*recipes(), *suites()], 1, 0.0)[0]
    raise ValueError(f"{PREFIX}{name} must name a recipe or a suite of 'shortlist papers', perhaps {near}")
