"""Is somebody else using the GPUs?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.host.gpu import BUSY_PERCENT, Gpu
from hostprep.readiness.checks._gpus import DRIVER_SECONDS, Facts, for_each, look, name
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import GIB, format_bytes

_HELD_SHARE = 0.10
# On a small GPU, as in a laptop, the desktop and a browser use more than a tenth.
_DESKTOP_BYTES = GIB


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each GPU that this environment may use; if that is not known, all of them."""
    visible = _visible(facts)
    return for_each(facts, lambda gpu: _judge_one(gpu, visible is None or gpu in visible))


def _judge_one(gpu: Gpu, visible: bool) -> Finding:
    if not visible:
        message = f"{name(gpu)} is hidden by CUDA_VISIBLE_DEVICES: others may use it."
        return Finding(Status.SKIP, name(gpu), message)
    if gpu.used_bytes is None or not gpu.total_bytes:
        message = f"the {gpu.name} has no memory of its own that NVML counts."
        return Finding(Status.SKIP, name(gpu), message)
    most, busy = max(_DESKTOP_BYTES, int(gpu.total_bytes * _HELD_SHARE)), gpu.utilisation_percent
    taken = gpu.used_bytes >= most or (busy or 0) >= BUSY_PERCENT
    # NVML does not report this for a GPU that is partitioned (MIG).
    how = (
        "NVML does not report how busy it is"
        if busy is None
        else f"it is busy for {busy}% of the time"
    )
    size = format_bytes(gpu.used_bytes)
    pids = [process.pid for process in gpu.processes or ()]
    who = f", by process {', '.join(map(str, pids))}" if pids else ""
    return Finding(
        Status.WARN if taken else Status.PASS,
        name(gpu),
        f"{size} of {format_bytes(gpu.total_bytes)} are held{who}; {how}.",
        Measured(
            f"{size} held" + ("" if busy is None else f", {busy}% busy"),
            gpu.used_bytes,
            "bytes",
            "lower",
        ),
        f"less than {format_bytes(most)} held, less than {BUSY_PERCENT}% busy",
        f"hostprep: {_HELD_SHARE:.0%} of the memory, or {format_bytes(_DESKTOP_BYTES)} on a small"
        " GPU; a desktop takes less, a training run takes more",
        most,
        Remedy(
            (
                f"nvidia-smi -i {gpu.index} --query-compute-apps=pid,name,used_memory --format=csv",
                *((f"ps -o pid,user,etime,args -p {','.join(map(str, pids))}",) if pids else ()),
            ),
            "wait for it or end it; or choose other GPUs: CUDA_VISIBLE_DEVICES",
        )
        if taken
        else None,
    )


def _visible(facts: Facts) -> tuple[Gpu, ...] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves visible, None if that is ambiguous.

    CUDA numbers GPUs from the fastest on and NVML by PCI bus, so a number means the same to both
    only if CUDA is told so, or if all are of one model (CUDA C++ Programming Guide, environment
    variables). The first word that names no GPU ends the list.
    """
    if facts.visible is None:
        return facts.nvml.gpus
    found = []
    for word in facts.visible.split(","):
        named = _named(word.strip(), facts)
        if named is None:
            return None
        if len(named) != 1:
            break
        found += named
    return tuple(found)


def _named(word: str, facts: Facts) -> list[Gpu] | None:
    """Return the GPUs that one word may mean, None if that is not known."""
    gpus = facts.nvml.gpus
    if word.startswith("MIG-"):
        return None  # a part of some GPU; the name does not say which
    if word.startswith("GPU-"):
        return [gpu for gpu in gpus if (gpu.uuid or "").startswith(word)]
    if not (word.isascii() and word.isdecimal()):
        return []
    ordered = facts.order == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) == 1
    # It is not known whether CUDA counts a GPU that does not answer.
    if not ordered or facts.nvml.problem is not None:
        return None
    return list(gpus[int(word) : int(word) + 1])


CHECK = Check(
    code="HP052",
    title="nobody else uses the GPUs",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=DRIVER_SECONDS,
    page="""\
Checks how much memory of each GPU is in use and how busy the GPU is, according to NVML, with the
processes that compute on it. hostprep itself runs nothing there while this is read. GPUs that
CUDA_VISIBLE_DEVICES hides are left out. A screen uses some hundred megabytes, which is fine.

The numbers in CUDA_VISIBLE_DEVICES are CUDA's, which start with the fastest GPU. On a host with
several GPU models they match those of NVML only with CUDA_DEVICE_ORDER=PCI_BUS_ID; without it, all
GPUs are judged. UUIDs, as `nvidia-smi -L` prints them, are unambiguous on every host.

**WARN**: a tenth of the memory is in use (1 GiB on a GPU that has less than 10 GiB), or some kernel
was running for a tenth of the last moments: another training run, a notebook that somebody left
open, or a process of a job that was killed. A training run sized for the whole GPU runs out of
memory there, and has to share its speed. Find out whose it is first: it may be there on purpose.
""",
)
