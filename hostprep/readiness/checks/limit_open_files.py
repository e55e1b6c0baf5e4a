"""May a training have as many files open as its loader needs?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.loading.bounds import DESCRIPTORS_OF_A_TRAINING, descriptors_of_a_worker
from hostprep.readiness.checks._limits import Limit, raising, read_limit
from hostprep.readiness.checks._recommended import recommended
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Severity, Status
from hostprep.units import format_count

# Images and their labels, if no batch was looked at.
_TENSORS = 2
_RULE_OF_THUMB = 1024
_ROOMY = 65536


@dataclass(frozen=True, slots=True)
class Facts:
    """``workers`` and ``prefetch_factor`` are the last recommended loader's, None without one.

    ``tensors`` is how many tensors one of its batches had, None if none was made.
    """

    limit: Limit
    workers: int | None
    prefetch_factor: int | None
    tensors: int | None


def look(context: Context) -> Facts:
    """Read the limit and the last recommendation."""
    limit = read_limit(context, "Max open files")
    made = recommended(context)
    return Facts(limit, made.workers, made.prefetch_factor, made.tensors)


def judge(facts: Facts) -> Iterator[Finding]:
    """Compare the limit with the need of the loader, or with a rule of thumb."""
    needed, says = _RULE_OF_THUMB, "distributions' default; `hostprep recommend` measures the need"
    if facts.workers:
        tensors = _TENSORS if facts.tensors is None else facts.tensors
        each = descriptors_of_a_worker(facts.prefetch_factor or 2, tensors)
        needed = DESCRIPTORS_OF_A_TRAINING + facts.workers * each
        workers = format_count(facts.workers, "worker")
        says = f"`hostprep recommend`: {workers} at {each}, and those of the training process"
    message = f"{facts.limit.shown} open files are allowed."
    status, remedy = Status.PASS, None
    if not facts.limit.allows(needed):
        status = Status.FAIL if facts.workers else Status.WARN
        message = (
            f"only {facts.limit.shown} open files are allowed, and each tensor on its way from a"
            " worker takes one: 'Too many open files', or 'received 0 items of ancdata'."
        )
        roomy = max(needed, _ROOMY) if facts.limit.can_be(_ROOMY) else needed
        remedy = raising(facts.limit, "n", roomy, "LimitNOFILE=")
    yield Finding(
        status,
        "open files",
        message,
        Measured(facts.limit.shown, facts.limit.soft, "files", "higher"),
        f"at least {needed:,}",
        says,
        needed,
        remedy,
    )


CHECK = Check(
    code="HP022",
    title="open files suffice for the loader",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL}),
    look=look,
    judge=judge,
    page="""\
Checks the soft limit of open files (`ulimit -n`) of the shell that runs this, which a training run
started from it inherits. PyTorch passes tensors between processes as file descriptors: each tensor
of a waiting batch takes one in the main process.

If `hostprep recommend` has measured your loader, the number needed is its workers times
(prefetch_factor x tensors per batch + 6), plus 128 for the training run itself. If not, 1,024 must
be enough, which is the default of distributions.

**FAIL**: the limit is below what the measured loader needs.
**WARN**: no loader was measured, and the limit is below 1,024.

Run `ulimit -S -n 65536` in the shell or the job script; for services set `LimitNOFILE=`, for logins
use `/etc/security/limits.conf`. Or call
`torch.multiprocessing.set_sharing_strategy('file_system')`.
""",
)
