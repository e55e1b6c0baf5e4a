"""A FUSE passthrough that fails where it is told to: EIO, ENOSPC, short reads, hangs.

Everything is read and written with direct I/O and nothing is cached, so that a rule sees each
request as the copier made it, and a rule that is given later counts from the next request on.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.kit import serving


@dataclass(frozen=True, slots=True)
class Rule:
    """What goes wrong, where and how often.

    ``pattern`` is matched (fnmatch, where ``*`` also matches ``/``) against the path below the
    root, which begins with ``/``; names that are not UTF-8 as ``os.fsdecode`` gives them.
    ``operation`` is a FUSE operation: getattr, readlink, readdir, open, read, create, write,
    truncate, fsync, fsyncdir, mkdir, symlink, link, rename, unlink, rmdir, chmod, chown, utimens,
    setxattr, getxattr, listxattr, statfs; for rename and link the path is the new one.
    ``error`` is an errno, or None where the request succeeds after all (a hang, a short read).
    ``after_bytes``: the first so many bytes of a file can be read or written, then it fails; a
    request across that border is done as far as it goes.
    ``short_bytes``: a read returns at most so many bytes.
    ``times``: so often, then never again; None is always.
    """

    pattern: str
    operation: str
    error: int | None = errno.EIO
    after_bytes: int = 0
    times: int | None = None
    short_bytes: int | None = None
    hang_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Injected:
    """One request that met a rule."""

    operation: str
    path: str
    error: int | None


@dataclass(frozen=True, slots=True)
class FailingFs:
    """The mounted file system; ``root`` is the directory behind it."""

    mount: Path
    root: Path
    _control: Path
    _log: Path

    def tell(self, *rules: Rule) -> None:
        """Replace the rules, and their counts, from the next request on. None: all is well."""
        fresh = self._control.with_suffix(".new")
        fresh.write_text(json.dumps([asdict(rule) for rule in rules]))
        fresh.replace(self._control)

    def injected(self) -> tuple[Injected, ...]:
        """Return the requests that met a rule, in their order."""
        return tuple(Injected(**json.loads(line)) for line in self._log.read_text().splitlines())


@contextmanager
def failing_fs(
    root: Path, rules: Sequence[Rule] = (), *, read_only: bool = False, where: Path | None = None
) -> Iterator[FailingFs]:
    """Show ``root`` at a mount point of its own, made below ``where`` (a new temporary directory).

    Whoever hangs in it when the block ends is let go with an error.
    """
    with tempfile.TemporaryDirectory(prefix="failing-", dir=where) as home:
        point = Path(home, "mount")
        point.mkdir(mode=0o755)
        os.chmod(home, 0o755)
        control, log = Path(home, "rules.json"), Path(home, "injected.jsonl")
        log.touch()
        fs = FailingFs(point, root, control, log)
        fs.tell(*rules)
        config = {
            "root": str(root),
            "control": str(control),
            "log": str(log),
            "read_only": read_only,
        }
        with serving.served("tests.kit.failing_server", config, point, grace_seconds=0.5):
            yield fs
