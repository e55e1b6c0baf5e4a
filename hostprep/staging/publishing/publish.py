"""Makes copies visible: a new data set by a single rename, an update file by file."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from hostprep.errors import HostprepError
from hostprep.staging.files.directories import exchanged
from hostprep.staging.model import Entry, Recorded
from hostprep.staging.observer import Count, Observer
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.record.known import Known
from hostprep.staging.record.lines import decode_line
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.resuming import run_again
from hostprep.staging.target.private import TREE, PrivateDir
from hostprep.staging.target.spelling import Spelling
from hostprep.staging.tree import entry_at, walk
from hostprep.system.renaming import rename_new
from hostprep.system.trees import (
    DirCache,
    above,
    join,
    names_in,
    remove_tree,
    writable,
)

# Errors of removing a directory of ours that others have put something into, or have replaced.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ELOOP)


def publish_new(private: PrivateDir, parent_fd: int, name: str, root: Entry) -> None:
    """Move the private tree to its place, so that readers see the whole data set or none of it.

    Raises ``HostprepError`` if somebody has taken the name; then nothing was moved.
    """
    # Moving a directory requires write permission on it, which the source's mode may not include.
    mode = stat.S_IMODE(os.fstat(private.tree_fd).st_mode)
    os.fchmod(private.tree_fd, mode | 0o700)
    try:
        # rename(2) would silently replace an empty directory.
        rename_new(TREE, name, src_dir_fd=private.fd, dst_dir_fd=parent_fd)
    except FileExistsError:
        raise _appeared(name, private) from None
    st = os.fstat(private.tree_fd)
    os.fchmod(private.tree_fd, mode)
    os.utime(private.tree_fd, ns=(st.st_atime_ns, root.mtime_ns))


def check_places(
    plan: CopyPlan,
    private: PrivateDir,
    published_fd: int,
    manifest: ManifestIndex,
    spelling: Spelling,
    observer: Observer,
) -> None:
    """Raise ``HostprepError`` if somebody took a new file's place while it was copied.

    ``manifest`` is that of what is published. On file systems that fold names, something that is to
    be removed may be in the place, as ``a`` is in that of ``A``; something that stays may not.
    """
    going = {*plan.delete, *plan.delete_directories}
    around = {each for path in plan.foreign for each in above(path.rstrip("/"))}

    def takes(tree: DirCache, path: str) -> bool:
        """Whether something that will be removed has this name in another spelling."""
        other = _other_spelling(tree, path, spelling) if spelling.folds else None
        if other is not None and (other not in going or other in around):
            raise HostprepError(
                f"{path} of the source and {other} on the target are the same name to its file"
                " system; nothing was published.",
                f"move {other} away, or rename {path} in the source, and {run_again(private.then)}",
            )
        return other is not None

    observer.phase("compare", files=_placed_files(plan))
    count = Count(observer)
    with DirCache(published_fd) as tree:
        for directory, names in _prepared(private.tree_fd):
            if takes(tree, directory):
                continue
            for some, known in manifest.of(directory, names):
                try:
                    target_dir = tree.fd(directory)
                except OSError:
                    count.add(len(some))
                    continue  # it has yet to be made
                # Collect all first: looking for other spellings uses the same open directories.
                for name in list(_taken(some, known, target_dir, count)):
                    if not takes(tree, join(directory, name)):
                        raise _appeared(join(directory, name), private)


def _taken(names: Iterable[str], known: Known, target_dir: int, count: Count) -> Iterator[str]:
    """Yield the new files' names that are taken on the target by something that is not ours."""
    versions, promised = known.versions(), known.promised()
    for name in names:
        count.add()
        if name in versions and name not in promised:
            continue
        here = entry_at(name, target_dir)
        if here is not None and not _is_one_of(versions.get(name, ()), here):
            yield name


def _other_spelling(tree: DirCache, path: str, spelling: Spelling) -> str | None:
    """Return what is listed in the place of a path, or of a directory above it, on the target.

    None if that is the path itself, or nothing.
    """
    parent = ""
    for name in path.split("/") if path else ():
        try:
            descriptor = tree.fd(parent)
            os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        names = names_in(descriptor)
        if name not in names:
            alike = (other for other in names if spelling.key(other) == spelling.key(name))
            return join(parent, next(alike, name))
        parent = join(parent, name)
    return None


def publish_update(
    plan: CopyPlan,
    private: PrivateDir,
    published_fd: int,
    manifest: ManifestIndex,
    observer: Observer,
    changing: Iterable[str] = (),
    inodes: dict[str, int] | None = None,
) -> list[str]:
    """Delete and replace in the published tree; return what was not removed.

    First what is gone, so that a directory can take a file's place, then each new file by one
    rename. A directory that contains anything of somebody else's stays, and so does a file that
    somebody has put in the place of one of ours since the plan. ``manifest`` is the one from
    before. ``changing`` are directories that are missing or differ. ``inodes`` are those that our
    directories had; new ones are added to it; None if they mean nothing.
    Raises ``HostprepError`` if somebody took the place of a new file or directory: it is left
    alone, and the remaining copies stay where they are for the next run.
    """
    observer.phase("publish", files=len(plan.delete) + _placed_files(plan))
    count = Count(observer)
    left = [
        *_delete_files(plan, published_fd, manifest, count),
        *_delete_directories(plan, published_fd),
    ]
    with (
        DirCache(published_fd, create=True) as tree,
        DirCache(private.tree_fd, create=True) as prepared,
    ):
        _make_directories(plan, private, tree, changing, inodes)
        for directory, names in _prepared(private.tree_fd):
            target_dir, prepared_dir = writable(tree.fd(directory)), prepared.fd(directory)
            inode = os.fstat(target_dir).st_ino
            if inodes is not None and inodes.get(directory, inode) != inode:
                raise HostprepError(
                    f"{exchanged(directory)}.",
                    f"move it away and {run_again(private.then)}",
                )
            for some, known in manifest.of(directory, names):
                versions, promised = known.versions(), known.promised()
                for name in some:
                    count.add()
                    ours = versions.get(name, ())
                    if ours and ours[-1].kind != "d" and name not in promised:
                        os.rename(name, name, src_dir_fd=prepared_dir, dst_dir_fd=target_dir)
                    elif not _place(name, prepared_dir, target_dir, ours):
                        raise _appeared(join(directory, name), private)
    return left


