"""`plan` and `apply`: a spec made true on real mounts once, and refused as a whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hostprep.converging import looking, sources
from hostprep.host.boot import boot_id
from hostprep.host.memory import read_headroom
from hostprep.spec.model import DatasetSpec
from hostprep.system.systemd import systemd_runs
from hostprep.units import MIB
from tests.kit.converging import QUIET, apply, keys, plan, write_spec
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import (
    HOSTPREP,
    NOBODY,
    hostprep,
    make_private,
    make_source,
    run_hostprep,
    snapshot,
)

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def source(safe_dir: Path) -> Path:
    return make_source(safe_dir / "data", directories=2, files=5)


@pytest.fixture
def spec(safe_dir: Path, source: Path, volume: Path) -> Path:
    return write_spec(
        safe_dir / "hostprep.yml",
        volumes=[{"path": volume, "size": "64M"}],
        datasets=[{"source": source, "volume": volume}],
    )


def test_a_host_is_converged_and_the_second_run_changes_nothing(
    spec: Path, source: Path, volume: Path, fstab: Path, state: Path
) -> None:
    fstab.write_text("# somebody's\n/dev/null /srv none noauto 0 0")
    line = ("plan", spec, *QUIET, "--exit-code", "--json")
    pending = run_hostprep(*line)
    assert pending.returncode == 4
    planned = json.loads(pending.stdout)
    assert planned["ok"] is True
    volume_key, fstab_key = ("volume", str(volume)), ("fstab", str(volume))
    assert keys(planned["changes"]) == [volume_key, volume_key, fstab_key, ("dataset", "data")]
    assert all(change["reason"] for change in planned["changes"])
    assert not volume.exists() and not state.exists(), "a plan changes nothing"

    applied = apply(spec)
    assert applied["done"] == applied["changes"] == planned["changes"]
    assert (applied["changed"], applied["failed"], applied["pending"]) == (True, [], [])
    assert os.path.ismount(volume)
    here = {path.relative_to(volume / "data") for path in (volume / "data").rglob("*")}
    assert here == {path.relative_to(source) for path in source.rglob("*")}
    assert fstab.read_text().startswith("# somebody's\n/dev/null /srv none noauto 0 0\n")
    before = snapshot(state), snapshot(volume), fstab.read_bytes()

    again = apply(spec)
    assert (again["changed"], again["changes"], again["done"]) == (False, [], [])
    assert {each["kind"] for each in again["unchanged"]} == {"volume", "fstab", "dataset"}
    assert run_hostprep(*line).returncode == 0
    assert (snapshot(state), snapshot(volume), fstab.read_bytes()) == before


def test_words_for_people(spec: Path, volume: Path) -> None:
    planned = run_hostprep("plan", spec, *QUIET)
    assert f"would: volume {volume}: mount a tmpfs of 64.0 MiB" in planned.stdout
    dry = run_hostprep("apply", spec, "--dry-run", *QUIET)
    assert dry.stdout == f"{planned.stdout}dry run: nothing was changed\n"
    applied = run_hostprep("apply", spec, "--yes", *QUIET)
    assert applied.returncode == 0, applied.stderr
    assert planned.stdout in applied.stdout, "the plan is shown before it is carried out"
    assert f"done: fstab {volume}: add a line" in applied.stdout
    assert "as the spec says" in applied.stdout
    assert "nothing to do" in run_hostprep("apply", spec, "--yes", *QUIET).stdout
    dry = run_hostprep("apply", spec, "--dry-run", *QUIET, "--json")
    assert json.loads(dry.stdout)["changes"] == []


def test_a_size_in_percent_an_owner_and_a_directory(
    safe_dir: Path, source: Path, volume: Path
) -> None:
    spec = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[
            {"path": volume / "a", "size": "1%", "owner": "nobody:nogroup", "mode": "0750"},
            {"path": volume / "b", "size": "32M", "swap": True, "huge": "never"},
        ],
        datasets=[{"source": "data", "to": safe_dir / "disk", "name": "it"}],
    )
    assert apply(spec)["changed"] is True
    assert (safe_dir / "disk/it/hard").is_file()
    root = (volume / "a").stat()
    assert (root.st_uid, stat.S_IMODE(root.st_mode)) == (65534, 0o750)
    size = os.statvfs(volume / "a")
    wanted = read_headroom().ram_bytes // 100
    assert abs(size.f_blocks * size.f_frsize - wanted) < MIB
    assert apply(spec)["changed"] is False


def test_a_volume_inside_one_that_somebody_else_will_own_is_refused_first(
    safe_dir: Path, volume: Path
) -> None:
    volumes = [
        {"path": volume, "size": "16M", "owner": "65534"},
        {"path": volume / "inner", "size": "8M"},
    ]
    spec = write_spec(safe_dir / "hostprep.yml", volumes=volumes)
    (refusal,) = plan(spec, expect=5)["refusals"]
    assert refusal["subject"] == str(volume / "inner")
    assert f"{volume}, above the mount point, belongs to uid 65534" in refusal["message"]
    apply(spec, expect=5)
    assert not volume.exists()


def test_a_mount_unit_that_beats_the_line_in_fstab_is_told_of(
    safe_dir: Path, own_state: Path
) -> None:
    volume = safe_dir / "ra-m"
    spec = write_spec(safe_dir / "hostprep.yml", volumes=[{"path": volume, "size": "16M"}])

    def warnings(document: dict[str, Any]) -> list[str]:
        """Return them, but for the true one that the volume is of these tests' namespace alone."""
        return [words for words in document["warnings"] if "mounts of its own" not in words]

    assert warnings(plan(spec)) == []
    escaped = str(volume).strip("/").replace("-", "\\x2d").replace("/", "-")
    unit = own_state / "units" / f"{escaped}.mount"
    unit.parent.mkdir()
    unit.symlink_to("/dev/null")
    for document in (plan(spec), apply(spec), plan(spec)):
        (warning,) = warnings(document)
        assert f"uses {unit} for {volume}, whatever the line in fstab says" in warning


