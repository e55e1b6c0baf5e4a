"""The unit as systemd itself understands it, whatever the data set is called."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.converging.boot_links import AT_BOOT
from hostprep.converging.boot_record import BootRecord, dataset_of, unit_name
from hostprep.converging.boot_template import (
    is_ours,
    own_command,
    own_environment,
    own_programs,
    render,
)
from tests.kit.stagecraft import NOBODY

SYSTEMD = next(
    (path for path in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd") if os.path.exists(path)),
    "",
)
RECORD = BootRecord("data", "/srv/data", "/mnt/ram", "/mnt/ram", 1 << 20, "/srv", None, False)
ODD = "a b-c%n%%$HOME ${HOME}$$\"x'y\\x20;z\\"

needs_systemd = pytest.mark.skipif(
    not (SYSTEMD and shutil.which("systemd-analyze")), reason="needs the package systemd"
)


def open_to_all() -> str:
    """Return a folder for temporary files that every user reaches, whatever TMPDIR is."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = Path(place).resolve()
        if all(each.stat().st_mode & 0o001 for each in (path, *path.parents)):
            return place
    pytest.skip("no folder for temporary files is open to other users")


@pytest.fixture
def units() -> Iterator[Path]:
    """Return a folder that everybody can read: systemd refuses to be tested as root."""
    place = open_to_all() if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="hostprep-units-", dir=place) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def dump(
    units: Path,
    *records: BootRecord,
    command: tuple[str, ...],
    feeders: tuple[str, ...] = (),
    automounted_by: tuple[str, ...] = (),
) -> str:
    """Return what systemd makes of a boot to multi-user.target with these units."""
    wants = units / "multi-user.target.wants"
    wants.mkdir()
    for record in records:
        own = tuple(unit for unit in feeders if unit != record.unit)
        content = render(
            record, command, ("HOSTPREP_STATE_DIR=/a b",), (AT_BOOT, *automounted_by), own,
            automounted=bool(automounted_by),
        )  # fmt: skip
        (units / record.unit).write_bytes(content)
        (wants / record.unit).symlink_to(units / record.unit)
    path = f"{units}:/usr/lib/systemd/system:/lib/systemd/system"
    done = subprocess.run(
        [*(NOBODY if os.geteuid() == 0 else ()), SYSTEMD, "--test", "--system",
         "--unit=multi-user.target", "--log-target=console"],
        env={**os.environ, "SYSTEMD_UNIT_PATH": path, "LC_ALL": "C"},  # its arrows in ASCII
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    said = done.stdout + done.stderr
    if "create directory '/run/systemd/'" in said:
        pytest.skip("this systemd (257) is tested only where /run/systemd is, as booting makes it")
    return said


def block(dumped: str, unit: str) -> list[str]:
    """Return the lines on one unit."""
    (found,) = re.findall(
        rf"^\t-> Unit {re.escape(unit)}:\n(.*?)(?=^\t-> Unit |\Z)", dumped, re.M | re.S
    )
    return [
        re.sub(r" \((?:origin|destination)-[a-z -]+\)$", "", line.strip())
        for line in found.splitlines()
    ]


@needs_systemd
def test_systemd_understands_what_is_meant(units: Path) -> None:
    odd = dataclasses.replace(
        RECORD, name=ODD, source=f"/srv/{ODD}", parent=f"/mnt/{ODD}", remote=True
    )
    command = (sys.executable, "-m", "hostprep")
    dumped = dump(units, RECORD, odd, command=command)
    plain, strange = block(dumped, RECORD.unit), block(dumped, odd.unit)
    assert "RequiresMountsFor: /srv/data" in plain
    assert "RequiresMountsFor: /mnt/ram" in plain
    # Where hostprep itself and its state are: neither need be on the root file system.
    assert f"RequiresMountsFor: {sys.executable}" in plain
    assert "RequiresMountsFor: /a b" in plain
    assert f"RequiresMountsFor: /srv/{ODD}" in strange
    assert f"RequiresMountsFor: /mnt/{ODD}" in strange
    assert f"Description: Stage {ODD} into /mnt/{ODD} (hostprep)" in strange
    assert "Environment: HOSTPREP_STATE_DIR=/a b" in strange
    (line,) = [line for line in strange if line.startswith("Command Line:")]
    shown = f"printf '%s\\n' {line.removeprefix('Command Line: ')}"  # as a shell would need it
    words = subprocess.run(["sh", "-c", shown], capture_output=True, text=True).stdout.splitlines()
    # $$ stands for one dollar when the command is run.
    assert words == [*command, "restage", ODD.replace("$", "$$")]


@needs_systemd
def test_an_automount_that_lets_go_of_the_source_does_not_have_it_staged_again(units: Path) -> None:
    """It would stop the service, which the next look at the source starts by the mount."""
    (units / "srv.mount").write_text("[Mount]\nWhat=none\nWhere=/srv\nType=tmpfs\n")
    dumped = dump(units, RECORD, command=("/bin/true",), automounted_by=("srv.mount",))
    lines = block(dumped, RECORD.unit)
    assert {"Wants: srv.mount", "After: srv.mount"} <= set(lines)
    assert "Requires: srv.mount" not in lines
    # Of others there need not be a unit, and one that is asked for and missing starts nothing.
    assert b"Wants=" not in render(RECORD, ("/bin/true",), (), (AT_BOOT, "srv.mount"))


@needs_systemd
def test_the_boot_does_not_wait_for_it(units: Path) -> None:
    remote = dataclasses.replace(RECORD, name="far", remote=True)
    dumped = dump(units, RECORD, remote, command=("/bin/true",))
    boot = block(dumped, "multi-user.target")
    ours = {unit: block(dumped, unit) for unit in (RECORD.unit, remote.unit)}
    for unit, lines in ours.items():
        assert f"Wants: {unit}" in boot
        assert f"After: {unit}" not in boot
        assert [line for line in lines if line.startswith("Before:")] == ["Before: shutdown.target"]
        assert "Conflicts: shutdown.target" in lines
        assert "After: sysinit.target" in lines
        # Not "Requires": a mount in an emergency shell would have the boot go on, and end it.
        assert "Requisite: basic.target" in lines and "Requires: sysinit.target" not in lines
        assert "TimeoutStartSec: infinity" in lines
    assert "After: network-online.target" in ours[remote.unit]
    assert "Wants: network-online.target" in ours[remote.unit]
    assert "After: autofs.service" in ours[remote.unit]
    assert "After: network-online.target" not in ours[RECORD.unit]


@needs_systemd
def test_it_waits_for_what_stages_its_source_and_does_not_fail_with_it(units: Path) -> None:
    odd = dataclasses.replace(RECORD, name=ODD)
    dumped = dump(units, RECORD, odd, command=("/bin/true",), feeders=(odd.unit,))
    fed = block(dumped, RECORD.unit)
    assert {f"After: {odd.unit}", f"Wants: {odd.unit}"} <= set(fed)
    assert f"Requires: {odd.unit}" not in fed
    assert f"After: {RECORD.unit}" not in block(dumped, odd.unit)


@needs_systemd
@pytest.mark.parametrize("name", ["data", ODD])
def test_systemd_analyze_finds_nothing(tmp_path: Path, name: str) -> None:
    record = dataclasses.replace(RECORD, name=name, remote=True)
    path = tmp_path / record.unit
    path.write_bytes(render(record, own_command(), own_environment()))
    done = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60
    )
    about_it = [line for line in done.stderr.splitlines() if "hostprep" in line]
    assert (done.returncode, about_it) == (0, [])


