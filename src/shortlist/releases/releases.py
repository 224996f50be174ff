"""A folder of releases: copies of models, and one file that says which is current and how it came to be.

The file is written under another name and renamed: whoever follows it sees one release or the next.
"""

import getpass
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from shortlist._store.files import lock_folder, replacing_folder, sweep
from shortlist._store.manifest import fault_of, read_sealed, write_sealed
from shortlist.model import examine_model, model_folder, model_version, read_manifest

NAME = "releases.json"
FORMAT = "shortlist releases 1"
_MODELS = "models"
_STEPS = ("released", "rolled back")
_VERSION = re.compile("[0-9a-f]{12}")


class ReleasesError(ValueError):
    """A folder of releases that cannot be used; the message names it and says what is wrong."""


@dataclass(frozen=True)
class Release:
    """A model that was promoted.

    Args:
        number: Its number, from 1.
        version: Start of the hash of its manifest, which names this very model.
        time: When it was promoted, in UTC.
        who: Who promoted it.
        source: Folder that it was copied from.
        data: What it was trained on, in words or as a folder.
        frozen: Data that it was judged on.
        against: Version of the model that it was compared with; empty for the first.
        index: Folder of its index of known images; empty if there is none.
        checks: What was compared, by name, in words.
    """

    number: int
    version: str
    time: str
    who: str
    source: str
    data: str = ""
    frozen: str = ""
    against: str = ""
    index: str = ""
    checks: Mapping[str, str] = field(default_factory=dict)


class Judged(NamedTuple):
    """What a gate looked at: the version of the new model, and the number of the release that was current."""

    version: str
    current: int | None