def test_of_a_directory_that_all_may_write_to_plan_warns_as_stage_does(
    safe_dir: Path, source: Path
) -> None:
    shared = safe_dir / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    spec = write_spec(safe_dir / "hostprep.yml", datasets=[{"source": source, "to": shared}])
    staged = hostprep("stage", source, "--to", shared, "--dry-run")["warnings"]
    warned = [words for words in plan(spec)["warnings"] if words in staged]
    assert any(f"chmod +t {shared}" in words for words in warned)


def test_one_refusal_stops_apply_before_its_first_change(
    safe_dir: Path, source: Path, volume: Path, state: Path, fstab: Path
) -> None:
    taken = safe_dir / "taken"
    (taken / "something").mkdir(parents=True)
    spec = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[
            {"path": volume, "size": "64M"},
            {"path": taken, "size": "64M"},
            {"path": safe_dir / "other", "size": "64M", "owner": "no-such-user"},
        ],
        datasets=[
            {"source": source, "volume": volume},
            {"source": safe_dir / "missing", "to": safe_dir / "disk"},
        ],
    )
    planned = plan(spec, expect=5)
    refused = {("volume", str(taken)), ("volume", str(safe_dir / "other")), ("dataset", "missing")}
    assert set(keys(planned["refusals"])) == refused
    assert ("dataset", "data") in keys(planned["changes"]), "a refusal hides nothing else"
    refusal = apply(spec, expect=5)
    assert (refusal["changed"], refusal["error"]["code"]) == (False, "refused")
    assert "no-such-user" in refusal["error"]["message"]
    assert not volume.exists() and not state.exists() and not fstab.exists()


