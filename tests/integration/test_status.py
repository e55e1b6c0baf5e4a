"""``status`` tells how volumes and data sets are now, also where a source does not answer."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import (
    HOSTPREP,
    hostprep,
    make_source,
    mounted_by_another,
    only_dataset,
    rewrite,
    run_hostprep,
    snapshot,
)

pytestmark = pytest.mark.usefixtures("state")


def test_nothing_is_a_sentence_too() -> None:
    assert hostprep("status") == {
        "schema": "hostprep.status/1",
        "ok": True,
        "volumes": [],
        "datasets": [],
        "problems": [],
    }
    assert "no volumes and no data sets" in run_hostprep("status").stdout


def test_a_source_that_is_not_mounted_now_is_not_one_that_lost_its_files(
    source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    away = source.with_name("away")
    source.rename(away)
    source.mkdir()
    found = only_dataset()
    assert (found["state"], found["freshness"]) == ("staged", "unknown")
    assert found["reason"] == "the source is empty: is its file system mounted?"
    source.rmdir()
    away.rename(source)
    assert only_dataset()["freshness"] == "fresh"


def test_a_volume_that_is_not_for_this_user_is_not_called_empty(
    source: Path, safe_dir: Path
) -> None:
    volume = safe_dir / "volume"
    hostprep("mount", volume, "--size", "64M", "--reserve", "0", "--mode", "0700", "--owner", "7:7")
    hostprep("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    other = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--")
    closed = f"this user may not look into {volume}"
    (found,) = hostprep("status", prefix=other)["datasets"]
    assert (found["state"], found["freshness"]) == ("unreachable", "unknown")
    assert found["reason"] == closed
    waited = hostprep("wait", "data", prefix=other, expect=1)
    assert closed in str(waited) and "stages it" not in str(waited)
    done = run_hostprep("check", "--only", "HP010", "--json", prefix=other)
    (check,) = json.loads(done.stdout)["checks"]
    assert done.returncode == 4
    assert check["status"] == "UNKNOWN" and closed in check["message"]
    assert check["remedy"]["commands"] == [f"namei -l {volume}/data"]
    assert only_dataset()["state"] == "staged"


def test_what_a_user_has_mounted_over_a_copy_keeps_root_out(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target / "deep")
    with mounted_by_another(target):
        found = only_dataset()
    assert (found["state"], found["freshness"]) == ("unreachable", "unknown")
    assert found["reason"] == f"this user may not look into {target}"
    assert "allow_other" in found["hint"] and "as root" not in found["hint"]


def test_a_disk_that_fails_is_not_called_empty(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)
    real = os.stat

    def failing(path: Any, **given: Any) -> os.stat_result:
        if path == str(target / "data"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, **given)

    with monkeypatch.context() as patch:
        patch.setattr("os.stat", failing)
        found = only_dataset()
    assert (found["state"], found["freshness"]) == ("unreachable", "unknown")
    assert found["reason"] == "its target answers with an error: Input/output error"
    assert "dmesg" in found["hint"]


def test_what_the_source_has_and_a_run_could_not_stage_is_stale(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    folders = source / "class-1", target / "data/class-1"
    (folders[0] / "new").write_bytes(b"new")
    (folders[1] / "new").write_bytes(b"somebody's")
    times = folders[0].stat()
    os.utime(folders[1], ns=(times.st_atime_ns, times.st_mtime_ns))
    os.utime(target / "data", ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    found = only_dataset()
    assert found["freshness"] == "stale"
    assert "1 whose place on the target is taken" in found["reason"]
    (manifest,) = Path(os.environ["HOSTPREP_STATE_DIR"]).glob("datasets/*/manifest.jsonl")
    manifest.write_bytes(manifest.read_bytes().splitlines(keepends=True)[0])
    assert only_dataset()["freshness"] == "stale"


def test_fresh_stale_and_fresh_again(source: Path, target: Path) -> None:
    staged = hostprep("stage", source, "--to", target)
    found = only_dataset()
    assert (found["state"], found["freshness"]) == ("staged", "fresh")
    for field in ("source", "target", "files", "bytes", "digest"):
        assert found[field] == staged[field]
    assert abs(found["verified_at"] - time.time()) < 60
    before = snapshot(target), snapshot(source)
    rewrite(source / "hard", b"changed")  # two names of one file
    (source / "new").write_bytes(b"new")
    (source / "link").unlink()
    found = only_dataset()
    assert (found["freshness"], found["reason"]) == (
        "stale",
        "3 to copy, 1 to delete, 1 folder to bring up to date",
    )
    assert snapshot(target) == before[0]
    hostprep("stage", source, "--to", target)
    assert only_dataset()["freshness"] == "fresh"
    (target / "data/class-1/images/000.bin").write_bytes(b"damaged")
    found = only_dataset()
    assert (found["freshness"], found["reason"]) == (
        "stale",
        "1 to copy; the source is as it was staged: the copy was changed by hand",
    )
    shutil.rmtree(target / "data/class-1")
    assert (only_dataset()["freshness"], only_dataset()["state"]) == ("stale", "staged")
    shutil.rmtree(target / "data")
    assert only_dataset()["state"] == "missing"


def test_a_run_that_copies_nothing_has_verified_nothing(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    before = only_dataset()["verified_at"]
    (source / "empty").chmod(0o711)
    hostprep("stage", source, "--to", target)
    assert (only_dataset()["freshness"], only_dataset()["verified_at"]) == ("fresh", before)
    rewrite(source / "hard", b"changed")
    hostprep("stage", source, "--to", target)
    assert only_dataset()["verified_at"] > before


@pytest.mark.parametrize("change", ["mode", "owner", "time"])
def test_a_directory_that_changed_is_stale(change: str, source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    if change == "mode":
        (source / "empty").chmod(0o711)
    elif change == "owner":
        os.chown(source / "empty", 12, 34)
    else:
        os.utime(source / "empty", ns=(0, 0))
    planned = hostprep("stage", source, "--to", target, "--dry-run")
    assert planned["would_change"] is True
    assert only_dataset()["freshness"] == "stale"


def test_no_source_no_verdict(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    (found,) = hostprep("status", "--no-source")["datasets"]
    assert (found["freshness"], found["state"]) == ("unknown", "staged")
    shutil.rmtree(source)
    found = only_dataset()
    assert found["freshness"] == "unknown" and "does not exist" in found["reason"]
    assert "data set data: staged, unknown" in run_hostprep("status").stdout


def test_what_was_not_verified_says_so(source: Path, target: Path) -> None:
    staged = hostprep("stage", source, "--to", target, "--verify", "none")
    assert (staged["digest"], staged["verified"]) == (None, False)
    found = only_dataset()
    assert (found["digest"], found["verified_at"]) == (None, None)
    assert "not verified, digest none" in run_hostprep("status").stdout
    rewrite(source / "hard", b"changed")
    updated = hostprep("stage", source, "--to", target)
    # None was before, but for the symlink, of which all is known.
    assert updated["verified"] and updated["copied_files"] == staged["files"] - 1
    whole = hostprep("stage", source, "--to", target.parent / "other")
    inflight = hostprep("stage", source, "--to", target.parent / "third", "--verify", "inflight")
    assert inflight["digest"] == whole["digest"] is not None


def test_what_was_only_hashed_stays_that_until_all_is_read(source: Path, target: Path) -> None:
    stage = ("stage", source, "--to", target)
    assert hostprep(*stage, "--verify", "inflight")["verify"] == "inflight"
    again = hostprep(*stage)
    assert (again["changed"], again["verify"]) == (False, "inflight")
    said = run_hostprep(*stage).stdout
    assert "; hashed in flight, not read back (--full-check does that); digest xxh3sum:" in said
    (source / "new").write_bytes(b"new")
    done = run_hostprep(*stage)
    words = "  read back and compared; kept files: only hashed in flight when they were copied;"
    assert words in done.stdout and "verified" not in done.stdout
    assert only_dataset()["verify"] == "inflight"
    assert ", hashed in flight 2" in run_hostprep("status").stdout
    (source / "new").unlink()
    assert "  hashed in flight (when it was copied), not read" in run_hostprep(*stage).stdout
    read = hostprep(*stage, "--full-check")
    assert (read["changed"], read["verify"]) == (False, "readback")
    assert (
        only_dataset()["verify"] == "readback" and ", verified 2" in run_hostprep("status").stdout
    )


def test_of_what_was_only_hashed_nothing_may_be_left(source: Path, target: Path) -> None:
    stage = ("stage", source, "--to", target)
    hostprep(*stage, "--verify", "inflight")
    for path in source.rglob("*.bin"):
        rewrite(path, b"changed")
    assert (
        hostprep(*stage)["verify"] == only_dataset()["verify"] == "readback"
    )  # but for the symlink
    rewrite(source / "hard", b"again")
    assert hostprep(*stage, "--verify", "inflight")["verify"] == "inflight"


def test_while_files_are_replaced_by_such_as_are_only_hashed(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> list[str]:
        raise KeyboardInterrupt

    hostprep("stage", source, "--to", target)
    rewrite(source / "hard", b"changed")
    monkeypatch.setattr("hostprep.staging.stage.publish_update", killed)
    hostprep("stage", source, "--to", target, "--verify", "inflight", expect=130)
    assert only_dataset()["verify"] == "inflight"


def test_a_run_at_work_and_one_that_was_interrupted(source: Path, target: Path) -> None:
    for number in range(3):
        (source / f"large-{number}").write_bytes(os.urandom(1 << 20) * 200)
    line = [*HOSTPREP, "stage", str(source), "--to", str(target)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not list(target.glob(".hostprep-data/tree/large*")):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        found = only_dataset()
        assert (found["state"], found["freshness"]) == ("copying", "unknown")
        process.kill()
    deadline = time.monotonic() + 60
    while (found := only_dataset())["state"] == "copying":  # its workers are still ending
        assert time.monotonic() < deadline
    assert found["state"] == "interrupted" and "hostprep stage" in found["reason"]
    hostprep("stage", source, "--to", target)
    assert only_dataset()["state"] == "staged"


def test_a_source_that_hangs_is_left_after_a_while(source: Path, target: Path) -> None:
    with failing_fs(source, read_only=True, where=source.parent) as fs:
        hostprep("stage", fs.mount, "--to", target, "--name", "data")
        fs.tell(Rule("/class-1/images", "readdir", None, hang_seconds=60))
        started = time.monotonic()
        found = only_dataset()
        assert time.monotonic() - started < 40
        assert (found["state"], found["freshness"]) == ("staged", "unknown")
        assert "10 s" in found["reason"]
        started = time.monotonic()
        hostprep("status", "--no-source")
        assert time.monotonic() - started < 40


def test_volumes_and_their_drift(source: Path, safe_dir: Path) -> None:
    volume = safe_dir / "volume"
    hostprep("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0", "--fstab")
    found = hostprep("status")
    (shown,) = found["volumes"]
    assert (shown["mounted"], shown["size_bytes"], shown["drift"]) == (True, 64 << 20, [])
    assert shown["in_fstab"] is True and shown["fstab_drift"] == []
    assert found["datasets"][0]["volume"] == str(volume)
    subprocess.run(["mount", "-o", "remount,size=32m", volume], check=True)
    (shown,) = hostprep("status")["volumes"]
    assert shown["size_bytes"] == 32 << 20 and any(
        "size 32.0 MiB" in words for words in shown["drift"]
    )
    shown_to_people = run_hostprep("status").stdout
    assert "drift from what hostprep mounted: size 32.0 MiB" in shown_to_people
    assert "drift from fstab: size 32.0 MiB" in shown_to_people
    subprocess.run(["umount", volume], check=True)
    found = hostprep("status")
    assert found["volumes"][0]["mounted"] is False
    assert found["datasets"][0]["state"] == "missing"


def test_a_line_whose_size_is_gone_or_no_size_is_drift(safe_dir: Path) -> None:
    """At the next boot it would be half of the RAM, or nothing at all."""
    volume, fstab = safe_dir / "v", Path(os.environ["HOSTPREP_FSTAB"])
    hostprep("mount", volume, "--size", "64M", "--reserve", "0", "--fstab")
    line = fstab.read_text()
    for size, words in (
        ("size=67108864,", []),
        ("", ["size 64.0 MiB instead of half the RAM: the line gives no size"]),
        ("size=banana,", ["size 64.0 MiB instead of size=banana, which is not a size"]),
    ):
        fstab.write_text(line.replace("size=67108864,", size))
        (shown,) = hostprep("status")["volumes"]
        assert shown["fstab_drift"] == words
    fstab.write_text(line.replace("size=67108864,", "size=40%,"))
    (shown,) = hostprep("status")["volumes"]
    (words_of_size,) = shown["fstab_drift"]
    assert words_of_size.startswith("size 64.0 MiB (67108864 bytes) instead of ")


@pytest.mark.parametrize("mounted", [True, False])
def test_a_line_that_may_stop_the_boot_is_drift(mounted: bool, safe_dir: Path) -> None:
    volume, fstab = safe_dir / "v", Path(os.environ["HOSTPREP_FSTAB"])
    hostprep("mount", volume, "--size", "64M", "--reserve", "0", "--fstab")
    if not mounted:
        subprocess.run(["umount", volume], check=True)
    line = fstab.read_text()
    for options, drift in (
        (",nofail", []),
        ("", ["its line lacks nofail: the boot stops if the mount fails"]),
        (",noauto", []),
    ):
        fstab.write_text(line.replace(",nofail", options))
        (shown,) = hostprep("status")["volumes"]
        assert shown["fstab_drift"] == drift


def test_a_line_of_somebody_else_s_is_no_line_of_the_volume_s(safe_dir: Path) -> None:
    volume, fstab = safe_dir / "v", Path(os.environ["HOSTPREP_FSTAB"])
    hostprep("mount", volume, "--size", "64M", "--reserve", "0", "--fstab")
    ours, theirs = fstab.read_text(), f"# disks\n/dev/sdz1 {volume}/ ext4 defaults 0 2\n"
    words = "line 2, which is not hostprep's, mounts /dev/sdz1 (ext4) there"
    for content, said, told in (
        (theirs, f"no line of hostprep's, gone after a reboot; {words}", words),
        (theirs + ours, f"has its line; {words}", words),
        (ours, "has its line", None),
        ("", "no line, gone after a reboot", None),
    ):
        fstab.write_text(content)
        (shown,) = hostprep("status")["volumes"]
        assert (shown["in_fstab"], shown["foreign_fstab_line"]) == (ours in content, told)
        assert f"\n  fstab: {said}\n" in run_hostprep("status").stdout


def test_a_line_that_somebody_pointed_elsewhere_makes_no_volume_there(safe_dir: Path) -> None:
    volume, fstab = safe_dir / "v", Path(os.environ["HOSTPREP_FSTAB"])
    hostprep("mount", volume, "--size", "64M", "--reserve", "0", "--fstab")
    fstab.write_text(fstab.read_text().replace(f" {volume} ", f" {volume}-moved "))
    (shown,) = hostprep("status")["volumes"]
    words = f"line 1, which was made for it, is for {volume}-moved now"
    assert (shown["path"], shown["in_fstab"]) == (str(volume), False)
    assert shown["foreign_fstab_line"] == words


def test_an_fstab_that_became_a_symlink_still_has_the_volume_s_line(safe_dir: Path) -> None:
    volume, fstab = safe_dir / "v", Path(os.environ["HOSTPREP_FSTAB"])
    wanted = ("mount", volume, "--size", "64M", "--reserve", "0", "--fstab")
    hostprep(*wanted)
    fstab.rename(fstab.with_name("real"))
    fstab.symlink_to("real")
    subprocess.run(["umount", volume], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "tmpfs", volume], check=True)
    (shown,) = hostprep("status")["volumes"]  # as after a boot, which followed the symlink
    assert (shown["mounted"], shown["in_fstab"], shown["problem"]) == (True, True, None)
    error = hostprep("unmount", volume, "--fstab", expect=5)["error"]
    assert "is a symlink to real" in error["message"]
    assert str(volume) in fstab.read_text() and fstab.is_symlink()


def test_a_volume_that_somebody_made_read_only_is_drift(safe_dir: Path) -> None:
    volume = safe_dir / "v"
    hostprep("mount", volume, "--size", "64M", "--reserve", "0", "--fstab")
    subprocess.run(["mount", "-o", "remount,ro", volume], check=True)
    (shown,) = hostprep("status")["volumes"]
    assert (shown["drift"], shown["fstab_drift"]) == (["it is mounted read-only"],) * 2
    assert shown["options"].startswith("ro,nosuid,")


@pytest.mark.parametrize("read_only", ["remount,ro", "remount,bind,ro"])
def test_each_option_stands_once(read_only: str, source: Path, safe_dir: Path) -> None:
    """The mount has its own, and its file system has; one alone may be read-only."""
    volume = safe_dir / "v"
    into = ("--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    options = hostprep("stage", source, *into)["volume"]["options"].split(",")
    assert options[0] == "rw" and len(options) == len(set(options))
    subprocess.run(["mount", "-o", read_only, volume], check=True)
    (shown,) = hostprep("status")["volumes"]
    read_only_now = shown["options"].split(",")
    assert read_only_now[0] == "ro" and set(read_only_now[1:]) >= set(options[1:])
    assert len(read_only_now) == len(set(read_only_now)) and "rw" not in read_only_now


@pytest.mark.parametrize("kept", [(), ("--fstab",)])
@pytest.mark.parametrize("fstype", ["tmpfs", "ramfs"])
def test_what_somebody_mounted_in_the_place_of_a_volume_is_not_called_ours(
    fstype: str, kept: tuple[str, ...], safe_dir: Path
) -> None:
    volume = safe_dir / "v"
    hostprep("mount", volume, "--size", "64M", "--reserve", "0", *kept)
    subprocess.run(["umount", volume], check=True)
    subprocess.run(["mount", "-t", fstype, "-o", "size=1M", "alien", volume], check=True)
    (shown,) = hostprep("status")["volumes"]
    assert shown["problem"] == f"what is mounted there ({fstype}, alien) is not hostprep's"
    assert (shown["mounted"], shown["drift"], shown["fstab_drift"]) == (None, [], [])
    assert f"volume {volume}: {shown['problem']}" in run_hostprep("status").stdout
    drafted = hostprep("spec", "init", safe_dir / "lab.yml")
    assert drafted["notes"] == [f"{volume} is left out: {shown['problem']}"]


def test_a_volume_that_lost_its_limit_is_drafted_with_the_size_it_was_mounted_with(
    safe_dir: Path,
) -> None:
    volume, drafted = safe_dir / "v", safe_dir / "lab.yml"
    hostprep("mount", volume, "--size", "64M", "--reserve", "0", "--fstab")
    subprocess.run(["mount", "-o", "remount,size=0", volume], check=True)
    found = hostprep("spec", "init", drafted)
    assert found["notes"] == [
        f"{volume} has no size limit now; this size is the one that it was mounted with"
    ]
    assert "size: 64M\n" in drafted.read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"format": "hostprep.manifest/1"}', "cannot be read"),
        ('{"format": "hostprep.manifest/9"}', "another version"),
    ],
)
def test_a_damaged_record_keeps_no_other_data_set_back(
    content: str, words: str, source: Path, target: Path, state: Path
) -> None:
    hostprep("stage", source, "--to", target)
    (record,) = state.glob("datasets/*/dataset.json")
    hostprep("stage", source, "--to", target, "--name", "other")
    record.write_text(content)
    found = hostprep("status")
    assert [each["name"] for each in found["datasets"]] == ["other"]
    (problem,) = found["problems"]
    assert str(record) in problem and words in problem
    assert problem in run_hostprep("status").stdout
    for line in (
        ("stage", source, "--to", target),
        ("unstage", "data"),
        ("unstage", target / "data"),
    ):
        refused = hostprep(*line, expect=1)["error"]
        assert refused["message"] == problem and "move the folder away" in refused["hint"]
    assert hostprep("unstage", "other")["left"] == []
    assert (target / "data").is_dir()


def test_a_damaged_record_of_a_volume_keeps_no_other_back(safe_dir: Path, state: Path) -> None:
    hostprep("mount", safe_dir / "a", "--size", "16M", "--reserve", "0")
    hostprep("mount", safe_dir / "b", "--size", "16M", "--reserve", "0")
    record = next(state.glob("volumes/*a.json"))
    record.write_text("null")
    found = hostprep("status")
    assert [each["path"] for each in found["volumes"]] == [str(safe_dir / "b")]
    assert str(record) in found["problems"][0]
    refused = hostprep("unmount", safe_dir / "a", expect=1)["error"]
    assert str(record) in refused["message"] and "remove the file" in refused["hint"]


def test_names_are_the_same_in_every_locale(safe_dir: Path) -> None:
    """One run's locale is UTF-8; the other's is ASCII, and Python is kept from making up for it."""
    source = make_source(safe_dir / "dätä", directories=1, files=2)
    hostprep("stage", source, "--to", safe_dir / "fast")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown = run_hostprep("status", env=ascii_only)
    assert shown.returncode == 0 and "data set dätä: staged, fresh" in shown.stdout, shown.stderr
    spec = safe_dir / "hostprep.yml"
    spec.write_text(f"datasets: [{{name: dätä, source: {source}, to: {safe_dir}/fast}}]\n")
    planned = run_hostprep("plan", spec, "--exit-code", env=ascii_only)
    assert planned.returncode == 0, planned.stderr
    gone = run_hostprep("unstage", safe_dir / "fast/dätä", env=ascii_only)
    assert gone.returncode == 0 and os.listdir(safe_dir / "fast") == []


def test_a_line_end_in_a_path_is_escaped_where_known_data_sets_are_listed(safe_dir: Path) -> None:
    source = make_source(safe_dir / "data", directories=1, files=2)
    for folder in ("odd\nhostprep: all is well", "other"):
        hostprep("stage", source, "--to", safe_dir / folder)
    for line in (("unstage", "none"), ("unstage", "data"), ("wait", "data")):
        told = run_hostprep(*line)
        assert told.returncode == 2 and len(told.stderr.splitlines()) == 2, told.stderr
        assert f"{safe_dir}/odd\\nhostprep: all is well/data" in told.stderr
