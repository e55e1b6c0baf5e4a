"""The mount and unmount commands where nothing is mounted: usage, refusals, dry runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.cli.options import mode_of, size_in_bytes
from hostprep.cli.plans import show_plan
from hostprep.errors import UsageError
from hostprep.host.memory import ram_for_percent
from hostprep.system.accounts import owner_of
from hostprep.units import GIB
from hostprep.volumes.model import Step


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("mount",),
        ("mount", "/mnt/x"),
        ("mount", "/mnt/x", "--size", "1.5G"),
        ("mount", "/mnt/x", "--size", "-1"),
        ("mount", "/mnt/x", "--size", "0"),
        ("mount", "/mnt/x", "--size", "0%", "--dry-run"),
        ("stage", "/", "--to-tmpfs", "0G"),
        ("mount", "/mnt/x", "--size", "99999999999999999999G", "--force"),
        ("mount", "/mnt/x", "--size", "1G", "--mode", "rwx"),
        ("mount", "/mnt/x", "--size", "1G", "--mode", "10000"),
        ("mount", "/mnt/x", "--size", "1G", "--owner", "no-such-user"),
        ("mount", "/mnt/x", "--size", "1G", "--owner", "root:no-such-group"),
        ("mount", "/mnt/x", "--size", "1G", "--inodes", "0"),
        ("mount", "/mnt/x", "--size", "1G", "--inodes", "1_000", "--dry-run"),
        ("mount", "/mnt/x", "--size", "1G", "--inodes", "٣", "--dry-run"),
        ("mount", "/mnt/x", "--size", "1G", "--inodes", "18014398509481984", "--force"),
        ("mount", "/mnt/x", "--size", "1G", "--inodes", "18446744073709551616", "--force"),
        ("mount", "/mnt/x", "--size", "1G", "--mode", "٧٥٥", "--dry-run"),
        ("mount", "/mnt/x", "--size", "١G", "--dry-run"),
        ("mount", "/mnt/x", "--size", "1G", "--huge", "enormous"),
        ("mount", "/mnt/x", "--size", "1G", "--reserve", "lots"),
        ("unmount",),
    ],
)
def test_usage_errors(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--json"]) == 2
    found = document(capsys)
    assert (found["ok"], found["error"]["code"]) == (False, "usage")
    assert found["schema"] == f"hostprep.{words[0]}/1"


@pytest.mark.parametrize(
    "path", ["../relative", "/", "/etc/data", "/mnt/../etc", "/mnt/a\nb", "/dev/shm/v", "/tmp/v"]
)
@pytest.mark.parametrize("extra", [(), ("--dry-run",), ("--force",)])
def test_refused_paths(
    path: str, extra: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mount", path, "--size", "1G", "--json", *extra]) == 5
    found = document(capsys)
    assert found["error"]["code"] == "refused"
    assert found["error"]["hint"]


def test_size_0_is_no_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mount", "/mnt/hostprep-test", "--size", "0"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "'0' is not a size for a volume: one of size 0" in captured.err


def test_a_size_that_lost_its_unit_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mount", "/mnt/hostprep-test/v", "--reserve", "0", "--inodes", "9", "--dry-run"]
    assert run([*words, "--size", "30"]) == 0
    assert "warning: /mnt/hostprep-test/v: 30 B is next to nothing" in capsys.readouterr().err
    for size, warned in (("30", True), ("1048575", True), ("1M", False)):
        assert run([*words, "--json", "--size", size]) == 0
        said = [words for words in document(capsys)["warnings"] if "30G is 30 GiB" in words]
        assert len(said) == warned


def test_a_dry_run_prints_the_plan_and_changes_nothing(
    own_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    words = ["mount", "/mnt/hostprep-test/v", "--size", "64M", "--reserve", "0", "--dry-run"]
    assert run([*words, "--fstab", "--json"]) == 0
    found = document(capsys)
    assert found["schema"] == "hostprep.mount/1"
    assert (found["ok"], found["changed"], found["dry_run"]) == (True, False, True)
    subjects = [change["subject"] for change in found["changes"]]
    assert subjects == ["/mnt/hostprep-test", *["/mnt/hostprep-test/v"] * 2, "fstab"]
    assert found["planned"]["size_bytes"] == 64 << 20
    assert found["volume"] is None
    assert found["budget"]["fits"] is True
    assert run(words) == 0
    text = capsys.readouterr().out
    assert text.count("would: ") == 3
    assert Path("/proc/self/mountinfo").read_text() == before
    assert not Path("/mnt/hostprep-test").exists()
    assert list(own_state.iterdir()) == []


def test_unmounting_nothing_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["unmount", "/mnt/hostprep-test", "--json"]) == 0
    found = document(capsys)
    assert (found["changed"], found["changes"]) == (False, [])
    assert found["unchanged"] == [
        {"subject": "/mnt/hostprep-test", "reason": "no volume is mounted there", "as_wanted": True}
    ]


def test_where_no_volume_can_be_another_directory_is_no_advice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["unmount", "/mnt/a\nb"]) == 5
    said = capsys.readouterr().err
    assert "control characters" in said and "hostprep status" in said and "choose" not in said


@pytest.mark.parametrize(
    "words",
    [
        ("mount", "v", "--size", "1M"),
        ("unmount", "v"),
        ("unstage", "./v"),
        ("facts", "."),
        ("probe", "v"),
        ("stage", "/etc", "--to", "v"),
        ("stage", "--to", "/nowhere"),
        ("verify",),
        ("recommend", "--dataset", "/etc", "--seconds", "5"),
        ("check", "-i", "here,"),
    ],
)
def test_a_current_directory_that_is_gone_is_no_bug(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run([*words, "--json"]) == 2
    assert "the current directory was removed" in document(capsys)["error"]["message"]
    assert run(["unmount", "/mnt/hostprep-test"]) == 0


@pytest.mark.parametrize("path", ["/", "/proc"])
def test_unmounting_what_is_the_systems_is_refused_and_how_to_do_it_is_not_told(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["unmount", path, "--discard-data", "--fstab"]) == 5
    assert capsys.readouterr().err == (
        f"hostprep: {path} belongs to the system; nothing was changed.\n"
        "  -> `hostprep status` shows which volumes there are\n"
    )


@pytest.mark.parametrize(
    "words", [("mount", "/", "--size", "1M"), ("stage", ".", "--to-tmpfs", "1M", "--at", "/")]
)
def test_the_root_is_refused_as_the_systems(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert run([*words, "--dry-run"]) == 5
    said = capsys.readouterr().err
    assert "/ belongs to the system; nothing was changed." in said and "umount" not in said


def test_without_root_it_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(["mount", "/mnt/hostprep-test", "--size", "64M", "--reserve", "0"]) == 1
    err = capsys.readouterr().err
    assert "needs root" in err and "sudo" in err and "/dev/shm" in err
    assert not Path("/mnt/hostprep-test").exists()


@pytest.mark.parametrize(("user", "lines"), [(0, 0), (1000, 1)])
def test_a_dry_run_without_root_says_what_the_run_needs(
    user: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    words = ["mount", "/mnt/hostprep-test", "--size", "64M", "--reserve", "0", "--dry-run"]
    assert run(words) == 0
    assert capsys.readouterr().out.count("root: needed for that") == lines


def test_percentages_are_of_the_ram() -> None:
    assert size_in_bytes("50%") == ram_for_percent() // 2 // 4096 * 4096
    assert size_in_bytes("2g") == 2 * GIB


def test_modes() -> None:
    assert mode_of("0755") == mode_of("755") == 0o755
    assert mode_of("1777") == 0o1777
    for text in ("", "-1", "0o755", "0x1ff", "888"):
        with pytest.raises(UsageError):
            mode_of(text)


def test_owners() -> None:
    assert owner_of("root") == owner_of("0") == (0, 0)
    assert owner_of("root:12345") == (0, 12345)
    assert owner_of("54321:root") == (54321, 0)
    with pytest.raises(UsageError, match="54321"):
        owner_of("54321")


def test_only_a_plan_without_a_step_has_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    step = Step("/mnt/x", "mount it", "it is not mounted")
    show_plan([step], (), (), dry_run=True)
    would = "would: /mnt/x: mount it (it is not mounted)\ndry run: nothing was changed\n"
    assert capsys.readouterr().out == would
    show_plan([step], (), (), dry_run=False)
    assert capsys.readouterr().out == "done: /mnt/x: mount it\n"
    show_plan((), (), (), dry_run=True)
    assert capsys.readouterr().out == "nothing to do\n"
