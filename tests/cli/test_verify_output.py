"""What ``hostprep verify`` prints and exits with, for made reports of every verdict."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from hostprep.cli.main import run
from hostprep.cuda import session
from hostprep.cuda.judge import judge
from hostprep.cuda.results import Check, Status, verdict
from hostprep.cuda.session import Report
from hostprep.cuda.starting import judge_start
from hostprep.cuda.telling import MARK
from hostprep.cuda.traces import Trace
from hostprep.system.last_results import read_last
from tests.unit.cuda import made
from tests.unit.cuda.test_starting import GOOD

BROKEN = Check("run.process", "cuda:0", Status.ERROR, "it died", remedy="look\x1b[2Jthere")
REPORTS = {
    Status.PASS: (made.trace(), ()),
    Status.FAIL: (made.trace(device=made.device(clock_reasons=("power brake",))), ()),
    Status.INCONCLUSIVE: (made.trace(training=None, missing=(("training", "no time"),)), ()),
    Status.ERROR: (made.trace(), (BROKEN,)),
}
CODES = {Status.PASS: 0, Status.FAIL: 3, Status.INCONCLUSIVE: 4, Status.ERROR: 1}


@pytest.fixture(params=REPORTS)
def report(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Report:
    trace, more = REPORTS[request.param]
    checks = (judge_start(GOOD), *judge(trace), *more)
    made_report = Report(verdict(checks), checks, GOOD, (trace,), 12.3)
    assert made_report.verdict is request.param
    monkeypatch.setattr(session, "verify", lambda **_: made_report)
    return made_report


def test_text(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify"]) == CODES[report.verdict]
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[-1].startswith(f"{report.verdict}: ") and lines[-1].endswith("took 12.3 s")
    assert lines[-2] == "cuda:0: made"  # where the figures are from
    for check in report.checks:
        line = next(line for line in lines if f" {check.name}: " in line)
        assert line.split()[0] == check.status
        assert check.message in line
        if check.status is not Status.PASS and check.remedy is not None:
            below = lines[lines.index(line) + 1 : lines.index(line) + 3]
            assert any(entry.strip().startswith("-> ") for entry in below)
    assert "\x1b" not in out


def test_what_a_gpu_was_seen_to_do_is_kept_for_the_check(
    report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["verify"])
    kept = read_last("verify")
    assert kept is not None and kept["verdict"] == report.verdict
    nothing = replace(report, traces=(), seconds=0.5)  # as where there is no GPU any more
    monkeypatch.setattr(session, "verify", lambda **_: nothing)
    run(["verify"])
    assert read_last("verify") == kept


def test_json(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--json"]) == CODES[report.verdict]
    fields = json.loads(capsys.readouterr().out)
    assert fields["schema"] == "hostprep.verify/1" and fields["verdict"] == report.verdict
    assert [check["status"] for check in fields["checks"]] == [
        check.status.value for check in report.checks
    ]
    assert fields["traces"][0]["origin"] == "made"
    # What exits with 1 has failed, and says so as every document does.
    assert fields["ok"] is (report.verdict is not Status.ERROR)
    if fields["ok"]:
        assert "error" not in fields
    else:
        assert "it died" in fields["error"]["message"]
        assert (fields["error"]["code"], fields["error"]["hint"]) == ("failed", BROKEN.remedy)


class Silent:
    def stage(self, subject: str, name: str) -> None:
        """Nobody listens."""


def test_what_the_process_says_becomes_the_report() -> None:
    heard = session._Heard(Silent())
    trace = made.trace(missing=(("training", "no time"),), training=None)
    for line in (
        "a library that talks",
        MARK + json.dumps({"what": "survey", **asdict(GOOD)}),
        MARK + json.dumps({"what": "stage", "subject": "cuda:0", "stage": "overlap"}),
    ):
        heard.hear(line)
    assert heard.survey == GOOD
    (check, skipped) = session._left_out(
        heard, GOOD, None, "it ended with signal 9: it said nothing"
    )
    assert check.subject == "cuda:0" and "in the stage 'overlap'" in check.message
    assert skipped.status is Status.SKIP
    heard.hear(MARK + json.dumps({"what": "trace", "trace": asdict(replace(trace, overlaps=()))}))
    # What a stage has found so far does not end it.
    assert heard.at == ("cuda:0", "overlap")
    heard.hear(MARK + json.dumps({"what": "trace", "trace": asdict(trace)}))
    heard.hear(MARK + json.dumps({"what": "done"}))
    assert heard.at is None
    assert heard.traces == {"cuda:0": trace}  # the last one stands
    assert isinstance(heard.traces["cuda:0"], Trace)
    assert session._left_out(heard, GOOD, None, None) == []