def test_the_memory_is_shared_by_all_volumes(safe_dir: Path) -> None:
    size = f"{read_headroom().available_bytes * 6 // 10 // MIB}M"
    volumes = [{"path": safe_dir / name, "size": size} for name in ("a", "b")]
    both = plan(write_spec(safe_dir / "hostprep.yml", volumes=volumes), expect=5)
    assert keys(both["refusals"]) == [("volume", str(safe_dir / "b"))]
    assert "promised to other volumes" in both["refusals"][0]["message"]
    plan(write_spec(safe_dir / "hostprep.yml", volumes=volumes[:1]))
    plan(write_spec(safe_dir / "hostprep.yml", volumes=volumes[1:]))


def test_a_volume_must_hold_all_its_data_sets(safe_dir: Path, volume: Path) -> None:
    for name in ("one", "two"):
        (safe_dir / name).mkdir()
        (safe_dir / name / "file").write_bytes(os.urandom(6 * MIB))
    datasets = [{"source": safe_dir / name, "volume": volume} for name in ("one", "two")]

    def spec(size: str) -> Path:
        volumes = [{"path": volume, "size": size}]
        return write_spec(safe_dir / "hostprep.yml", volumes=volumes, datasets=datasets)

    (refusal,) = plan(spec("8M"), expect=5)["refusals"]
    assert "too small" in refusal["message"] and "one, two" in refusal["message"]
    assert "13M" in refusal["hint"]
    apply(spec("13M"))
    (refusal,) = apply(spec("8M"), expect=5)["refusals"]
    assert "cannot shrink" in refusal["message"]
    assert os.statvfs(volume).f_blocks * 4096 == 13 * MIB


def test_data_sets_share_the_room_of_a_directory(safe_dir: Path) -> None:
    disk = safe_dir / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "small", disk], check=True)
    datasets = []
    for name in ("one", "two"):
        (safe_dir / name).mkdir()
        (safe_dir / name / "file").write_bytes(os.urandom(6 * MIB))
        datasets.append({"source": safe_dir / name, "to": disk})
    spec = write_spec(safe_dir / "hostprep.yml", datasets=datasets)
    (refusal,) = plan(spec, expect=5)["refusals"]
    assert refusal["subject"] == "two" and "6.00 MiB of that" in refusal["message"]
    apply(write_spec(spec, datasets=datasets[:1]))
    assert "does not fit" in plan(write_spec(spec, datasets=datasets), expect=5)["error"]["message"]


def test_many_small_files_get_their_inodes_at_the_mount(safe_dir: Path, volume: Path) -> None:
    source = safe_dir / "many"
    for folder in range(70):
        (source / str(folder)).mkdir(parents=True)
        for number in range(1000):
            os.mknod(source / str(folder) / str(number))
    spec = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[{"path": volume, "size": "64M"}],
        datasets=[{"source": source, "volume": volume}],
    )
    apply(spec)  # which fails where the second plan finds anything
    assert apply(spec)["changed"] is False


def test_what_a_killed_run_left_beside_its_copies_goes_with_the_next(
    safe_dir: Path, source: Path
) -> None:
    """Its copies are whole and fresh, so that nothing else is to be done."""
    disk = safe_dir / "disk"
    spec = write_spec(safe_dir / "hostprep.yml", datasets=[{"source": source, "to": disk}])
    apply(spec)
    left = make_private(disk)
    (change,) = plan(spec)["changes"]
    assert change["action"] == f"remove {left}"
    assert keys(apply(spec)["done"]) == [("dataset", "data")]
    assert os.listdir(disk) == ["data"]
    assert apply(spec)["changes"] == []


def test_what_a_killed_run_left_where_nothing_can_be_removed_is_no_fault(
    safe_dir: Path, source: Path
) -> None:
    disk = safe_dir / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "disk", disk], check=True)
    spec = write_spec(safe_dir / "hostprep.yml", datasets=[{"source": source, "to": disk}])
    apply(spec)
    make_private(disk)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert apply(spec)["changes"] == []


