"""Files of /proc, /sys and cgroups with odd content: no check ends in the name of an exception."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hostprep.readiness.registry import all_checks
from hostprep.readiness.runner import run_check
from tests.unit.readiness.captured import FIXTURES, captured

CHECKS = {check.code: check for check in all_checks()}
WITH_FILES = sorted(
    code for code in CHECKS if any((case / "root").is_dir() for case in (FIXTURES / code).iterdir())
)
ODD = {
    "empty": b"",
    "a blank line": b" \n",
    "no UTF-8": b"\xff\xfe odd : , - 3\n",
    "a range without an end": b"0-x\n",
}
# In each host: more of them are alike, as those of many processors.
_MOST_FILES = 3


def copied(case: Path, here: Path) -> Path:
    """Copy a case, of which the host may be a link to one that several have."""
    here.mkdir()
    if (case / "given.yml").exists():
        shutil.copy(case / "given.yml", here)
    shutil.copytree((case / "root").resolve(), here / "root", symlinks=True)
    return here


@pytest.mark.parametrize("code", WITH_FILES)
def test_odd_content_is_no_bug(code: str, tmp_path: Path) -> None:
    cases = (case for case in sorted((FIXTURES / code).iterdir()) if (case / "root").is_dir())
    for case in list(cases)[:1]:
        here = copied(case, tmp_path / case.name)
        files = [path for path in sorted((here / "root").rglob("*")) if not path.is_symlink()]
        files = [path for path in files if path.is_file()]
        for path in files[:_MOST_FILES]:
            content = path.read_bytes()
            for name, odd in ODD.items():
                path.write_bytes(odd)
                said = [finding.message for finding in run_check(CHECKS[code], captured(here))]
                assert not [one for one in said if "check failed" in one], f"{path}: {name}"
            path.write_bytes(content)


def test_a_load_that_is_not_told_is_unknown(tmp_path: Path) -> None:
    here = copied(FIXTURES / "HP034" / "pass", tmp_path / "here")
    (here / "root/proc/loadavg").write_text("")
    (finding,) = run_check(CHECKS["HP034"], captured(here))
    assert (finding.status.name, finding.message) == (
        "UNKNOWN",
        "/proc/loadavg does not say how many processes ran.",
    )
