"""What ties files together: making, closing and recording hard links and directories."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress

from hostprep.staging.files.fatal import FATAL
from hostprep.staging.files.holding import (
    FOLDER_NAME,
    HARD_LINKS,
    THIS_NAME,
    holding,
    is_plain,
    is_unholdable,
    reason_of,
)
from hostprep.staging.model import Entry, Recorded
from hostprep.staging.plans.copy_plan import CopyPlan, HardLink
from hostprep.staging.reasons import ITS_HARD_LINK, TARGET_CANNOT, Skipped
from hostprep.staging.record import digest
from hostprep.staging.record.journal import record
from hostprep.staging.record.lines import encode_line, encode_record, join_line
from hostprep.staging.target.private import PrivateDir
from hostprep.staging.tasks import Copied
from hostprep.system.acls import ACCESS_ACL, narrowed
from hostprep.system.bounded import ask_in_child
from hostprep.system.forking import NoProcess
from hostprep.system.nfs4_acls import acl_over_nfs
from hostprep.system.trees import DirCache, above, join


def make_links(
    plan: CopyPlan,
    copied: Copied,
    private: PrivateDir,
    published_fd: int | None,
) -> list[bytes]:
    """Make the hard links of the plan in the private tree and return their manifest lines."""
    records: dict[str, list[str]] = {}
    not_copied = {problem.path: problem.reason for problem in copied.problems}
    with ExitStack() as stack:
        tree = stack.enter_context(DirCache(private.tree_fd, create=True))
        # Where to find the first of a group, in caches of their own, whose descriptors stay valid
        # while another cache is used.
        places = [stack.enter_context(DirCache(private.tree_fd, create=True))]
        if published_fd is not None:
            places.append(stack.enter_context(DirCache(published_fd)))
        for link in plan.links:
            path = join(link.directory, link.entry.name)
            try:
                entry, content = _link(link, path, copied, tree, places)
            except OSError as error:
                if error.errno in FATAL:  # the target as a whole has failed, not this entry
                    raise
                reason = f"the hard link to {link.primary} failed: {error.strerror}"
                if is_unholdable(error):
                    reason = f"{error.strerror} (to {link.primary})"
                elif link.kept is None and link.primary in not_copied:
                    reason = f"{not_copied[link.primary]}{ITS_HARD_LINK}{link.primary})"
                copied.problems.append(Skipped(path, reason, failed=True))
                continue
            if content is not None:
                term = digest.entry_term("f", path, content)
                copied.digest_sum = digest.add(copied.digest_sum, term)
            copied.files += 1
            copied.linked_bytes += entry.size
            made = encode_record(*record(entry, "f", content, link.primary))
            records.setdefault(link.directory, []).append(made)
    return [join_line(directory, made) for directory, made in records.items()]


def _link(
    wanted: HardLink,
    path: str,
    copied: Copied,
    tree: DirCache,
    places: list[DirCache],
) -> tuple[Entry, str | None]:
    """Make one link in ``tree``, to its primary in the first of the ``places`` that has it.

    Return the entry that it now has, as it was copied, and its content.
    """
    parent, _, name = wanted.primary.rpartition("/")
    directory, _, link = path.rpartition("/")
    # The primary was copied in this run, or it is in place from an earlier one. If copying it
    # failed, what is published under its name is not what is wanted.
    kept, made = wanted.kept, copied.linked.get(wanted.primary)
    if kept is None and (made is None or not _one_file(made[0], wanted.entry)):
        raise OSError(errno.ENOENT, "it was not copied, or is another file by now")
    candidates = places if kept is not None else places[:1]
    for place in candidates:
        try:
            source_dir = place.fd(parent)
            with holding(FOLDER_NAME, directory):
                target_dir = tree.fd(directory)
            _link_at(name, source_dir, link, target_dir)
        except FileNotFoundError:
            if place is candidates[-1]:
                raise
            continue
        break
    if kept is not None:
        return wanted.entry, kept.content
    assert made is not None
    entry, content = made
    return entry._replace(name=link), content


def _one_file(copied: Entry, other: Entry) -> bool:
    return (copied.dev, copied.ino) == (other.dev, other.ino)


def _link_at(name: str, source_dir: int, link: str, target_dir: int) -> None:
    """Make a hard link, replacing what an earlier run may have left there."""
    descriptors = {"src_dir_fd": source_dir, "dst_dir_fd": target_dir}
    try:
        with holding(HARD_LINKS):
            os.link(name, link, follow_symlinks=False, **descriptors)
    except FileExistsError:
        os.unlink(link, dir_fd=target_dir)
        with holding(HARD_LINKS):
            os.link(name, link, follow_symlinks=False, **descriptors)


def leave_out_unholdable(
    directories: dict[str, Entry],
    problems: Sequence[Skipped],
    tree_fd: int,
    published_fd: int | None,
) -> list[Skipped]:
    """Remove from ``directories`` those whose names the target cannot hold, and return them.

    A plain name is tried only if one of the ``problems`` is below it.
    """
    suspect = {each for item in problems if item.unholdable for each in above(item.path)}
    found: dict[str, Skipped] = {}
    with DirCache(tree_fd, create=True) as tree, ExitStack() as stack:
        there = None if published_fd is None else stack.enter_context(DirCache(published_fd))
        for path in directories:
            parent, _, name = path.rpartition("/")
            if parent in found:
                found[path] = Skipped(path, f"{TARGET_CANNOT}{FOLDER_NAME}", failed=True)
            elif path in suspect or not is_plain(name):
                if not path or (there is not None and _is_directory(there, path)):
                    continue
                try:
                    with holding(THIS_NAME, path):
                        tree.fd(path)
                except OSError as error:
                    if not is_unholdable(error):
                        raise
                    found[path] = Skipped(path, reason_of(error), failed=True)
    for path in found:
        del directories[path]
    return list(found.values())


def _is_directory(tree: DirCache, path: str) -> bool:
    try:
        tree.fd(path)
    except OSError:
        return False
    return True


def close_directories(
    paths: Iterable[str],
    directories: dict[str, Entry],
    source_fd: int,
    published_fd: int,
    inodes: Mapping[str, int] | None,
    *,
    on_wait: Callable[[float], None] | None,
) -> None:
    """Take from published directories rights that their source does not give, and wrong owners.

    This is done to ``paths`` before anything new is put into them, because files in a closed
    directory may be open themselves. It gives no rights: ``finish_directories`` does that, and
    reports what the target refuses; until then a directory that will be somebody else's is root's.
    If ``inodes`` are known, a directory with another inode than ours had is somebody else's, and
    left alone. With ``on_wait``, which is called every second, a child reads the source, because it
    may cease to answer.
    """
    paths = tuple(paths)
    if not paths:
        return

    acls = _source_acls(source_fd, paths, on_wait)
    with DirCache(published_fd) as tree:
        for path in paths:
            try:
                target = tree.fd(path)
                found = os.fstat(target)
            except OSError:
                continue  # it has yet to be made
            if inodes is not None and inodes.get(path) != found.st_ino:
                continue
            wanted_acl = bytes.fromhex(acls[path]) if path in acls else None
            _take_rights(target, found, directories[path], wanted_acl)


def _source_acls(
    source_fd: int, paths: Sequence[str], on_wait: Callable[[float], None] | None
) -> dict[str, str]:
    """Return the ACLs of directories of the source, in hex, by path."""

    def ask() -> dict[str, str]:
        with DirCache(source_fd) as source:
            found = ((path, _acl_of(source, path)) for path in paths)
            return {path: acl.hex() for path, acl in found if acl is not None}

    if on_wait is not None:
        with suppress(NoProcess):  # a limit: finish what has begun all the same
            acls: dict[str, str] = ask_in_child(
                ask, patience_seconds=math.inf, on_wait=on_wait, holding=source_fd
            )
            return acls
    return ask()


def _take_rights(
    target: int, found: os.stat_result, wanted: Entry, wanted_acl: bytes | None
) -> None:
    """Narrow an open directory's mode to what is ``wanted``; root replaces an owner who differs."""
    mode = stat.S_IMODE(found.st_mode)
    left = narrowed(mode, _acl(target), wanted.mode, wanted_acl)
    user = 0 if found.st_uid != wanted.uid else -1
    group = 0 if found.st_gid != wanted.gid else -1
    if os.geteuid() != 0:
        user = group = -1
    if group == 0:
        left &= ~0o070
    with suppress(OSError):
        if left != mode:
            os.fchmod(target, left)
    with suppress(OSError):
        if user == 0 or group == 0:
            os.fchown(target, user, group)