def test_a_failure_in_the_middle_leaves_the_rest_done_and_a_later_run_completes_it(
    safe_dir: Path,
    source: Path,
    volume: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    bad = safe_dir / "bad"
    real = shutil.which("mount")
    tmp_path.chmod(0o755)
    fake = tmp_path / "mount"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *{bad}) echo "no such luck" >&2; exit 32;; esac\n'
        f'exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    spec = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[{"path": bad, "size": "64M"}, {"path": volume, "size": "64M"}],
        datasets=[
            {"source": source, "volume": bad, "name": "lost"},
            {"source": source, "volume": volume, "name": "kept", "at_boot": True},
        ],
    )
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        applied = apply(spec, expect=1)
    assert keys(applied["failed"]) == [("volume", str(bad))]
    assert "no such luck" in applied["failed"][0]["message"]
    assert keys(applied["not_tried"]) == [("dataset", "lost")]
    assert str(bad) in applied["not_tried"][0]["reason"]
    assert {("dataset", "kept"), ("boot", "kept")} <= set(keys(applied["done"]))
    assert set(keys(applied["pending"])) >= {("volume", str(bad)), ("dataset", "lost")}
    assert not {("volume", str(bad)), ("dataset", "lost")} & set(keys(applied["done"]))
    assert applied["changed"] is True and (volume / "kept/hard").exists()
    assert not bad.exists()
    assert apply(spec)["changed"] is True
    assert (bad / "lost/hard").exists()


def test_a_data_set_that_breaks_off_stops_no_other(
    safe_dir: Path, source: Path, volume: Path
) -> None:
    with failing_fs(source, read_only=True, where=safe_dir) as fs:
        spec = write_spec(
            safe_dir / "hostprep.yml",
            volumes=[{"path": volume, "size": "64M"}],
            datasets=[
                {"source": fs.mount, "volume": volume, "name": "broken"},
                {"source": source, "volume": volume, "name": "sound"},
            ],
        )
        fs.tell(Rule("/class-1/images/003.bin", "read"))
        applied = apply(spec, expect=1)
        assert keys(applied["failed"]) == [("dataset", "broken")]
        assert keys(applied["pending"]) == [("dataset", "broken")]
        assert (volume / "sound/hard").exists() and not (volume / "broken").exists()
        fs.tell()
        assert keys(apply(spec)["done"]) == [("dataset", "broken")]


@pytest.mark.parametrize("stray", [False, True])
def test_while_a_source_is_away_its_copy_stays_and_the_rest_is_mended(
    stray: bool, safe_dir: Path, source: Path, volume: Path, fstab: Path, state: Path
) -> None:
    mounted = safe_dir / "mounted"
    mounted.mkdir()
    spec = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[{"path": volume, "size": "64M"}],
        datasets=[
            {"source": mounted / "it", "volume": volume, "name": "data", "at_boot": True},
            {"source": source, "volume": volume, "name": "other"},
        ],
    )
    (mounted / "it").mkdir()
    subprocess.run(["mount", "--bind", source, mounted / "it"], check=True)
    apply(spec)
    before = snapshot(volume / "data"), (state / "boot/data.json").read_bytes()
    subprocess.run(["umount", mounted / "it"], check=True)
    if not stray:
        (mounted / "it").rmdir()
    fstab.write_text("")
    (volume / "other/hard").unlink()
    planned = plan(spec, "--prune")
    assert keys(planned["changes"]) == [("fstab", str(volume)), ("dataset", "other")]
    (warning,) = planned["warnings"]
    assert ("is empty" if stray else "does not exist") in warning
    assert "whether it is fresh is not known" in warning
    reasons = {
        key: each["reason"]
        for key, each in zip(keys(planned["unchanged"]), planned["unchanged"], strict=True)
    }
    assert "whether it is fresh is unknown" in reasons["dataset", "data"]
    assert "while the source of its data set is away" in reasons["boot", "data"]
    applied = apply(spec, "--prune")
    assert keys(applied["done"]) == keys(planned["changes"])
    assert (snapshot(volume / "data"), (state / "boot/data.json").read_bytes()) == before


