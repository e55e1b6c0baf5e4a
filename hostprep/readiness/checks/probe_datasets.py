"""How fast is the storage of the data sets, measured now?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, UsageError
from hostprep.probing.rates import FAILING, FAULT_HINT
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Level, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.units import MIB, format_rate

# A minute in all: with more paths each gets less, and those that would get too little get none.
_SECONDS, _MOST_SECONDS, _LEAST_SECONDS = 60.0, 30.0, 8.0
_SIZE_BYTES = 512 * MIB


@dataclass(frozen=True, slots=True)
class Probe:
    """One path; ``is_source``: HP014 reports if it does not answer. ``left_out``: no time for it.

    ``document`` is that of ``hostprep probe --json``, or has the ``problem``.
    """

    path: str
    is_source: bool
    left_out: bool
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """The sources and targets of the spec's data sets; None if there is no spec."""

    probes: tuple[Probe, ...] | None


def look(context: Context) -> Facts:
    """Probe one path after another, and keep the results."""
    if context.spec is None:
        return Facts(None)
    paths: dict[str, bool] = {}
    for dataset in context.spec.datasets:
        paths.setdefault(dataset.target, False)
        paths.setdefault(dataset.source, True)
    most = int(_SECONDS // _LEAST_SECONDS)
    seconds = min(_MOST_SECONDS, _SECONDS / max(1, min(len(paths), most)))
    probes = []
    for number, (path, is_source) in enumerate(paths.items()):
        left_out = number >= most
        document = {} if left_out else _measure(context, path, seconds)
        probes.append(Probe(path, is_source, left_out, document))
    context.forget("probes")
    return Facts(tuple(probes))


def _measure(context: Context, path: str, seconds: float) -> dict[str, Any]:
    return context.measure(f"probe {path}", lambda: _probe(path, seconds))


def _probe(path: str, seconds: float) -> dict[str, Any]:
    from hostprep.host.answering import NoAnswer
    from hostprep.probing import results
    from hostprep.probing.judge import judge as conclude
    from hostprep.probing.model import Settings
    from hostprep.probing.observer import Silent
    from hostprep.probing.probe import probe, target

    try:
        to = target(path, seconds)
        measured = probe(to, Settings(seconds, _SIZE_BYTES), Silent())
        document = results.document(to, measured, conclude(measured, None), None)
        results.keep(document)
    except UsageError as error:
        return {"absent": error.message}
    except NoAnswer as error:
        return {"hangs": error.message}
    except HostprepError as error:
        return {"problem": error.message, "hint": error.hint}
    except OSError as error:
        return {
            "problem": f"{path} was measured, but the result could not be kept: {error}.",
            "hint": None,
        }
    return document


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge whether the figures are valid; HP062 judges whether they are high enough."""
    if not facts.probes:
        why = "there is no spec file" if facts.probes is None else "the spec has no data sets"
        yield Finding(Status.SKIP, "probe", f"{why}, so nothing is probed.")
        return
    for probe in facts.probes:
        yield _judge_one(probe)


def _judge_one(probe: Probe) -> Finding:
    path, document = probe.path, probe.document
    remedy = Remedy((f"hostprep probe {quote(path)}",))
    if probe.left_out:
        message = (
            f"{path} was not probed: the other paths used up the minute available for probing."
        )
        return Finding(Status.SKIP, path, message)
    if "absent" in document:
        return Finding(Status.SKIP, path, document["absent"])
    if "hangs" in document and probe.is_source:
        return Finding(Status.SKIP, path, f"{path} does not answer; HP014 says so too.")
    if problem := document.get("problem") or document.get("hangs"):
        told = Remedy(remedy.commands, document.get("hint"))
        return Finding(Status.UNKNOWN, path, problem, remedy=told)
    measured = _figures(document)
    if not document["valid"]:
        for reason in document["invalid_reasons"]:
            if reason["code"] == FAILING:  # not just a doubt about the figures
                told = Remedy(("dmesg | tail -n 40",), FAULT_HINT)
                message = f"{path}: {reason['message']}."
                return Finding(Status.FAIL, path, message, measured, remedy=told)
        reasons = "; ".join(reason["message"] for reason in document["invalid_reasons"])
        told = Remedy(
            remedy.commands,
            "try again when the machine is idle; as root, --drop-caches helps",
        )
        message = f"{path}: the figures do not show what the storage gives: {reasons}."
        return Finding(Status.UNKNOWN, path, message, measured, remedy=told)
    message = f"{path} ({document['device']['class']}): {measured.text}"
    if note := document.get("folder_note"):
        message += f"; but {note}"
    return Finding(Status.PASS, path, f"{message}.", measured)


def _figures(document: dict[str, Any]) -> Measured:
    small, sequential = document["small_files"], document["sequential"]
    words = []
    if sequential is not None:
        words.append(f"{format_rate(sequential['bytes_per_s'])} sequential")
    if small is not None:
        words.append(f"{small['files_per_s']:,.0f} small files/s")
    if small is not None:
        return Measured(", ".join(words), small["files_per_s"], "files/s", "higher")
    rate = None if sequential is None else sequential["bytes_per_s"]
    return Measured(", ".join(words) or "nothing", rate, "bytes/s", "higher")


CHECK = Check(
    code="HP063",
    title="probe of the data sets' storage",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    level=Level.FULL,
    page="""\
With `--full`, `hostprep probe` measures the target and the source of each data set of the spec: big
sequential reads, random reads, small files. It takes a minute in all: a few paths get 30 seconds
each, more paths get less, and from the eighth path on they are left out. Each probe writes a test
file of at most 512 MiB into a directory of its own, and removes it; the data itself is only read.

This check requires no rates: HP062 compares the results with the spec's `requirements`, and the
reports plot them.

**FAIL**: the storage is failing: some files cannot be read, and a training run over them ends
there.
**UNKNOWN**: the figures contradict each other (a cache answered, the processors were busy), or the
path could not be measured.

A path that is not there, or a source that hangs, is a SKIP, because other checks report it.
""",
)
