"""How often it is looked whether the machine keeps time, and what others had of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import stolen
from tests.kit.stagecraft import REPOSITORY


def test_that_it_does_stands_for_some_seconds_and_is_then_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, looks = 1000.0, iter([1e-3, 20e-6, 30e-6])  # at first it does not
    waited = []

    def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(stolen, "round_trip_seconds", lambda: next(looks))
    monkeypatch.setattr(stolen, "_kept_time_at", None)
    monkeypatch.setattr(stolen, "_waited", 0.0)
    monkeypatch.setattr(stolen.time, "monotonic", lambda: now)
    monkeypatch.setattr(stolen.time, "sleep", wait)
    assert stolen.why_no_time_is_kept() is None and waited == [5]
    now += 14
    assert stolen.why_no_time_is_kept() is None and next(looks, None) == 30e-6
    now += 2
    with pytest.raises(StopIteration):
        stolen.why_no_time_is_kept()


def test_what_a_child_took_is_others_until_it_was_waited_for() -> None:
    others, seconds = stolen.Others(), 0.0
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as spinning:
        while seconds < 0.5:
            words = Path(f"/proc/{spinning.pid}/stat").read_text().rpartition(")")[2].split()
            seconds = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        _, by_all, by_us = others._now()
        assert by_all - by_us - (others._before[1] - others._before[2]) > 0.3
        assert others.share() > 0
        spinning.kill()
    assert others._now()[2] - by_us > 0.3


_TIMED = """
import pytest
from tests import conftest

class Others:
    def share(self):
        return {share}

conftest.Others = Others
conftest.why_no_time_is_kept = lambda: None

@pytest.mark.timed
@pytest.mark.flaky(reruns=2, reruns_delay=0)
def test_a_time():
    assert {truth}
"""


@pytest.mark.parametrize(
    ("share", "truth", "last", "outcome"),
    [
        (0.3, False, True, "1 skipped, 2 rerun"),
        (0.2, False, True, "1 failed, 2 rerun"),
        (0.3, False, False, "1 failed, 2 rerun"),
        (0.3, True, True, "1 passed"),
    ],
)
def test_only_beside_others_and_to_the_last_is_a_failed_time_none(
    share: float, truth: bool, last: bool, outcome: str, tmp_path: Path
) -> None:
    file = tmp_path / "test_timed.py"
    file.write_text(_TIMED.format(share=share, truth=truth))
    words = ["--rootdir", tmp_path, "-c", REPOSITORY / "pyproject.toml", "-p", "tests.conftest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words, *(["--lf"] if last else []), file],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout, done.stdout
