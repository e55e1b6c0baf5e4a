"""fio, asked one question at a time: its arguments, its output, its run.

Its pitfalls are noted where they are avoided; numbers are issues of axboe/fio.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import MEND_HINT, HostprepError, Inconclusive, reading_hint
from hostprep.kinds import is_amount, is_count
from hostprep.probing.counters import Meter
from hostprep.probing.model import ENGINE, SLOWEST_BYTES_PER_S, FioRun, Latency, Load
from hostprep.system.run import CommandFailed, Completed, run, start

_GRACE_SECONDS = 4.0
# fio and its sixty libraries may come from the very disk that is slow, page by page.
LOADING_SECONDS = 60.0
_WANTED_FOR = "measure a disk"
_OLDEST = 3
_DOCUMENT = re.compile(r"^\{[ \t]*\n", re.M)  # inside a document, braces are indented


class FioFailed(HostprepError):
    """fio ended with an error, without a result, or not at all."""

    code = "fio_failed"


class FioTooLate(FioFailed):
    """fio did not end in time: the storage hangs, or is too slow to be waited for."""


class FioNotLoaded(Inconclusive):
    """fio itself did not load from its disk in time: nothing could be measured."""

    code = "fio_not_loaded"


@dataclass(frozen=True, slots=True)
class Job:
    """One pass: ``pattern`` is read or randread; ``size_bytes`` is how much of the file is used.

    ``filename`` is what fio opens, and may contain only letters, digits and ``/_.+-``: a colon
    would split it into two names, and a newline would break fio's JSON. ``path`` is the file's name
    in fio's messages when they are passed on.
    """

    filename: str
    path: str
    pattern: str
    block_bytes: int
    depth: int
    seconds: float
    size_bytes: int
    direct: bool


def version(patience_seconds: float = LOADING_SECONDS) -> str:
    """Return fio's version; ``MissingTool`` if it is not installed.

    ``FioFailed`` if the command of that name is another program, or too old; ``FioNotLoaded`` if it
    has not answered after ``patience_seconds``.
    """
    began = time.monotonic()
    try:
        done = run(
            ["fio", "--version"],
            wanted_for=_WANTED_FOR,
            package="fio",
            timeout_seconds=patience_seconds,
        )
    except CommandFailed:
        if time.monotonic() < began + patience_seconds:
            raise
        raise FioNotLoaded(
            f"`fio --version` did not end within {patience_seconds:g} s: the disk that fio itself"
            f" lies on ({shutil.which('fio')}) hangs, or is so slow. Nothing was measured.",
            "run `fio --version` yourself until it answers: then fio is in memory, and a probe has"
            " its time for the storage; or give it more time with --seconds",
        ) from None
    said = done.stdout.strip()
    release = re.search(r"^fio-(\d+)\.\S*", said, re.M)  # a wrapper may have printed words before
    if release is None:
        raise FioFailed(
            f"{shutil.which('fio')} is not fio, the disk benchmark: asked for its version it says "
            f"{said[:80]!r}. Nothing was measured.",
            "Fiona, for maps, has a command of this name: apt-get install fio, and put its folder "
            "first: PATH=/usr/bin:$PATH",
        )
    if int(release[1]) < _OLDEST:
        raise FioFailed(
            f"{release[0]} is too old: it counts in KiB what later releases count in bytes. "
            "Nothing was measured.",
            f"have fio {_OLDEST}.0 or later: apt-get install fio",
        )
    return release[0]


def arguments(job: Job) -> tuple[str, ...]:
    """Return the command line of a pass."""
    return (
        "fio",
        "--name=hostprep",
        f"--filename={job.filename}",
        "--readonly",
        "--allow_file_create=0",
        f"--rw={job.pattern}",
        f"--bs={job.block_bytes}",
        f"--iodepth={job.depth}",
        f"--ioengine={ENGINE}",
        f"--direct={int(job.direct)}",
        f"--size={job.size_bytes}",
        f"--runtime={round(job.seconds * 1000)}ms",
        "--time_based",
        "--randrepeat=0",  # else every run reads the same offsets, and they are cached
        "--norandommap",
        "--invalidate=1",
        "--group_reporting",
        "--thread",  # a job in its own session would survive the kill of fio's group
        "--lat_percentiles=1",  # of the whole request: in memory the submission takes all of it
        "--clat_percentiles=0",
        "--percentile_list=50:95:99",
        "--output-format=json",
        "--eta=never",
        "--status-interval=500ms",
    )


def measure(
    job: Job,
    *,
    disks: Iterable[str] = (),
    tell: Callable[[float], None] = lambda _: None,
    loading_seconds: float = 0.0,
    arriving_seconds: float = 0.0,
    within_seconds: float = math.inf,
) -> FioRun:
    """Run one pass and return what it measured; ``tell`` gets the rate of the last half second.

    It is called four times a second, even if there is nothing new.

    ``loading_seconds`` is the time that fio itself may take to load from a slow disk, besides the
    pass, and ``arriving_seconds`` the time for what is under way at its end; all of it may take
    ``within_seconds``. Raises ``FioFailed`` with fio's message if it gave no result or reported an
    error, and ``FioTooLate`` if it did not end in time.
    """
    patience = min(_patience(job) + loading_seconds + arriving_seconds, within_seconds)
    reader = StatusReader()
    meter = Meter(disks)
    with start(arguments(job), wanted_for=_WANTED_FOR, package="fio") as running:
        try:
            for chunk in running.chunks(timeout_seconds=patience):
                reader.feed(chunk)
                tell(reader.rate())
            load = meter.load()
            done = running.wait()
        except CommandFailed:
            raise FioTooLate(
                f"fio ({job.pattern}, depth {job.depth}) did not end within {patience:.0f} s.",
                "is the device still there? see `dmesg`; if it is only slow: more --seconds",
            ) from None
    load = meter.with_children(load)  # fio is included once the block has waited for it
    return replace(_result(job, reader.last, done, load), late_bytes_per_s=reader.late_rate())


def _patience(job: Job) -> float:
    """Return the seconds that a pass may take: what is under way at its end still has to arrive."""
    return job.seconds + _GRACE_SECONDS + job.depth * job.block_bytes / SLOWEST_BYTES_PER_S


class StatusReader:
    """Reads fio's stdout: text before the JSON (#731, #1685), then documents in a row.

    With a status interval there is one document per interval, with cumulative values.
    """

    def __init__(self) -> None:
        self.last: dict[str, Any] | None = None
        self._rest = ""
        self._decoder = json.JSONDecoder()
        self._seen = [(0, 0)]  # for each document: milliseconds so far, and bytes

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Take in more output; return the documents that it completed."""
        if not chunk:
            return []
        self._rest += chunk.decode("utf-8", "replace")
        documents: list[dict[str, Any]] = []
        while begin := _DOCUMENT.search(self._rest):
            try:
                document, end = self._decoder.raw_decode(self._rest, begin.start())
            except ValueError:
                break  # not complete yet
            self._rest = self._rest[end:]
            if _is_result(document):
                self.last = document
                documents.append(document)
                read = document["jobs"][0]["read"]
                self._seen.append((read["runtime"], read["io_bytes"]))
        return documents

    def late_rate(self) -> float | None:
        """Return the bytes a second of about the second half; None if too little was reported."""
        end_ms, end_bytes = self._seen[-1]
        half_ms, half_bytes = min(self._seen, key=lambda seen: abs(2 * seen[0] - end_ms))
        if not end_ms < 3 * half_ms < 2 * end_ms:
            return None
        return (end_bytes - half_bytes) * 1000 / (end_ms - half_ms)

    def rate(self) -> float:
        """Return the bytes a second between the last two documents; 0 before the first."""
        (then_ms, then_bytes), (now_ms, now_bytes) = [(0, 0), *self._seen][-2:]
        return (now_bytes - then_bytes) * 1000 / (now_ms - then_ms) if now_ms > then_ms else 0.0