@needs_systemd
def test_systemd_finds_the_program_whatever_its_folder_is_called(tmp_path: Path) -> None:
    """Quotes and backslashes aside, which systemd takes in no program's path."""
    program = tmp_path / "a b-c%n%%$HOME ${HOME}$$;z/hostprep"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / RECORD.unit
    path.write_bytes(render(RECORD, (str(program), "$HOME"), ()))
    done = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60
    )
    about_it = [line for line in done.stderr.splitlines() if "hostprep" in line]
    assert (done.returncode, about_it) == (0, [])
    assert '/hostprep" "$$HOME" "restage" ' in path.read_text()


@needs_systemd
@pytest.mark.parametrize("name", ["data", "a.b", "city-scapes 2", "ä%$\"'\\", "x" * 200, ODD])
def test_names_are_escaped_as_systemd_escape_does(name: str) -> None:
    done = subprocess.run(
        ["systemd-escape", "--", name], capture_output=True, text=True, check=True
    )
    unit = unit_name(name)
    assert unit == f"hostprep-stage-{done.stdout.strip()}.service"
    assert dataset_of(unit) == name


def test_what_lies_below_a_tree_that_would_be_read_only_is_left_as_it_is() -> None:
    """Read-only, such a tree is a mount point of the service's, as which no record has it."""
    kept = ("HOSTPREP_STATE_DIR=/srv/state", "HOSTPREP_FSTAB=/etc/other")
    assert "\nProtectSystem=full\n" in render(RECORD, ("/usr/bin/true",), kept).decode()
    target = dataclasses.replace(RECORD, parent="/usr/local/data")
    source = dataclasses.replace(RECORD, source="/usr/share/data")
    for record, variables in (
        (target, ()),
        (source, ()),
        (RECORD, ("HOSTPREP_STATE_DIR=/usr/local/state",)),
        (RECORD, ("HOSTPREP_RUN_DIR=/etc/run=1",)),
    ):
        assert "ProtectSystem" not in render(record, ("/bin/true",), variables).decode()


def test_the_marker_is_the_first_line() -> None:
    text = render(RECORD, ("/bin/true",), ())
    assert is_ours(text) and not is_ours(b"[Unit]\n" + text)


def test_it_carries_where_our_things_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", "/moved here")
    for name in ("HOSTPREP_RUN_DIR", "HOSTPREP_FSTAB"):
        monkeypatch.delenv(name)
    assert own_environment() == ("HOSTPREP_STATE_DIR=/moved here",)
    monkeypatch.delenv("HOSTPREP_STATE_DIR")
    assert own_environment() == ()


def test_the_command_may_be_where_hostprep_is_going_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTPREP_COMMAND", "/opt/hostprep/bin/hostprep")
    assert own_command() == ("/opt/hostprep/bin/hostprep",)
    assert b'ExecStart="/opt/hostprep/bin/hostprep" ' in render(RECORD, own_command(), ())


def test_of_a_command_elsewhere_what_runs_now_is_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A preview's interpreter and modules: at boot root runs others.
    monkeypatch.setenv("HOSTPREP_COMMAND", "/opt/hostprep/bin/hostprep")
    assert own_programs() == ("/opt/hostprep/bin/hostprep",)
    monkeypatch.delenv("HOSTPREP_COMMAND")
    script, interpreter, module = own_programs()
    assert (script, interpreter) == (own_command()[0], sys.executable)
    assert Path(module).parent.name == "converging"


def test_the_command_is_this_installation() -> None:
    done = subprocess.run(
        [*own_command(), "restage", "nothing"], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 2 and "'nothing' is to be staged at boot" in done.stderr
