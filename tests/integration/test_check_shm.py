"""/dev/shm as sandboxes have it: a folder of /dev that nothing is mounted on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def found_in_a_sandbox(dev: Path, size: str) -> dict[str, Any]:
    """Return the finding below a /dev as bubblewrap's --dev makes it, of this size."""
    script = (
        f"mkdir -p {dev} && mount -t tmpfs -o size={size},mode=755 dev {dev} && mkdir {dev}/shm"
        f" && for each in null zero full random urandom; do"
        f" touch {dev}/$each && mount --bind /dev/$each {dev}/$each || exit 1; done"
        f" && while mountpoint --quiet /dev/shm; do umount --lazy /dev/shm || exit 1; done"
        f' && mount --rbind {dev} /dev && exec "$@"'
    )
    check = [sys.executable, "-m", "hostprep", "check", "--only", "HP020", "--json"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *check],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    (found,) = json.loads(done.stdout)["checks"]
    return dict(found)


def test_a_plain_folder_counts_by_its_file_system(safe_dir: Path) -> None:
    found = found_in_a_sandbox(safe_dir / "dev", "2G")
    assert found["status"] == "PASS" and found["measured"]["value"] == 2 << 30
    found = found_in_a_sandbox(safe_dir / "dev", "32M")
    assert found["status"] == "FAIL" and found["measured"]["value"] == 32 << 20
    assert found["remedy"]["commands"][0].startswith("mount -t tmpfs -o size=")


def test_a_tmpfs_without_a_limit_is_not_taken_for_one_of_nothing(safe_dir: Path) -> None:
    found = found_in_a_sandbox(safe_dir / "dev", "0")
    assert found["status"] == "PASS" and found["measured"]["text"] == "no limit"
