"""The folder of a run as files: its state and its manifest, the lock, and what was written to its end."""

import importlib.metadata
import os
import platform
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from shortlist._files import check_regular, is_temporary, lock_folder, remove_folder, sweep, sweep_below
from shortlist._manifest import RUN_FORMAT, check_file, read_run_manifest, record_files, write_sealed

__all__ = ["RunError", "RunFolder", "versions"]

# what a run is made of; the files of its model are in the manifest of that
_FILES = ("recipe.yaml", "epochs*.csv", "results*.json", "*/*.ckpt", "scores/*", "model/model.json")


class RunError(ValueError):
    """Raised if a folder is not a run, or cannot be used as asked."""


class RunFolder:
    """The folder of a run.

    ``run.json`` has the state of the run, and is the manifest: size and hash of each file, from the end of
    the training on. A file that is read is checked against it, so that no damage and no mix-up can change a
    number without a word.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._info: dict[str, Any] = {}
        self._info_file: tuple[int, ...] | None = None  # the file that it was read from or written to

    def discard_if_untrained(self) -> None:
        """Remove the folder if no epoch of the run is in it, and no other process works in it."""
        with suppress(OSError, ValueError), self.locked():  # why the run failed is what must be told
            if not any((self.path / "checkpoints").glob("*.ckpt")):
                remove_folder(self.path)

    @property
    def info(self) -> Mapping[str, Any]:
        """The content of ``run.json``, which is read again only if another writer has replaced the file."""
        if self._info_file is None or self._info_file != _identity(self.path / "run.json"):
            self.refresh()
            identity = _identity(self.path / "run.json")
            try:
                self._info = read_run_manifest(self.path)
            except ValueError as error:
                raise RunError(str(error)) from error
            self._info_file = identity
        return self._info

    def refresh(self) -> None:
        """Forget what was read, so that it is read again: other files are there now."""
        self._info_file = None

    def _write_info(self, info: dict[str, Any]) -> None:
        write_sealed(self.path / "run.json", info)
        self._info, self._info_file = info, _identity(self.path / "run.json")

    def set_state(self, state: str, *, rewriting: Collection[str] = (), **more: Any) -> None:
        """Write the state of the run: started, trained, finished, or calibrating if that is done again.

        A run that is trained or finished has its manifest from then on.

        Args:
            state: How far the run is.
            rewriting: The files in the manifest that will be written again or removed. What is known of all
                others stays as it is, so that damage is never taken into the manifest.
            more: What else to note.
        """
        known = (self.path / "run.json").is_file()
        info: dict[str, Any] = {**self.info} if known else {"format": RUN_FORMAT, "created": _now()}
        info |= {"state": state, "updated": _now(), **more}
        files = {name: record for name, record in info.get("files", {}).items() if name not in rewriting}
        if state in ("trained", "finished"):
            files |= record_files(self.path, [name for name in self.own_files() if name not in files])
        info["files"] = {} if state == "started" else files
        self._write_info(info)

    def own_files(self) -> list[str]:
        """Return the names of the files of the run that are there, but for those of its model."""
        found = {path for pattern in _FILES for path in self.path.glob(pattern) if path.is_file()}
        names = [path.relative_to(self.path) for path in sorted(found)]
        return [str(name) for name in names if not is_temporary(name)]

    def checked(self, name: str) -> Path:
        """Return the path of a file of the run, which must be the one that was written here.

        Raises:
            RunError: If it is missing, damaged, changed, or not of this run.
        """
        info, files = self.info, self.info["files"]
        try:
            if info["state"] != "finished" and name not in files:  # in the making
                if not (self.path / name).is_file():
                    raise ValueError(f"{self.path / name} is missing")
                check_regular(self.path / name, links=False)
                return self.path / name
            return check_file(self.path, name, files)
        except ValueError as error:
            raise RunError(f"{error}; shortlist doctor {self.path} says what can be done") from None

    def record(self, name: str) -> None:
        """Put a file that was written anew into the manifest, if there is one yet."""
        if self.state == "finished" or name in self.info["files"]:
            self._write_records(record_files(self.path, [name]))

    def announce(self, name: str, new: Mapping[str, Any]) -> None:
        """Let the manifest know a file as it is and as it will be, until :meth:`record` is called."""
        files = self.info["files"]
        if name in files:
            self._write_records({name: files[name] | {"next": new}})

    def _write_records(self, records: Mapping[str, Any]) -> None:
        self._write_info({**self.info, "files": {**self.info["files"], **records}})

    def is_written(self, name: str) -> bool:
        """Return whether a file that is there was written to its end: then the manifest has it."""
        return name in self.info["files"] or self.state != "finished"

    @property
    def state(self) -> str:
        """State of the run: started, trained, finished or calibrating."""
        return self.info["state"]

    def check_calibrated(self) -> None:
        """Refuse a run whose calibration was interrupted, since its predictors may not belong together."""
        if self.state == "calibrating":
            raise RunError(f"{self.path} was stopped while it was calibrated: calibrate it again")

    @contextmanager
    def locked(self, *, wait: float = 0.0) -> Iterator[None]:
        """Keep other processes from training in this folder; the lock ends with the process.

        Args:
            wait: Seconds to wait for another process that has the lock.
        """
        in_use = RunError(f"{self.path} is in use: another process is working in it")
        with lock_folder(self.path, in_use, wait=wait):
            sweep(self.path.parent)
            sweep_below(self.path)
            yield


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file is replaced; ``None`` if there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def versions() -> dict[str, str]:
    """Return the versions of the software that the run was made with."""
    found = {"python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    for package in ("shortlist", "torch", "lightning", "torchmetrics", "numpy", "pillow"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name()
    return found


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
