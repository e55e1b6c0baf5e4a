"""What a check knows of a boot service, asked of this machine with folders of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hostprep.converging.boot_command import astray
from hostprep.converging.boot_record import BootRecord
from hostprep.converging.boot_template import render
from hostprep.readiness.checks._boot import _held, ask_boot
from hostprep.readiness.checks.dataset_boot import _without_links
from hostprep.readiness.context import Context
from hostprep.readiness.model import Level
from hostprep.system import systemd, unit_commands

UNIT = "hostprep-stage-data.service"


def test_a_service_whose_program_is_gone_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(tmp_path))
    program = tmp_path / 'its "50 %" $HOME'
    command = (str(program),)
    record = BootRecord("data", "/srv", "/mnt", None, None, "/", None, False)
    (tmp_path / UNIT).write_bytes(render(record, command, (), ("multi-user.target",), ()))
    for there in (False, True):
        found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
        assert found.lost_program == (None if there else str(program))
        program.touch()


@pytest.mark.parametrize(
    ("lines", "overridden", "lost"),
    [
        ("ExecStart=\nExecStart=/usr/bin/true", True, None),
        ("ExecStart=", True, None),
        ("# no\nExecStart = \nExecStart=-/usr/bin/env \\\n  hostprep restage data", False, None),
        ("ExecStart=\nExecStart=/gone/hostprep restage data", False, "/gone/hostprep"),
        ("ExecStart=/usr/bin/true", False, None),  # beside it
        ("Nice=5\n[Unit]\nExecStart=", False, None),
        ("ExecStart=\nExecStart=/bin/sh -c 'hostprep restage data; true'", False, None),
        ("ExecStart=\nExecStart=/bin/sh -c 'hostprep restage \"data\"'", False, None),
        ("ExecStart=\nExecStart=/bin/sh -c 'hostprep restage \\'data\\''", False, None),
        ("ExecStart=\nExecStart=/usr/bin/env hostprep restage %j", False, None),
        ("ExecStart=\nExecStart=/usr/bin/env hostprep restage database", True, None),
        (
            "ExecStart=\nExecStart=/usr/bin/env -i /gone/hostprep restage data",
            False,
            "/gone/hostprep",
        ),
        ("Environment=A=b\\\\\nExecStart=\nExecStart=/bin/true", True, None),
        ("Environment=A=b \\\nExecStart=\nNice=5", False, None),
    ],
)
def test_a_drop_in_that_exchanges_the_program_is_seen(
    lines: str, overridden: bool, lost: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(tmp_path))
    record = BootRecord("data", "/srv", "/mnt", None, None, "/", None, False)
    drop_in = tmp_path / f"{UNIT}.d/override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(f"[Service]\n{lines}\n")
    (tmp_path / UNIT).write_bytes(render(record, ("/usr/bin/true",), ()))
    found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
    assert found.overridden_by == (str(drop_in) if overridden else None)
    assert (found.lost_program, found.lost_in) == (lost, str(drop_in) if lost else None)
    drop_in.rename(drop_in.with_suffix(".off"))
    found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
    assert found.overridden_by is found.lost_program is None


@pytest.mark.parametrize(
    ("lines", "hindered_by"),
    [
        ("[Service]\nUser=alice", "User=alice"),
        ("[Service]\nUser=alice\nUser=", None),
        ("[Service]\nUser = root", None),
        ("[Service]\nUser=0\nNice=5", None),
        ("[Unit]\nUser=alice", None),  # which systemd ignores
        ("[Unit]\nConditionPathExists=/gone", "ConditionPathExists=/gone"),
        ("[Unit]\nAssertACPower=true\nConditionHost=\n", "AssertACPower=true"),
        ("[Unit]\nConditionHost=a\nConditionVirtualization=", None),  # lifts those of any kind
        ("[Service]\nConditionPathExists=/gone", None),
    ],
)
def test_a_setting_that_may_keep_a_service_from_staging_is_seen(
    lines: str, hindered_by: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(tmp_path))
    record = BootRecord("data", "/srv", "/mnt", None, None, "/", None, False)
    text = render(record, ("/usr/bin/true",), ()).decode()
    drop_in = tmp_path / f"{UNIT}.d/override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(lines)
    (tmp_path / UNIT).write_text(text)
    found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
    assert found.hindered_by == hindered_by
    assert found.hindered_in == (str(drop_in) if hindered_by else None)
    drop_in.unlink()
    (tmp_path / UNIT).write_text(f"{text}\n{lines}\n")
    found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
    assert (found.hindered_by, found.hindered_in, found.ours) == (hindered_by, None, True)


def looked_at(unix_seconds: float, **results: str) -> dict[str, str]:
    """Return what systemd shows of a unit's conditions that it looked at then."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - unix_seconds)
    shown = {"ConditionTimestampMonotonic": str(int(since_boot * 1e6))}
    return shown | {"ConditionResult": "yes", "AssertResult": "yes"} | results


