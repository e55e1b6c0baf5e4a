"""A volume that a later mount above it covers: what is at its path is not the volume."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hostprep.volumes.status import volume_statuses
from tests.kit.stagecraft import (
    findings,
    hostprep,
    make_source,
    only_dataset,
    run_hostprep,
    snapshot,
)

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def volume(safe_dir: Path) -> Path:
    """Mount a volume of 64 MiB at PLACE/volume, and another beside PLACE."""
    path = safe_dir / "place/volume"
    hostprep("mount", path, "--size", "64M", "--reserve", "0")
    hostprep("mount", safe_dir / "other", "--size", "16M", "--reserve", "0")
    return path


def cover(volume: Path, *, with_directory: bool) -> None:
    """Mount a small file system over the volume's parent."""
    place = volume.parent
    options = "size=8M,mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "disk", place], check=True)
    if with_directory:
        volume.mkdir()


def test_mount_a_leaves_a_volume_with_its_line_alone(safe_dir: Path) -> None:
    volume, fstab = safe_dir / "v", os.environ["HOSTPREP_FSTAB"]
    hostprep("mount", volume, "--size", "16M", "--reserve", "0", "--fstab")
    (volume / "file").touch()
    subprocess.run(["mount", "--fstab", fstab, "--all"], check=True)
    assert (volume / "file").exists()
    subprocess.run(["mount", "--fstab", fstab, volume], check=True)  # that one asked for it
    (shown,) = hostprep("status")["volumes"]
    assert shown["problem"] == (
        f"hostprep (tmpfs), mounted on {volume} after it, hides the volume {volume}"
    )
    subprocess.run(["umount", volume], check=True)
    line = Path(fstab).read_text()
    Path(fstab).write_text(line.replace("hostprep ", "tmpfs ", 1))  # as an earlier version wrote it
    (shown,) = hostprep("status")["volumes"]
    assert "`mount -a` would mount another over it" in shown["fstab_drift"][0]
    subprocess.run(["umount", volume], check=True)
    subprocess.run(["mount", "--fstab", fstab, "--all"], check=True)  # as at a boot
    older = ("mount", volume, "--size", "16M", "--reserve", "0", "--fstab")
    assert hostprep(*older)["changes"] == [] and hostprep("status")["volumes"][0]["mounted"]
    hostprep("unmount", volume, "--fstab")


@pytest.mark.parametrize("with_directory", [False, True])
def test_it_is_refused_and_the_others_are_shown(volume: Path, with_directory: bool) -> None:
    cover(volume, with_directory=with_directory)
    other, shown = hostprep("status")["volumes"]
    assert (other["mounted"], other["size_bytes"], other["problem"]) == (True, 16 << 20, None)
    assert shown["mounted"] is None and "size_bytes" not in shown
    problem = f"disk (tmpfs), mounted on {volume.parent} after it, hides the volume {volume}"
    assert shown["problem"] == problem
    told = problem.replace(f"the volume {volume}", "it")
    assert f"volume {volume}: {told}\n" in run_hostprep("status").stdout
    for line in (("mount", volume, "--size", "32M", "--reserve", "0"), ("unmount", volume)):
        refused = hostprep(*line, expect=5)
        assert refused["error"]["message"] == f"{problem}; nothing was changed."
        assert f"umount {volume.parent}" in refused["error"]["hint"]
    subprocess.run(["umount", volume.parent], check=True)
    assert hostprep("status")["volumes"][1]["size_bytes"] == 64 << 20


@pytest.mark.parametrize("with_directory", [False, True])
def test_nothing_is_staged_onto_what_covers_it(
    volume: Path, safe_dir: Path, with_directory: bool
) -> None:
    source = make_source(safe_dir / "data")
    line = ("stage", source, "--to-tmpfs", "32M", "--at", volume, "--reserve", "0")
    hostprep(*line)
    cover(volume, with_directory=with_directory)
    before = snapshot(volume.parent)
    refused = hostprep(*line, expect=5)
    assert "hides the volume" in refused["error"]["message"]
    assert snapshot(volume.parent) == before
    found = only_dataset()
    assert found["state"] == "missing" and "hides the volume" in found["reason"]
    hostprep("unstage", "data", expect=5)
    subprocess.run(["umount", volume.parent], check=True)
    assert hostprep(*line)["copied_files"] == 0


