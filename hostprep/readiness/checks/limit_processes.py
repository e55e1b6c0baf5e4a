"""May a training start as many processes and threads as its loader needs?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.host.capabilities import users_are_mapped
from hostprep.host.cgroup_folders import limits_are_hidden
from hostprep.host.cgroups import ProcessLimit, read_process_limits
from hostprep.readiness.checks._limits import Limit, raising, read_limit
from hostprep.readiness.checks._recommended import recommended
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote

# A user's limit counts everything that the user runs, including the desktop.
_OTHERS = 1024
_THREADS_OF_A_WORKER = 4
# Threads of the process that starts workers: OpenMP, BLAS, CUDA, NCCL, the pin-memory thread.
_THREADS_OF_A_RANK = 128
_RULE_OF_THUMB = 256
# A group's limit is raised to a multiple of this, because other processes there come and go.
_ROOMY = 1024


@dataclass(frozen=True, slots=True)
class Facts:
    """``workers`` is per rank, from the last recommended loader, None without one.

    ``root``: this is the host's root, whose limit is not enforced. ``own`` counts the threads of
    this check itself, which end with it. ``hidden``: its cgroup cannot be seen, so ``groups`` may
    lack limits.
    """

    limit: Limit
    workers: int | None
    ranks: int
    root: bool
    groups: tuple[ProcessLimit, ...]
    own: int
    hidden: bool = False


def look(context: Context) -> Facts:
    """Read the limits and the last recommendation."""
    limit = read_limit(context, "Max processes")
    root = context.euid == 0 and not users_are_mapped(context.root)
    made = recommended(context)
    groups = read_process_limits(context.root)
    hidden = limits_are_hidden("pids", context.root)
    return Facts(limit, made.workers, made.ranks or 1, root, groups, _threads(context), hidden)


def _threads(context: Context) -> int:
    for line in (context.read("proc/self/status") or "").splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    return 0


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the tightest limit; the remedy raises all that are too tight."""
    found = [_by_user(facts), *(_by_group(group, facts) for group in facts.groups)]
    _, least = min(found, key=lambda each: each[0])
    remedies = [finding.remedy for _, finding in found if finding.remedy is not None]
    if remedies:
        commands = tuple(command for remedy in remedies for command in remedy.commands)
        hints = dict.fromkeys(remedy.hint for remedy in remedies if remedy.hint)
        least = replace(least, remedy=Remedy(commands, "; ".join(hints)))
    elif facts.hidden:
        less = "; a cgroup may allow less: /sys/fs/cgroup does not show that of this process."
        least = replace(least, message=least.message.removesuffix(".") + less)
    yield least


def _by_user(facts: Facts) -> tuple[float, Finding]:
    """Return how far ``ulimit -u`` exceeds the need, and the finding."""
    needed = _OTHERS + _THREADS_OF_A_WORKER * facts.ranks * (facts.workers or 0)
    status, remedy = Status.PASS, None
    spare = math.inf if facts.limit.soft is None else facts.limit.soft - needed
    message = f"{facts.limit.shown} processes and threads are allowed."
    if facts.root:
        spare = math.inf
        message = f"the limit of {facts.limit.shown} processes does not apply to root."
    elif spare < 0:
        status = Status.WARN
        message = (
            f"only {facts.limit.shown} processes and threads of this user are allowed: workers may"
            " not start ('Resource temporarily unavailable')."
        )
        remedy = raising(facts.limit, "u", needed, "LimitNPROC=")
    return spare, Finding(
        status,
        "processes",
        message,
        Measured(facts.limit.shown, facts.limit.soft, "processes", "higher"),
        f"at least {needed:,}",
        f"hostprep: {_THREADS_OF_A_WORKER} threads for each worker, {_OTHERS:,} for everything else"
        " of the user",
        None if facts.root else needed,
        remedy,
    )


def _by_group(group: ProcessLimit, facts: Facts) -> tuple[float, Finding]:
    """Return how far the rest of a cgroup's limit exceeds the need, and the finding."""
    needed, says = _RULE_OF_THUMB, "rule of thumb; `hostprep recommend` measures the need"
    if facts.workers is not None:
        needed = facts.ranks * (_THREADS_OF_A_RANK + _THREADS_OF_A_WORKER * facts.workers)
        says = (
            f"`hostprep recommend`: {_THREADS_OF_A_WORKER} threads for each worker,"
            f" {_THREADS_OF_A_RANK} for each training process"
        )
    used = max(0, group.used - facts.own)
    left = max(0, group.limit - used)
    status, remedy = Status.PASS, None
    message = (
        f"cgroup {group.group} allows {group.limit:,} processes and threads, and {left:,} are left."
    )
    if left < needed:
        status = Status.WARN
        message = (
            f"cgroup {group.group} allows only {group.limit:,} processes and threads, and {left:,}"
            " are left: workers may not start ('Resource temporarily unavailable')."
        )
        most = -(-(used + needed) // _ROOMY) * _ROOMY
        remedy = Remedy(
            (f"echo {most} > {quote(group.group + '/pids.max')}",),
            "this lasts until whoever set it sets it again, and a container may not raise its own:"
            f" to raise it permanently, change it where it was set (docker run --pids-limit={most},"
            f" TasksMax={most} of a systemd unit, podPidsLimit of the kubelet)",
        )
    return left - needed, Finding(
        status,
        "processes",
        message,
        Measured(f"{left:,} left", left, "processes", "higher"),
        f"at least {needed:,} left",
        says,
        needed,
        remedy,
    )


CHECK = Check(
    code="HP023",
    title="processes suffice for the loader",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN}),
    look=look,
    judge=judge,
    page="""\
Checks how many processes and threads the kernel lets a training run start. Two kinds of limits
apply.

The user's soft limit (`ulimit -u`) of the shell that runs this, which a training run started from
it inherits, counts everything that the user runs. The host's root is not subject to it; root of a
container that an ordinary user started is. The number needed is 4 threads for each worker that
`hostprep recommend` found, and 1,024 for everything else of the user.

The limit of a cgroup (`pids.max`), of this one and of all above it, which containers and services
have, counts everything that runs in the cgroup, and applies to root too. What is left of it
(`pids.max` minus `pids.current`) must be enough for 4 threads for each worker that
`hostprep recommend` found and 128 for each training process, including its thread pools; without a
recommendation, for 256.

The finding shows the tightest of these limits.

**WARN**: less is allowed, or left, than is needed. Workers fail to start, or a library in them
cannot create its threads ("Resource temporarily unavailable").

Raise the user's limit with `ulimit -S -u` in the shell or the job script, `LimitNPROC=` for
services, or `/etc/security/limits.conf` for logins. Raise the limit of a cgroup where it was set:
`docker run --pids-limit`, `TasksMax=` of a systemd unit, `podPidsLimit` of the kubelet; the printed
command raises it until it is set again.
""",
)