def _make_directories(
    plan: CopyPlan,
    private: PrivateDir,
    tree: DirCache,
    paths: Iterable[str],
    inodes: dict[str, int] | None,
) -> None:
    """Make the missing directories, and add them to our ``inodes``."""
    for path in paths:
        made = tree.fd(path)
        if path not in plan.inodes and names_in(made):  # a new directory is empty
            raise _appeared(path, private)
        if inodes is not None:
            inodes.setdefault(path, os.fstat(made).st_ino)


def _delete_files(
    plan: CopyPlan, published_fd: int, manifest: ManifestIndex, count: Count
) -> Iterator[str]:
    """Remove the published files that are gone; yield those that somebody else has changed."""
    with DirCache(published_fd) as tree:
        for parent, paths in itertools.groupby(plan.delete, lambda path: path.rpartition("/")[0]):
            try:
                target_dir = tree.fd(parent)
            except FileNotFoundError:
                continue  # somebody was faster
            for names, known in manifest.of(parent, [path.rpartition("/")[2] for path in paths]):
                here = {name: entry for name in names if (entry := entry_at(name, target_dir))}
                records = known.records(here)
                for name in names:
                    count.add()
                    # Look again right before removing it: the others in the directory took time.
                    entry = entry_at(name, target_dir) if name in here else None
                    if entry is None:
                        continue
                    if name in records and not records[name].present_as(entry):
                        yield join(parent, name)
                    else:
                        os.unlink(name, dir_fd=writable(target_dir))


def _delete_directories(plan: CopyPlan, published_fd: int) -> Iterator[str]:
    """Remove the published directories that are gone, deepest first; yield those that stay.

    Only others' doing makes one stay. Raises OSError for what may be over at the next run: a
    directory that stays is no longer on record, and nobody would remove it any more.
    """
    for path in sorted(plan.delete_directories, key=lambda path: path.count("/"), reverse=True):
        parent, _, name = path.rpartition("/")
        with DirCache(published_fd) as tree:
            try:
                os.rmdir(name, dir_fd=writable(tree.fd(parent)))
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                yield path


def _place(name: str, prepared_dir: int, target_dir: int, promised: Sequence[Recorded]) -> bool:
    """Move a new file to its place; return False if somebody has taken that.

    If what is there was once ``promised``, a run that was killed had already put it there.
    """
    try:
        rename_new(name, name, src_dir_fd=prepared_dir, dst_dir_fd=target_dir)
    except FileExistsError:
        there = entry_at(name, target_dir)
        if there is None or stat.S_ISDIR(there.mode) or not _is_one_of(promised, there):
            return False
        os.rename(name, name, src_dir_fd=prepared_dir, dst_dir_fd=target_dir)
    return True


def _is_one_of(versions: Iterable[Recorded], here: Entry) -> bool:
    """Whether any run put ``here`` there: killed runs have each recorded their own version."""
    return any(known.present_as(here) for known in versions)


def discard(plan: CopyPlan, private: PrivateDir) -> None:
    """Remove from the private tree what an interrupted run left and this one does not want."""
    with DirCache(private.tree_fd, create=True) as tree:
        for path in plan.discard:
            parent, _, name = path.rpartition("/")
            parent_fd = writable(tree.fd(parent))
            try:
                mode = os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    remove_tree(parent_fd, name)
                else:
                    os.unlink(name, dir_fd=parent_fd)
            except FileNotFoundError:
                pass


def drop_unrecorded(private: PrivateDir, link_lines: Iterable[bytes]) -> None:
    """Remove from the private tree every file without a journal entry: it may be incomplete.

    ``link_lines`` are the manifest lines of hard links, which are in no journal. For runs that took
    over work or met problems; in other runs everything in the tree is recorded.
    """
    linked: dict[str, set[str]] = {}
    for directory, records in map(decode_line, link_lines):
        linked.setdefault(directory, set()).update(record.name for record in records)
    with (
        closing(ManifestIndex(private.journals())) as journal,
        DirCache(private.tree_fd, create=True) as tree,
    ):
        for directory, names in _prepared(private.tree_fd):
            links = linked.get(directory, set())
            for some, known in journal.of(directory, names):
                copied = known.records()
                for name in some:
                    if name not in copied and name not in links:
                        os.unlink(name, dir_fd=writable(tree.fd(directory)))


def _placed_files(plan: CopyPlan) -> int:
    """Return how many files are to be moved to their places, without those that failed."""
    return plan.copied.files + len(plan.links) + plan.resumed.files


def _prepared(tree_fd: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the directories of the private tree, with the names of everything else in them."""
    for directory, entries in walk(tree_fd, ours=True):
        yield directory, [entry[0] for entry in entries if not stat.S_ISDIR(entry[1])]


def _appeared(path: str, private: PrivateDir) -> HostprepError:
    return HostprepError(
        f"{path} appeared on the target while it was staged; it was left alone.",
        f"move it away and {run_again(private.then)}",
    )
