"""Who owns what has the name of a data set's private directory; ``private`` works in it.

It is ours only if our own user owns it, nobody else can write to it, and its ``info.json`` names
the target.
"""

from __future__ import annotations

import errno
import os
import stat

from hostprep.errors import OF_A_DISK, OF_A_SERVER, Refused
from hostprep.staging.record.manifest import FORMAT
from hostprep.system.descriptors import closed_on_error
from hostprep.system.kept import parse_kept
from hostprep.system.trees import DIRECTORY_FLAGS, FILE_FLAGS, names_in

GONE = "removing"  # where a data set that nobody can see any more waits for its removal
INFO = "info.json"
_PREFIX = ".hostprep-"
# It does not matter if others can read it: exFAT and similar file systems show one mode for all,
# usually 0755. If others cannot write to it, nothing in it is theirs.
OTHERS_WRITE = 0o022
# Errors of opening a directory if its name is taken by something else, or by somebody else's. EPERM
# is not one of them: it comes from an encrypted directory whose disk is gone.
IN_THE_WAY = {errno.ENOTDIR, errno.ELOOP, errno.EACCES}
_NO_ANSWER = {*OF_A_DISK, *OF_A_SERVER, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_HINT = "see what it is and move it away; for staging, another --name works too"
_EARLY_HINT = (
    "early versions leave such a one where `hostprep unstage` is killed: if what is in it are"
    " copies of the data set, remove it and run the same command again"
)
_SPEC_HINT = "see what it is and move it away; for staging, another `name` works too"


def private_name(dataset: str) -> str:
    """Return the name of a data set's private directory."""
    return _PREFIX + dataset


def open_own(parent_fd: int, target: str) -> int | None:
    """Return a descriptor of the private directory of the data set at ``target``, None without one.

    Raises ``Refused`` if something that is not ours has the name: it has another owner, or others
    may write to it, or it was not made for this target. Raises OSError if the file system fails.
    """
    name = private_name(os.path.basename(target))
    try:
        descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in IN_THE_WAY:
            raise  # a failing disk, which says nothing about what is there
        raise not_private(name, _owner_of(parent_fd, name)) from None
    with closed_on_error(descriptor):
        st = os.fstat(descriptor)
        if st.st_uid != os.geteuid():
            raise not_private(name, st.st_uid)
        if stat.S_IMODE(st.st_mode) & OTHERS_WRITE:
            raise Refused(
                f"{name} on the target is not a private directory of this user: others can write "
                "it; nothing was changed.",
                "look at what it is and remove it; if its file system has no modes, mount that"
                " with umask=022 first",
            )
        if not _is_for(descriptor, target):
            info = read_info(descriptor) or {}
            ours = FORMAT.rpartition("/")[0] + "/"
            if info.get("target") == target and str(info.get("format")).startswith(ours):
                raise Refused(
                    f"{name} on the target is of another version of hostprep"
                    f" ({info['format']}); nothing was changed.",
                    "go on with that version, or unstage with it; or move it away",
                )
            said = (
                f"{name} on the target was not made by hostprep for {target}; nothing was changed."
            )
            if names_in(descriptor) == [GONE]:
                raise Refused(said, _EARLY_HINT)
            raise Refused(said, _HINT, spec_hint=_SPEC_HINT)
    return descriptor


def _is_for(descriptor: int, target: str) -> bool:
    """Whether an open directory was made for ``target``, or contains nothing that could be lost."""
    info = read_info(descriptor)
    if info is not None:
        return info.get("format") == FORMAT and info.get("target") == target
    names = names_in(descriptor)
    if names == [INFO]:  # a run was killed between creating and writing it
        st = os.stat(INFO, dir_fd=descriptor, follow_symlinks=False)
        return stat.S_ISREG(st.st_mode) and st.st_size == 0
    return not names


def read_info(descriptor: int) -> dict[str, str] | None:
    """Return what an open directory says that it is for, None if it has nothing readable."""
    try:
        with open(os.open(INFO, FILE_FLAGS, dir_fd=descriptor), "rb") as file:
            found = parse_kept(file.read())
            return found if isinstance(found, dict) else None
    except ValueError:
        return None
    except OSError as error:
        if error.errno in _NO_ANSWER:
            error.filename = error.filename or INFO  # errors of reading have none
            raise  # it may be a killed run's: do not let anybody empty or move it
        return None


def not_private(name: str, owner: int | None) -> Refused:
    """Return the refusal if something of ``owner`` has the ``name`` of a private directory."""
    said = f"{name} on the target is not a private directory of this user"
    if owner in (None, os.geteuid()):
        return Refused(f"{said}; nothing was changed.", _HINT, spec_hint=_SPEC_HINT)
    # The owner's copies may be growing there right now.
    return Refused(
        f"{said}: it belongs to uid {owner}, who may be staging there now; nothing was changed.",
        "for staging, use another --name; it is for them to remove what is left of their run",
        spec_hint="use another `name`; it is for them to remove what is left of their run",
    )


def _owner_of(parent_fd: int, name: str) -> int | None:
    """Return its owner, even if it may not be opened; None if unknown."""
    try:
        return os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_uid
    except OSError:
        return None