def test_a_spec_is_planned_around_it(volume: Path, safe_dir: Path) -> None:
    cover(volume, with_directory=False)
    make_source(safe_dir / "data")
    spec = safe_dir / "hostprep.yml"
    spec.write_text(
        f"volumes: [{{path: {volume}, size: 64M}}, {{path: {safe_dir}/other, size: 24M}}]\n"
        f"datasets: [{{name: data, source: {safe_dir}/data, volume: {volume}, at_boot: true}}]\n"
    )
    done = run_hostprep("plan", spec, "--reserve", "0")
    assert done.returncode == 5, done.stderr
    assert "hides the volume" in done.stdout + done.stderr
    assert "grow to 24.0 MiB" in done.stdout + done.stderr
    drafted = run_hostprep("spec", "init", safe_dir / "drafted.yml")
    assert "hides the volume" in drafted.stdout + drafted.stderr


def test_an_ordinary_user_is_shown_the_others(volume: Path) -> None:
    volume.parent.chmod(0o700)
    os.seteuid(65534)
    try:
        other, shown = volume_statuses()
    finally:
        os.seteuid(0)
    assert other.live is not None and other.live.size_bytes == 16 << 20
    assert shown.live is None and shown.problem == f"{volume} cannot be opened: Permission denied"


def test_one_mounted_on_the_very_path_hides_it_too(volume: Path, safe_dir: Path) -> None:
    """A tmpfs is what the spec wants there, but that one is not the volume."""
    source = make_source(safe_dir / "data", directories=1, files=2)
    line = ("stage", source, "--to-tmpfs", "32M", "--at", volume, "--reserve", "0")
    hostprep(*line)
    spec = safe_dir / "hostprep.yml"
    spec.write_text(
        f"volumes: [{{path: {volume}, size: 64M}}]\n"
        f"datasets: [{{name: data, source: {source}, volume: {volume}}}]\n"
    )
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "scratch", volume], check=True)
    problem = f"scratch (tmpfs), mounted on {volume} after it, hides the volume {volume}"
    found = hostprep("status")
    assert found["volumes"][1]["problem"] == problem
    assert (found["datasets"][0]["state"], found["datasets"][0]["reason"]) == ("missing", problem)
    assert hostprep(*line, expect=5)["error"]["message"].startswith(problem)
    checked = findings(spec, "--only", "HP001,HP010,HP011")
    assert [each["status"] for each in checked] == ["FAIL", "SKIP", "SKIP"]
    assert "but hidden: scratch (tmpfs)" in checked[0]["message"]
    subprocess.run(["umount", volume], check=True)
    assert hostprep("status")["datasets"][0]["state"] == "staged"


def test_one_moved_onto_it_is_named_and_gone_it_hides_nothing(safe_dir: Path) -> None:
    """The kernel lists by age: what is older than the volume and was moved onto it comes first."""
    volume, place = safe_dir / "volume", safe_dir / "place"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "theirs", place], check=True)
    hostprep("mount", volume, "--size", "16M", "--reserve", "0")
    subprocess.run(["mount", "--move", place, volume], check=True)
    refused = hostprep("unmount", volume, expect=5)["error"]
    assert refused["message"] == (
        f"theirs (tmpfs), mounted on {volume} after it, hides the volume {volume}; nothing was"
        " changed."
    )
    assert f"umount {volume}" in refused["hint"]
    subprocess.run(["umount", volume], check=True)
    assert hostprep("unmount", volume)["changed"] is True


def test_a_hidden_volume_keeps_no_other_from_being_judged(volume: Path, safe_dir: Path) -> None:
    source = make_source(safe_dir / "data", directories=1, files=2)
    hostprep("stage", source, "--to-tmpfs", "16M", "--at", safe_dir / "other", "--reserve", "0")
    cover(volume, with_directory=True)
    spec = safe_dir / "hostprep.yml"
    spec.write_text(
        f"volumes: [{{path: {volume}, size: 64M}}, {{path: {safe_dir}/other, size: 16M}}]\n"
        f"datasets: [{{name: data, source: {source}, volume: {safe_dir}/other}}]\n"
    )
    found = findings(spec, "--only", "HP001,HP002,HP011")
    told = {(each["code"], each["subject"]): each["status"] for each in found}
    assert told["HP001", str(volume)] == "FAIL"
    assert told["HP001", f"{safe_dir}/other"] == told["HP002", f"{safe_dir}/other"] == "PASS"
    assert told["HP011", "data"] == "PASS"
