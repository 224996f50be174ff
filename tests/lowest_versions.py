"""Print the lowest versions that pyproject.toml allows: what for is in docs/guides/install.md."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import tomllib

# `export` asks for a newer PyTorch, for which there is another torchvision: it is tried by itself
EXTRAS = ("metrics", "photos", "train", "pretrained", "report", "serve", "cluster")


def lowest_versions(extras: Sequence[str] = EXTRAS) -> list[str]:
    """The base install and some extras, each package at the lowest version that all of them allow."""
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    optional, lowest = project["optional-dependencies"], {}
    for one in [*project["dependencies"], *(one for extra in extras for one in optional[extra])]:
        if found := re.match(r"([\w.,\[\]-]+)>=([\d.]+)", one):
            version = tuple(map(int, found[2].split(".")))
            lowest[found[1]] = max(lowest.get(found[1], ()), version)
    return sorted(f"{name}=={'.'.join(map(str, version))}" for name, version in lowest.items())


if __name__ == "__main__":
    print("\n".join(lowest_versions(sys.argv[1:] or EXTRAS)))
