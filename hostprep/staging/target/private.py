"""The private directory next to a data set, where copies grow until they are complete.

``PARENT/.hostprep-NAME`` (mode 0700) holds ``tree``, the copies; ``journal.*``, what is copied and
verified; and ``info.json``, what the work is for. It is on the target itself, so that publishing is
a single rename, and so that a tmpfs loses the journal together with the copies at a reboot.

Others may be able to write to PARENT, and put anything under that name at any time: ``owned``
decides whether it is ours, and everything in it is reached and removed through descriptors only.
``info.json`` is the first thing in it and the last to be removed, so that what a killed run leaves
can always be recognized.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterable

from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.staging.model import Entry
from hostprep.staging.record.manifest import FORMAT
from hostprep.staging.target.held import hold, let_go, locked, open_held
from hostprep.staging.target.owned import (
    INFO,
    OTHERS_WRITE,
    not_private,
    open_own,
    private_name,
    read_info,
)
from hostprep.staging.tree import walk
from hostprep.system.descriptors import closed_on_error, closing_fd
from hostprep.system.locks import Locked
from hostprep.system.trees import (
    DIRECTORY_FLAGS,
    empty_tree,
    names_in,
    remove_directory,
    without_setgid,
)

TREE = "tree"


@dataclass(frozen=True, slots=True)
class PrivateDir:
    """An open private directory. ``resumable``: an earlier run's work can be taken over.

    ``then`` is what the next run does with what this one leaves in it, None if unknown.
    """

    parent_fd: int
    fd: int
    tree_fd: int
    name: str
    resumable: bool
    then: str | None = None

    def journals(self) -> list[str]:
        """Return paths by which the journals in it can be opened."""
        return journals_in(self.fd)

    def replace_journals(self, lines: Iterable[bytes]) -> None:
        """Replace all journals by one, of the work of an earlier run that is still valid."""
        old = _journal_names(self.fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open("resumed", flags, 0o600, dir_fd=self.fd), "wb") as file:
            for line in lines:
                file.write(line)
        # The new one is in place before the old ones are removed; duplicate records do no harm.
        fresh = f"journal.resumed.{os.urandom(4).hex()}"
        os.rename("resumed", fresh, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        for name in old:
            try:
                os.unlink(name, dir_fd=self.fd)
            except OSError as error:  # a damaged file system may not even let it be removed
                error.filename = f"{self.name}/{name}"
                raise

    def remove(self) -> bool:
        """Remove everything in it, and itself; return False if its name is now another's."""
        return remove_opened(self.parent_fd, self.name, self.fd)

    def close(self) -> None:
        """Close its descriptors; the parent's remains the caller's."""
        let_go(self.fd)
        os.close(self.tree_fd)
        os.close(self.fd)


def journals_in(descriptor: int) -> list[str]:
    """Return paths by which the journals in an open private directory can be opened."""
    return [f"/proc/self/fd/{descriptor}/{name}" for name in sorted(_journal_names(descriptor))]


def _journal_names(descriptor: int) -> list[str]:
    return [name for name in names_in(descriptor) if name.startswith("journal.")]


def open_resumable(parent_fd: int, purpose: dict[str, str]) -> int | None:
    """Return a descriptor of the private directory if it holds work that can be taken over.

    The earlier run's purpose must equal ``purpose``, see ``planning.purpose_of``. Changes nothing.
    Raises ``Refused`` if something that is not ours has the name.
    """
    descriptor = open_own(parent_fd, purpose["target"])
    if descriptor is None:
        return None
    if read_info(descriptor) != {**purpose, "format": FORMAT}:
        os.close(descriptor)
        return None
    return descriptor


def is_there(parent_fd: int, target: str) -> bool:
    """Return whether the data set at ``target`` has a private directory, whatever its purpose.

    Raises ``Refused`` if something that is not ours has the name.
    """
    descriptor = open_own(parent_fd, target)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def open_or_make(parent_fd: int, target: str) -> int:
    """Return a descriptor of the private directory, creating it if there is none.

    Raises ``Refused`` if something that is not ours has the name, ``Locked`` if another run is at
    work in it.
    """
    descriptor = open_held(parent_fd, target)
    if descriptor is None:
        return _make(parent_fd, {"target": target})
    with closed_on_error(descriptor):
        if read_info(descriptor) is None:  # a run was killed while creating it
            _claim(descriptor, {"target": target})
    return descriptor


def prepare(
    parent_fd: int,
    purpose: dict[str, str],
    then: str | None = None,
    found: int | None = None,
    on_removed: Callable[[], None] | None = None,
) -> PrivateDir:
    """Open the private directory for work, and empty it if its work cannot be taken over.

    ``then`` is what the next run does with what this one leaves in it. ``found`` is its descriptor
    by ``open_held``, if there was one then. ``on_removed`` is called for each entry removed.
    Raises ``Locked`` if another run is at work in it.
    """
    target = purpose["target"]
    if found is None:
        found = open_held(parent_fd, target)
    descriptor = _make(parent_fd, purpose) if found is None else found
    with closed_on_error(descriptor):
        resumable = found is not None and read_info(found) == {**purpose, "format": FORMAT}
        if found is not None and not resumable:
            _claim(found, purpose, on_removed)
        os.fchmod(descriptor, 0o700)  # somebody may have changed the mode of an earlier run's
        with contextlib.suppress(FileExistsError):
            os.mkdir(TREE, 0o700, dir_fd=descriptor)
        tree_fd = without_setgid(os.open(TREE, DIRECTORY_FLAGS, dir_fd=descriptor))
    name = private_name(os.path.basename(target))
    return PrivateDir(parent_fd, descriptor, tree_fd, name, resumable, then)


