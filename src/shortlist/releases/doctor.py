"""What is wrong with a folder of releases, file by file."""

from pathlib import Path

from shortlist._store.doctor import Finding, inside, with_leftovers
from shortlist.model import examine_model
from shortlist.releases.releases import NAME, Releases, ReleasesError


def examine_releases(folder: str | Path) -> list[Finding]:
    """Check the list of releases, and every file of each model."""
    place = Releases(folder)
    try:
        every = place.all()
        current = place.current()
    except ReleasesError as error:
        return [Finding(NAME, str(error), "put it back from a copy")]
    findings = []
    if current is None:
        findings.append(Finding(NAME, "names no current release", "release a model"))
    for release in {entry.version: entry for entry in every}.values():
        name, back = f"models/{release.version}", "put it back from a copy, or release it again"
        try:
            path = place.model_path(release)
        except ReleasesError as error:
            findings.append(Finding(f"{name}/model.json", str(error), back))
            continue
        findings += inside(name, examine_model(path))
    return with_leftovers(place.folder, findings)
