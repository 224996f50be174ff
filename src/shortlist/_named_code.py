"""Code that a file names, as ``package.module:function``: it is run only if the user says so."""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ALLOWED: set[str] = set()  # names that the user has let this process run
_ALL = "SHORTLIST_ALLOW_CODE"  # in the environment, since a command's processes may run what the command may


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


class UntrustedCodeError(ValueError):
    """Raised where a file names code that the user has not allowed; nothing was imported."""


def code_error(key: str, value: Any) -> UntrustedCodeError:
    """Return the refusal of code that a file names at a key, which says how to allow it."""
    return UntrustedCodeError(
        f"{key} is {value!r}, which can run code that does not come with shortlist: if you trust that code, "
        f"add --allow-code (in Python allow_code=True), or list its package under trusted_code in "
        f"{settings_file()}"
    )


def allow_code(name: str | None = None) -> None:
    """Let this process run ``package.module:function``, whatever file names it; ``None``: all such code.

    Only what the user says may call it, never what a file says.
    """
    if name is None:
        os.environ[_ALL] = "1"
    else:
        _ALLOWED.add(name)


def is_allowed(name: str) -> bool:
    """Whether the user has let this process run ``package.module:function``."""
    return name in _ALLOWED or _ALL in os.environ


@contextmanager
def code_of_command() -> Iterator[None]:
    """Take back at the end what a command allows meanwhile."""
    names, everything = set(_ALLOWED), os.environ.get(_ALL)
    try:
        yield
    finally:
        _ALLOWED.intersection_update(names)
        if everything is None:
            os.environ.pop(_ALL, None)


def allowed_code(key: str, name: str) -> Callable[..., Any]:
    """Import what ``package.module:function`` names, if the user has let this process run it.

    Raises:
        ValueError: If the user has not; nothing is imported then. Or as :func:`find_code`.
    """
    if not is_allowed(name):
        raise UntrustedCodeError(
            f"{key} is {name!r}, and what is opened never runs code that it names: if you trust that code, "
            f"add --allow-code (in Python shortlist.allow_code({name!r}))"
        )
    return find_code(key, name)


def find_code(key: str, name: str) -> Callable[..., Any]:
    """Import what ``package.module:function`` names, which runs its module.

    What the module prints then goes to stderr: stdout is for the results of a command.

    Raises:
        ValueError: If there is none, or its module cannot be imported; the message names the key.
    """
    module, _, function = name.partition(":")
    if not _MODULE.fullmatch(module) or not function.isidentifier():
        raise ValueError(f"{key} must be package.module:function, got {name!r}")
    try:
        with redirect_stdout(sys.stderr):
            code = getattr(importlib.import_module(module), function, None)
    except (Exception, SystemExit) as error:  # a module can fail in any way
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise ValueError(f"{key} needs {module}, which cannot be imported ({kind}{error})") from error
    if not callable(code):
        raise ValueError(
            f"{key} must be package.module:function, got {name!r}: {module} has no such function"
        )
    return code


def find_class(key: str, name: str, base: type) -> type[Any]:
    """Return the class that ``package.module:Class`` names, which must be one of a base.

    Raises:
        ValueError: If it is not, or as :func:`allowed_code`.
    """
    code = allowed_code(key, name)
    if not isinstance(code, type) or not issubclass(code, base):
        raise ValueError(
            f"{key} must name a class of {base.__module__}.{base.__name__}, got {name!r}: {code!r}"
        )
    return code
