"""Can the torch that is installed here use the GPUs?"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.checks import _gpus
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status

_INSTALL = "install a build of torch for the driver: https://pytorch.org/get-started/locally"


@dataclass(frozen=True, slots=True)
class Facts:
    """``torch`` and ``cuda`` are its version and the CUDA version it is built for, as it has them.

    ``torch`` is None if it is not installed, ``cuda`` if it is built without.
    """

    gpus: _gpus.Facts
    torch: str | None
    cuda: str | None


def look(context: Context) -> Facts:
    """Read torch's own file about its build, because importing torch would take seconds."""
    gpus = _gpus.look(context)
    if not gpus.nvml.gpus:
        return Facts(gpus, None, None)
    found = context.ask("torch's build", _build)
    return Facts(gpus, found.get("torch"), found.get("cuda"))


def _build() -> dict[str, str]:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as file:
        text = file.read()
    found = {}
    for name, pattern in (("torch", r"__version__ = "), ("cuda", r"cuda\b[^=\n]*= ")):
        if match := re.search(rf"^{pattern}['\"]([^'\"]+)['\"]", text, re.M):
            found[name] = match[1]
    return found


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the build; whether CUDA really starts is up to the smoke test of --full."""
    known = facts.gpus.nvml.cuda_version
    if not facts.gpus.nvml.gpus:
        yield Finding(Status.SKIP, "torch", "there is no GPU that torch could use.")
        return
    if facts.torch is None:
        yield Finding(Status.SKIP, "torch", "torch is not installed beside hostprep.")
        return
    wanted = "a build for CUDA" if known is None else f"a build for CUDA {known[0]} or older"
    built = f"torch {facts.torch} is built "
    built += "without CUDA" if facts.cuda is None else f"for CUDA {facts.cuda}"
    if facts.cuda is None:
        status, message = Status.WARN, f"{built}: it computes on the processors only."
    elif known is not None and int(facts.cuda.partition(".")[0]) > known[0]:
        status = Status.FAIL
        message = (
            f"{built}, but the driver supports only {known[0]}.{known[1]}: CUDA will not start."
        )
    else:
        status, message = Status.PASS, f"{built}."
    yield Finding(
        status,
        "torch",
        message,
        Measured(facts.torch if facts.cuda is None else f"CUDA {facts.cuda}", facts.cuda),
        wanted,
        "NVIDIA, CUDA compatibility: a driver runs what is built for its own major version",
        remedy=None
        if status is Status.PASS
        else Remedy(
            ("hostprep verify --quick",),
            f"{_INSTALL}; or upgrade the driver"
            if facts.cuda
            else f"if training uses this environment: {_INSTALL}",
        ),
    )


CHECK = Check(
    code="HP061",
    title="torch is built for the GPUs",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=_gpus.DRIVER_SECONDS,
    page="""\
Compares the CUDA version that the torch in hostprep's own environment is built for, as read from
its files, with the version that the driver supports. Nothing is imported for this; whether CUDA
really starts is tested by `hostprep verify`, which `--full` runs (HP065).

**FAIL**: torch is built for a newer major version of CUDA than the driver supports.
**WARN**: torch is built without CUDA, and would silently train on the processors. Training may use
another environment, though, and the check can read only one.

Without a GPU, or without torch, the result is SKIP.
""",
)
