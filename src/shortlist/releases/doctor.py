"""What is wrong with a folder of releases, file by file."""

from pathlib import Path

from shortlist.releases.releases import NAME, Releases, ReleasesError
from shortlist.runs.doctor import Finding, examine, with_leftovers

__all__ = ["examine_releases"]


def examine_releases(folder: str | Path) -> list[Finding]:
    """Check the list of releases, and every file of each model."""
    place = Releases(folder)
    try:
        every = place.all()
        current = place.current()
    except ReleasesError as error:
        return [Finding(NAME, str(error), "put it back from a copy")]
    found = []
    if current is None:
        found.append(Finding(NAME, "names no current release", "release a model"))
    for release in {one.version: one for one in every}.values():
        name, back = f"models/{release.version}", "put it back from a copy, or release it again"
        try:
            path = place.model_path(release)
        except ReleasesError as error:
            found.append(Finding(f"{name}/model.json", str(error), back))
            continue
        found += [Finding(f"{name}/{one.file}", one.what, one.remedy) for one in examine(path)]
    return with_leftovers(place.folder, found)