def _make(parent_fd: int, purpose: dict[str, str]) -> int:
    """Create the private directory and return its descriptor."""
    name = private_name(os.path.basename(purpose["target"]))
    try:
        os.mkdir(name, 0o700, dir_fd=parent_fd)
    except FileExistsError:  # there was none a moment ago
        raise locked(purpose["target"], "is") from None
    try:
        descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    except PermissionError:
        # The target's default ACL, or the umask, does not let this user into what they create
        # there. If it stayed behind, the next run would take it for somebody else's.
        with contextlib.suppress(OSError):
            here = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
            if here.st_uid == os.geteuid() and here.st_mode & 0o700 != 0o700:
                os.rmdir(name, dir_fd=parent_fd)
        raise
    try:
        hold(descriptor, purpose["target"])
        # The target's owner can replace a directory that was just created by one of theirs, whose
        # contents would remain theirs.
        if names_in(descriptor):
            raise not_private(name, os.fstat(descriptor).st_uid)
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & OTHERS_WRITE:
            remove_directory(parent_fd, name, descriptor)
            raise Refused(
                "the target's file system lets others write to every directory, and so to the one"
                " that holds unfinished copies; nothing was changed.",
                "mount it with umask=022, or choose one that has modes (ext4, XFS, a tmpfs)",
            )
        _claim(descriptor, purpose)
    except BaseException as error:
        if isinstance(error, OSError):  # for instance a full disk: an empty directory need not stay
            error.filename = error.filename or name  # errors of calls by descriptor have none
            with contextlib.suppress(OSError):
                remove_opened(parent_fd, name, descriptor)
        os.close(descriptor)
        raise
    return descriptor


def _claim(
    descriptor: int, purpose: dict[str, str], on_removed: Callable[[], None] | None = None
) -> None:
    """Empty an open directory that is ours, and first of all write down what it is for."""
    empty_tree(descriptor, last=INFO, on_removed=on_removed)
    if not _own(descriptor):
        raise not_private(private_name(os.path.basename(purpose["target"])), None)
    _forget_default_acl(descriptor)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(INFO, flags, 0o600, dir_fd=descriptor), "wb") as file:
        file.write(json.dumps({**purpose, "format": FORMAT}).encode("ascii"))
        file.flush()
        # If a power cut left the file empty, everything else here would not count as ours.
        os.fsync(file.fileno())


def _own(descriptor: int) -> bool:
    """Give an open directory our own user, group and mode; return whether it is empty.

    A mount with ``grpid`` would pass the target's group on to the copies.
    """
    try:
        os.fchown(descriptor, os.geteuid(), os.getegid())
    except OSError:
        pass  # a file system without owners
    os.fchmod(descriptor, 0o700)
    return not names_in(descriptor)


def _forget_default_acl(descriptor: int) -> None:
    """Remove the inherited default ACL: copies have the access rights of their source."""
    try:
        os.removexattr(descriptor, "system.posix_acl_default")
    except OSError:
        pass  # it has none, or its file system has none


def footprint(parent_fd: int, dataset: str) -> tuple[int, int]:
    """Return (bytes, inodes) that a data set's private directory takes, (0, 0) without one."""
    size_bytes = inodes = 0
    with contextlib.suppress(OSError):  # what cannot be looked at is not counted
        name = private_name(dataset)
        with closing_fd(os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)) as descriptor:
            for _, entries in walk(descriptor):
                for entry in map(Entry._make, entries):
                    inodes += 1
                    size_bytes += entry.blocks * 512 // max(1, entry.nlink)  # some FUSE say 0
    return size_bytes, inodes


def sweep(parent_fd: int, target: str) -> None:
    """Remove what a run left that was killed while it cleaned up after publishing.

    Raises ``Refused`` if something that is not ours has the name.
    """
    try:
        descriptor = open_held(parent_fd, target)
    except Locked:
        return  # the other run removes it itself
    if descriptor is None:
        return
    with closing_fd(descriptor):
        remove_opened(parent_fd, private_name(os.path.basename(target)), descriptor)


def remove_opened(
    parent_fd: int, name: str, descriptor: int, on_removed: Callable[[], None] | None = None
) -> bool:
    """Remove an open private directory with all its contents, which are ours alone.

    Returns False if somebody has moved it, empty by then, or has given its name to something else,
    which is left alone. ``on_removed`` is called for each entry that is removed.
    """
    empty_tree(descriptor, last=INFO, on_removed=on_removed)
    return remove_directory(parent_fd, name, descriptor)


def moved_away(parent: str, name: str) -> str:
    """Return a sentence about what ``remove_opened`` could not remove."""
    return (
        f"{parent}/{name} was moved or replaced by somebody: what was in it is removed, and what"
        " has its name now was left alone"
    )


def not_removed(parent: str, name: str, error: OSError) -> str:
    """Return a sentence that the private directory stays although everything is published."""
    return (
        f"{parent}/{name} could not be removed ({error.strerror}): all is staged, and the next"
        " `hostprep stage` or `apply` of it removes that"
    )
