"""How far a data set is after a boot, from what is seen of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hostprep.converging.boot_record import BootNote, BootRecord
from hostprep.converging.boot_state import BootState, Evidence, Stage, judge
from hostprep.host.mounts import Mount
from hostprep.staging.record.records import Record
from hostprep.staging.status import DatasetStatus

NOW, BEFORE = "this boot", "an earlier boot"
RECORD = BootRecord("data", "/srv/data", "/mnt/ram", "/mnt/ram", 1 << 20, "/srv", None, True)
NEVER_RUN = {"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "enabled"}


def mounted(*targets: str) -> tuple[Mount, ...]:
    return tuple(Mount(1, 1, "0:1", "/", path, "tmpfs", "x", (), ()) for path in targets)


def status(state: str, boot: str = BEFORE) -> DatasetStatus:
    record = Record(
        "data", "/srv/data", "/mnt/ram/data", "/mnt/ram", 1, 1, 1, "d", "readback", 1.0, 1.0, boot
    )
    return DatasetStatus(record, state, "unknown", "it is not on the target")


def note(state: str, digest: str | None = None) -> BootNote:
    return BootNote(state, NOW, 1, 1.0, f"why {state}", "do this", digest)


AFTER_BOOT = Evidence(
    boot_id=NOW,
    running=False,
    note=None,
    dataset=status("missing"),
    unit=NEVER_RUN,
    mounts=mounted("/", "/srv", "/mnt/ram"),
)


def judged(**seen: Any) -> BootState:
    return judge(RECORD, dataclasses.replace(AFTER_BOOT, **seen))


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        ({"unit": NEVER_RUN | {"Job": "7"}}, Stage.WAITING, "has not begun yet"),
        (
            {"unit": NEVER_RUN | {"Job": "7"}, "mounts": mounted("/", "/mnt/ram")},
            Stage.WAITING,
            "the file system of its source, /srv, is not mounted",
        ),
        ({"unit": NEVER_RUN | {"ActiveState": "activating"}}, Stage.WAITING, "has not begun yet"),
        ({"running": True}, Stage.STAGING, "is being staged"),
        ({"running": True, "note": note("failed")}, Stage.STAGING, "is being staged"),
        ({"note": note("ready"), "dataset": status("staged")}, Stage.READY, "why ready"),
        ({"note": note("ready", "d"), "dataset": status("staged")}, Stage.READY, "why ready"),
        ({"note": note("ready", "e"), "dataset": status("staged")}, Stage.READY, "again since"),
        ({"dataset": status("staged", NOW)}, Stage.READY, "in this boot"),
        ({"note": note("failed"), "dataset": status("staged", NOW)}, Stage.READY, "in this boot"),
        ({"note": note("ready")}, Stage.MISSING, "is not there now: it is not on the target"),
        ({"note": note("ready"), "dataset": None}, Stage.MISSING, "nothing is on record"),
        ({"note": note("failed")}, Stage.FAILED, "why failed"),
        (
            {"note": note("failed"), "unit": NEVER_RUN | {"ActiveState": "activating"}},
            Stage.WAITING,
            "has been started again",
        ),
        ({"note": note("staging")}, Stage.FAILED, "was killed"),
        (
            {"unit": NEVER_RUN | {"ActiveState": "failed", "ExecMainStatus": "203"}},
            Stage.FAILED,
            "may be installed elsewhere by now",
        ),
        (
            {"dataset": status("partial", NOW)},
            Stage.FAILED,
            "missing from it, or not up to date",
        ),
        ({"dataset": status("interrupted", NOW)}, Stage.FAILED, "it is not on the target"),
        (
            {"dataset": status("interrupted", NOW), "note": note("staging")},
            Stage.FAILED,
            "was killed",
        ),
        ({"unit": None}, Stage.FAILED, "systemd does not run here"),
        ({}, Stage.FAILED, "did not run in this boot"),
        ({"dataset": None}, Stage.FAILED, "did not run in this boot"),
        ({"dataset": status("staged")}, Stage.FAILED, "did not run in this boot"),
        ({"mounts": mounted("/")}, Stage.FAILED, "/srv, is not mounted, so its service was not"),
        ({"mounts": mounted("/", "/srv")}, Stage.FAILED, "its volume /mnt/ram is not mounted"),
        ({"unit": NEVER_RUN | {"UnitFileState": "disabled"}}, Stage.FAILED, "is disabled"),
        ({"unit": NEVER_RUN | {"LoadState": "not-found"}}, Stage.FAILED, "is not-found"),
        ({"unit": NEVER_RUN | {"LoadState": "masked"}}, Stage.FAILED, "is masked"),
        (
            {"unit": NEVER_RUN | {"ActiveState": "failed", "Result": "oom-kill"}},
            Stage.FAILED,
            "failed (oom-kill)",
        ),
        ({"unit": {}}, Stage.FAILED, "did not run in this boot"),
        ({"unit": NEVER_RUN | {"Job": ""}}, Stage.FAILED, "did not run in this boot"),
    ],
)
def test_what_is_seen_has_one_meaning(seen: dict[str, Any], state: Stage, words: str) -> None:
    found = judged(**seen)
    assert found.stage is state
    assert words in found.reason
    assert (found.hint is not None) == (state in (Stage.FAILED, Stage.MISSING))


def test_a_note_brings_its_own_hint() -> None:
    assert judged(note=note("failed")).hint == "do this"


def test_a_target_directory_has_a_mount_of_its_own() -> None:
    record = dataclasses.replace(RECORD, volume=None, volume_size_bytes=None, target_mount="/nvme")
    found = judge(record, AFTER_BOOT)
    assert "the file system of its target, /nvme, is not mounted" in found.reason


@pytest.mark.parametrize(
    ("load_state", "words"),
    [
        ("not-found", "`hostprep apply` writes it anew"),
        ("masked", "`systemctl unmask hostprep-stage-data.service`, then"),  # `apply` refuses
        ("bad-setting", "`systemd-analyze verify hostprep-stage-data.service`"),
    ],
)
def test_a_service_that_is_not_loaded_is_told_what_really_helps(
    load_state: str, words: str
) -> None:
    hint = judged(unit=NEVER_RUN | {"LoadState": load_state}).hint
    assert hint is not None and words in hint


def test_the_record_of_one_that_the_spec_may_have_dropped_is_no_matter_of_writing_it_anew() -> None:
    for unit in ({"LoadState": "not-found"}, {"UnitFileState": "disabled"}):
        hint = judged(unit=NEVER_RUN | unit).hint
        assert (
            hint is not None
            and "no longer stages it at boot, `hostprep apply --prune` removes it" in hint
        )


def test_who_exchanged_the_program_by_a_drop_in_is_told_that_it_stays() -> None:
    hint = judged(unit=NEVER_RUN | {"ActiveState": "failed", "ExecMainStatus": "203"}).hint
    assert hint is not None and hint.startswith("`hostprep apply`")  # HP013 pastes that
    assert "`systemctl cat hostprep-stage-data.service`) stays" in hint
