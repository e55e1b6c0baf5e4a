"""What is known of a data set of which ``unstage`` did not remove all, and how that is ended."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hostprep.staging.publishing.removing import remove_hidden
from hostprep.staging.record.records import all_records, save_record
from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep, rewrite, run_hostprep

pytestmark = pytest.mark.usefixtures("state")

CHANGED = "class-4/images/005.bin"


@pytest.fixture
def left(source: Path, target: Path) -> Path:
    """Return a changed copy that an unstaging had to leave."""
    hostprep("stage", source, "--to", target)
    rewrite(target / "data" / CHANGED, b"somebody's note")
    assert hostprep("unstage", "data", expect=1)["left"] == [CHANGED]
    return target / "data" / CHANGED


def present() -> tuple[str, str]:
    """Return status and message of HP010, the one check that judges what is not there."""
    done = run_hostprep("check", "--only", "HP010,HP011,HP012,HP015", "--full", "--json")
    assert done.returncode == 3, done.stderr
    found = {each["code"]: each for each in json.loads(done.stdout)["checks"]}
    assert [found[code]["status"] for code in ("HP011", "HP012", "HP015")] == ["SKIP"] * 3
    return found["HP010"]["status"], found["HP010"]["message"]


def test_all_agree_that_it_was_removed_in_part(left: Path) -> None:
    words = "it was removed in part: 1 entry left that somebody changed or added there"
    (status,) = hostprep("status")["datasets"]
    assert (status["state"], status["reason"]) == ("interrupted", words)
    assert "move that away" in status["hint"] and "hostprep unstage" in status["hint"]
    assert "135 files" not in run_hostprep("status").stdout
    severity, message = present()
    assert severity == "FAIL" and words in message
    waited = hostprep("wait", "data", "--timeout", "0", expect=1)
    assert not waited["datasets"][0]["ready"] and words in waited["error"]["message"]


@pytest.mark.parametrize("how", ["file", "all"])
def test_what_was_left_is_moved_away_and_the_rest_goes(how: str, left: Path, target: Path) -> None:
    gone = left if how == "file" else target / "data"
    gone.rename(target.parent / "kept")
    expected = "interrupted" if how == "file" else "missing"
    assert hostprep("status")["datasets"][0]["state"] == expected
    assert hostprep("unstage", "data")["left"] == []
    assert os.listdir(target) == [] and hostprep("status")["datasets"] == []


def test_what_was_left_is_moved_away_and_it_is_staged_again(
    left: Path, source: Path, target: Path
) -> None:
    left.rename(target.parent / "kept")
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []
    (status,) = hostprep("status")["datasets"]
    assert (status["state"], status["freshness"]) == ("staged", "fresh")
    hostprep("wait", "data")
    assert hostprep("unstage", "data")["left"] == []


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_removal_that_was_interrupted_is_told_of_and_finished(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.unstage.remove_hidden", interrupt)
        error = hostprep("unstage", "data", expect=130)["error"]
    assert "the same command goes on" in error["hint"] and "takes up space" in error["hint"]
    assert os.listdir(target) == [".hostprep-data"]
    (status,) = hostprep("status")["datasets"]
    assert status["state"] == "interrupted" and "takes up space" in status["reason"]
    assert f"`hostprep unstage {target}/data` finishes that" in status["hint"]
    assert present()[0] == "FAIL"
    assert hostprep("unstage", "data")["removed_entries"] == 122 + 13
    assert os.listdir(target) == [] and hostprep("status")["datasets"] == []


@pytest.mark.parametrize(
    "step", ["_release_volume", "apply_unmount", "forget"], ids=lambda step: step.strip("_")
)
def test_interrupted_after_the_data_is_gone_the_same_command_releases_the_volume(
    step: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    hostprep("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    with monkeypatch.context() as patch:
        patch.setattr(f"hostprep.staging.unstage.{step}", lambda *_, **more: interrupt())
        hostprep("unstage", "data", expect=130)
    assert os.path.ismount(volume) is (step != "forget")
    again = hostprep("unstage", "data")
    assert (again["removed_entries"], again["left"]) == (0, [])
    assert not volume.exists() and hostprep("status")["datasets"] == []
    hostprep("unstage", "data", expect=2)


def test_a_reboot_ends_a_removal_from_a_volume(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    hostprep("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.unstage.remove_hidden", interrupt)
        hostprep("unstage", "data", expect=130)
    assert hostprep("status")["datasets"][0]["state"] == "interrupted"
    shutil.rmtree(volume / ".hostprep-data")
    (record,) = all_records()
    save_record(dataclasses.replace(record, boot_id="of before"), durable=False)
    assert hostprep("status")["datasets"][0]["state"] == "missing"


def test_a_full_disk_for_the_records_does_not_keep_the_copies(
    source: Path, target: Path, state: Path
) -> None:
    state.mkdir()
    options = "size=1m,mode=0755"  # others may not write there
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", state], check=True)
    hostprep("stage", source, "--to", target)
    with pytest.raises(OSError, match="No space left"), open(state / "rest", "wb", 0) as file:
        while True:
            file.write(bytes(4096))
    assert hostprep("unstage", "data")["left"] == []
    assert os.listdir(target) == []


def test_what_came_meanwhile_is_counted_too(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)

    def add_first(*given: object) -> tuple[str, ...]:
        (target / ".hostprep-data/removing/class-1/theirs").write_bytes(b"hours of work")
        remove: Callable[..., tuple[str, ...]] = remove_hidden
        return remove(*given)

    monkeypatch.setattr("hostprep.staging.unstage.remove_hidden", add_first)
    assert hostprep("unstage", "data", expect=1)["left"] == ["class-1/theirs"]
    assert "1 entry left" in hostprep("status")["datasets"][0]["reason"]


def test_a_place_that_is_taken_on_the_target_is_not_the_sources_fault(
    left: Path, source: Path, target: Path
) -> None:
    error = hostprep("stage", source, "--to", target, expect=1)["error"]
    assert error["hint"].startswith("move away what has its place on the target and run the same")
    hostprep("stage", source, "--to", target, "--partial")
    assert left.read_bytes() == b"somebody's note"
    done = run_hostprep("check", "--only", "HP010", "--json")
    (found,) = json.loads(done.stdout)["checks"]
    words = "without 1 of the source's entries, whose place on the target is taken by something"
    assert found["status"] == "WARN" and words in found["message"]
    assert "move away what has its place" in found["remedy"]["hint"]
    assert "move away" in hostprep("wait", "data", expect=1)["error"]["hint"]
    (target.parent / "spec.yml").write_text(f"datasets: [{{source: {source}, to: {target}}}]\n")
    planned = run_hostprep("apply", target.parent / "spec.yml", "--yes")
    assert "fix the source" not in planned.stderr
    left.unlink()
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []
    hostprep("wait", "data")
