"""What is planned for data sets that are to come back at boot, and what is then written."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
from collections.abc import Collection, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hostprep.converging import boot_facts, boot_links, boot_record, boot_units, writable
from hostprep.converging.boot_facts import BootFacts, Footing, gather_boot
from hostprep.converging.boot_record import (
    BootNote,
    BootRecord,
    forget_boot_record,
    load_boot_record,
    load_note,
    save_note,
    unit_name,
)
from hostprep.converging.boot_template import render
from hostprep.converging.boot_units import BootStep, apply_boot, plan_boot
from hostprep.converging.model import Kind, ObjectPlan, Problem
from hostprep.converging.services import BootTask, look_at_boot, plan_services
from hostprep.converging.writable import unkept_kinds, unwritable
from hostprep.errors import HostprepError
from hostprep.host.boot import boot_id
from hostprep.host.mounts import Mount
from hostprep.spec.model import DatasetSpec
from hostprep.staging.observer import Silent
from hostprep.system.bounded import QuestionFailed
from hostprep.system.links import real_path

UNIT = "hostprep-stage-data.service"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def dataset(source: Path, tmp_path: Path) -> DatasetSpec:
    return DatasetSpec("data", str(source), to=str(tmp_path / "fast"), at_boot=True)


@pytest.fixture
def units() -> Path:
    return Path(os.environ["HOSTPREP_UNIT_DIR"])


def planned(*datasets: DatasetSpec, prune: bool = False) -> tuple[BootStep, ...]:
    return plan_boot(datasets, gather_boot(datasets), prune=prune)


def said(steps: Iterable[BootStep]) -> list[tuple[str, str]]:
    return [(change.action, change.reason) for step in steps for change in step.planned.changes]


def stays(steps: Iterable[BootStep]) -> list[tuple[str, str]]:
    return [(each.subject, each.reason) for step in steps for each in step.planned.unchanged]


def warnings(steps: Iterable[BootStep]) -> list[str]:
    return [warning for step in steps for warning in step.planned.warnings]


def refused(steps: Iterable[BootStep]) -> Problem:
    found = (step.planned.refusal for step in steps)
    (refusal,) = (each for each in found if each is not None)
    return refusal


def test_a_first_apply_writes_all_and_a_second_nothing(dataset: DatasetSpec, units: Path) -> None:
    plan = planned(dataset)
    assert said(plan) == [
        ("write what to stage at boot", "nothing is recorded"),
        (f"write {UNIT}", "it is missing"),
        (f"enable {UNIT}", "nothing starts it at boot"),
    ]
    assert not units.exists()
    apply_boot(plan)
    link = units / "multi-user.target.wants" / UNIT
    assert link.readlink() == units / UNIT
    assert (units / UNIT).stat().st_mode & 0o777 == 0o644
    again = planned(dataset)
    assert said(again) == []
    assert stays(again) == [("data", f"{UNIT} is as it should be, and enabled")]
    before = (units / UNIT).stat()
    apply_boot(again)
    assert (units / UNIT).stat() == before


def test_each_drift_is_found_by_its_name_and_mended(
    dataset: DatasetSpec, units: Path, tmp_path: Path
) -> None:
    apply_boot(planned(dataset))
    link = units / "multi-user.target.wants" / UNIT
    with (units / UNIT).open("a") as file:
        file.write("# edited\n")
    assert said(planned(dataset)) == [(f"write {UNIT}", "it differs from what it must be now")]
    link.unlink()
    link.symlink_to("/dev/null")
    assert said(planned(dataset))[1:] == [(f"enable {UNIT}", "nothing starts it at boot")]
    apply_boot(planned(dataset))
    other = dataclasses.replace(dataset, source=str(tmp_path))
    assert said(planned(other))[0] == (
        "write what to stage at boot",
        "changed: its source",
    )
    (units / UNIT).unlink()
    (tmp_path / "data").rename(tmp_path / "away")
    # Its source is away for now: what is recorded of it stays.
    assert said(planned(dataset)) == [
        (f"write {UNIT}", "it is missing"),
        (f"enable {UNIT}", "nothing starts it at boot"),
    ]
    apply_boot(planned(dataset))
    assert said(planned(dataset)) == []


@pytest.mark.parametrize(
    ("lines", "does"),
    [
        ("ExecStart=\nExecStart=/bin/true", "keeps {} from running `hostprep restage`"),
        (
            "ExecStart=\nExecStart=/gone/hostprep restage data",
            "has {} run /gone/hostprep, which is not there",
        ),
        ("User=alice", "sets User=alice, but the service can only stage as root"),
        ("User=alice\n[Unit]\nConditionPathExists=/gone", "sets User=alice"),
        ("[Unit]\nConditionPathExists=/gone", None),  # it may hold: that is for the check to tell
        ("Nice=19", None),
    ],
)
def test_a_drop_in_for_which_it_does_not_come_back_is_told(
    lines: str, does: str | None, dataset: DatasetSpec, units: Path
) -> None:
    """Whatever else is planned; it is the admin's, and stays."""
    apply_boot(planned(dataset))
    drop_in = units / f"{UNIT}.d/override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(f"[Service]\n{lines}\n")
    for _ in range(2):
        (step,) = planned(dataset)
        told = [each.reason for each in step.planned.unchanged if not each.as_wanted]
        assert len(told) == (does is not None)
        if does is not None:
            assert f"the drop-in {drop_in}, which stays as it is, {does.format(UNIT)}" in told[0]
            assert len(step.planned.unchanged) == 1, "nor is it called as it must be"
        (units / "multi-user.target.wants" / UNIT).unlink(missing_ok=True)
    assert [action for action, _ in said(planned(dataset))] == [f"enable {UNIT}"]


