"""What checks may ask about a host: read once and shared, or given for a captured host.

Files of ``/proc``, ``/sys`` and ``/etc`` are read below ``root``. For everything else there is one
reader each, whose answer can be given instead. With a captured root, a reader without a given
answer raises, so that no answer about this machine gets into the judgement of another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hostprep.errors import HostprepError, MissingTool, Refused
from hostprep.host.memory import Headroom, read_headroom
from hostprep.host.mounts import Mount, read_mounts
from hostprep.readiness.answers import Answers
from hostprep.readiness.asking import ask_in_time, read_file
from hostprep.readiness.model import Level, NotInstalled
from hostprep.readiness.space import Space, space_of
from hostprep.system.last_results import read_last
from hostprep.system.run import Completed, run
from hostprep.system.state import state_dir

if TYPE_CHECKING:
    from hostprep.host.cpu import CpuFacts
    from hostprep.host.gpu import Nvml
    from hostprep.spec.model import Spec
    from hostprep.staging.status import DatasetStatus
    from hostprep.system.mounting import TmpfsSupport
    from hostprep.volumes.fstab import FstabEntry
    from hostprep.volumes.model import LiveVolume
    from hostprep.volumes.status import VolumeStatus

# Everything that may hang is asked at the same time, so a quick run takes little more than this.
QUICK_SECONDS = 1.8
FULL_SECONDS = 60.0
QUICK_TARGET_SECONDS = 0.8
# NVML averages utilisation over a second at most.
_SETTLE_SECONDS = 1.2
# A clock that is kept right is stepped by less; a document from further ahead is by another clock.
_CLOCK_SECONDS = 60.0


class Context:
    """The host that is judged. Readers are lazy, and each is asked only once.

    ``given`` has answers to use instead of the readers', by their names: ``volumes``, ``datasets``,
    ``damaged``, ``live``, ``tmpfs``, ``headroom``, ``cpu``, ``nvml``, ``probes``,
    ``damaged_probes``, ``last``, ``statvfs``, ``answers``, ``commands``, ``environ``, ``now``,
    ``euid``, ``cwd``, ``state_dir``, ``measured``.
    ``live``, ``last``, ``statvfs``, ``answers``, ``commands`` and ``measured`` are mappings from
    the question to its answer.
    """

    def __init__(
        self,
        *,
        root: Path = Path("/"),
        spec: Spec | None = None,
        level: Level = Level.QUICK,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.root = root
        self.spec = spec
        self.level = level
        self._captured = root != Path("/")
        self._answers = Answers(given or {}, captured=self._captured)

    @property
    def patience_seconds(self) -> float:
        """Return how long to wait for something that may hang."""
        return QUICK_SECONDS if self.level is Level.QUICK else FULL_SECONDS

    # -- files of the host ---------------------------------------------------------------------

    def read(self, path: str) -> str | None:
        """Return the text of ``path`` (``proc/meminfo``) below the root, as ``read_file`` does."""
        return read_file(self.root, path)

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Return the mounts, in the kernel's order."""
        return self._answers.once("mounts", lambda: read_mounts(self.root), by_root=True)

    @property
    def headroom(self) -> Headroom:
        """Return how much memory may still be used, with cgroup limits."""
        return self._answers.once("headroom", lambda: read_headroom(self.root), by_root=True)

    @property
    def cpu(self) -> CpuFacts:
        """Return the processors and this process's share of them."""
        from hostprep.host.cpu import read_cpu

        return self._answers.once("cpu", lambda: read_cpu(self.root), by_root=True)

    # -- what hostprep made and measured -------------------------------------------------------

    @property
    def volumes(self) -> tuple[VolumeStatus, ...]:
        """Return the current state of the volumes that are on record or in fstab."""
        from hostprep.volumes.status import volume_statuses

        return self._answers.once("volumes", volume_statuses)

    @property
    def fstab(self) -> tuple[FstabEntry, ...]:
        """Return the entries of fstab (or ``HOSTPREP_FSTAB``), none if there is no such file."""
        from hostprep.volumes.fstab import entries
        from hostprep.volumes.fstab_file import fstab_path

        path = self.root / "etc/fstab" if self._captured else fstab_path()

        def read() -> tuple[FstabEntry, ...]:
            try:
                return entries(path.read_bytes())
            except (FileNotFoundError, NotADirectoryError):
                return ()

        return self._answers.once("fstab", read, by_root=True)

    def mount_unit(self, path: str) -> Path | None:
        """Return the admin's own mount unit for ``path``, which takes precedence over fstab."""
        from hostprep.system.systemd import own_mount_unit

        return own_mount_unit(path, self.root / "etc/systemd/system" if self._captured else None)

    def live(self, path: str) -> LiveVolume | None:
        """Return the tmpfs that is mounted exactly at ``path``, whoever mounted it.

        None also if another mount hides it, so that nobody can use it; HP001 reports that.
        """
        from hostprep.volumes.live import read_live

        def ask() -> LiveVolume | None:
            try:
                return read_live(path, self.mounts)
            except Refused:
                return None

        return self._answers.each("live", path, ask)

    @property
    def tmpfs(self) -> TmpfsSupport:
        """Return which tmpfs options this kernel supports; only root may ask."""
        from hostprep.system.mounting import tmpfs_support

        return self._answers.once("tmpfs", tmpfs_support)

    @property
    def datasets(self) -> tuple[DatasetStatus, ...]:
        """Return the data sets on record, without looking at their sources, which may hang."""
        from hostprep.staging.status import TARGET_SECONDS, dataset_statuses

        patience = QUICK_TARGET_SECONDS if self.level is Level.QUICK else TARGET_SECONDS
        return self._answers.once(
            "datasets", lambda: dataset_statuses(check_source=False, target_seconds=patience)
        )

    @property
    def damaged(self) -> Mapping[str, HostprepError]:
        """Return by folder what is wrong with the records of data sets that cannot be read."""
        from hostprep.staging.record.records import damaged_records

        return self._answers.once("damaged", damaged_records)

    @property
    def probes(self) -> tuple[dict[str, Any], ...]:
        """Return each path's newest document of ``hostprep probe``, a valid one if possible."""
        from hostprep.probing.results import best_of_each_path

        return self._answers.once("probes", best_of_each_path)

    @property
    def damaged_probes(self) -> Mapping[str, HostprepError]:
        """Return by file what is wrong with unreadable kept probes, newest first."""
        from hostprep.probing.results import damaged

        return self._answers.once("damaged_probes", damaged)

    def last(self, command: str) -> dict[str, Any] | None:
        """Return the last kept document of ``recommend`` or ``verify``; see ``age_of``."""
        return self._answers.each("last", command, lambda: read_last(command))

    def forget(self, name: str, key: str | None = None) -> None:
        """Forget a reader's answer, because something has just been measured."""
        self._answers.forget(name if key is None else (name, key))

    def age_of(self, document: Mapping[str, Any]) -> float | None:
        """Return how many seconds ago a kept document was made, None if that is not known.

        That is if it has no time, or a time in the future because the clock was set back since.
        """
        if "unix_seconds" in document:
            age = self.now - float(document["unix_seconds"])
        else:
            try:
                made = datetime.strptime(str(document.get("time")), "%Y%m%dT%H%M%SZ")
            except ValueError:
                return None
            age = self.now - made.replace(tzinfo=UTC).timestamp()
        return None if age < -_CLOCK_SECONDS else age

    # -- devices, users, time ------------------------------------------------------------------

    @property
    def nvml(self) -> Nvml:
        """Return what NVML says about the GPUs."""
        from hostprep.host.gpu_bounded import ask_nvml

        # A driver that is only started by our question seems busy for a moment, and so does one
        # whose last program has just ended.
        return self._answers.once("nvml", lambda: ask_nvml(settle_seconds=_SETTLE_SECONDS))

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the environment of the command."""
        return self._answers.once("environ", lambda: dict(os.environ))

    @property
    def now(self) -> float:
        """Return the seconds since the epoch at which the checks began."""
        return self._answers.once("now", time.time)

    @property
    def euid(self) -> int:
        """Return the effective user."""
        return self._answers.once("euid", os.geteuid)

    @property
    def cwd(self) -> str | None:
        """Return the directory in which the command was started, None if it was removed."""
        return self._answers.once("cwd", _here)

    @property
    def state_dir(self) -> str:
        """Return the directory with hostprep's records."""
        return self._answers.once("state_dir", lambda: str(state_dir()))

    # -- what may hang -------------------------------------------------------------------------

    def statvfs(self, path: str) -> Space:
        """Return the space of the file system of ``path``; ``CannotTell`` if it hangs."""
        return self._answers.each(
            "statvfs", path, lambda: Space(**self._ask(path, lambda: space_of(path)))
        )

    def ask(
        self,
        name: str,
        question: Callable[[], Any],
        *,
        patience_seconds: float | None = None,
        below_root: bool = False,
    ) -> Any:
        """Return what ``question`` returns (plain enough for JSON), asked in a child that may hang.

        ``name`` says what is asked (``stat /data``); a captured host has the answer in ``answers``
        under this name. Raises ``CannotTell`` if there is no answer in time or the question raised.
        The question must not use the context: another thread may hold its lock when the child is
        forked. A question that reads only ``below_root`` is asked on a captured host too, unless
        the answer is given.
        """
        return self._answers.once(
            ("answers", name),
            lambda: self._ask(name, question, patience_seconds),
            by_root=below_root,
        )

    def command(self, args: Sequence[str], *, wanted_for: str, package: str) -> Completed:
        """Run a command that only reads, and return its output, whatever its exit status.

        A captured host has the output in ``commands``, by command line; None means not installed.
        Raises ``NotInstalled`` if it is not installed, ``HostprepError`` if it does not end.
        """

        def live() -> Completed | None:
            try:
                return run(
                    args,
                    wanted_for=wanted_for,
                    timeout_seconds=self.patience_seconds,
                    ok=range(256),
                )
            except MissingTool:
                return None

        done = self._answers.each("commands", " ".join(args), live)
        if done is None:
            raise NotInstalled(
                f"{args[0]} is not installed; it is needed to {wanted_for}.",
                "install it",
                commands=(f"apt-get install {package}",),
            )
        return done

    def measure(self, what: str, measurement: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the document of a measurement, which takes time and is part of a full check only.

        A captured host has it in ``measured``.
        """
        return self._answers.each("measured", what, measurement)

    def _ask(
        self, name: str, question: Callable[[], Any], patience_seconds: float | None = None
    ) -> Any:
        patience = patience_seconds or self.patience_seconds
        return ask_in_time(name, question, patience, self.level)


def _here() -> str | None:
    with suppress(FileNotFoundError):
        return os.getcwd()
    return None
