"""/dev/shm as sandboxes have it: a folder of /dev that nothing is mounted on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECK = [sys.executable, "-m", "hostprep", "check", "--only", "HP020", "--json"]
NOTHING_MOUNTED = "while mountpoint --quiet /dev/shm; do umount --lazy /dev/shm || exit 1; done"


def in_a_sandbox(dev: Path, size: str, before: str, after: str) -> list[dict[str, Any]]:
    """Return the findings of the checks below a /dev as bubblewrap's --dev makes it, of this size.

    ``before`` is done in the host's /dev; ``after``, in the sandbox's, runs the check as "$@".
    """
    script = (
        f"{before}; mkdir -p {dev} && mount -t tmpfs -o size={size},mode=755 dev {dev}"
        f" && for each in null zero full random urandom; do"
        f" touch {dev}/$each && mount --bind /dev/$each {dev}/$each || exit 1; done"
        f" && mount --rbind {dev} /dev && {after}"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *CHECK],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    documents = done.stdout.replace("}\n{", "}\n\0{").split("\0")
    return [json.loads(document)["checks"][0] for document in documents]


def found_in_a_sandbox(dev: Path, size: str) -> dict[str, Any]:
    """Return the finding where /dev/shm is a folder that nothing is mounted on."""
    (found,) = in_a_sandbox(dev, size, NOTHING_MOUNTED, 'mkdir /dev/shm && exec "$@"')
    return found


def test_a_plain_folder_counts_by_its_file_system(safe_dir: Path) -> None:
    found = found_in_a_sandbox(safe_dir / "dev", "2G")
    assert found["status"] == "PASS" and found["measured"]["value"] == 2 << 30
    found = found_in_a_sandbox(safe_dir / "dev", "32M")
    assert found["status"] == "FAIL" and found["measured"]["value"] == 32 << 20
    assert found["remedy"]["commands"][0].startswith("mount -t tmpfs -o nosuid,nodev,")


@pytest.mark.parametrize(
    ("before", "says"),
    [(NOTHING_MOUNTED, "nothing is mounted"), ("mount -t tmpfs shm /dev/shm", "hides /dev/shm")],
    ids=["absent", "hidden"],
)
def test_where_it_is_absent_the_remedy_mounts_it(safe_dir: Path, before: str, says: str) -> None:
    (found,) = in_a_sandbox(safe_dir / "dev", "2G", before, 'exec "$@"')
    assert found["status"] == "FAIL" and says in found["message"]
    cure = " && ".join(found["remedy"]["commands"])
    after = f'{{ "$@"; {cure} && exec "$@"; }}'
    first, then = in_a_sandbox(safe_dir / "dev", "2G", before, after)
    assert (first["status"], then["status"]) == ("FAIL", "PASS"), then


def test_a_tmpfs_without_a_limit_is_not_taken_for_one_of_nothing(safe_dir: Path) -> None:
    found = found_in_a_sandbox(safe_dir / "dev", "0")
    assert found["status"] == "PASS" and found["measured"]["text"] == "no limit"


@pytest.mark.parametrize(
    ("options", "user", "cure"),
    [
        ("ro", "0", "mount -o remount,rw /dev/shm"),
        ("mode=755", "65534", "chmod 1777 /dev/shm"),
    ],
)
def test_one_that_this_user_may_not_write_is_no_pass(options: str, user: str, cure: str) -> None:
    # Told in this namespace by a child that has become the user: who may not read what the tests
    # run from could not start the command.
    script = f'mount -t tmpfs -o size=2G,{options} shm /dev/shm && exec "$@"'
    code = (
        "import os, sys; from hostprep.readiness.checks import shm_size;"
        "from hostprep.readiness.context import Context;"
        "from hostprep.readiness.model import Status;"
        f"os.setresuid({user}, {user}, {user});"
        "context = Context(given={'last': {'recommend': None}});"
        "(found,) = shm_size.judge(shm_size.look(context));"
        "print(found.status, *found.remedy.commands if found.remedy else ())"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == f"FAIL {cure}", done.stderr
