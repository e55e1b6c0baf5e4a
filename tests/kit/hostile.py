"""A data set with every kind of entry that a copier can trip over."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.kit.acls import ACCESS_ACL, access_acl

NAME_MAX = 255
_MANY = 20_000
_GIB = 1 << 30
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class HostileSet:
    """What was made below ``root``; names are paths relative to it, in bytes.

    ``copied``: files, directories and symlinks, which a copy must have, without the root itself.
    ``left_out``: sockets, fifos and devices, which it must not have.
    ``not_made``: what this user or this file system could not make, each with its reason.
    ``data_bytes``: the sum of the sizes less the holes, hard links counted once: what a copy
    that keeps both needs, but for blocks.
    """

    root: Path
    copied: frozenset[bytes]
    left_out: frozenset[bytes]
    not_made: tuple[str, ...]
    data_bytes: int


def make_hostile(root: Path, *, big: bool = True) -> HostileSet:
    """Make the set in ``root``, a new directory, and return what is in it.

    ``big`` adds files of 70 MiB and of 200 MiB and 3 bytes, and 20,000 files in one directory.
    Every call writes the same names and contents. Without root there are no other owners, no
    devices and no files or directories that their own owner cannot read.
    """
    maker = _Maker(os.fsencode(root))
    os.mkdir(root, 0o755)
    maker.sizes(big)
    maker.names()
    maker.directories()
    maker.modes()
    maker.symlinks()
    maker.hard_links()
    maker.sparse()
    maker.attributes()
    maker.acls()
    maker.owners()
    maker.special()
    maker.deep()
    if big:
        maker.many()
    maker.times()
    return maker.result(root)


class _Maker:
    def __init__(self, root: bytes) -> None:
        self._root = root
        self._dice = random.Random(20_2)
        self._not_made: list[str] = []

    def _at(self, name: bytes) -> bytes:
        return os.path.join(self._root, name)

    def _folder(self, name: bytes) -> bytes:
        os.makedirs(self._at(name), exist_ok=True)
        os.chmod(self._at(name), 0o755)
        return name

    def _file(self, name: bytes, content: bytes | None = None, mode: int = 0o644) -> bytes:
        """Write a file of ``content``, by default of its own name: no two files are alike."""
        with open(self._at(name), "xb") as file:
            file.write(name if content is None else content)
        os.chmod(self._at(name), mode)
        return name

    def _try(self, what: str, make: Callable[[], object]) -> None:
        """Make something that not every user or file system can."""
        try:
            make()
        except OSError as problem:
            refused = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSPC)
            if problem.errno not in (*refused, errno.ERANGE, errno.EOVERFLOW):
                raise
            self._not_made.append(f"{what}: {os.strerror(problem.errno)}")

    def sizes(self, big: bool) -> None:
        """Write sizes around the borders of blocks and of ranges."""
        folder = self._folder(b"sizes")
        sizes = [0, 1, 4095, 4096, 4097, 65536, 100_003, (1 << 20) - 1, 1 << 20, (1 << 20) + 1]
        sizes += [70 << 20, (200 << 20) + 3] if big else []
        for size_bytes in sizes:
            with open(self._at(folder + b"/%d" % size_bytes), "xb") as file:
                left = size_bytes
                while left:  # no chunk is like another, so that a swapped range is seen
                    left -= file.write(self._dice.randbytes(min(left, 1 << 20)))

    def names(self) -> None:
        """Write names that shells, decoders and parsers of lines trip over."""
        folder = self._folder(b"names")
        odd = [
            b"two\nlines", b"\n", b"tab\there", b"bell\x07 escape\x1b[31m", b"\x7f", b"\x01",
            b"-rf", b"--", b"-", b" leading", b"trailing ", b" ", b"it's", b'"quoted"',
            b"back\\slash", b"\\", b"\\040", b"\\n", b"*", b"?", b"[a-z]", b"{a,b}", b"$HOME",
            b"`id`", b"$(id)", b";", b"&", b"|", b"#", b"~", b"~root", b"%s", b"%00", b"!",
            b"...", b"..x", b".hidden", b":", b"=", b"@", b"CON", b"a", b"A",
            b".hostprep", b".hostprep-manifest.json", b"lost+found",
            "na\u00efve".encode(), "nai\u0308ve".encode(),  # look alike, are two
            "\u6570\u636e".encode(), "\U0001f525".encode(), "\u202egnp.exe".encode(),
            b"latin-\xe9", b"\xff", b"\xff\xfe\xfd", b"\xc3", b"cut\xe2\x82", b"\xed\xa0\x80",
            b"n" * NAME_MAX, b"\xff" * NAME_MAX, b"\n" * NAME_MAX, b"x" * (NAME_MAX - 4) + b".tmp",
        ]  # fmt: skip
        for name in odd:
            self._file(folder + b"/" + name)
        for name in (b"d\n", b"\xfe", b"-d", b" ", b"D" * NAME_MAX):
            self._file(self._folder(b"names as folders/" + name) + b"/inside")

    def directories(self) -> None:
        """Make empty directories, nested too, and one that only holds such."""
        self._folder(b"empty")
        self._folder(b"nested/and/empty")
        self._folder(b"nested/too")

    def modes(self) -> None:
        """Give files and directories unusual permissions."""
        folder = self._folder(b"modes")
        for mode in (0o400, 0o444, 0o600, 0o640, 0o664, 0o755, 0o4755, 0o2755, 0o1644, 0o7777):
            self._file(folder + b"/file-%04o" % mode, mode=mode)
        for mode in (0o500, 0o555, 0o700, 0o1777, 0o2775, 0o777):
            inside = self._folder(folder + b"/folder-%04o" % mode)
            self._file(inside + b"/inside")
            os.chmod(self._at(inside), mode)
        if os.geteuid() == 0:
            self._file(folder + b"/file-0000", mode=0)
            self._file(self._folder(folder + b"/folder-0000") + b"/inside")
            os.chmod(self._at(folder + b"/folder-0000"), 0)
        else:
            self._not_made.append("modes of 0000: their own owner could not read them")

    def symlinks(self) -> None:
        """Make links of every direction; none may be followed."""
        folder = self._folder(b"links")
        self._file(self._folder(folder + b"/folder") + b"/file")
        targets = {
            b"relative": b"folder/file", b"up": b"../sizes/4096", b"absolute": self._at(b"sizes"),
            b"outside": b"/etc/passwd", b"far outside": b"../../../../../../../../etc",
            b"dangling": b"no/such/thing", b"to a folder": b"folder", b"itself": b"itself",
            b"loop-1": b"loop-2", b"loop-2": b"loop-1", b"to its parent": b"..", b"dot": b".",
            b"to root": b"/", b"not utf-8": b"\xff\xfe/\xe9", b"newline": b"a\nb", b"space": b" ",
            b"long": b"l/" * 2000, b"to a link": b"relative", b"/folder/up and back"[1:]: b"../up",
        }  # fmt: skip
        for name, target in targets.items():
            os.symlink(target, self._at(folder + b"/" + name))

    def hard_links(self) -> None:
        """Make groups in a directory, across directories, of five, and one that leads outside."""
        folder = self._folder(b"hard")
        here, there = self._folder(folder + b"/here"), self._folder(folder + b"/there")
        groups = [
            (here + b"/a", here + b"/b"),
            (here + b"/across", there + b"/across"),
            tuple((here, there)[i % 2] + b"/five-%d" % i for i in range(5)),
            (here + b"/empty-1", there + b"/empty-2"),
        ]
        for first, *others in groups:
            self._file(first, b"" if b"empty" in first else None)
            for other in others:
                os.link(self._at(first), self._at(other))

    def sparse(self) -> None:
        """Make files with holes at every place, some with islands that no block begins with."""
        folder = self._folder(b"sparse")
        layouts: dict[bytes, tuple[int, list[tuple[int, int]]]] = {
            b"3 GiB, data at the end": (
                3 * _GIB, [(0, 5000), (_GIB + 123, 70_001), (3 * _GIB - 4097, 4097)]
            ),
            b"3 GiB, a hole at the end": (
                3 * _GIB, [(2 * _GIB - 1, 2), (2 * _GIB + 999_999, 65_536)]
            ),
            b"all hole": (64 << 20, []),
            b"data, hole, data": ((8 << 20) + 7, [(0, 3000), ((8 << 20) - 5000, 5007)]),
            b"hole, data, hole": (8 << 20, [((4 << 20) + 1, 1)]),
            b"many islands": (16 << 20, [(n * (1 << 20) + 511, 4500) for n in range(16)]),
            b"written zeros": (1 << 20, [(0, 0)]),
        }  # fmt: skip
        for name, (size_bytes, islands) in layouts.items():
            with open(self._at(folder + b"/" + name), "xb", buffering=0) as file:
                file.truncate(size_bytes)
                for start, length in islands:
                    content = self._dice.randbytes(length) if length else bytes(size_bytes)
                    os.pwrite(file.fileno(), content, start)

    def attributes(self) -> None:
        """Set user attributes: empty, binary, with odd names, on files and directories."""
        folder = self._folder(b"attributes")
        file, empty = self._file(folder + b"/file"), self._file(folder + b"/empty", b"")
        values = {
            b"user.plain": b"text", b"user.empty": b"", b"user.binary": bytes(range(256)),
            b"user.long": b"v" * 1500, b"user.na\xefve": b"\x00", b"user.a b\nc": b"\n",
        }  # fmt: skip

        def set_all() -> None:
            for name, value in values.items():
                os.setxattr(self._at(file), name, value)
            os.setxattr(self._at(empty), b"user.of an empty file", b"\x00\xff")
            os.setxattr(self._at(folder), b"user.of a folder", b"\xff\x00")
            os.setxattr(self._at(self._folder(folder + b"/inside")), b"user.empty", b"")

        self._try("user attributes", set_all)

    def acls(self) -> None:
        """Give access to a user by an ACL whose mask says more than the group has."""
        folder = self._folder(b"acls")
        file, inside = self._file(folder + b"/file"), self._folder(folder + b"/inside")
        sparse = self._file(folder + b"/sparse", b"")

        def set_all() -> None:
            os.truncate(self._at(sparse), 1 << 20)
            for name, mode in {file: 0o640, sparse: 0o600, folder: 0o750, inside: 0o700}.items():
                os.setxattr(self._at(name), ACCESS_ACL, access_acl(mode, user=7))

        self._try("ACLs", set_all)

    def owners(self) -> None:
        """Give a file, a directory and a symlink to others, who may not exist."""
        folder = self._folder(b"owners")
        os.symlink(b"file", self._at(folder + b"/link"))
        names = [
            self._file(folder + b"/file"),
            folder + b"/link",
            self._folder(folder + b"/folder"),
        ]
        names.append(self._file(folder + b"/suid", mode=0o755))

        def give_away() -> None:
            for number, name in enumerate(names):
                os.chown(self._at(name), 1000 + number, 65_000 + number, follow_symlinks=False)
            os.chmod(self._at(names[-1]), 0o6755)  # giving it away took both bits

        self._try("other owners", give_away)

    def special(self) -> None:
        """Make what must be left out: a socket, fifos, devices."""
        folder = self._folder(b"special")
        kinds = {
            b"socket": (stat.S_IFSOCK, 0),
            b"fifo": (stat.S_IFIFO, 0), b"\xfffifo": (stat.S_IFIFO, 0),
            b"null": (stat.S_IFCHR, os.makedev(1, 3)), b"loop": (stat.S_IFBLK, os.makedev(7, 200)),
        }  # fmt: skip
        for name, (kind, device) in kinds.items():
            make = partial(os.mknod, self._at(folder + b"/" + name), kind | 0o600, device)
            self._try(os.fsdecode(name), make)
        self._file(folder + b"/an ordinary file between them")

    def deep(self) -> None:
        """Make a path of 100 levels, with a file at every tenth."""
        path = b"deep"
        for level in range(1, 101):
            path += b"/level %03d of 100" % level
            self._folder(path)
            if level % 10 == 0:
                self._file(path + b"/file")

    def many(self) -> None:
        """Make one directory with 20,000 files."""
        folder = self._folder(b"many")
        for number in range(_MANY):
            self._file(folder + b"/%05d" % number, b"%d" % number)

    def times(self) -> None:
        """Set all times to the nanosecond: the content's first, then their directories'."""
        special = [
            0, 1, -1, -(_SECOND // 2), -20 * 365 * 86_400 * _SECOND - 1, (2**31 - 1) * _SECOND,
            2**31 * _SECOND + 999_999_999, 2**32 * _SECOND + 1, 10_413_792_000 * _SECOND + 7,
        ]  # fmt: skip
        folder = self._folder(b"times")
        for moment in special:
            self._file(folder + b"/file at %d" % moment)
            self._folder(folder + b"/folder at %d" % moment)
            os.symlink(b"of its own time", self._at(folder + b"/link at %d" % moment))
        for above, folders, files in os.walk(self._root, topdown=False):
            for name in (*files, *folders):
                path = os.path.join(above, name)
                at = name.rpartition(b" at ")[2] if above == self._at(folder) else b""
                moment = int(at) if at else self._dice.randrange(1_600_000_000 * _SECOND)
                self._set_time(path, moment)
        self._set_time(self._root, 1_234_567_890_123_456_789)

    def _set_time(self, path: bytes, moment: int) -> None:
        before = len(self._not_made)
        what = f"the time {moment} ns of {os.path.basename(path)!r}"
        self._try(what, lambda: os.utime(path, ns=(moment, moment), follow_symlinks=False))
        if len(self._not_made) == before and os.lstat(path).st_mtime_ns != moment:
            self._not_made.append(f"{what}: the file system keeps another")

    def result(self, root: Path) -> HostileSet:
        copied: set[bytes] = set()
        left_out: set[bytes] = set()
        blocks: dict[int, int] = {}
        for above, folders, files in os.walk(self._root):
            for name in (*folders, *files):
                path = os.path.join(above, name)
                found = os.lstat(path)
                kept = any(
                    is_kind(found.st_mode) for is_kind in (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
                )
                (copied if kept else left_out).add(os.path.relpath(path, self._root))
                if stat.S_ISREG(found.st_mode):
                    blocks[found.st_ino] = min(found.st_size, found.st_blocks * 512)
        return HostileSet(
            root=root,
            copied=frozenset(copied),
            left_out=frozenset(left_out),
            not_made=tuple(self._not_made),
            data_bytes=sum(blocks.values()),
        )


def tree_that_leads_out(root: Path) -> Path:
    """Make ``top`` in ``root``, with links out of it at two depths; return what they lead to."""
    precious = root.parent / "outside/precious"
    precious.parent.mkdir()
    precious.write_bytes(b"x")
    deep = root / "top/sub/deep"
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"x")
    for link in (deep / "link", root / "top/link"):
        link.symlink_to(precious.parent)
    os.mkfifo(deep / "fifo")
    return precious
