"""One smoke test: starts its process, follows it within a time limit, judges what it reported."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, field
from typing import Any, Protocol

from hostprep.cuda.judge import judge
from hostprep.cuda.results import Check, Status, Threshold, verdict
from hostprep.cuda.starting import Survey, judge_lost, judge_start, judge_unusable
from hostprep.cuda.telling import MARK
from hostprep.cuda.torch_errors import line_after_traceback
from hostprep.cuda.traces import Trace
from hostprep.dataclass import dataclass
from hostprep.errors import UsageError
from hostprep.system.own_directory import remove_left
from hostprep.system.python import own_environment, own_module
from hostprep.system.run import CommandFailed, Running, start
from hostprep.system.typed_json import from_json
from hostprep.units import format_count

# What a device may take once torch is imported; the process is ended if it has taken this and the
# grace period in all, or has reported nothing for as long.
SECONDS, QUICK_SECONDS = 110.0, 17.0
_GRACE_SECONDS = 60.0
_MOST_DEVICES = 16
_MOST_DIGITS = 9
# torch with CUDA is gigabytes of libraries; from a cold network file system that takes minutes,
# without any progress to report.
_IMPORT_SECONDS = 600.0
# What the process was doing when last heard of, and what to do if it ended or hung there.
_DRIVER_REMEDY = "nvidia-smi; dmesg | grep -iE 'nvrm|xid'; a driver that hangs needs a reboot"
_STEPS = {
    "import": (
        "it imported torch",
        "run python -c 'import torch' with the same Python: it shows whether the import ends, and"
        " how long it takes; if only the disk is slow, torch is in the page cache afterwards",
    ),
    "nvml": ("it asked NVML", _DRIVER_REMEDY),
    "start": ("it started CUDA", _DRIVER_REMEDY),
}
_RUN = Threshold(
    "the test's process runs to its end", "hostprep: what was not tested has not passed"
)


class Observer(Protocol):
    """Is told about the progress."""

    def stage(self, subject: str, name: str) -> None:
        """Begin a stage on a device."""
        ...


@dataclass(frozen=True, slots=True)
class Report:
    """What a smoke test found; ``survey`` is None if not even that came."""

    verdict: Status
    checks: tuple[Check, ...]
    survey: Survey | None
    traces: tuple[Trace, ...]
    seconds: float


@dataclass(slots=True)
class _Heard:
    """What the process has reported so far; ``step`` is where it is until there is a survey.

    ``folder`` is what it has made for sample files: path, device and inode.
    """

    observer: Observer
    step: str = "import"
    survey: Survey | None = None
    traces: dict[str, Trace] = field(default_factory=dict)
    at: tuple[str, str] | None = None
    folder: tuple[str, int, int] | None = None

    def hear(self, line: str) -> None:
        if not line.startswith(MARK):
            return  # what libraries print
        said: dict[str, Any] = json.loads(line.removeprefix(MARK))
        what = said.pop("what")
        if what == "step":
            self.step = said["name"]
        elif what == "survey":
            self.survey = from_json(Survey, said)
        elif what == "stage":
            self.at = (said["subject"], said["stage"])
            self.observer.stage(*self.at)
        elif what == "folder":
            self.folder = said["path"], said["device"], said["inode"]
        elif what == "trace":
            trace = from_json(Trace, said["trace"])
            self.traces[trace.subject] = trace
        else:
            self.at = self.folder = None


def parse_device(text: str) -> int:
    """Return the number in ``cuda:1`` (``cuda`` is 0); raises ``UsageError`` for anything else."""
    kind, colon, number = text.partition(":")
    # int() refuses thousands of digits.
    is_number = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
    if kind != "cuda" or (colon and not is_number):
        raise UsageError(f"{text!r} is not a CUDA device.", "accepted: cuda:0, cuda:1, ...")
    return int(number or 0)


def verify(*, device: int | None, quick: bool, folder: str | None, observer: Observer) -> Report:
    """Run the smoke test on ``device``, or on each in turn, and judge it.

    ``folder`` is where the sample files of the end-to-end pass go, None for RAM. Raises
    ``UsageError`` for a device that CUDA does not see and for a ``folder`` that is not a folder,
    FileNotFoundError if the current directory was removed.
    """
    if folder is not None and not os.path.isdir(folder):
        raise UsageError(f"{folder} is not a folder.", "give one on the storage to feed from")
    os.getcwd()  # torch does not load in a directory that was removed
    began = time.monotonic()
    seconds = QUICK_SECONDS if quick else SECONDS
    settings = {"device": device, "quick": quick, "folder": folder, "seconds": seconds}
    arguments = own_module("hostprep.cuda.child", json.dumps(settings))
    heard = _Heard(observer)
    problem = None
    try:
        with start(arguments, wanted_for="test the GPU", env=own_environment()) as running:
            try:
                problem = _follow(running, heard, seconds)
            except CommandFailed as error:
                problem = error.message
    finally:
        if heard.folder is not None:  # unless it was killed, it has removed that itself
            remove_left(*heard.folder)
    if heard.survey is None:
        checks = [_not_surveyed(heard.step, problem or "it said nothing")]
    else:
        checks = _judged(heard, heard.survey, device, problem)
    return Report(
        verdict(checks),
        tuple(checks),
        heard.survey,
        tuple(heard.traces.values()),
        time.monotonic() - began,
    )


def _not_surveyed(step: str, problem: str) -> Check:
    """Return the ERROR of a process that ended before it could report the survey."""
    doing, remedy = _STEPS[step]
    if "No module named" in problem:  # it imports nothing but hostprep from the current directory
        remedy = "install what is missing into this Python, or name its folder in PYTHONPATH"
    return Check(
        "run.process",
        "hostprep",
        Status.ERROR,
        f"the test's process ended while {doing}: {problem}",
        threshold=_RUN,
        remedy=remedy,
    )


def _judged(heard: _Heard, survey: Survey, device: int | None, problem: str | None) -> list[Check]:
    """Return the checks of all that was reported; ``UsageError`` for a device that is not there."""
    begun = judge_start(survey)
    starts = begun.status is Status.PASS
    if starts and device is not None and device >= survey.torch.devices:
        raise UsageError(
            f"there is no cuda:{device}; torch sees"
            f" {format_count(survey.torch.devices, 'device')}.",
            "nvidia-smi -L lists them; CUDA_VISIBLE_DEVICES renumbers them",
        )
    checks = [begun, *judge_unusable(survey)]
    if starts:
        checks += judge_lost(survey, device)
    for trace in heard.traces.values():
        checks += judge(trace)
    if starts:
        checks += _left_out(heard, survey, device, problem)
    return checks


def report_fields(report: Report) -> dict[str, Any]:
    """Return a report for JSON: first the contract's fields, then all measurements as evidence."""
    return {
        "verdict": report.verdict.value,
        "checks": [asdict(check) for check in report.checks],
        "survey": None if report.survey is None else asdict(report.survey),
        "traces": [asdict(trace) for trace in report.traces],
        "seconds": report.seconds,
    }