def test_a_source_that_is_mounted_late_starts_the_service(
    dataset: DatasetSpec, units: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the link that `systemctl enable` would make; where the source goes, that goes too."""

    def lies_on(mount: str) -> None:
        monkeypatch.setattr(boot_facts, "_ground", lambda *_: (mount, False))

    def links() -> list[str]:
        return sorted(str(link.parent.relative_to(units)) for link in units.glob(f"*/{UNIT}"))

    lies_on("/srv/far-away")
    apply_boot(planned(dataset))
    of_mount = r"srv-far\x2daway.mount"
    assert f"\nWantedBy=multi-user.target {of_mount}\n" in (units / UNIT).read_text()
    assert links() == ["multi-user.target.wants", f"{of_mount}.wants"]
    assert said(planned(dataset)) == []
    (units / f"{of_mount}.wants" / UNIT).unlink()
    missing = f"{of_mount} does not start it if its source is mounted late"
    assert said(planned(dataset)) == [(f"enable {UNIT}", missing)]
    apply_boot(planned(dataset))
    lies_on("/")
    strange = "it is started by a mount that is not its source's"
    assert said(planned(dataset))[-1] == (f"enable {UNIT}", strange)
    apply_boot(planned(dataset))
    assert links() == ["multi-user.target.wants"] and not (units / f"{of_mount}.wants").exists()
    lies_on("/srv/" + 30 * "\N{CJK UNIFIED IDEOGRAPH-6570}")  # of which no unit can have the name
    assert said(planned(dataset))[1:] == []
    lies_on("/srv/nas")
    apply_boot(planned(dataset))
    theirs = units / "srv-nas.mount.wants/theirs.service"
    theirs.symlink_to("/etc/systemd/system/theirs.service")
    (units / UNIT).unlink()
    forget_boot_record("data")
    (units / "multi-user.target.wants" / UNIT).unlink()
    assert [subject for subject, _ in stays(planned())] == ["data"], "a link is left of it"
    apply_boot(planned(prune=True))
    assert links() == [] and theirs.is_symlink()


def test_what_is_fed_by_another_data_set_is_not_started_by_the_mount_of_its_volume(
    dataset: DatasetSpec, units: Path
) -> None:
    """That is mounted, and empty, before anything is staged into it."""
    feeder = DatasetSpec("feeder", "/srv/feeder", volume="/mnt/ram")
    fed = dataclasses.replace(dataset, source=f"{feeder.target}/part")
    apply_boot(plan_boot((fed,), gather_boot((fed,), {fed.target: feeder})))
    assert [str(link.parent.name) for link in units.glob(f"*/{UNIT}")] == [
        "multi-user.target.wants"
    ]


def test_a_unit_that_others_can_write_is_made_anew(dataset: DatasetSpec, units: Path) -> None:
    apply_boot(planned(dataset))
    unit = units / UNIT
    unit.chmod(0o646)
    with unit.open("ab") as kept_open:
        assert said(planned(dataset)) == [
            (f"make {UNIT} root's alone", "it is writable by everybody")
        ]
        apply_boot(planned(dataset))
        kept_open.write(b"ExecStart=/home/mallory/it\n")
    assert unit.stat().st_mode & 0o777 == 0o644
    assert said(planned(dataset)) == []


def test_what_cannot_be_taken_away_is_not_said_to_stay_away(
    dataset: DatasetSpec, units: Path
) -> None:
    apply_boot(planned(dataset))
    link = units / "multi-user.target.wants" / UNIT
    link.unlink()
    link.mkdir()
    with pytest.raises(HostprepError, match="data may still be staged at boot: "):
        apply_boot(planned(prune=True))
    assert (units / UNIT).exists()


def test_without_a_place_for_services_none_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unkept_kinds() == {}
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", "/proc/none")  # as where /etc is read-only
    (kind,) = found = unkept_kinds()
    assert kind is Kind.BOOT and "could not change its services in /proc/none" in str(found[kind])


def test_a_service_that_failed_in_this_boot_is_started_again(
    dataset: DatasetSpec, units: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_boot(planned(dataset))
    mended, log = tmp_path / "mended", tmp_path / "log"
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(
        "#!/bin/sh\n"
        f'echo "$1" >> {log}\n'
        f"case $1 in show) test -e {mended} && echo ActiveState=active || "
        "echo ActiveState=failed;;\n"
        f"start) test -e {tmp_path}/whole && touch {mended};; esac\n"
    )
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{systemctl.parent}:/usr/bin:/bin")
    for module in (boot_facts, boot_units):
        monkeypatch.setattr(module, "SYSTEM_UNIT_DIR", units)
        monkeypatch.setattr(module, "systemd_runs", lambda: True)
    assert [action for action, _ in said(planned(dataset))] == [f"start {UNIT} again"]
    with pytest.raises(HostprepError, match="could not be started"):
        apply_boot(planned(dataset))
    (tmp_path / "whole").touch()
    apply_boot(planned(dataset))
    assert said(planned(dataset)) == []
    assert log.read_text().split() == ["show"] * 2 + ["daemon-reload", "start"] + [
        *("show", "daemon-reload", "start", "show")
    ]


@pytest.mark.parametrize("runs", [True, False])
def test_without_systemd_it_is_said_that_nothing_comes_back(
    dataset: DatasetSpec, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(boot_facts, "systemd_runs", lambda: runs)
    for plan in (planned(dataset), planned(dataclasses.replace(dataset, at_boot=False))):
        said = [words for words in warnings(plan) if "only a boot with systemd" in words]
        assert len(said) == (plan != () and not runs)


def test_what_is_not_at_boot_gets_nothing(dataset: DatasetSpec) -> None:
    plan = planned(dataclasses.replace(dataset, at_boot=False))
    assert plan == ()


def test_what_the_spec_no_longer_names_goes_only_by_prune(
    dataset: DatasetSpec, units: Path
) -> None:
    apply_boot(planned(dataset))
    foreign = units / "hostprep-stage-theirs.service"
    foreign.write_text("[Service]\nExecStart=/bin/true\n")
    kept = planned()
    assert said(kept) == []
    assert stays(kept) == [("data", f"the spec does not stage it at boot; --prune removes {UNIT}")]
    assert all(each.prunable for step in kept for each in step.planned.unchanged)
    pruned = planned(prune=True)
    assert said(pruned) == [(f"disable and remove {UNIT}", "the spec does not stage it at boot")]
    apply_boot(pruned)
    assert sorted(path.name for path in units.rglob("*")) == [
        foreign.name,
        "multi-user.target.wants",
    ]
    assert load_boot_record("data") is None
    assert planned(prune=True) == ()


@pytest.mark.parametrize("left", ["record", "link"])
def test_what_is_left_of_a_service_that_somebody_removed_goes_too(
    left: str, dataset: DatasetSpec, units: Path
) -> None:
    apply_boot(planned(dataset))
    (units / UNIT).unlink()
    if left == "record":
        (units / "multi-user.target.wants" / UNIT).unlink()
    else:
        forget_boot_record("data")
    theirs = units / "multi-user.target.wants/hostprep-stage-theirs.service"
    theirs.symlink_to("/usr/lib/systemd/system/hostprep-stage-theirs.service")
    assert said(planned(dataset))[0][0].startswith("write"), "wanted, it is no left-over"
    assert [subject for subject, _ in stays(planned())] == ["data"]
    apply_boot(planned(prune=True))
    assert planned(prune=True) == ()
    assert load_boot_record("data") is None
    assert list(units.rglob("*.service")) == [theirs]


@pytest.mark.parametrize("kind", ["foreign", "masked"])
def test_a_unit_that_is_not_ours_is_refused_and_stays(
    dataset: DatasetSpec, units: Path, kind: str
) -> None:
    units.mkdir()
    if kind == "foreign":
        (units / UNIT).write_text("[Service]\nExecStart=/bin/true\n")
    else:
        (units / UNIT).symlink_to("/dev/null")
    plan = planned(dataset)
    refusal = refused(plan)
    assert refusal.subject == "data"
    assert ("not written by hostprep" if kind == "foreign" else "symlink") in refusal.message
    apply_boot(plan)
    assert [path.name for path in units.iterdir()] == [UNIT]
    assert load_boot_record("data") is None


def test_what_cannot_come_back_is_refused(dataset: DatasetSpec, source: Path) -> None:
    def refusal(*datasets: DatasetSpec) -> str:
        return refused(planned(*datasets)).message

    there_too = dataclasses.replace(dataset, to="/elsewhere")
    assert "another data set of this name" in refusal(dataset, there_too)
    long = "ä" * 100  # 8 characters each in a unit's name
    assert "too long a name" in refusal(dataclasses.replace(dataset, name=long))
    escaped = dataclasses.replace(dataset, name="x" * 150 + "-" * 13)
    assert len(unit_name(escaped.name)) == 225
    apply_boot(planned(escaped))
    assert "too long a name" in refusal(dataclasses.replace(dataset, name="x" * 150 + "-" * 14))
    odd = source / "tab\there"
    odd.mkdir()
    assert "control characters" in refusal(dataclasses.replace(dataset, source=str(odd)))
    source.rename(source.with_name("away"))
    assert "is not there" in refusal(dataset)


@pytest.mark.parametrize("variable", ["HOSTPREP_RUN_DIR", "HOSTPREP_FSTAB", "HOSTPREP_COMMAND"])
def test_no_variable_becomes_a_setting_of_the_service(
    dataset: DatasetSpec, units: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "/moved\nExecStartPre=/bin/sh")
    plan = planned(dataset)
    assert "control characters" in refused(plan).message
    apply_boot(plan)
    assert not list(units.glob("*.service"))


def test_somebody_elses_edit_in_between_is_not_overwritten(
    dataset: DatasetSpec, units: Path
) -> None:
    apply_boot(planned(dataset))
    (units / UNIT).write_text("# Made by hostprep for `at_boot: true` once\n")
    plan = planned(dataset)
    (units / UNIT).write_text("mine")
    with pytest.raises(HostprepError, match="somebody else wrote"):
        apply_boot(plan)
    assert (units / UNIT).read_text() == "mine"


def test_the_record_holds_what_restage_must_know(
    dataset: DatasetSpec, source: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to("data")
    apply_boot(planned(dataclasses.replace(dataset, source=str(link))))
    record = load_boot_record("data")
    assert record is not None
    assert (record.source, record.target) == (str(source), f"{tmp_path}/fast/data")
    assert record.source_mount == record.target_mount
    assert os.path.ismount(record.source_mount)
    assert (record.volume, record.remote, record.verify) == (None, False, "readback")


def test_a_record_that_makes_no_sense_is_written_anew(dataset: DatasetSpec) -> None:
    apply_boot(planned(dataset))
    (path,) = Path(os.environ["HOSTPREP_STATE_DIR"]).glob("boot/*")
    fields = json.loads(path.read_bytes())
    path.write_text(json.dumps({**fields, "schema": "hostprep.boot-record/9"}))
    with pytest.raises(HostprepError, match=r"boot/data\.json cannot be read"):
        load_boot_record("data")
    plan = planned(dataset)
    assert said(plan) == [("write what to stage at boot", "nothing is recorded")]
    apply_boot(plan)
    assert load_boot_record("data") is not None


def facts(record: BootRecord, **changed: object) -> BootFacts:
    """Return the facts of a host where all is as ``record`` says."""
    footing = Footing(
        record.name,
        record.source,
        record.parent,
        record.source_mount,
        record.remote,
        record.target_mount,
        record.volume_size_bytes,
        record.digest,
    )
    command = ("/opt/hostprep/bin/hostprep",)
    fine = BootFacts(Path("/units"), command, (), None, (), (record,), (footing,))
    return dataclasses.replace(fine, **changed)


def test_the_memory_that_a_target_in_memory_must_leave_is_recorded_as_it_was_given() -> None:
    record = BootRecord("data", "/srv/data", "/dev/shm/x", None, None, "/srv", "/dev/shm", False)
    dataset = DatasetSpec("data", "/srv/data", to="/dev/shm/x", at_boot=True)

    def recorded(
        earlier: BootRecord, reserve_bytes: int | None, *, in_memory: bool = True
    ) -> int | None:
        found = facts(earlier)
        (footing,) = found.footings
        found = dataclasses.replace(
            found, footings=(dataclasses.replace(footing, in_memory=in_memory),)
        )
        (step,) = plan_boot((dataset,), found, reserve_bytes=reserve_bytes)
        assert step.record is not None  # the unit is not there yet
        reasons = [change.reason for change in step.planned.changes]
        changed = "changed: the memory that it must leave" in reasons
        assert changed is (step.record.reserve_bytes != earlier.reserve_bytes)
        return step.record.reserve_bytes

    assert recorded(record, 0) == 0
    assert recorded(dataclasses.replace(record, reserve_bytes=0), None) == 0
    assert recorded(record, 1 << 30, in_memory=False) is None


def test_what_starts_a_service_is_flushed_once_it_is_there(
    dataset: DatasetSpec, units: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr(
        boot_links, "flush_directory", lambda path: flushed.append((path, os.listdir(path)))
    )
    apply_boot(planned(dataset))
    # Where /tmp is a mount, as in Debian 13, that starts it, too.
    folders = [units / "multi-user.target.wants", *units.glob("*.mount.wants")]
    assert flushed == [(folder, [UNIT]) for folder in folders]


def test_litter_of_a_killed_run_goes_with_the_next(
    dataset: DatasetSpec, units: Path, own_state: Path
) -> None:
    litter = (
        units / f".{UNIT}.hostprep-0123456789abcdef",
        own_state / "state/boot/.data.json.hostprep-0123456789abcdef",
    )
    for path in litter:
        path.parent.mkdir(parents=True)
        path.touch()
    apply_boot(planned(dataset))
    assert not any(path.exists() for path in litter)


def test_a_link_that_cannot_be_put_in_place_leaves_no_litter(
    dataset: DatasetSpec, units: Path
) -> None:
    link = units / "multi-user.target.wants" / UNIT
    link.mkdir(parents=True)
    with pytest.raises(HostprepError, match="does not come back at boot"):
        apply_boot(planned(dataset))
    assert os.listdir(link.parent) == [UNIT] and link.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_service_that_is_somebody_elses_is_made_roots(dataset: DatasetSpec, units: Path) -> None:
    apply_boot(planned(dataset))
    os.chown(units / UNIT, 1234, 0)
    assert said(planned(dataset)) == [(f"make {UNIT} root's alone", "it belongs to uid 1234")]
    apply_boot(planned(dataset))
    assert (units / UNIT).stat().st_uid == 0


def test_a_note_of_another_boot_says_nothing_of_this_one() -> None:
    note = BootNote("ready", boot_id(), 1, 0.0)
    save_note("data", note)
    assert load_note("data") == note
    save_note("data", dataclasses.replace(note, boot_id="another"))
    assert load_note("data") is None


def test_where_the_link_to_a_program_lies_counts_as_where_it_does(tmp_path: Path) -> None:
    link = tmp_path / "program"
    link.symlink_to("/usr/bin/env")
    tmp_path.chmod(0o777)
    assert boot_facts._writer("/usr/bin/env") is None
    assert boot_facts._writer(str(link)) is not None


@pytest.mark.parametrize(
    ("fstype", "mounter", "remote"),
    [
        ("ext4", "/dev/sda1", False),
        ("autofs", "systemd-1", False),  # which starts it as a unit, whatever the network does
        ("autofs", "/etc/auto.misc", True),
    ],
)
def test_what_a_program_mounts_comes_after_the_network(
    fstype: str, mounter: str, remote: bool, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = Mount(30, 1, "0:30", "/", str(source.parent), fstype, mounter, ("rw",), ("rw",))
    monkeypatch.setattr(boot_facts, "read_mounts", lambda: (above,))
    monkeypatch.setattr(
        boot_facts, "locate", lambda _: SimpleNamespace(mount=above, storage_class="nvme")
    )
    assert boot_facts._ground(str(source), None) == (str(source.parent), remote)
    dataset = DatasetSpec("data", str(source), to="/srv/nvme", at_boot=True)
    assert boot_facts._footing(dataset, None).automounted == (mounter == "systemd-1")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link away")
def test_a_user_who_kills_what_asks_in_their_name_stops_the_look_at_no_other_data_set(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*asked: object, **how: object) -> bool:
        raise QuestionFailed("the child ended without an answer")

    link = tmp_path / "link"
    link.symlink_to(source)
    os.chown(link, 65534, -1, follow_symlinks=False)
    monkeypatch.setattr("hostprep.system.links.ask_in_child", killed)
    with pytest.raises(HostprepError, match="could not be found out"):
        real_path(str(link))
    theirs = DatasetSpec("theirs", str(link), to=str(tmp_path / "fast"), at_boot=True)
    other = DatasetSpec("other", str(source), to=str(tmp_path / "fast"), at_boot=True)
    footings = gather_boot((theirs, other)).footings
    assert [footing.source for footing in footings] == [str(link), str(source)]


def test_a_program_that_others_can_exchange_is_warned_of() -> None:
    record = BootRecord("data", "/srv/data", "/mnt/ram", "/mnt/ram", 1 << 20, "/srv", None, True)
    dataset = DatasetSpec("data", "/srv/data", volume="/mnt/ram", at_boot=True)
    writer = "/home/alice belongs to uid 1000"
    found = facts(record, program_writer=writer)
    (warning,) = warnings(plan_boot((dataset,), found))
    assert "/opt/hostprep/bin/hostprep" in warning and writer in warning


def test_a_volume_that_is_not_mounted_now_keeps_its_recorded_size() -> None:
    record = BootRecord("data", "/srv/data", "/mnt/ram", "/mnt/ram", 1 << 20, "/srv", None, True)
    dataset = DatasetSpec("data", "/srv/data", volume="/mnt/ram", at_boot=True)
    (footing,) = facts(record).footings

    def differing(size_bytes: int | None) -> list[str]:
        seen = dataclasses.replace(footing, volume_size_bytes=size_bytes)
        found = plan_boot((dataset,), facts(record, footings=(seen,)))
        return [reason for action, reason in said(found) if action.startswith("write what")]

    assert differing(None) == differing(1 << 20) == []
    assert differing(2 << 20) == ["changed: the volume's size"]
    (step,) = plan_boot((dataset,), facts(record))
    assert step.record == record
    command, starters = ("/opt/hostprep/bin/hostprep",), ("multi-user.target", "srv.mount")
    assert step.content == render(record, command, (), starters)


def test_of_what_is_away_now_the_record_stays_unless_it_is_of_another_source() -> None:
    volume = "/mnt/ram"
    record = BootRecord("data", "/srv/data", volume, volume, 1 << 20, "/srv", None, True, "d1")
    dataset = DatasetSpec("data", "/srv/data", volume=volume, at_boot=True)
    (footing,) = facts(record).footings

    def recorded(dataset: DatasetSpec, **now: object) -> BootRecord:
        found = facts(record, footings=(dataclasses.replace(footing, **now),))
        (step,) = plan_boot((dataset,), found)
        assert step.record is not None  # the unit is not there yet
        return step.record

    away = recorded(dataset, source_mount=None, remote=None, volume_size_bytes=None, digest=None)
    assert away == record
    assert recorded(dataset, digest="d2").digest == "d2"
    other = recorded(dataset, source="/srv/other", volume_size_bytes=None, digest=None)
    assert (other.digest, other.volume_size_bytes) == (None, None), "that is another's"
    into_a_directory = dataclasses.replace(dataset, volume=None, to="/fast")
    moved = recorded(into_a_directory, parent="/fast", volume_size_bytes=None)
    assert (moved.volume, moved.volume_size_bytes) == (None, None)
    lost = dataclasses.replace(footing, source="/srv/other", source_mount=None)
    refusal = refused(plan_boot((dataset,), facts(record, footings=(lost,))))
    assert "/srv/other is not there" in refusal.message


def test_a_run_that_is_killed_leaves_no_other_name_beside_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later run would take it away, nor --prune."""
    wants = tmp_path / "multi-user.target.wants"
    symlink_to = Path.symlink_to

    def killed(self: Path, target: Path) -> None:
        symlink_to(self, target)
        os.kill(os.getpid(), signal.SIGKILL)

    if (child := os.fork()) == 0:
        monkeypatch.setattr(Path, "symlink_to", killed)
        boot_links.make_links(tmp_path, "a.service", ["multi-user.target"])
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    boot_links.make_links(tmp_path, "a.service", ["multi-user.target"])
    assert os.listdir(wants) == ["a.service"]
    boot_links.remove_links(tmp_path, "a.service")
    assert os.listdir(wants) == []


def test_the_service_of_a_data_set_that_cannot_be_staged_is_left_as_it_is(
    dataset: DatasetSpec,
) -> None:
    """Its target's disk is missing, say: the path lies on another one then, for now."""
    assert len(only(dataset, refused={"data"}).changes) == 3  # a first one: what is to come
    apply_boot(planned(dataset))
    moved = dataclasses.replace(dataset, to="/elsewhere")
    assert only(moved).changes
    left = only(moved, refused={"data"})
    assert not left.changes and left.task is None
    assert [each.reason for each in left.unchanged] == [
        f"{UNIT} is left as it is while its data set cannot be staged"
    ]


def only(dataset: DatasetSpec, refused: Collection[str] = ()) -> ObjectPlan:
    look = look_at_boot((dataset,), frozenset(), {}, {})
    (found,) = plan_services(look, prune=False, refused=refused)
    return found


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_a_directory_of_units_that_cannot_be_listed_is_told_of(
    number: int, dataset: DatasetSpec, units: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path | str) -> list[str]:
        if Path(path) == units:
            raise OSError(number, os.strerror(number), str(path))
        return listed(path)

    listed = os.listdir
    monkeypatch.setattr(os, "listdir", failing)
    with pytest.raises(HostprepError) as caught:
        gather_boot((dataset,))
    assert caught.value.message == (
        f"the services in {units} cannot be listed: {os.strerror(number)}; nothing was changed."
    )


def test_why_a_directory_cannot_be_looked_at_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> tuple[Mount, ...]:
        raise HostprepError("/proc/self/mountinfo cannot be read: Too many open files.")

    monkeypatch.setattr(writable, "read_mounts", failing)
    assert unwritable(tmp_path) == (
        f"{tmp_path} cannot be looked at: /proc/self/mountinfo cannot be read: Too many open files"
    )


def test_what_systemd_is_to_read_again_is_told_as_it_is(
    dataset: DatasetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(boot_units, "_is_for_systemd", lambda _: True)
    monkeypatch.setattr(boot_units, "stop_unit", lambda _: None)
    monkeypatch.setattr(boot_units, "daemon_reload", told.append)
    apply_boot(planned(dataset))
    apply_boot(planned(prune=True))
    assert told == [f"{UNIT} is written", f"{UNIT} is removed"]


def test_each_of_many_steps_reads_its_own_unit_and_record(
    source: Path, units: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all of the others', what a hundred of them take grows with the square."""
    many = [
        DatasetSpec(name, str(source), to=str(tmp_path / "fast"), at_boot=True)
        for name in ("one", "two", "three")
    ]
    apply_boot(planned(*many))
    installed, load, read = boot_facts._installed, boot_record._load, set[str]()

    def look(directory: Path, unit: str) -> boot_facts.Installed:
        read.add(unit)
        return installed(directory, unit)

    def reading(path: Path) -> BootRecord:
        read.add(path.name)
        return load(path)

    monkeypatch.setattr(boot_facts, "_installed", look)
    monkeypatch.setattr(boot_record, "_load", reading)
    (units / unit_name("one")).unlink()
    BootTask((many[0],), unit_name("one")).carry_out(Silent())
    assert said(planned(*many)) == []
    read.clear()
    BootTask((many[0],), unit_name("one")).carry_out(Silent())
    assert read == {unit_name("one"), "one.json"}
    read.clear()
    BootTask((), unit_name("two")).carry_out(Silent())
    assert read == {unit_name("two"), "two.json"}
    (units / unit_name("three")).unlink()  # its record, and the link to it, are left
    BootTask((), unit_name("three")).carry_out(Silent())
    assert stays(planned(many[0])) == [
        ("one", f"{unit_name('one')} is as it should be, and enabled")
    ]
