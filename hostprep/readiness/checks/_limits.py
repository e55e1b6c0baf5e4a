"""Limits of this shell and of everything started from it: /proc/self/limits (getrlimit(2))."""

from __future__ import annotations

from hostprep.dataclass import dataclass
from hostprep.host.reading import NO_PROC_HINT
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Remedy

_FOR_ALL = "for all: {} or limits.conf(5)"


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit in force, and the maximum to which it may be raised; None is unlimited."""

    soft: int | None
    hard: int | None

    def allows(self, wanted: int) -> bool:
        """Whether the limit in force allows this many."""
        return self.soft is None or self.soft >= wanted

    def can_be(self, wanted: int) -> bool:
        """Whether an ordinary user may raise the limit this far."""
        return self.hard is None or self.hard >= wanted

    @property
    def shown(self) -> str:
        """The limit in force, for people."""
        return "unlimited" if self.soft is None else f"{self.soft:,}"


def raising(limit: Limit, option: str, wanted: int | None, service: str) -> Remedy:
    """Return the remedy that raises a limit of the shell to ``wanted``, None for unlimited.

    ``option`` is an option of ulimit, ``service`` the setting of a systemd unit.
    """
    number = "unlimited" if wanted is None else str(wanted)
    reachable = limit.hard is None or (wanted is not None and limit.can_be(wanted))
    if not reachable:
        hint = f"it takes root to raise the hard limit; {_FOR_ALL.format(service)}"
        return Remedy((f"ulimit -{option} {number}",), hint)
    # Without -S the hard limit would be lowered too, and could not be raised again in that shell.
    hint = f"in the shell that starts the training; {_FOR_ALL.format(service)}"
    return Remedy((f"ulimit -S -{option} {number}",), hint)


def read_limit(context: Context, name: str) -> Limit:
    """Return the limit that the kernel calls ``name`` (``Max open files``)."""
    for line in (context.read("proc/self/limits") or "").splitlines():
        if line.startswith(name):
            soft, hard = line[len(name) :].split()[:2]
            return Limit(*(int(word) if word.isdigit() else None for word in (soft, hard)))
    raise CannotTell(f"/proc/self/limits does not say {name!r}.", NO_PROC_HINT)
