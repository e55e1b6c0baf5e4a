"""What the workers of a run get at their start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from hostprep.dataclass import dataclass
from hostprep.staging.model import Verify
from hostprep.staging.tree import Plain

# A directory, the source's files and symlinks in it, and a function that reads manifest lines.
Large = tuple[str, Sequence[bytes], Sequence[Plain], Callable[[], Iterable[bytes]]]


@dataclass(frozen=True, slots=True)
class Job:
    """What all workers of a run share: roots, journal and style; inherited at the fork.

    ``target_fd`` is None in a run that only scans. ``journal_fd`` is the private directory in which
    every worker writes its own journal, None for none. The target is ``in_ram`` if there is no disk
    behind it. ``look_ahead`` requests files from the disk before their turn. With ``from_server``,
    where each request takes time, directories are lstat-ed while they are listed (see
    ``tree.list_if_few``). ``encrypts``: check whether directories are locked (see ``fscrypt``).
    ``looks_only`` makes and opens no directory in the target, because a check must not change it.
    ``large`` are directories of which each worker looks at a part (``standing.stands``): they are
    inherited at the fork, because sending them to each worker would multiply their memory.
    ``inodes`` are those that directories of the target must have, see ``finish_directory``.
    ``then`` is what the next run does with this run's copies, None if it copies nothing.
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
