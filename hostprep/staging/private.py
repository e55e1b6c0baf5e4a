"""The private directory beside a data set: where copies grow until they are whole.

``PARENT/.hostprep-NAME`` (mode 0700) holds ``tree``, the copies; ``journal.*``, what is copied and
verified; and ``info.json``, what the work is for. It lives on the target itself, so that publishing
is one rename, and so that after a reboot a tmpfs has lost the journal together with the copies.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from hostprep.errors import Refused
from hostprep.staging.manifest import FORMAT
from hostprep.staging.tree import DIRECTORY_FLAGS, names_in, remove_tree, walk

PREFIX = ".hostprep-"
TREE = "tree"


@dataclass(frozen=True, slots=True)
class PrivateDir:
    """An open private directory. ``resumable`` tells that an earlier run's work can be taken up."""

    parent_fd: int
    fd: int
    tree_fd: int
    name: str
    resumable: bool

    def journals(self) -> list[str]:
        """Return paths under which the journals in it can be opened."""
        names = sorted(name for name in names_in(self.fd) if name.startswith("journal."))
        return [f"/proc/self/fd/{self.fd}/{name}" for name in names]

    def replace_journals(self, lines: Iterable[bytes]) -> None:
        """Put one journal in place of all: what of an earlier run's work still counts."""
        old = [name for name in names_in(self.fd) if name.startswith("journal.")]
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open("resumed", flags, 0o600, dir_fd=self.fd), "wb") as file:
            for line in lines:
                file.write(line)
        # The new one is in place before the old ones go; twice the same record does no harm.
        fresh = f"journal.resumed.{os.urandom(4).hex()}"
        os.rename("resumed", fresh, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        for name in old:
            os.unlink(name, dir_fd=self.fd)

    def remove(self) -> None:
        """Remove the directory and everything in it; it is ours alone."""
        remove_tree(self.parent_fd, self.name)

    def close(self) -> None:
        """Close its descriptors; the parent's stays the caller's."""
        os.close(self.tree_fd)
        os.close(self.fd)


def private_name(dataset: str) -> str:
    """Return the name of a data set's private directory."""
    return PREFIX + dataset


def look(parent_fd: int, dataset: str, purpose: dict[str, str]) -> int | None:
    """Return a descriptor of the private directory if it holds work that can be taken up.

    ``purpose`` must be what the earlier run was for (source, target, boot). Changes nothing.
    Raises ``Refused`` where something that is not ours has the name.
    """
    descriptor = _open_own(parent_fd, dataset)
    if descriptor is None:
        return None
    if _info(descriptor) != {**purpose, "format": FORMAT}:
        os.close(descriptor)
        return None
    return descriptor


def is_there(parent_fd: int, dataset: str) -> bool:
    """Return whether a data set has a private directory, for whatever purpose it was made.

    Raises ``Refused`` where something that is not ours has the name.
    """
    descriptor = _open_own(parent_fd, dataset)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def open_or_make(parent_fd: int, dataset: str) -> int:
    """Return a descriptor of the private directory, which is made where there is none.

    Raises ``Refused`` where something that is not ours has the name.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(private_name(dataset), 0o700, dir_fd=parent_fd)
    descriptor = _open_own(parent_fd, dataset)
    if descriptor is None:  # it came and went
        raise _not_ours(dataset)
    return descriptor


def prepare(parent_fd: int, dataset: str, purpose: dict[str, str]) -> PrivateDir:
    """Open the private directory for work; make it anew where there is none to take up."""
    descriptor = look(parent_fd, dataset, purpose)
    name = private_name(dataset)
    resumable = descriptor is not None
    if descriptor is None:
        remove_tree(parent_fd, name)
        os.mkdir(name, 0o700, dir_fd=parent_fd)
        descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
        if not _own(descriptor):
            os.close(descriptor)
            raise _not_ours(dataset)
        _forget_default_acl(descriptor)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open("info.json", flags, 0o600, dir_fd=descriptor), "w") as file:
            json.dump({**purpose, "format": FORMAT}, file)
    try:
        os.mkdir(TREE, 0o700, dir_fd=descriptor)
    except FileExistsError:
        pass
    tree_fd = os.open(TREE, DIRECTORY_FLAGS, dir_fd=descriptor)
    return PrivateDir(parent_fd, descriptor, tree_fd, name, resumable)


def _own(descriptor: int) -> bool:
    """Make an open directory ours alone and of our own group; return whether nothing is in it.

    A mount with ``grpid`` would hand the target's group down to the copies. Who owns the target can
    put a directory of theirs in the place of one that was just made: what is in one stays theirs.
    """
    if names_in(descriptor):
        return False
    try:
        os.fchown(descriptor, os.geteuid(), os.getegid())
    except OSError:
        pass  # a file system without owners
    os.fchmod(descriptor, 0o700)
    return not names_in(descriptor)


def _forget_default_acl(descriptor: int) -> None:
    """Keep the target's default ACL out: copies have the access that their source has."""
    try:
        os.removexattr(descriptor, "system.posix_acl_default")
    except OSError:
        pass  # it has none, or its file system knows none


def footprint(parent_fd: int, dataset: str) -> tuple[int, int]:
    """Return (bytes, inodes) that a data set's private directory takes, (0, 0) without one."""
    try:
        descriptor = os.open(private_name(dataset), DIRECTORY_FLAGS, dir_fd=parent_fd)
    except OSError:
        return 0, 0
    size_bytes = inodes = 0
    try:
        for _, entries in walk(descriptor):
            inodes += len(entries)
            size_bytes += sum(entry.blocks * 512 // entry.nlink for entry in entries)
    except OSError:
        pass  # what cannot be looked at is not counted on
    finally:
        os.close(descriptor)
    return size_bytes, inodes


def sweep(parent_fd: int, dataset: str) -> None:
    """Remove what a run left that was killed after it had published, while it cleaned up.

    To be called once ``look`` has found that the directory is ours.
    """
    remove_tree(parent_fd, private_name(dataset))


def _open_own(parent_fd: int, dataset: str) -> int | None:
    try:
        descriptor = os.open(private_name(dataset), DIRECTORY_FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        return None
    except OSError:
        raise _not_ours(dataset) from None
    st = os.fstat(descriptor)
    if st.st_uid != os.geteuid() or stat.S_IMODE(st.st_mode) & 0o077:
        os.close(descriptor)
        raise _not_ours(dataset)
    return descriptor


def _info(descriptor: int) -> dict[str, str] | None:
    try:
        with open(os.open("info.json", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=descriptor)) as file:
            found = json.load(file)
            return found if isinstance(found, dict) else None
    except (OSError, ValueError):
        return None


def _not_ours(dataset: str) -> Refused:
    return Refused(
        f"{private_name(dataset)} on the target is not a private directory of this user; "
        "nothing was changed.",
        "look at what it is and move it away; to stage, another --name does as well",
    )
