"""The files of onnxruntime-web, which run the network in a browser: from npm, or from a folder."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from shortlist._messages import one_line

VERSION = "1.30.0"
"""Version of the npm package onnxruntime-web."""
FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""Files of the package that an app needs: for the processor alone, which every device has."""
_INTEGRITY = (
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="  # SHA-512
)
_SECONDS = 600
_OTHERWISE = (
    f"Install Node.js with npm, or get onnxruntime-web {VERSION} elsewhere and name its folder with --runtime"
)


def copy_runtime(target: Path, folder: Path | None = None) -> None:
    """Put the files of the runtime into a new folder.

    Args:
        target: The new folder.
        folder: Folder that has them, or has them in ``dist``; the package is fetched by npm if ``None``.

    Raises:
        ValueError: If a file is missing, npm is not there or fails, or the package is not the known one.
    """
    target.mkdir()
    if folder is not None:
        _copy(folder, target)
        return
    with tempfile.TemporaryDirectory() as place:
        archive = _fetched(Path(place))
        with tarfile.open(archive) as package:
            for name in FILES:
                content = package.extractfile(f"package/dist/{name}")
                assert content is not None  # by the checksum, it is the known package
                _target_of(target, name).write_bytes(content.read())


def _copy(folder: Path, target: Path) -> None:
    """Copy the files of a package, or of another app, where modules have other names."""
    places = [folder, folder / "dist", folder / "package" / "dist", folder / "runtime"]
    place = next((place for place in places if (place / FILES[-1]).is_file()), folder)
    for name in FILES:
        kept = next((file for file in (place / name, _target_of(place, name)) if file.is_file()), None)
        if kept is None:
            raise ValueError(
                f"--runtime must be a folder with {', '.join(FILES)}, got {folder} without {name}"
            )
        shutil.copyfile(kept, _target_of(target, name))


def _target_of(folder: Path, name: str) -> Path:
    """Return where a file goes: many web servers do not know that .mjs is JavaScript, and browsers insist."""
    return folder / name.replace(".mjs", ".js")


def _fetched(place: Path) -> Path:
    """Fetch the package by npm, and check that it is the known one."""
    npm = shutil.which("npm")
    if npm is None:
        raise ValueError(
            f"an app needs onnxruntime-web, and npm, which fetches it, is not here. {_OTHERWISE}"
        )
    command = [npm, "pack", "--silent", "--ignore-scripts", f"onnxruntime-web@{VERSION}"]
    try:
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"npm did not fetch onnxruntime-web in {_SECONDS} s. {_OTHERWISE}") from None
    archive = next(place.glob("*.tgz"), None)
    if done.returncode or archive is None:
        why = one_line(done.stderr)[:300] or f"exit code {done.returncode}"
        raise ValueError(f"npm could not fetch onnxruntime-web {VERSION}: {why}. {_OTHERWISE}")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != _INTEGRITY:
        raise ValueError(
            f"npm fetched another onnxruntime-web {VERSION} than the known one: SHA-512 {digest}"
        )
    return archive
