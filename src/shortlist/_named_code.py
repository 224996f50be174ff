"""Code that a file names, as ``package.module:function``: it is run only if the user says so."""

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def settings_file() -> Path:
    """Return the place of the user's settings: ``settings.yaml`` in their folder for settings."""
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    folder = given if given.is_absolute() else Path.home() / ".config"  # as its specification wants
    return folder / "shortlist" / "settings.yaml"


def trusted_packages() -> tuple[str, ...]:
    """Return the packages and modules that the user's settings trust: the list ``trusted_code``.

    Raises:
        ValueError: If the settings hold anything else; the message names the file.
    """
    path = settings_file()
    if not path.exists():
        return ()
    from shortlist._store.yaml import read_mapping  # which models are opened without

    content = read_mapping(path)
    if unknown := [key for key in content if key != "trusted_code"]:
        raise ValueError(f"{path} must have no other key than trusted_code, got {unknown[0]!r}")
    names = content.get("trusted_code")
    if not isinstance(names, list):
        raise ValueError(f"{path}: trusted_code must be a list of packages or modules, got {names!r}")
    for name in names:
        if not isinstance(name, str) or not _MODULE.fullmatch(name):
            raise ValueError(f"{path}: trusted_code must hold names such as my_package, got {name!r}")
    return tuple(names)


def is_trusted(name: str) -> bool:
    """Whether ``package.module:function`` is in a package or module that the user's settings trust."""
    module = name.partition(":")[0]
    return any(module == one or module.startswith(f"{one}.") for one in trusted_packages())


def code_error(key: str, value: Any) -> ValueError:
    """Return the refusal of code that a file names at a key, which says how to allow it."""
    return ValueError(
        f"{key} is {value!r}, which can run code that does not come with shortlist: if you trust that code, "
        f"add --allow-code (in Python allow_code=True), or list its package under trusted_code in "
        f"{settings_file()}"
    )


def find_code(key: str, name: str) -> Callable[..., Any]:
    """Import what ``package.module:function`` names, which runs its module.

    Raises:
        ValueError: If there is none, or its module cannot be imported; the message names the key.
    """
    module, _, function = name.partition(":")
    if not _MODULE.fullmatch(module) or not function.isidentifier():
        raise ValueError(f"{key} must be package.module:function, got {name!r}")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # a module can fail in any way
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise ValueError(f"{key} needs {module}, which cannot be imported ({kind}{error})") from error
    if not callable(found):
        raise ValueError(
            f"{key} must be package.module:function, got {name!r}: {module} has no such function"
        )
    return found