def _follow(running: Running, heard: _Heard, seconds: float) -> str | None:
    """Read the process's reports until it ends; return what was wrong with its end, if anything."""
    rest = b""
    limit = seconds * _MOST_DEVICES + _GRACE_SECONDS + _IMPORT_SECONDS
    quiet_since = time.monotonic()
    for chunk in running.chunks(timeout_seconds=limit):
        importing = heard.survey is None and heard.step == "import"
        patience = _IMPORT_SECONDS if importing else seconds + _GRACE_SECONDS
        if not chunk and time.monotonic() - quiet_since > patience:
            return f"it has said nothing for {patience:.0f} s and was ended"
        if chunk:
            quiet_since = time.monotonic()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            heard.hear(line.decode("utf-8", "replace"))
    # Before the process is gone, the driver dismantles what it had on its devices.
    done = running.wait(timeout_seconds=_GRACE_SECONDS)
    if done.returncode == 0:
        return None
    return _end_in_words(done.returncode, done.stderr)


def _end_in_words(status: int, stderr: str) -> str:
    lines = stderr.strip().splitlines()
    # The message of a C++ exception precedes the frames of its stack.
    thrown = [line.strip() for line in lines if line.lstrip().startswith("what():")]
    if status == -signal.SIGKILL:
        said = "the kernel sends it when memory runs out (dmesg | grep -i oom)"
    elif status < 0:  # what precedes it otherwise are old warnings
        said = thrown[-1] if thrown else "it said nothing"
    else:
        said = line_after_traceback(stderr) or (lines[-1] if lines else "it said nothing")
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return f"it ended with {how}: {said[:300]}"


def _left_out(
    heard: _Heard, survey: Survey, device: int | None, problem: str | None
) -> list[Check]:
    """Return what the process did not reach: where it died or hung, and the devices after that."""
    checks = []
    if problem is not None:
        subject, stage = heard.at or ("hostprep", "none")
        checks.append(
            Check(
                "run.process",
                subject,
                Status.ERROR,
                f"the test's process broke off in the stage {stage!r}: {problem}",
                threshold=_RUN,
                remedy="dmesg | grep -iE 'nvrm|xid' says what the driver saw; run it once more",
            )
        )
    torch = survey.torch
    wanted = range(torch.devices) if device is None else [device]
    for index in wanted:
        if f"cuda:{index}" not in heard.traces and index not in dict(torch.unusable):
            checks.append(
                Check(
                    "run.device",
                    f"cuda:{index}",
                    Status.SKIP,
                    "this device was not reached",
                    threshold=_RUN,
                    remedy=f"hostprep verify --device cuda:{index}",
                )
            )
    return checks
