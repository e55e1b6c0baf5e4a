"""Carry out a copy plan in the private tree: copy, link, check, and give directories their modes.

Nothing here touches what is published.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from hostprep.errors import HostprepError
from hostprep.staging import copying, digest
from hostprep.staging.batches import Batch, split_batches
from hostprep.staging.governor import Governor
from hostprep.staging.journal import record
from hostprep.staging.manifest import encode_line
from hostprep.staging.model import RANGE_BYTES, Entry, Recorded, Skipped, Verify, kind_of
from hostprep.staging.observer import Observer
from hostprep.staging.plan import CopyPlan, HardLink
from hostprep.staging.pool import OnResult, Pool, TaskFailed
from hostprep.staging.private import PrivateDir
from hostprep.staging.reading import Reading
from hostprep.staging.tree import DirCache, join
from hostprep.staging.worker import Job

# How much a task may exceed its size so that it ends with a directory.
_SLACK_FILES = 1024


@dataclass(slots=True)
class Copied:
    """What came of carrying out a plan; ``linked_bytes`` are those of hard links, beside ``bytes``.

    ``digest_sum`` covers everything that was copied.

    ``readers`` is how many were at work in the end, where their number was adapted; ``cpu_seconds``
    what this process and its workers spent on it.
    """

    files: int = 0
    bytes: int = 0
    linked_bytes: int = 0
    digest_sum: int = 0
    problems: list[Skipped] = field(default_factory=list)
    lost_xattrs: int = 0
    readers: int | None = None
    cpu_seconds: float = 0.0
    contents: dict[tuple[int, int], str | None] = field(default_factory=dict)

    def add(self, more: Copied) -> None:
        """Add what came of another plan."""
        self.files += more.files
        self.bytes += more.bytes
        self.digest_sum = digest.add(self.digest_sum, more.digest_sum)
        self.problems.extend(more.problems)
        self.lost_xattrs += more.lost_xattrs
        self.contents.update(more.contents)


def copy_all(
    plan: CopyPlan,
    source_fd: int,
    private: PrivateDir,
    *,
    verify: Verify,
    reading: Reading,
    gentle: bool,
    observer: Observer,
) -> Copied:
    """Copy what the plan says into the private tree, verified as asked, and journal it.

    Files that fail are in ``problems``; raises ``HostprepError`` for what ends the whole run, with
    the work so far kept for the next one.
    """
    job = Job(
        source_fd,
        private.tree_fd,
        private.fd,
        verify=verify,
        drop_behind=reading.drop_behind,
        look_ahead=reading.look_ahead,
        gentle=gentle,
    )
    copied = Copied()
    spent_before = _cpu_seconds()
    few = plan.copied.files <= 64 and plan.copied.bytes <= 16 * 1024 * 1024
    processes = 0 if few and not gentle else reading.processes
    try:
        with Pool(job, processes=processes, threads=reading.threads) as pool:
            tasks = _Tasks(pool, copied)
            governor = Governor(reading.readers) if reading.adapts else None

            def tick() -> None:
                observer.progress(copied.files, copied.bytes)
                if governor is not None:
                    pool.readers = governor.update(monotonic(), copied.files, copied.bytes)

            pool.run(tasks.all(plan, reading), tick)
        if governor is not None:
            copied.readers = governor.readers
    except TaskFailed as error:
        raise _explain(error) from error
    observer.progress(copied.files, copied.bytes)
    copied.cpu_seconds = _cpu_seconds() - spent_before
    return copied


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its workers that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


class _Tasks:
    """Turns a plan into tasks and their results into ``Copied``."""

    def __init__(self, pool: Pool, copied: Copied) -> None:
        self._pool = pool
        self._copied = copied

    def all(self, plan: CopyPlan, reading: Reading) -> Iterator[tuple[str, Any, OnResult]]:
        """Yield large files first, since their ranges keep all workers busy to the end."""
        for directory, entry in plan.large:
            yield from self._large(directory, entry, attempt=1)
        # Two workers in one directory wait for each other's turn to create files in it. Where the
        # source answers at once, so that this is what they would wait for, tasks end with it.
        slow = reading.threads > 1
        slack = 0 if slow else _SLACK_FILES
        task_files = reading.task_files
        if slow:
            # Every reader is to have its share of a small set, and more than one task of it.
            task_files = min(task_files, max(1, plan.copied.files // (2 * reading.readers)))
        group: list[Batch] = []
        files = 0
        for batch in split_batches(plan.batches, task_files if slow else None):
            if files >= task_files and (
                files >= task_files + slack or batch.directory != group[-1].directory
            ):
                yield self._copy(group)
                group, files = [], 0
            group.append(batch)
            files += batch.files
        if group:
            yield self._copy(group)

    def _copy(self, batches: list[Batch]) -> tuple[str, Any, OnResult]:
        return "copy", [(batch.directory, batch.packed) for batch in batches], self._copied_batch

    def _copied_batch(self, result: Any) -> None:
        files, size_bytes, total, problems, linked, lost = result
        copied = self._copied
        copied.files += files
        copied.bytes += size_bytes
        copied.digest_sum = digest.add(copied.digest_sum, int.from_bytes(total, "big"))
        copied.lost_xattrs += lost
        copied.problems.extend(Skipped(path, reason, failed=True) for path, reason in problems)
        for dev, ino, content in linked:
            copied.contents[dev, ino] = content

    def _large(
        self, directory: str, entry: Entry, *, attempt: int
    ) -> Iterator[tuple[str, Any, OnResult]]:
        offsets = range(0, entry.size, RANGE_BYTES)
        digests: list[bytes] = [b""] * len(offsets)
        troubles: list[str] = []
        left = len(offsets)
        counted = 0

        def finish_range(index: int, length: int, result: Any) -> None:
            nonlocal left, counted
            digests[index], trouble = result
            left -= 1
            if trouble is not None:
                troubles.append(trouble)
            else:
                self._copied.bytes += length
                counted += length
            if left:
                return
            if troubles:
                fail(troubles[0])
            else:
                self._pool.submit("finish", (directory, tuple(entry), digests), finish_file)

        def finish_file(result: Any) -> None:
            total, content, trouble = result
            if trouble is not None:
                fail(trouble)
                return
            copied = self._copied
            copied.files += 1
            copied.digest_sum = digest.add(copied.digest_sum, int.from_bytes(total, "big"))
            if entry.nlink > 1:
                copied.contents[entry.dev, entry.ino] = content

        def fail(trouble: str) -> None:
            self._copied.bytes -= counted
            self._retry(directory, entry, attempt, trouble)

        for index, offset in enumerate(offsets):
            length = min(RANGE_BYTES, entry.size - offset)

            def on_result(result: Any, index: int = index, length: int = length) -> None:
                finish_range(index, length, result)

            yield "range", (directory, tuple(entry), offset, length), on_result

    def _retry(self, directory: str, entry: Entry, attempt: int, trouble: str) -> None:
        """Copy a large file once more, or report it."""
        path = join(directory, entry.name)
        reasons = {
            "changed": "changed while it was copied, twice",
            "differs": "read back differently from what was written, twice",
        }
        if attempt == 2 or trouble not in reasons:
            self._pool.submit("discard", (directory, entry.name), lambda _: None)
            reason = reasons.get(trouble, trouble)
            self._copied.problems.append(Skipped(path, reason, failed=True))
            return

        # One after the other: another worker must not remove what a third writes again.
        def on_discarded(_: Any) -> None:
            self._pool.submit("lstat", (directory, entry.name), on_lstat)

        def on_lstat(result: Any) -> None:
            if result is None:
                self._copied.problems.append(Skipped(path, "vanished", failed=True))
                return
            again = Entry._make(result)
            if again.size > RANGE_BYTES and kind_of(again.mode) == "f":
                for task in self._large(directory, again, attempt=2):
                    self._pool.submit(*task)
            else:
                self._copied.problems.append(Skipped(path, reasons["changed"], failed=True))

        self._pool.submit("discard", (directory, entry.name), on_discarded)


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
            entry = link.entry
            path = join(link.directory, entry.name)
            try:
                content = _link(link, path, copied, tree, published)
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
) -> str | None:
    parent, _, name = wanted.primary.rpartition("/")
    directory, _, link = path.rpartition("/")
    # The first of the group was copied in this run, or it is in place from an earlier one. Where
    # it was to be copied and failed, what is published under its name is not what is wanted.
    kept, inode = wanted.kept, (wanted.entry.dev, wanted.entry.ino)
    if kept is None and inode not in copied.contents:
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
    return copied.contents[inode] if kept is None else kept.content


def finish_directories(
    directories: dict[str, Entry], paths: list[str], source_fd: int, tree_fd: int
) -> int:
    """Give the directories ``paths`` of a tree their modes, owners, attributes and times.

    Deepest first, because work in a directory changes its time. Missing ones are made. Returns
    how many had attributes that the target cannot hold.
    """
    style = copying.CopyStyle(Verify.NONE, os.geteuid(), os.getegid(), os.geteuid() == 0)
    with DirCache(source_fd) as source, DirCache(tree_fd, create=True) as tree:
        for path in sorted(paths):
            tree.fd(path)
        for path in sorted(paths, key=lambda path: path.count("/") + bool(path), reverse=True):
            entry = directories[path]
            target = tree.fd(path)
            try:
                copying.copy_xattrs(source.fd(path), target, style)
                atime_ns = os.fstat(source.fd(path)).st_atime_ns
            except OSError:
                atime_ns = entry.mtime_ns  # gone, closed to us or failing since the scan
            if style.may_chown:
                os.fchown(target, entry.uid, entry.gid)
            os.fchmod(target, entry.mode & 0o7777)
            os.utime(target, ns=(atime_ns, entry.mtime_ns))
    return style.lost_xattrs


def directory_lines(directories: dict[str, Entry]) -> tuple[list[bytes], int]:
    """Return the manifest lines of all directories and the sum of their digest terms."""
    by_parent: dict[str, list[Recorded]] = {}
    total = 0
    for path, entry in directories.items():
        parent, _, name = path.rpartition("/")
        found = Recorded(
            name or ".", "d", 0, entry.mtime_ns, entry.mode & 0o7777, entry.uid, entry.gid, ""
        )
        by_parent.setdefault(parent, []).append(found)
        total = digest.add(total, digest.entry_term("d", path, ""))
    return [encode_line(parent, records) for parent, records in by_parent.items()], total


def sync_file_system(descriptor: int) -> None:
    """Write everything of the file system that holds ``descriptor`` to its disk (syncfs(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise HostprepError(
            f"the target's file system could not be written out: {os.strerror(code)}.",
            "nothing was published; look at the kernel's log for errors of the disk",
        )


def _explain(error: TaskFailed) -> HostprepError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HostprepError(
            "the target is full; nothing was published, and the copies so far are kept.",
            "make room or give the volume a larger size and run the same command again, "
            "or remove the copies with hostprep unstage",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return HostprepError(
            "too many open files; nothing was published.", "raise `ulimit -n`, or use --readers 1"
        )
    return HostprepError(f"copying failed: {error.message}; nothing was published.")