@pytest.mark.parametrize("lost", ["a file", "the volume's content", "the boot"])
def test_a_copy_that_is_not_whole_needs_its_source(
    lost: str, safe_dir: Path, source: Path, volume: Path, state: Path
) -> None:
    spec = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[{"path": volume, "size": "64M"}],
        datasets=[{"source": source, "volume": volume}],
    )
    apply(spec)
    source.rename(safe_dir / "away")
    if lost == "a file":
        (volume / "data/hard").unlink()
    elif lost == "the boot":
        (record,) = state.glob("datasets/*/dataset.json")
        record.write_text(record.read_text().replace(boot_id(), "0" * 36))
    else:
        (volume / "data").rename(volume / "elsewhere")
    refused = apply(spec, expect=5)
    assert keys(refused["refusals"]) == [("dataset", "data")]
    assert "does not exist" in refused["refusals"][0]["message"]


def test_a_source_that_does_not_answer_is_waited_for_once(
    safe_dir: Path, source: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def noted(spec: DatasetSpec, patience_seconds: float) -> tuple[str, str]:
        waited.append(patience_seconds)
        return sources.real_paths(spec, patience_seconds)

    monkeypatch.setattr(sources, "LOOK_SECONDS", 1.0)
    monkeypatch.setattr(sources, "_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(looking, "real_paths", noted)
    with failing_fs(source, read_only=True, where=safe_dir) as fs:
        (safe_dir / "led").symlink_to(fs.mount)
        led = {"source": safe_dir / "led", "volume": volume, "name": "led"}
        spec = write_spec(
            safe_dir / "hostprep.yml",
            volumes=[{"path": volume, "size": "64M"}],
            datasets=[
                {"source": fs.mount, "volume": volume, "name": "dead", "at_boot": True},
                led,
            ],
        )
        apply(spec)
        fs.tell(
            Rule("*", "readdir", None, hang_seconds=60), Rule("*", "getattr", None, hang_seconds=60)
        )
        planned = plan(spec, "--prune")
        assert "did not answer within 1 s" in planned["warnings"][0]
        assert "did not answer within 0.2 s" in planned["warnings"][1], "it is on the same mount"
        assert planned["changes"] == [], "its boot service stays, whatever the source does"
        subprocess.run(["mount", "-o", "remount,size=32m", volume], check=True)
        waited.clear()
        assert keys(apply(spec)["done"]) == [("volume", str(volume))]
        assert waited == [1.0, 0.2, 0.2, 0.2]
        (volume / "dead/hard").unlink()
        refused = plan(spec, "--prune", expect=5)
        assert keys(refused["refusals"]) == [("dataset", "dead")]
        assert refused["changes"] == []


def test_an_ordinary_user_sees_the_plan_and_may_not_apply_it(
    spec: Path, volume: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fstab", "unit_dir", "run_dir"):
        monkeypatch.setenv(f"HOSTPREP_{name.upper()}", str(safe_dir / name))
    apply(spec)
    (safe_dir / "run_dir").chmod(0o777)
    done = run_hostprep("plan", spec, "--json", prefix=NOBODY)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ok"], found["changes"], found["warnings"]) == (True, [], [])
    subprocess.run(["mount", "-o", "remount,size=32m", volume], check=True)
    line = ("apply", spec, "--yes", *QUIET, "--json")
    refused = json.loads(run_hostprep(*line, prefix=NOBODY).stdout)
    assert f"volume {volume} needs root; nothing was changed" in refused["error"]["message"]
    assert os.statvfs(volume).f_blocks * 4096 == 32 * MIB


def test_ctrl_c_leaves_what_the_next_run_goes_on_with(
    safe_dir: Path, source: Path, volume: Path
) -> None:
    for number in range(2):
        (source / f"large-{number}").write_bytes(os.urandom(MIB) * 150)
    spec = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[{"path": volume, "size": "600M"}],
        datasets=[{"source": source, "volume": volume}],
    )
    line = [*HOSTPREP, "apply", str(spec), "--yes", *QUIET, "--json"]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while not list(volume.glob(".hostprep-data/tree/large*")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        found = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 130
    assert found["error"]["code"] == "interrupted"
    assert f"done before: volume {volume}" in found["error"]["message"]
    assert found["changed"] is True and ("volume", str(volume)) in keys(found["done"])
    assert not (volume / "data").exists()
    assert keys(apply(spec)["done"]) == [("dataset", "data")]


def test_boot_services_are_written_once_and_follow_their_volume(
    safe_dir: Path, source: Path, volume: Path, own_state: Path
) -> None:
    def spec(size: str, at_boot: bool = True) -> Path:
        return write_spec(
            safe_dir / "hostprep.yml",
            volumes=[{"path": volume, "size": size}],
            datasets=[{"source": source, "volume": volume, "at_boot": at_boot}],
        )

    first = apply(spec("64M"))
    assert ("boot", "data") in keys(first["done"])
    told = any("only a boot with systemd stages data" in words for words in first["warnings"])
    assert told is not systemd_runs()
    units = own_state / "units"
    (unit,) = units.glob("hostprep-stage-*.service")
    assert apply(spec("64M"))["changed"] is False
    assert keys(apply(spec("96M"))["done"])[-1] == ("boot", "data")
    unit.write_text(unit.read_text() + "# edited\n")
    assert keys(plan(spec("96M"))["changes"]) == [("boot", "data")]
    apply(spec("96M"))
    left = plan(spec("96M", at_boot=False))
    assert left["changes"] == [] and ("boot", "data") in keys(left["unchanged"])
    pruned = apply(spec("96M", at_boot=False), "--prune")
    assert keys(pruned["done"]) == [("boot", "data")]
    assert list(units.glob("*.service")) == [] and (volume / "data").exists()


def test_unstage_tells_of_the_service_that_brings_it_back(
    safe_dir: Path, source: Path, volume: Path
) -> None:
    spec = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[{"path": volume, "size": "64M"}],
        datasets=[
            {"source": source, "volume": volume, "at_boot": True},
            {"source": source, "volume": volume, "name": "once"},
        ],
    )
    apply(spec)
    for words in (("--dry-run",), ()):
        done = run_hostprep("unstage", "data", *words)
        assert re.search(r"comes back at the next boot.*: hostprep-stage-data.service", done.stderr)
        assert "systemctl disable hostprep-stage-data.service" in done.stderr
    assert "comes back" not in run_hostprep("unstage", "once").stderr
    apply(spec)
    found = json.loads(run_hostprep("unstage", "data", "--json").stdout)
    assert found["boot_service"] == "hostprep-stage-data.service"
    apply(spec)
    write_spec(spec, volumes=[{"path": volume, "size": "64M"}])
    apply(spec, "--prune")
    assert not (volume / "data").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_waits_for_the_package_manager(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Ctrl-C, twice, goes to all in the terminal's group: to the child of apt-get too."""
    begun, goes_on, ended, later = (
        safe_dir / name for name in ("begun", "goes-on", "ended", "later")
    )
    acting = safe_dir / "bin" / "apt-get"
    acting.parent.mkdir()
    waits = f"touch {begun}; until test -e {goes_on}; do sleep 0.05; done"
    dpkg = f"{waits}; echo configured; touch {ended}"
    acting.write_text(f'#!/bin/sh\ntest ! -e {begun} || touch {later}\nsh -c "{dpkg}"\n')
    acting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{acting.parent}:{os.environ['PATH']}")
    spec = write_spec(safe_dir / "hostprep.yml", packages=["no-such-package", "nor-this"])
    words = [*HOSTPREP, "apply", spec, "--yes"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not begun.exists() and process.poll() is None:
            time.sleep(0.01)
        assert process.stderr is not None
        said = ""
        for _ in range(2):
            if number is signal.SIGINT:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            while "waiting for its end" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
        time.sleep(0.3)  # for the second one to do what it would
        assert not ended.exists()
        goes_on.touch()
        said += process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert ended.exists() and not later.exists()
    assert said.count("apt-get must not be stopped half-way: waiting for its end") == 1
    assert "interrupted at package no-such-package" in said
