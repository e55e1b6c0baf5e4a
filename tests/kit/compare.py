"""Compare two trees entry by entry: what a copy must keep, checked without the copier's code."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_CHUNK_BYTES = 4 << 20
_KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink",
    stat.S_IFSOCK: "socket", stat.S_IFIFO: "fifo", stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}  # fmt: skip
_COPIED = ("file", "directory", "symlink")

Entries = dict[bytes, os.stat_result]


def differences(
    source: Path, target: Path, *, owners: bool, xattrs: bool = True, holes: bool = True
) -> list[str]:
    """Return how the tree ``target`` differs from a whole copy of ``source``; empty is good.

    Compared are, for the two directories themselves and every entry below: kind, permission bits
    (not of symlinks, which have none), size, content, modification time to the nanosecond, symlink
    targets, which files are hard links of each other, and where asked for owners, access ACLs and
    ``user.*`` attributes, and that holes did not become data. Sockets, fifos and devices must not
    be in the target. Access times are not compared: reading moves them.
    """
    wanted, found = _entries(os.fsencode(source)), _entries(os.fsencode(target))
    said: list[str] = []
    for name in sorted(wanted.keys() | found.keys()):
        if name in found and _kind(found[name]) not in _COPIED:
            said.append(f"{_show(name)}: a {_kind(found[name])} in the target")
        elif name not in wanted:
            said.append(f"{_show(name)}: in the target only")
        elif name in found:
            a, b = os.path.join(os.fsencode(source), name), os.path.join(os.fsencode(target), name)
            problems = _entry(a, b, wanted[name], found[name], owners, xattrs, holes)
            said.extend(f"{_show(name)}: {problem}" for problem in problems)
        elif _kind(wanted[name]) in _COPIED:
            said.append(f"{_show(name)}: missing in the target")
    linked, linked_there = _links(wanted), _links(found)
    for group in linked - linked_there:
        said.append(f"no longer hard links of each other: {_show_all(group)}")
    for group in linked_there - linked:
        said.append(f"hard links of each other in the target only: {_show_all(group)}")
    return said


def _entries(root: bytes) -> Entries:
    """Return what lstat says of everything below ``root``, by relative path; ``.`` is the root."""

    def stop(problem: OSError) -> None:
        raise problem

    entries = {b".": os.lstat(root)}
    for folder, folders, files in os.walk(root, onerror=stop):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            entries[os.path.relpath(path, root)] = os.lstat(path)
    return entries


def _entry(
    a: bytes,
    b: bytes,
    wanted: os.stat_result,
    found: os.stat_result,
    owners: bool,
    xattrs: bool,
    holes: bool,
) -> Iterator[str]:
    kind = _kind(wanted)
    if _kind(found) != kind:
        yield f"a {_kind(found)}, not a {kind}"
        return
    if kind != "symlink" and stat.S_IMODE(wanted.st_mode) != stat.S_IMODE(found.st_mode):
        yield f"mode {stat.S_IMODE(found.st_mode):04o}, not {stat.S_IMODE(wanted.st_mode):04o}"
    if wanted.st_mtime_ns != found.st_mtime_ns:
        yield f"modified at {found.st_mtime_ns} ns, not {wanted.st_mtime_ns}"
    if owners and (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
        yield f"owner {found.st_uid}:{found.st_gid}, not {wanted.st_uid}:{wanted.st_gid}"
    if kind == "symlink":
        if os.readlink(a) != os.readlink(b):
            yield f"points to {os.readlink(b)!r}, not {os.readlink(a)!r}"
        return
    if xattrs and (theirs := _user_xattrs(b)) != (ours := _user_xattrs(a)):
        yield f"attributes {theirs}, not {ours}"
    if kind == "file":
        if wanted.st_size != found.st_size:
            yield f"{found.st_size} bytes, not {wanted.st_size}"
        else:
            yield from _content(a, b, wanted, found, holes)


def _content(
    a: bytes, b: bytes, wanted: os.stat_result, found: os.stat_result, holes: bool
) -> Iterator[str]:
    with open(a, "rb", buffering=0) as ours, open(b, "rb", buffering=0) as theirs:
        position = 0
        while position < wanted.st_size:
            # Where both have a hole, both read as zeros: the kernel's word is good for that.
            starts = [_next_data(file.fileno(), position) for file in (ours, theirs)]
            position = min((start for start in starts if start is not None), default=wanted.st_size)
            here = os.pread(ours.fileno(), _CHUNK_BYTES, position)
            there = os.pread(theirs.fileno(), _CHUNK_BYTES, position)
            if here != there:
                pairs = enumerate(zip(here, there, strict=False))
                first = next((i for i, (x, y) in pairs if x != y), min(len(here), len(there)))
                yield f"other content from byte {position + first}"
                return
            position += len(here) or 1
        if holes:
            yield from _holes(ours.fileno(), wanted, found)


def _holes(source: int, wanted: os.stat_result, found: os.stat_result) -> Iterator[str]:
    """Say so where the target takes more space than the data, by more than its blocks explain.

    An island of data may touch two blocks of the target more than its size needs; a tmpfs with
    huge pages says by ``st_blksize`` how large those are.
    """
    islands, data_bytes, position = 0, 0, 0
    while (start := _next_data(source, position)) is not None:
        position = os.lseek(source, start, os.SEEK_HOLE)
        data_bytes += position - start
        islands += 1
    allowed = max(data_bytes, wanted.st_blocks * 512)
    allowed += 2 * (islands + 1) * max(found.st_blksize, 16 << 10)
    if found.st_blocks * 512 > allowed:
        yield f"takes {found.st_blocks * 512} bytes of space for {data_bytes} bytes of data"


def _next_data(file: int, position: int) -> int | None:
    try:
        return os.lseek(file, position, os.SEEK_DATA)
    except OSError:  # ENXIO: nothing but a hole from here on
        return None


def _user_xattrs(path: bytes) -> dict[str, bytes]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:  # a file system without attributes has none
        return {}
    return {
        name: os.getxattr(path, name, follow_symlinks=False)
        for name in names
        if name.startswith("user.") or name == "system.posix_acl_access"
    }


def _links(entries: Entries) -> set[frozenset[bytes]]:
    groups: dict[tuple[int, int], set[bytes]] = defaultdict(set)
    for name, found in entries.items():
        if stat.S_ISREG(found.st_mode):
            groups[found.st_dev, found.st_ino].add(name)
    return {frozenset(group) for group in groups.values() if len(group) > 1}


def _kind(found: os.stat_result) -> str:
    return _KINDS[stat.S_IFMT(found.st_mode)]


def _show(name: bytes) -> str:
    shown = repr(name)[1:]
    return shown if len(shown) < 120 else f"{shown[:70]}...{shown[-40:]}"


def _show_all(names: frozenset[bytes]) -> str:
    return ", ".join(sorted(map(_show, names)))
