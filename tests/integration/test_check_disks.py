"""The checks of disks, on file systems that are really full."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Status
from hostprep.readiness.registry import all_checks, find
from hostprep.readiness.runner import run_check
from hostprep.spec.loading import parse_spec
from tests.kit import loops

MIB = 1 << 20


def test_a_target_without_room_or_inodes_is_found_until_it_has_some(safe_dir: Path) -> None:
    with loops.loop_filesystem("ext4", 16 * MIB, safe_dir) as target:
        # The folder that is not there yet counts as its file system.
        text = f"datasets:\n  - {{name: data, source: {safe_dir}/data, to: {target}/new}}\n"
        spec = parse_spec(text.encode(), shown_path="hostprep.yml", path="/hostprep.yml")

        def look(code: str, subject: str = str(target)) -> Finding:
            findings = run_check(find(all_checks(), code), Context(spec=spec))
            return next(finding for finding in findings if finding.subject == subject)

        assert look("HP040", f"{target}/new").status is Status.PASS
        assert look("HP042").status is Status.PASS

        inodes = 0
        while True:
            try:
                (target / f"{inodes:05d}").touch()
            except OSError:
                break
            inodes += 1
        found = look("HP042")
        assert found.status is Status.FAIL
        assert found.measured is not None and found.measured.value == 0
        for number in range(inodes):
            (target / f"{number:05d}").unlink()
        assert look("HP042").status is Status.PASS

        with open(target / "large", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(64 << 10))
            except OSError:
                pass
        assert look("HP041").status is Status.FAIL
        (target / "large").unlink()
        assert look("HP041").status is Status.PASS
        subprocess.run(["mount", "-o", "remount,ro", target], check=True)
        assert look("HP041").status is Status.WARN and look("HP042").status is Status.SKIP