@pytest.mark.parametrize(
    ("later_seconds", "results", "held"),
    [
        (1, {}, True),
        (-60, {}, False),  # somebody has written it since: it may be another
        (1, {"ConditionResult": "no"}, False),
        (1, {"AssertResult": "no"}, False),
    ],
)
def test_a_condition_held_where_systemd_saw_it_so(
    later_seconds: int,
    results: dict[str, str],
    held: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit = tmp_path / UNIT
    unit.touch()
    shown = looked_at(unit.stat().st_ctime + later_seconds, **results)
    monkeypatch.setattr(systemd, "show_unit", lambda _unit, _properties: shown)
    assert _held(unit) is held
    shown.clear()  # systemd does not answer
    assert not _held(unit)


def test_a_condition_that_systemd_has_not_seen_yet_has_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside one that held: the next boot will ask both."""
    unit, drop_in = tmp_path / UNIT, tmp_path / f"{UNIT}.d/new.conf"
    drop_in.parent.mkdir()
    unit.touch()
    passed = stop_the_clocks(monkeypatch)
    looked = unit.stat().st_ctime + 0.001
    monkeypatch.setattr(systemd, "show_unit", lambda _unit, _properties: looked_at(looked))
    assert _held(unit)
    drop_in.touch()
    while drop_in.stat().st_ctime < looked + 0.001:  # a file's time is that of the last tick
        drop_in.touch()
    assert not _held(unit)

    def slowly(path: Path) -> tuple[Path, ...]:
        passed.append(60)  # as on a disk that was asleep
        return unit_files(path)

    unit_files = unit_commands.unit_files
    monkeypatch.setattr(unit_commands, "unit_files", slowly)
    assert not _held(unit)


def stop_the_clocks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no time pass but the seconds of the list that is returned.

    A busy machine may read one clock long before the other.
    """
    now, booted, passed = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), list[float]()
    monkeypatch.setattr(time, "time", lambda: now + sum(passed))
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: booted + sum(passed))
    return passed


def test_a_drop_in_without_its_unit_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(tmp_path))
    drop_in = tmp_path / f"{UNIT}.d/override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nUser=alice\n")
    found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
    assert (found.installed, found.hindered_by) == (False, None)


@pytest.mark.parametrize("name", ["$HOME 50%", 'its "own"', "back\\slash", "'x", "%%$$", "data!"])
def test_a_unit_as_it_was_written_stages_whatever_the_name(name: str, tmp_path: Path) -> None:
    record = BootRecord(name, "/srv", "/mnt", None, None, "/", None, False)
    text = render(record, ("/usr/bin/true",), ())
    (tmp_path / UNIT).write_bytes(text)
    assert astray(tmp_path / UNIT, name) is None
    (tmp_path / UNIT).write_bytes(text.replace(b"restage", b"facts"))
    assert astray(tmp_path / UNIT, name) is not None


@pytest.mark.parametrize(
    ("edit", "edited"),
    [
        (("restage", "facts"), True),
        (("ExecStart=", "ExecStart=\n#"), True),
        (("Nice=10", "Nice=19"), False),
    ],
)
def test_a_unit_that_was_edited_so_that_it_does_not_stage_is_seen(
    edit: tuple[str, str], edited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(tmp_path))
    record = BootRecord("data", "/srv", "/mnt", None, None, "/", None, False)
    text = render(record, ("/usr/bin/true",), ()).decode()
    for first_line, ours in (("", True), ("# mine\n", False)):
        (tmp_path / UNIT).write_text(first_line + text.replace(*edit))
        found = ask_boot(Context(spec=None, level=Level.QUICK), "data")
        assert (found.edited, found.ours) == (edited, ours or not edited)
        assert found.overridden_by is found.lost_program is None


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes a user who may not look")
def test_a_target_that_this_user_may_not_resolve_is_not_called_another(tmp_path: Path) -> None:
    closed, real = tmp_path / "closed", tmp_path / "real"
    closed.mkdir(mode=0o700)
    real.mkdir()
    (closed / "link").symlink_to(real)
    assert _resolved(f"{closed}/link/data") == f"{real}/data"
    assert _resolved(f"{tmp_path}/not/there/data") == f"{tmp_path}/not/there/data"
    os.seteuid(65534)
    try:
        assert _resolved(f"{closed}/link/data") is None
    finally:
        os.seteuid(0)


def _resolved(target: str) -> str | None:
    return _without_links(Context(spec=None, level=Level.QUICK), target)


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


def test_what_is_asked_of_a_child_imports_nothing_there(tmp_path: Path) -> None:
    """It would wait for ever for a module that another thread was importing at the fork."""
    (tmp_path / UNIT).write_text("[Service]\nExecStart=/usr/bin/true\n")
    script = """if True:
    import sys
    from hostprep.readiness.checks._boot import ask_boot
    class Asked:
        def ask(self, name, question):
            before = set(sys.modules)
            answer = question()
            print(sorted(set(sys.modules) - before))
            return answer
    assert ask_boot(Asked(), "data").edited
    """
    places = {"HOSTPREP_STATE_DIR": str(tmp_path / "state"), "HOSTPREP_UNIT_DIR": str(tmp_path)}
    line = [sys.executable, "-c", script]
    done = subprocess.run(line, env={**os.environ, **places}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