def _acl_of(tree: DirCache, path: str) -> bytes | None:
    with suppress(OSError):  # gone, or closed to us, since the scan
        return _acl(tree.fd(path)) or acl_over_nfs(tree.fd(path))
    return None


def _acl(directory_fd: int) -> bytes | None:
    with suppress(OSError):  # it has none, or its file system has none
        return os.getxattr(directory_fd, ACCESS_ACL)
    return None


def directory_lines(directories: dict[str, Entry], other_modes: dict[str, int]) -> list[bytes]:
    """Return the manifest lines of all directories; ``other_modes`` are those of the target."""
    by_parent: dict[str, list[Recorded]] = {}
    for path, entry in directories.items():
        parent, _, name = path.rpartition("/")
        found = Recorded(
            name or ".",
            "d",
            0,
            entry.mtime_ns,
            entry.mode & 0o7777,
            entry.uid,
            entry.gid,
            f"{other_modes[path]:o}" if path in other_modes else "",
        )
        by_parent.setdefault(parent, []).append(found)
    return [encode_line(parent, records) for parent, records in by_parent.items()]


def directory_digest(directories: dict[str, Entry]) -> int:
    """Return the sum of the digest terms of all directories."""
    total = 0
    for path in directories:
        total = digest.add(total, digest.entry_term("d", path, ""))
    return total
