"""What a check knows of a boot service, asked of this machine with folders of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostprep.converging.boot_record import BootRecord
from hostprep.converging.boot_template import render
from hostprep.readiness.checks._boot import ask_boot
from hostprep.readiness.context import Context
from hostprep.readiness.model import Level

UNIT = "hostprep-stage-data.service"


def test_a_service_whose_program_is_gone_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(tmp_path))
    program = tmp_path / 'its "50 %" $HOME'
    command = (str(program), "restage", "data")
    record = BootRecord("data", "/srv", "/mnt", None, None, "/", None, False)
    (tmp_path / UNIT).write_bytes(render(record, command, (), ("multi-user.target",), ()))
    for there in (False, True):
        found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
        assert found.lost_program == (None if there else str(program))
        program.touch()


def test_a_masked_service_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(tmp_path))
    (tmp_path / UNIT).write_text("[Service]\n")
    found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
    assert found.installed and not found.masked
    (tmp_path / UNIT).unlink()
    (tmp_path / UNIT).symlink_to("/dev/null")
    found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
    assert found.masked and not found.installed