class Releases:
    """The releases of a folder.

    Args:
        folder: Folder, which is made with the first release.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def all(self) -> list[Release]:
        """Return all releases in their order."""
        return [Release(**entry) for entry in self._read()["releases"]]

    def current(self) -> Release | None:
        """Return the release that is served; ``None`` if there is none yet."""
        content = self._read()
        number = content["current"]
        return None if number is None else Release(**content["releases"][number - 1])

    def history(self) -> list[dict[str, Any]]:
        """Return all that was done: which release became current, when and by whom."""
        return self._read()["history"]

    def model_path(self, release: Release) -> Path:
        """Return the folder of the copy of a model.

        Raises:
            ReleasesError: If another model is there, or none.
        """
        path = self.folder / _MODELS / release.version
        try:
            is_same = model_version(path) == release.version
        except ValueError as error:
            raise ReleasesError(f"{error}: put it back from a copy, or roll back") from error
        if not is_same:
            raise ReleasesError(f"{path / 'model.json'} was changed: put it back from a copy, or roll back")
        return path

    def missing(self) -> list[Path]:
        """Return the folders of models that the list names and that are not there."""
        paths = dict.fromkeys(self.folder / _MODELS / one.version for one in self.all())
        return [path for path in paths if not path.is_dir()]

    def add(
        self, model: str | Path, *, who: str | None = None, judged: Judged | None = None, **facts: Any
    ) -> Release:
        """Copy a model here and make it the current one.

        Args:
            model: Folder of a saved model, or a run folder.
            who: Who promotes it; by default the name of the user of this machine.
            judged: What a gate looked at, which must be the same still.
            **facts: ``data``, ``frozen``, ``against``, ``checks`` of :class:`Release`.

        Raises:
            ReleasesError: If another model is in the folder than the one that was judged, if another
                release became current meanwhile, or if the copy is damaged.
        """
        source = model_folder(model)
        index = Path(model) / "index"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            content = self._read()
            if not (self.folder / NAME).exists():  # first, so that a list that is gone can be told
                write_sealed(self.folder / NAME, content)
            if judged is not None and judged.current != content["current"]:
                raise ReleasesError(
                    f"{self.folder} has another current release by now: judge the model again"
                )
            version = self._copy(source, judged)
            release = Release(
                number=len(content["releases"]) + 1,
                version=version,
                time=_now(),
                who=who or _user(),
                source=str(Path(model).resolve()),
                index=str(index.resolve()) if index.is_dir() else "",
                **facts,
            )
            content["releases"].append(asdict(release))
            self._make_current(content, release.number, release.who, "released")
        return release

    def roll_back(self, *, who: str | None = None) -> Release:
        """Make the release current that was so before the current one; one that was rolled back is not.

        Raises:
            ReleasesError: If there was none before, or its copy is damaged.
        """
        with self._lock():
            content = self._read()
            numbers = _standing(content["history"])
            if len(numbers) < 2:
                raise ReleasesError(f"{self.folder} has no release before the current one")
            release = Release(**content["releases"][numbers[-2] - 1])
            _check_whole(self.model_path(release), "put it back from a copy")
            self._make_current(content, release.number, who or _user(), "rolled back")
            return release

    def _copy(self, source: Path, judged: Judged | None) -> str:
        """Copy a model under its version, if it is not here yet; the copy is whole then."""
        version = model_version(source)
        if judged is not None and version != judged.version:
            raise ReleasesError(f"{source} was changed after it was judged: judge it again")
        place = self.folder / _MODELS / version
        if place.exists():
            again = f"remove {place} and release the model again"
            _check_whole(place, again)
            if model_version(place) != version:
                raise ReleasesError(f"{place / 'model.json'} was changed: {again}")
            return version
        files = read_manifest(source)
        for name, record in files.items():
            if fault := fault_of(source, name, record):
                raise ReleasesError(f"{source / name} {fault}: put the file back in {source}")
        with replacing_folder(place) as temporary:
            for name in ("model.json", *files):
                _copy_to_disk(source / name, temporary / name)
            _check_whole(temporary, "release the model again")
        return version

    def _make_current(self, content: dict[str, Any], number: int, who: str, what: str) -> None:
        content["current"] = number
        content["history"].append({"number": number, "time": _now(), "who": who, "what": what})
        write_sealed(self.folder / NAME, content)

    def _read(self) -> dict[str, Any]:
        path = self.folder / NAME
        if not path.exists():
            if is_releases(self.folder):
                raise ReleasesError(f"{path} is missing, and there are models: put it back from a copy")
            return {"format": FORMAT, "current": None, "releases": [], "history": []}
        try:
            content = read_sealed(path, FORMAT)
        except (OSError, ValueError) as error:
            raise ReleasesError(str(error)) from error
        if not _is_list_of_releases(content):
            raise ReleasesError(f"{path} was written by something else: it is no list of releases")
        return content

    @contextmanager
    def _lock(self) -> Iterator[None]:
        in_use = ReleasesError(f"{self.folder} is in use: another process writes to it")
        with lock_folder(self.folder, in_use):
            sweep(self.folder)
            sweep(self.folder / _MODELS)
            yield


def is_releases(folder: str | Path) -> bool:
    """Whether a folder holds releases, or held some and lost the list of them."""
    folder = Path(folder)
    models = folder / _MODELS
    held = models.is_dir() and any(_VERSION.fullmatch(path.name) for path in models.iterdir())
    return held or (folder / NAME).exists()


def _is_list_of_releases(content: Mapping[str, Any]) -> bool:
    """Whether the content is of the form that is written here; a folder may come from anywhere."""
    entries, history = content.get("releases"), content.get("history")
    if not isinstance(entries, list) or not isinstance(history, list):
        return False
    names = {one.name for one in fields(Release)}
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or entry.keys() != names or not _is_number(entry["number"], [number]):
            return False
        words = names - {"number", "checks"}
        if not all(isinstance(entry[name], str) for name in words) or not isinstance(entry["checks"], dict):
            return False
        if not _VERSION.fullmatch(entry["version"]):  # it is the name of a folder
            return False
    numbers = range(1, len(entries) + 1)
    for step in history:
        if not isinstance(step, dict) or step.get("what") not in _STEPS:
            return False
        if not _is_number(step.get("number"), numbers):
            return False
    standing = _standing(history)[-1:]
    return _is_number(content.get("current"), standing) if standing else content.get("current") is None


def _is_number(value: Any, allowed: Sequence[int]) -> bool:
    """Whether a value is one of some whole numbers; 1.0 and true are not 1."""
    return type(value) is int and value in allowed


def _standing(history: list[dict[str, Any]]) -> list[int]:
    """Return the releases that were not rolled back, the current one last."""
    found: list[int] = []
    for step in history:
        if step["what"] == "released":
            found.append(step["number"])
        else:
            del found[-1:]
    return found


def _check_whole(folder: Path, remedy: str) -> None:
    """Refuse a copy of a model that is not as its manifest says."""
    for finding in examine_model(folder):
        raise ReleasesError(f"{folder / finding.file} {finding.what}: {remedy}")


def _copy_to_disk(source: Path, goal: Path) -> None:
    """Copy a file; it is on disk before the list names it."""
    goal.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, goal, follow_symlinks=False)
    with goal.open("rb") as written:
        os.fsync(written.fileno())


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "unknown"
