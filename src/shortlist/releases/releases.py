"""A folder of releases: copies of models, and one file that says which is current and how it came to be.

The file is written under another name and renamed: whoever follows it sees one release or the next.
"""

import getpass
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from shortlist._files import lock_folder, replacing_folder, sweep
from shortlist._manifest import read_sealed, write_sealed
from shortlist.model.files import model_folder

__all__ = ["NAME", "Release", "Releases", "ReleasesError", "is_releases"]

NAME = "releases.json"
FORMAT = "shortlist releases 1"


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
        return next((one for one in self.all() if one.number == content["current"]), None)

    def history(self) -> list[dict[str, Any]]:
        """Return all that was done: which release became current, when and by whom."""
        return self._read()["history"]

    def model_path(self, release: Release) -> Path:
        """Return the folder of the copy of a model."""
        return self.folder / "models" / release.version

    def add(self, model: str | Path, *, who: str | None = None, **facts: Any) -> Release:
        """Copy a model here and make it the current one.

        Args:
            model: Folder of a saved model, or a run folder.
            who: Who promotes it; by default the name of the user of this machine.
            **facts: ``data``, ``frozen``, ``against``, ``checks`` of :class:`Release`.
        """
        source = model_folder(model)
        version = hashlib.sha256((source / "model.json").read_bytes()).hexdigest()[:12]
        index = Path(model) / "index"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            content = self._read()
            with suppress(FileExistsError), replacing_folder(self.folder / "models" / version) as temporary:
                shutil.copytree(source, temporary, dirs_exist_ok=True)
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
        """Make the release current that was so before the current one.

        Raises:
            ReleasesError: If there was none before.
        """
        with self._lock():
            content = self._read()
            numbers = [
                one["number"] for one in content["releases"] if one["number"] < (content["current"] or 0)
            ]
            if not numbers:
                raise ReleasesError(f"{self.folder} has no release before the current one")
            self._make_current(content, numbers[-1], who or _user(), "rolled back")
            return self.all()[numbers[-1] - 1]

    def _make_current(self, content: dict[str, Any], number: int, who: str, what: str) -> None:
        content["current"] = number
        content["history"].append({"number": number, "time": _now(), "who": who, "what": what})
        write_sealed(self.folder / NAME, content)

    def _read(self) -> dict[str, Any]:
        path = self.folder / NAME
        if not path.exists():
            return {"format": FORMAT, "current": None, "releases": [], "history": []}
        try:
            content = read_sealed(path)
        except (OSError, ValueError) as error:
            raise ReleasesError(str(error)) from error
        if content.get("format") != FORMAT:
            raise ReleasesError(f"{path} was written by another version: its format is not {FORMAT!r}")
        return content

    @contextmanager
    def _lock(self) -> Iterator[None]:
        in_use = ReleasesError(f"{self.folder} is in use: another process writes to it")
        with lock_folder(self.folder, in_use):
            sweep(self.folder)
            yield


def is_releases(folder: str | Path) -> bool:
    """Whether a folder holds releases."""
    return (Path(folder) / NAME).exists()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "unknown"
