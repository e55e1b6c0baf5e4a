"""What holds files together: hard links, and directories with their modes, owners and times."""

from __future__ import annotations

import errno
import os
import stat

from hostprep.staging.files.metadata import CopyStyle, copy_xattrs, drop_xattrs
from hostprep.staging.model import Entry, Recorded, Skipped, Verify
from hostprep.staging.plans.copy_plan import CopyPlan, HardLink
from hostprep.staging.record import digest
from hostprep.staging.record.journal import record
from hostprep.staging.record.manifest import encode_line
from hostprep.staging.target.private import PrivateDir
from hostprep.staging.tasks import Copied
from hostprep.staging.tree import DirCache, join, staged_mode, writable


def make_links(
    plan: CopyPlan,
    copied: Copied,
    private: PrivateDir,
    published_fd: int | None,
) -> list[bytes]:
    """Make the hard links of the plan in the private tree and return their manifest lines."""
    lines = []
    with DirCache(private.tree_fd, create=True) as tree:
        published = DirCache(published_fd) if published_fd is not None else None
        for link in plan.links:
            path = join(link.directory, link.entry.name)
            try:
                entry, content = _link(link, path, copied, tree, published)
            except OSError as error:
                reason = f"the hard link to {link.primary} failed: {error.strerror}"
                copied.problems.append(Skipped(path, reason, failed=True))
                continue
            if content is not None:
                term = digest.entry_term("f", path, content)
                copied.digest_sum = digest.add(copied.digest_sum, term)
            copied.files += 1
            copied.linked_bytes += entry.size
            lines.append(encode_line(link.directory, [record(entry, "f", content, link.primary)]))
        if published is not None:
            published.close()
    return lines


def _link(
    wanted: HardLink,
    path: str,
    copied: Copied,
    tree: DirCache,
    published: DirCache | None,
) -> tuple[Entry, str | None]:
    """Make one link; return the entry that it now has, as it was copied, and its content."""
    parent, _, name = wanted.primary.rpartition("/")
    directory, _, link = path.rpartition("/")
    # The first of the group was copied in this run, or it is in place from an earlier one. Where
    # it was to be copied and failed, what is published under its name is not what is wanted.
    kept, inode = wanted.kept, (wanted.entry.dev, wanted.entry.ino)
    if kept is None and inode not in copied.linked:
        raise OSError(errno.ENOENT, "it was not copied, or is another file by now")
    candidates = [tree, published] if kept is not None and published is not None else [tree]
    for place in candidates:
        # Descriptors of a cache live until its next call, and the primary may be in the same one.
        source_dir = os.dup(place.fd(parent))
        try:
            target_dir = tree.fd(directory)
            try:
                os.unlink(link, dir_fd=target_dir)
            except FileNotFoundError:
                pass
            os.link(name, link, src_dir_fd=source_dir, dst_dir_fd=target_dir, follow_symlinks=False)
        except FileNotFoundError:
            if place is candidates[-1]:
                raise
            continue
        finally:
            os.close(source_dir)
        break
    if kept is not None:
        return wanted.entry, kept.content
    entry, content = copied.linked[inode]
    return entry._replace(name=link), content


def finish_directories(
    directories: dict[str, Entry], source_fd: int, tree_fd: int
) -> tuple[int, dict[str, int]]:
    """Give the directories of a tree their modes, owners, ACLs, attributes and times.

    Deepest first, because work in a directory changes its time. Missing ones are made. Returns
    how many had attributes that the target cannot hold, and the modes of those whose mode it made
    another one.
    """
    other_modes = {}
    style = CopyStyle(Verify.NONE, os.geteuid(), os.getegid(), os.geteuid() == 0)
    with DirCache(source_fd) as source, DirCache(tree_fd, create=True) as tree:
        for path in sorted(directories):
            tree.fd(path)
        for path in sorted(
            directories, key=lambda path: path.count("/") + bool(path), reverse=True
        ):
            entry = directories[path]
            target = writable(tree.fd(path))
            mode = entry.mode & 0o7777
            drop_xattrs(target)  # of an earlier run, which the source may not have any more
            try:
                mode = copy_xattrs(source.fd(path), target, mode, style)
                atime_ns = os.fstat(source.fd(path)).st_atime_ns
            except OSError:
                atime_ns = entry.mtime_ns  # gone, closed to us or failing since the scan
            if style.may_chown:
                os.fchown(target, entry.uid, entry.gid)
            os.fchmod(target, staged_mode(mode))
            os.utime(target, ns=(atime_ns, entry.mtime_ns))
            made = stat.S_IMODE(os.fstat(target).st_mode)
            if made != staged_mode(entry.mode & 0o7777):
                other_modes[path] = made
    return style.lost_xattrs, other_modes


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
