"""What this shell, and all that is started from it, may take: /proc/self/limits (getrlimit(2))."""

from __future__ import annotations

from hostprep.dataclass import dataclass
from hostprep.host.reading import NO_PROC_HINT
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit in force and the one up to which it may be raised; None is unlimited."""

    soft: int | None
    hard: int | None

    def allows(self, wanted: int) -> bool:
        """Whether so much may be taken."""
        return self.soft is None or self.soft >= wanted

    def can_be(self, wanted: int) -> bool:
        """Whether an ordinary user may raise it so far."""
        return self.hard is None or self.hard >= wanted

    @property
    def shown(self) -> str:
        """The limit in force, for people."""
        return "unlimited" if self.soft is None else f"{self.soft:,}"


def read_limit(context: Context, name: str) -> Limit:
    """Return the limit that the kernel calls ``name`` (``Max open files``)."""
    for line in (context.read("proc/self/limits") or "").splitlines():
        if line.startswith(name):
            soft, hard = line[len(name) :].split()[:2]
            return Limit(*(int(word) if word.isdigit() else None for word in (soft, hard)))
    raise CannotTell(f"/proc/self/limits does not say {name!r}.", NO_PROC_HINT)
