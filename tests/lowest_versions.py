"""Print the lowest versions that pyproject.toml allows as requirements; CONTRIBUTING.md says what for."""

import re
from pathlib import Path

import tomllib

# `scale` stands apart: Ray asks for a newer pydantic. PyTorch is the one of constraints.txt.
EXTRAS = ("metrics", "data", "train", "export", "report", "serve")


def lowest_versions() -> list[str]:
    """The base install and its extras, each at the lowest version that is allowed."""
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for key in EXTRAS for one in extras[key])]
    bounds = [re.match(r"([\w.-]+)>=([\d.]+)", one) for one in wanted]
    return sorted({f"{found[1]}=={found[2]}" for found in bounds if found and found[1] != "torch"})


if __name__ == "__main__":
    print("\n".join(lowest_versions()))