def _is_result(document: dict[str, Any]) -> bool:
    try:
        read = document["jobs"][0]["read"]
        figures = [read[name] for name in ("io_bytes", "runtime", "total_ios")]
    except (KeyError, IndexError, TypeError):
        return False
    return all(is_count(figure) for figure in figures)


def _result(job: Job, document: dict[str, Any] | None, done: Completed, load: Load) -> FioRun:
    said = done.complaint or done.stdout.strip()[-500:] or "it said nothing"
    said = said.replace(job.filename, job.path)
    line = done.line().replace(job.filename, shlex.quote(job.path))
    if document is None:
        raise FioFailed(f"`{line}` gave no result (status {done.returncode}): {said}", MEND_HINT)
    result = document["jobs"][0]
    # The exit status counts failed jobs; but an error may also appear in the job only.
    error = result.get("error")
    if done.returncode != 0 or error:
        known = is_count(error) and error in errno.errorcode
        if not done.stderr.strip():  # otherwise it would be the end of the JSON
            said = os.strerror(error) if known else "it was ended before it was done"
        hint = reading_hint(OSError(error, said)) if known else MEND_HINT
        raise FioFailed(f"`{line}` failed (status {done.returncode}, error {error}): {said}", hint)
    read = result["read"]
    if 0 in (read["io_bytes"], read["runtime"], read["total_ios"]):
        raise FioFailed(
            f"`{line}` read nothing in {job.seconds:g} s.", "give it more time: --seconds"
        )
    return FioRun(
        pattern=job.pattern,
        block_bytes=job.block_bytes,
        depth=job.depth,
        read_bytes=read["io_bytes"],
        seconds=read["runtime"] / 1000,
        bytes_per_s=read["io_bytes"] * 1000 / read["runtime"],
        iops=read["total_ios"] * 1000 / read["runtime"],
        latency=_latency(read),
        load=load,
    )


def _latency(read: dict[str, Any]) -> Latency | None:
    try:
        percentiles = read["lat_ns"]["percentile"]
        told = [percentiles[f"{share}.000000"] for share in (50, 95, 99)]
    except (KeyError, TypeError):
        told = []
    if not told or not all(map(is_amount, told)):
        return None  # missing, or in another form than in the known versions
    p50, p95, p99 = (each / 1e9 for each in told)
    return Latency(p50, p95, p99)
