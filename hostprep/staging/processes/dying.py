"""The error for a worker process that ended before its work was done."""

from __future__ import annotations

import signal

from hostprep.errors import HostprepError
from hostprep.staging.processes.channel import OUT_OF_MEMORY
from hostprep.staging.resuming import run_again
from hostprep.system.ending import how_it_ended

MEMORY_RAN_OUT = "memory ran out in a worker process"
_KEPT_IN_RAM = (
    ". Until then what was copied stays in memory: if no memory can be freed elsewhere, `hostprep"
    " unstage` of the target frees that, and removes all that was staged there"
)


class Died(HostprepError):
    """A worker ended before its work was done."""


def memory_hint(then: str | None) -> str:
    """Return what to do if memory ran out; for ``then`` see ``run_again``."""
    return f"free some, or raise the limit (`ulimit -v`), and {run_again(then)}"


def death(code: int | None, ran_out: str | None, *, in_ram: bool, then: str | None) -> Died:
    """Return the error for a worker that ended with ``code``, in the form of ``Popen.returncode``.

    ``ran_out`` says which memory ran out, so that the kernel killed a process while it worked, None
    for none; for ``then`` see ``run_again``.
    """
    again = run_again(then)
    if code == OUT_OF_MEMORY:
        return Died(f"{MEMORY_RAN_OUT} before all was done.", memory_hint(then))
    how = "" if code is None else f" {how_it_ended(code)}"
    message = f"a worker process was ended{how} before all was done"
    if code != -signal.SIGKILL:
        return Died(f"{message}.", again)
    hint = f"often that means that memory ran out (see dmesg); {again}"
    if ran_out is not None:
        message += f": {ran_out}, and the kernel killed it"
        hint = f"free some, and {again}"
        if "cgroup" in ran_out:
            hint = (
                "raise it (MemoryMax= and MemoryHigh= of a systemd unit, docker run --memory,"
                " Slurm's --mem, limits.memory of a pod), or run it where that limit does not"
                f" apply, and {again}"
            )
    return Died(f"{message}.", hint + (_KEPT_IN_RAM if in_ram else ""))
