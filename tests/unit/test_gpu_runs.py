"""`make test-gpu` where things are missing beside torch: the machine with the GPU comes once."""

from __future__ import annotations

import importlib.util
import json
import runpy
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.cuda import session
from hostprep.cuda.judge import judge
from tests.gpu import transcript
from tests.unit.cuda import made

ROOT = Path(__file__).parents[2]


def run_without(
    *modules: str, monkeypatch: pytest.MonkeyPatch, ends_with: int = 0, starts: bool = True
) -> tuple[int, list[list[str]]]:
    """Return the status of the script where ``modules`` are missing, and what it ran."""
    ran: list[list[str]] = []

    def run(command: list[str], stdout: Any, check: bool) -> SimpleNamespace:
        if "--help" in command:
            return SimpleNamespace(returncode=0 if starts else 1)
        if command[1] == "-m":
            ran.append(command[1:])
        return SimpleNamespace(returncode=ends_with)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in modules else 1)
    monkeypatch.setattr(subprocess, "run", run)
    script = runpy.run_path(str(ROOT / "scripts" / "test_gpu.py"))
    return script["main"](), ran


def test_both_halves_run_whatever_the_first_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    status, ran = run_without(monkeypatch=monkeypatch, ends_with=1)
    assert status == 1 and len(ran) == 2
    assert ran[0][-1] == "tests/gpu/test_verify_gpu.py" and "--ignore" in ran[1]
    assert not any("-o" in command for command in ran)


def test_without_pytest_there_is_the_transcript(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, ran = run_without("pytest", "pytest_timeout", monkeypatch=monkeypatch)
    assert (status, ran) == (0, [["-m", "tests.gpu.transcript"]])
    assert "pytest is missing" in capsys.readouterr().out


def test_where_hostprep_does_not_start_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_without(monkeypatch=monkeypatch, starts=False) == (2, [])
    assert run_without("torch", monkeypatch=monkeypatch) == (2, [])


def test_without_the_plugin_for_timeouts_the_tests_are_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        _, ran = run_without("pytest_timeout", monkeypatch=patch)
    assert ran
    for command in ran:
        done = subprocess.run(
            [sys.executable, *command, "-p", "no:timeout", "--collect-only", "-q"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "tests/gpu/test_" in done.stdout


def test_the_transcript_is_kept_whatever_was_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = iter(("PASS: all", '{"survey": null, "traces": []}', "", "no JSON", "", "{}"))
    ended = SimpleNamespace(returncode=-9, stderr="and an error")
    monkeypatch.setattr(
        transcript, "verify", lambda *_: SimpleNamespace(**vars(ended), stdout=next(answers))
    )
    monkeypatch.setattr(transcript, "TRANSCRIPTS", tmp_path / "new")
    monkeypatch.setenv("HOSTPREP_COMMIT", "abc")
    file = transcript.record().file
    assert file.name.endswith("-unknown")
    assert Path(f"{file}.txt").read_text().endswith("abc, exit status -9\nPASS: all" + ended.stderr)
    assert Path(f"{file}.json").read_text() == '{"survey": null, "traces": []}'
    transcript.record()
    transcript.record()


def test_a_device_s_name_is_part_of_a_file_s() -> None:
    def named(name: str) -> str:
        survey = {"nvml": {"gpus": [{"name": name}]}}
        return transcript._device(json.dumps({"traces": [{"device": None}], "survey": survey}))

    assert named("NVIDIA H200") == "NVIDIA-H200"
    assert named("Quadro RTX 6000/8000 (x)") == "Quadro-RTX-6000-8000-x"
    assert named("/") == "unknown"


def test_a_run_that_does_not_end_keeps_what_it_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\necho so far\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(transcript, "longest_seconds", lambda: 0.5)
    done = transcript.verify()
    assert done.returncode == -9 and done.stdout == "so far\n"
    assert "did not end" in done.stderr


def test_more_gpus_have_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[str] = []
    monkeypatch.setattr(transcript.glob, "glob", lambda _: nodes)
    assert transcript.longest_seconds() == 600
    nodes += [f"/dev/nvidia{number}" for number in range(8)]
    # What `verify` itself may take, with ten minutes for torch of which a run of eight needs few.
    assert transcript.longest_seconds() >= 8 * session.SECONDS + session._GRACE_SECONDS


def test_what_was_left_out_is_no_green_run() -> None:
    left_out = judge(made.trace(training=None, missing=(("training", "no room"),)))
    for checks, found in ((judge(made.trace()), 0), (left_out, 1)):
        said = transcript.untested({"checks": [asdict(check) for check in checks]})
        assert len(said) == found
        assert all(each.startswith("cuda:0 stage.training: ") for each in said)
