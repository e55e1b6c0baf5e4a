"""`plan` and `apply` where records or locks cannot be kept: refused before the first change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.kit.converging import QUIET, apply, plan, write_spec
from tests.kit.stagecraft import (
    CONTAINED,
    NOBODY,
    hostprep,
    make_source,
    mount,
    run_hostprep,
    unmount,
)


class Places:
    """A spec of all that is remembered, and a state and a run directory on a real file system."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.volume = root / "ram"
        self.of = {"state": root / "state", "run": root / "run"}
        for name, path in self.of.items():
            monkeypatch.setenv(f"HOSTPREP_{name.upper()}_DIR", str(path))
            path.mkdir()
        # Where others may look, too.
        monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(root / "units"))
        monkeypatch.setenv("HOSTPREP_FSTAB", str(root / "fstab"))
        self.spec = write_spec(
            root / "hostprep.yml",
            volumes=[{"path": self.volume, "size": "32M"}],
            datasets=[
                {
                    "source": make_source(root / "data", directories=1, files=2),
                    "volume": self.volume,
                    "at_boot": True,
                }
            ],
        )

    def refused(self, kind: str, words: str) -> dict[str, Any]:
        """Insist that plan and apply are refused, each for one thing, and nothing was changed."""
        fstab = Path(os.environ["HOSTPREP_FSTAB"])
        before = fstab.exists() and fstab.read_text()
        for found in (plan(self.spec, expect=5), apply(self.spec, expect=5)):
            (refusal,) = found["refusals"]
            assert (refusal["kind"], words in refusal["message"]) == (kind, True), refusal
            assert refusal["message"].endswith("nothing was changed.")
        assert found["changed"] is False and found["error"]["code"] == "refused"
        assert (fstab.exists() and fstab.read_text()) == before
        return dict(refusal)


@pytest.fixture
def places(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(safe_dir, monkeypatch)


def test_root_that_may_not_mount_is_told_by_the_plan(places: Places) -> None:
    commands: tuple[tuple[str, ...], ...] = (("plan",), ("apply", "--yes"))
    for command in commands:
        words = (*command, places.spec, *QUIET)
        (refusal,) = hostprep(*words, expect=5, prefix=CONTAINED)["refusals"]
        assert "CAP_SYS_ADMIN" in refusal["message"] and "`to: /dev/shm`" in refusal["hint"]
    hostprep("mount", places.volume, "--size", "32M", *QUIET)
    nothing = write_spec(places.root / "nothing.yml", volumes=[])
    words = ("plan", "--prune", nothing)
    (refusal,) = hostprep(*words, expect=5, prefix=CONTAINED)["refusals"]
    assert refusal["message"].startswith(f"unmounting {places.volume} needs CAP_SYS_ADMIN")
    hostprep("unmount", places.volume)


@pytest.mark.parametrize("name", ["state", "run"])
def test_a_file_system_that_is_read_only_is_found_before_the_first_change(
    places: Places, name: str
) -> None:
    mount("-t", "tmpfs", "-o", "ro,mode=0755", "fixed", places.of[name])
    refusal = places.refused("volume", f"file system of {places.of[name]} is mounted read-only")
    assert f"HOSTPREP_{name.upper()}_DIR=DIR" in refusal["hint"]
    assert not places.volume.exists()
    unmount(places.of[name])
    apply(places.spec)
    mount("-t", "tmpfs", "-o", "ro", "fixed", places.of["run"])
    assert apply(places.spec)["changed"] is False, "what needs nothing needs no place either"


def test_each_folder_of_records_counts_for_its_own(places: Places) -> None:
    (places.of["state"] / "boot").mkdir()
    mount("-t", "tmpfs", "-o", "ro", "fixed", places.of["state"] / "boot")
    places.refused("boot", "boot is mounted read-only")
    assert not places.volume.exists()


@pytest.mark.parametrize(("name", "options"), [("state", "size=4k"), ("run", "nr_inodes=2")])
def test_a_full_file_system_is_found_before_the_first_change(
    places: Places, name: str, options: str
) -> None:
    mount("-t", "tmpfs", "-o", f"{options},mode=0755", "full", places.of[name])
    (places.of[name] / "filler").write_bytes(bytes(4096))
    places.refused("volume", f"the file system of {places.of[name]} is full")


def test_what_can_be_no_directory_is_found_before_the_first_change(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", "/proc/hostprep")
    places.refused("volume", "the kernel generates all that is in /proc (proc)")
    link = places.root / "link"
    link.symlink_to(places.root / "nowhere")
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(link))
    places.refused("volume", f"{link} is not a directory")


@pytest.mark.parametrize("folder", ["volumes", "datasets", "boot"])
def test_records_that_can_be_none_are_refused_as_a_whole(places: Places, folder: str) -> None:
    (places.of["state"] / folder).write_text("")
    for words in (("plan", places.spec), ("apply", places.spec, "--yes")):
        error = hostprep(*words, *QUIET, expect=5)["error"]
        assert f"{places.of['state'] / folder} is not a directory" in error["message"]
        assert "HOSTPREP_STATE_DIR=DIR" in error["hint"]


def test_a_damaged_record_of_the_specs_own_is_a_refusal_like_others(places: Places) -> None:
    apply(places.spec)
    (record,) = places.of["state"].glob("datasets/*/dataset.json")
    record.write_text("{")
    (refusal,) = plan(places.spec, expect=5)["refusals"]
    assert (refusal["kind"], str(record) in refusal["message"]) == ("dataset", True)


def test_who_may_not_write_may_look_all_the_same(places: Places) -> None:
    mount("-t", "tmpfs", "-o", "ro,mode=0755", "fixed", places.of["state"])
    done = run_hostprep("plan", places.spec, *QUIET, "--json", prefix=NOBODY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["changes"]
    alone = write_spec(
        places.root / "alone.yml",
        datasets=[{"source": places.root / "data", "to": "/dev/shm/hostprep-unkept"}],
    )
    done = run_hostprep("plan", alone, *QUIET, "--json", prefix=NOBODY)
    assert done.returncode == 0, done.stderr
    done = run_hostprep("apply", alone, "--yes", *QUIET, "--json", prefix=NOBODY)
    assert done.returncode == 5, done.stderr
    assert "HOSTPREP_STATE_DIR=DIR" in json.loads(done.stdout)["error"]["hint"]
    assert not os.path.exists("/dev/shm/hostprep-unkept")


def test_a_lock_that_cannot_be_made_says_what_moves_it(places: Places) -> None:
    mount("-t", "tmpfs", "-o", "ro", "fixed", places.of["run"])
    error = hostprep("mount", places.volume, "--size", "16M", *QUIET, expect=1)["error"]
    assert "hostprep-volumes.lock cannot be made: Read-only file system" in error["message"]
    assert "HOSTPREP_RUN_DIR" in error["hint"]
