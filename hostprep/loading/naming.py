"""How the user and sentences name a loader; pure: names are checked before any child starts."""

from __future__ import annotations

import os

from hostprep.errors import Inconclusive, UsageError
from hostprep.units import format_count

FORM = "MODULE:NAME, the module as `import` takes it"
NOTEBOOK_HINT = (
    "a notebook cannot be imported: write what makes the loader to a module, with `%%writefile"
    " loaders.py` as the first line of its cell, and name that: --loader loaders:NAME"
)
OWN_LOADER = "hostprep recommend --loader MODULE:NAME"


class OwnLoaderWanted(Inconclusive):
    """The files alone do not tell what a sample is: only the user's own loader does.

    Asking again about the files gives the same answer.
    """


def with_so_many(workers: int) -> str:
    """Return in words with how many workers a loader is used."""
    return f"with {format_count(workers, 'worker')}" if workers else "without workers"


def parts_of(spec: str) -> tuple[str, str]:
    """Return module and name of ``MODULE:NAME``.

    Raises ``UsageError`` for anything else; for the path of a file it says what to write instead.
    """
    module, _, name = spec.partition(":")
    if not module or not name:
        hint = f"accepted: {FORM}"
        if module and not name:
            hint += (
                f"; here {_instead(f'{module}:NAME')}, NAME being what the loader is called there,"
                " or a function that returns it"
            )
        raise UsageError(f"{spec!r} names no loader.", hint)
    if module.endswith(".ipynb") or module == "__main__":  # `__main__` is what a class there says
        raise UsageError(f"{module} is no module that hostprep could import.", NOTEBOOK_HINT)
    if "/" in module or module.endswith(".py"):
        raise UsageError(
            f"{spec!r} names a file, not a module.", f"accepted: {FORM}; here {_instead(spec)}"
        )
    if not all(module.split(".")):
        raise UsageError(f"{module!r} is not the name of a module.", f"accepted: {FORM}")
    if "(" in name:
        raise UsageError(
            f"{name!r} is a call, not a name.",
            f"accepted: {FORM}; if it can be called, hostprep calls it, without arguments",
        )
    if "[" in name:
        raise UsageError(
            f"{name!r} is an item of something, not a name.",
            f"accepted: {FORM}; write a function of your own that returns it, and name that",
        )
    return module, name


def _instead(spec: str) -> str:
    """Return the name meant by a file's path: relative to here, or to a folder that it names."""
    path, _, name = spec.partition(":")
    path = os.path.normpath(path).removesuffix(".py")
    folder = ""
    if os.path.isabs(path) or path.startswith("../"):
        folder, path = os.path.split(path)
    told = f"{path.replace('/', '.')}:{name}"
    return f"{told}, run in {folder}" if folder else told
