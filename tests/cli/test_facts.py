"""``hostprep facts`` and the contract of every command: one document, the right exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.stagecraft import run_hostprep


def test_facts_agree_with_the_kernel() -> None:
    done = run_hostprep("facts", "/dev/shm", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0 and document["schema"] == "hostprep.facts/1"
    assert document["cpu"]["affinity"] == len(os.sched_getaffinity(0))
    meminfo = Path("/proc/meminfo").read_text().split()
    assert document["memory"]["total_bytes"] == int(meminfo[1]) * 1024
    assert document["paths"][0]["class"] == "ram"


def test_facts_for_people_name_every_part() -> None:
    done = run_hostprep("facts", "/")
    assert done.returncode == 0
    for word in ("kernel", "cpu", "memory", "tmpfs", "/: "):
        assert word in done.stdout


def test_a_device_is_no_folder_in_the_memory_that_its_name_lies_in() -> None:
    done = run_hostprep("facts", "/dev/null")
    assert done.returncode == 2
    assert "/dev/null is a device" in done.stderr and "lsblk" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run as others")
@pytest.mark.parametrize(
    ("who", "lacking"),
    [
        ("--bounding-set=-sys_admin", "CAP_SYS_ADMIN"),  # as in most containers
        ("--reuid=65534", "root"),
    ],
)
def test_facts_of_a_kernel_that_may_not_be_asked_say_what_that_takes(
    who: str, lacking: str
) -> None:
    line = ["setpriv", who, sys.executable, "-m", "hostprep", "facts"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert f"noswap unknown without {lacking}, " in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to hide the control groups")
def test_facts_say_so_where_a_control_group_may_limit_more_than_is_seen() -> None:
    hidden = 'mount -t tmpfs none /sys/fs/cgroup && exec "$0" -m hostprep facts "$@"'
    line = ["unshare", "--mount", "--propagation=private", "bash", "-c", hidden, sys.executable]
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert "/sys/fs/cgroup: it may limit processor time and memory further" in told
    done = subprocess.run([*line, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["cpu"]["limits_hidden"] is True
    seen = json.loads(run_hostprep("facts", "--json").stdout)
    is_hidden = seen["cpu"]["limits_hidden"] or seen["headroom"]["limits_hidden"]
    assert ("further" in run_hostprep("facts").stdout) is is_hidden


def test_facts_of_a_path_that_is_not_there() -> None:
    done = run_hostprep("facts", "/no/such/path", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 2
    assert not document["ok"] and "/no/such/path" in document["error"]["message"]
    assert document["error"]["hint"]


def test_a_path_whose_links_lead_in_a_circle_is_no_matter_of_a_disk(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for command in ("facts", "probe"):
        done = run_hostprep(command, str(tmp_path / "loop"))
        assert done.returncode == 1
        assert "symbolic links" in done.stderr and "namei -l" in done.stderr


@pytest.mark.parametrize(
    "args",
    [("stage",), ("mount",), ("facts", "--nonsense"), ("nonsense",), ("probe",), ("unstage",)],
)
def test_a_wrong_command_line_is_exit_2_and_one_document(args: tuple[str, ...]) -> None:
    plain = run_hostprep(*args)
    assert plain.returncode == 2 and plain.stdout == "" and plain.stderr
    done = run_hostprep(*args, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 2
    assert document["ok"] is False and document["error"]["code"] == "usage"
    assert document["schema"].startswith("hostprep.")


@pytest.mark.parametrize("args", [(), ("spec",)])
def test_no_command_shows_the_help_alone(args: tuple[str, ...]) -> None:
    done = run_hostprep(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == run_hostprep(*args, "--help").stdout


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$0" -m hostprep facts | head -c 1', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == ""


def test_the_help_is_light() -> None:
    """No command's heavy imports happen before it runs."""
    code = (
        "import sys; from hostprep.cli.app import app; "
        "heavy = {'torch', 'ansible', 'pydantic', 'yaml', 'rich', 'numpy', 'psutil', 'jinja2'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
