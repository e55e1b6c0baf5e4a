"""What the workers of a run are given at their start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from hostprep.dataclass import dataclass
from hostprep.staging.model import Verify
from hostprep.staging.tree import Plain

# A directory, the source's files and symlinks in it, and what reads the manifest's lines.
Large = tuple[str, Sequence[bytes], Sequence[Plain], Callable[[], Iterable[bytes]]]


@dataclass(frozen=True, slots=True)
class Job:
    """What all workers of a run share: roots, journal and style; inherited at the fork.

    ``target_fd`` is None in a run that only scans. ``journal_fd`` is the private directory in
    which every worker writes a journal of its own, None for none. The target is ``in_ram`` where no
    disk is behind it. ``look_ahead`` asks the disk for files before their turn; ``from_server`` has
    directories lstat-ed as they are listed (see ``tree.list_if_few``), where each question takes
    its time. ``encrypts`` has them asked whether they are locked (see ``fscrypt``).
    ``looks_only`` makes and opens no directory in the target, which a check leaves as it is.
    ``large`` are directories of which each worker is asked for a part (``standing.stands``): they
    all have them by the fork, where sent to each of them they would be in memory as often.
    ``inodes`` are what directories of the target must be to be opened, see ``finish_directory``.
    ``then`` is what the next run does with what this one copies, None for what copies nothing.
    """

    source_fd: int
    target_fd: int | None = None
    journal_fd: int | None = None
    verify: Verify = Verify.READBACK
    drop_behind: bool = False
    in_ram: bool = False
    look_ahead: bool = False
    from_server: bool = False
    encrypts: bool = False
    gentle: bool = False
    looks_only: bool = False
    large: Sequence[Large] = ()
    inodes: Mapping[str, int] = field(default_factory=dict)
    then: str | None = None
