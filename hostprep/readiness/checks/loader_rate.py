"""How fast is a real DataLoader on the data, and with how many workers?"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.loading.naming import OWN_LOADER
from hostprep.probing.rates import PASS_SHARE
from hostprep.readiness.checks._needs import required
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Level, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.spec.model import DatasetSpec

_SECONDS = 30.0
# Without a loader of one's own this check times bare files, and always remains UNKNOWN on some.
_LEFT_OUT = "this check cannot: --skip HP064 leaves it out"


@dataclass(frozen=True, slots=True)
class Facts:
    """The data set that was measured, None if the spec has none; and the rate it needs, if any.

    ``document`` is that of ``hostprep recommend --json``, with its ``path``; or it has the
    problem, with its ``hint``, and whether the ``own_loader_wanted``.
    """

    dataset: str | None
    required_samples_per_s: float | None
    document: dict[str, Any]


def look(context: Context) -> Facts:
    """Measure the data set with the highest required sample rate, or otherwise the first."""
    needs = {
        dataset.name: (need.samples_per_second, dataset)
        for dataset, need in required(context)
        if need.samples_per_second is not None
    }
    rate: float | None
    if needs:
        rate, dataset = max(needs.values(), key=lambda need: need[0] or 0.0)
    elif context.spec is not None and context.spec.datasets:
        rate, dataset = None, context.spec.datasets[0]
    else:
        return Facts(None, None, {})
    document = context.measure(f"recommend {dataset.name}", lambda: _measure(dataset, rate))
    context.forget("last", "recommend")
    return Facts(dataset.name, rate, document)


class _Silent:
    def note(self, message: str) -> None:
        """Ignore it."""

    def going_on(self) -> None:
        """Ignore it."""


def _measure(dataset: DatasetSpec, rate: float | None) -> dict[str, Any]:
    from hostprep.host.gpu_bounded import ask_nvml
    from hostprep.loading.naming import OwnLoaderWanted
    from hostprep.loading.recommend import from_dataset
    from hostprep.loading.report import Wish, report_fields
    from hostprep.loading.share import ranks_here, read_share
    from hostprep.system.last_results import keep_last

    if importlib.util.find_spec("torch") is None:
        return {"absent": "torch is not installed beside hostprep: no DataLoader can be timed."}
    path = _one_that_answers(dataset)
    if path is None:
        return {"absent": f"neither {dataset.target} nor {dataset.source} can be read."}
    try:
        host = read_share(*ranks_here(len(ask_nvml().gpus)))
        each = None if rate is None else rate / host.ranks
        wish = Wish(None, each, _SECONDS, 224, measure=True, compare=False)
        fields = report_fields(from_dataset(path, host, wish, _Silent()))
        if fields["evidence"]["points"]:
            keep_last("recommend", fields)
    except HostprepError as error:
        own = isinstance(error, OwnLoaderWanted)
        told = {"hint": error.hint, "own_loader_wanted": own}
        return {"problem": error.message, **told, "path": path}
    except OSError as error:
        return {"problem": str(error), "path": path}
    return {**fields, "path": path}


def _one_that_answers(dataset: DatasetSpec) -> str | None:
    from hostprep.probing.alive import check_listable

    for path in (dataset.target, dataset.source):
        try:
            check_listable(path)
        except HostprepError:
            continue
        return path
    return None


def judge(facts: Facts) -> Iterator[Finding]:
    """Compare the rate with what the spec requires, if it requires one."""
    document, subject = facts.document, facts.dataset
    if subject is None:
        yield Finding(Status.SKIP, "loader", "the spec names no data set to load.")
        return
    if "absent" in document:
        yield Finding(Status.SKIP, subject, document["absent"])
        return
    again = f"hostprep recommend --dataset {quote(document['path'])}"
    if "problem" in document:
        message = f"the loader of {document['path']} was not measured: {document['problem']}"
        hint = document.get("hint")
        told = Remedy((again,), hint or "to use your own loader: --loader MODULE:NAME")
        if document.get("own_loader_wanted"):  # measuring the files again would say the same
            told = Remedy((OWN_LOADER,), f"{hint}; {_LEFT_OUT}" if hint else _LEFT_OUT)
        yield Finding(Status.UNKNOWN, subject, f"{message.rstrip('.')}.", remedy=told)
        return
    files = document["evidence"].get("files") or {}
    if files.get("undecoded"):
        message = f"the loader of {document['path']} was not measured: {document['verdict']}."
        told = Remedy((document["remedy"], again), "in the Python that runs hostprep")
        if files["kind"] == "bytes":  # measuring the files again would say the same
            hint = f"which measures what your own code makes of them; {_LEFT_OUT}"
            told = Remedy((OWN_LOADER,), hint)
        yield Finding(Status.UNKNOWN, subject, message, remedy=told)
        return
    expected = document["expected_samples_per_s"]
    if expected is None or not document["confirmed"]:
        message = f"{document['verdict']}, and no DataLoader confirmed it."
        told = Remedy((again,), "with more time: --seconds 120")
        yield Finding(Status.UNKNOWN, subject, message, remedy=told)
        return
    yield _judge_rate(facts, expected * document["evidence"]["host"]["ranks"], again)


def _judge_rate(facts: Facts, given: float, again: str) -> Finding:
    document, wanted = facts.document, facts.required_samples_per_s
    least = None if wanted is None else PASS_SHARE * wanted
    enough = least is None or given >= least
    workers = document["num_workers"]
    message = f"{given:,.0f} samples/s with num_workers={workers}, from {document['path']}"
    if wanted is not None:
        message += f"; {wanted:,.0f} are required"
    if not enough and document["binding"]:
        message += f"; the bottleneck is {document['binding'].replace('_', ' ')}"
    return Finding(
        Status.PASS if enough else Status.FAIL,
        facts.dataset or "",
        f"{message}.",
        Measured(f"{given:,.0f} samples/s", given, "samples/s", "higher"),
        None if least is None else f"at least {least:,.0f} samples/s",
        None if least is None else f"the spec; MLPerf Storage passes at {PASS_SHARE:.0%}",
        least,
        None if enough else Remedy((again,), document["remedy"]),
    )


CHECK = Check(
    code="HP064",
    title="measurement of the loader",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    level=Level.FULL,
    page="""\
With `--full`, `hostprep recommend --dataset` times real DataLoaders for half a minute on one data
set of the spec: the one with the highest requirement in samples per second, or else the first. It
reads from the target, or from the source if the target is not there. The batches are of 32 images
of 224 x 224, or of arrays; to measure your own loader, use `hostprep recommend --loader`.

**FAIL**: all processes together get less than 90 % of the samples per second that the spec
requires, with any number of workers. The finding names the bottleneck, and what would help.
**UNKNOWN**: the loader could not be timed, or nothing that decodes images is installed beside
hostprep. If the files are neither images nor arrays, only your own loader knows what is made of
them: they are just read, and the check stays UNKNOWN until `--skip HP064` leaves it out.

Without torch, or without data, the result is SKIP.
""",
)
