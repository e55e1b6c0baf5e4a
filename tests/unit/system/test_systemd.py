"""What units are called, and whose count at boot in place of a line in fstab."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hostprep.system.systemd import (
    escape_name,
    fstab_generator,
    generate_mount_units,
    mount_unit,
    own_mount_unit,
    stop_unit,
    unescape_name,
)

NAMES = {
    "plain": "plain",
    "a.b_c:d": "a.b_c:d",
    ".hidden": "\\x2ehidden",
    "with-dash": "with\\x2ddash",
    "a b\\c": "a\\x20b\\x5cc",
    "ü%": "\\xc3\\xbc\\x25",
    "mnt/.x/y": "mnt-.x-y",
}


@pytest.mark.parametrize(("text", "escaped"), NAMES.items())
def test_names_are_escaped_as_systemd_does_it(text: str, escaped: str) -> None:
    assert escape_name(text) == escaped
    assert unescape_name(escaped) == text


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="needs systemd-escape")
def test_systemd_agrees() -> None:
    done = subprocess.run(["systemd-escape", *NAMES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(NAMES.values())


def test_a_unit_of_the_admins_counts_whatever_it_leads_to(own_state: Path) -> None:
    unit = own_state / "units" / mount_unit("/mnt/my-data")
    assert unit.name == "mnt-my\\x2ddata.mount"
    assert own_mount_unit("/mnt/my-data") is None
    unit.parent.mkdir()
    for target in ("/dev/null", "/nowhere/at/all"):  # a mask, and a link into what is not mounted
        unit.symlink_to(target)
        assert own_mount_unit("/mnt/my-data") == unit
        unit.unlink()


@pytest.mark.skipif(fstab_generator() is None, reason="needs systemd's fstab generator")
def test_which_mounts_the_boot_fails_without(tmp_path: Path) -> None:
    generator = fstab_generator()
    assert generator is not None
    fstab, into = tmp_path / "fstab", tmp_path / "units"
    fstab.write_text("tmpfs /mnt/must tmpfs size=1m\ntmpfs /mnt/may tmpfs nofail,size=1m\n")
    into.mkdir()
    found = generate_mount_units(generator, fstab, into, timeout_seconds=60)
    assert [name for name, _ in found.units] == ["mnt-may.mount", "mnt-must.mount"]
    assert found.required == {"mnt-must.mount"}


def test_a_unit_that_has_not_failed_has_nothing_to_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl, log = tmp_path / "systemctl", tmp_path / "log"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" = stop ]\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    stop_unit("x.service")
    assert log.read_text() == "stop -- x.service\nreset-failed -- x.service\n"
