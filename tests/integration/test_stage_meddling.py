"""Somebody else works in the directory that root stages to: what is theirs stays, and is named."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.errors import Refused
from hostprep.staging import unstage as unstaging
from hostprep.staging.target import private as private_module
from tests.kit.compare import differences
from tests.kit.converging import QUIET, apply, keys, write_spec
from tests.kit.stagecraft import (
    NOBODY,
    hostprep,
    make_private,
    make_source,
    run_hostprep,
    snapshot,
)

pytestmark = pytest.mark.usefixtures("state")

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def precious(folder: Path) -> Path:
    """Make a directory of root's that nobody else can look into; return it."""
    folder.mkdir(mode=0o700)
    (folder / "thesis").mkdir()
    (folder / "thesis/chapter-1").write_bytes(b"years of work")
    return folder


def run_killed(step: Callable[[], None], *words: str | Path) -> None:
    """Run hostprep in a fork in which ``step`` has put a SIGKILL in the way; insist on that."""
    child = os.fork()
    if not child:
        try:
            step()
            run([os.fspath(word) for word in words])
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def die(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def after_mkdir() -> None:
    make = os.mkdir

    def make_and_die(name: str, *rest: Any, **more: Any) -> None:
        make(name, *rest, **more)
        if name == ".hostprep-data":
            die()

    os.mkdir = make_and_die


def before_info_is_written() -> None:
    private_module.json = SimpleNamespace(dumps=die, load=json.load)  # type: ignore[assignment]


def before_the_tree() -> None:
    make = os.mkdir
    os.mkdir = lambda name, *rest, **more: die() if name == "tree" else make(name, *rest, **more)  # type: ignore[assignment]


def exchange(target: Path) -> None:
    """Give the name of the private directory to one of root's own."""
    (target / ".hostprep-data").rename(target / "aside")
    (target.parent / "important").rename(target / ".hostprep-data")


def after(monkeypatch: pytest.MonkeyPatch, where: str, then: Callable[[], None]) -> None:
    """Have ``then`` called right after the function at ``where``, the first time."""
    module, _, name = where.rpartition(".")
    real = getattr(__import__(module, fromlist=[name]), name)

    def both(*given: Any, **more: Any) -> Any:
        found = real(*given, **more)
        monkeypatch.setattr(where, real)
        then()
        return found

    monkeypatch.setattr(where, both)


def test_a_directory_that_is_given_the_private_ones_name_is_not_removed_by_stage(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = snapshot(precious(target.parent / "important")).values()
    after(monkeypatch, "hostprep.staging.stage.publish_new", lambda: exchange(target))
    assert run(["stage", str(source), "--to", str(target)]) == 0
    assert f"{target}/.hostprep-data was moved or replaced" in capsys.readouterr().err
    assert differences(source, target / "data", owners=True) == []
    assert list(snapshot(target / ".hostprep-data").values()) == list(theirs)
    assert os.listdir(target / "aside") == []


def test_a_directory_that_is_given_the_private_ones_name_is_not_removed_by_unstage(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = snapshot(precious(target.parent / "important")).values()
    hostprep("stage", source, "--to", target)
    after(monkeypatch, "hostprep.staging.unstage.remove_hidden", lambda: exchange(target))
    assert run(["unstage", "data"]) == 0
    assert f"{target}/.hostprep-data was moved or replaced" in capsys.readouterr().err
    assert list(snapshot(target / ".hostprep-data").values()) == list(theirs)
    assert os.listdir(target / "aside") == [] and not (target / "data").exists()


@pytest.mark.parametrize("info", ["none", "of another target", "of another format", "no JSON"])
def test_a_directory_of_ones_own_that_was_moved_to_the_name_is_refused(
    info: str, source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    (source / "new").write_bytes(b"to be staged")
    private = target / ".hostprep-data"
    if info in ("none", "no JSON"):
        precious(private)
        if info == "no JSON":
            (private / "info.json").write_bytes(b"{")
    else:
        made = make_private(target, target=target / "other")
        (made / "precious").write_bytes(b"somebody's")
        if info == "of another format":
            fields = {"format": "other/1", "target": str(target / "data")}
            (made / "info.json").write_text(json.dumps(fields))
    before = snapshot(target)
    for words in (
        ("unstage", "data", "--dry-run"),
        ("unstage", "data"),
        ("stage", source, "--to", target),
    ):
        told = hostprep(*words, expect=5)["error"]
        assert f"not made by hostprep for {target}/data; nothing was changed" in told["message"]
        assert "move it away" in told["hint"]
        assert snapshot(target) == before
    private.rename(target.parent / "away")
    hostprep("unstage", "data")
    assert os.listdir(target) == []


def test_a_full_volume_is_emptied_where_it_lies(source: Path, safe_dir: Path) -> None:
    """Nothing can be written down beside it, and so it cannot be hidden."""
    volume = safe_dir / "volume"
    hostprep("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    with pytest.raises(OSError, match="No space left"), open(volume / "rest", "wb", 0) as file:
        while True:
            file.write(bytes(1 << 20))
    with open(volume / "rest", "ab", 0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    found = hostprep("unstage", "data")
    assert (found["removed_entries"], found["left"]) == (122 + 13, [])
    assert os.listdir(volume) == ["rest"]


# Waits for a line, then puts files of its own in the place of some; argv: those, and where to.
_REPLACE = """
import os, sys
os.chdir(sys.argv[1])
descriptor = os.open(sys.argv[2], os.O_RDONLY)
print("ready", flush=True)
for name in sys.stdin.readline().split():
    os.rename(name, name, dst_dir_fd=descriptor)
print("done", flush=True)
"""


def test_what_others_put_there_while_it_is_removed_stays_and_is_named(
    safe_dir: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had the directory open, so that it was moved out of sight does not keep them out."""
    source, theirs = safe_dir / "data", safe_dir / "theirs"
    (source / "open").mkdir(parents=True)
    (source / "open").chmod(0o777)
    for number in range(4000):
        (source / f"open/{number:04}").write_bytes(b"staged")
    hostprep("stage", source, "--to", target)
    order = os.listdir(target / "data/open")
    replaced = order[-20:]
    theirs.mkdir()
    for name in replaced:
        (theirs / name).write_bytes(b"somebody's")
        os.chown(theirs / name, 65534, 65534)
    os.chown(theirs, 65534, 65534)
    line = [*NOBODY, sys.executable, "-c", _REPLACE, str(theirs), str(target / "data/open")]
    unlink, pipes = os.unlink, {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(line, text=True, **pipes) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == "ready\n"

        def once_the_first_is_gone(name: str, **more: int) -> None:
            unlink(name, **more)
            if name == order[0]:
                print(*replaced, file=other.stdin, flush=True)
                assert other.stdout is not None and other.stdout.readline() == "done\n"

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", once_the_first_is_gone)
            found = hostprep("unstage", "data", expect=1)
    assert set(found["left"]) == {f"open/{name}" for name in replaced}
    assert set(os.listdir(target / "data/open")) == set(replaced)
    assert all((target / "data/open" / name).read_bytes() == b"somebody's" for name in replaced)


@pytest.mark.parametrize("instead", ["nothing", "another"])
@pytest.mark.parametrize("known", [False, True])
def test_a_volume_that_is_unmounted_meanwhile_is_not_staged_under(
    known: bool, instead: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    into = ("--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    if known:
        hostprep("stage", source, *into)

    def unmount() -> None:
        subprocess.run(["umount", "--lazy", volume], check=True)
        if instead == "another":
            line = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "theirs", volume]
            subprocess.run(line, check=True)

    after(monkeypatch, "hostprep.staging.preparing.apply_volume", unmount)
    told = hostprep("stage", source, *into, expect=1)["error"]
    assert f"the volume {volume} is not mounted any more" in told["message"]
    assert told["code"] == "failed" and "nothing was published" in told["message"]
    assert os.listdir(volume) == []
    if instead == "another":
        subprocess.run(["umount", volume], check=True)
    hostprep("stage", source, *into)
    assert differences(source, volume / "data", owners=True) == []


@pytest.mark.parametrize("size", ["64M", "128M"])
def test_what_is_refused_once_the_volume_is_changed_is_a_failure(
    size: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    hostprep("mount", volume, "--size", "64M", "--reserve", "0")
    after(
        monkeypatch,
        "hostprep.staging.preparing.apply_volume",
        lambda: precious(volume / ".hostprep-data") and None,
    )
    into = ("--to-tmpfs", size, "--at", volume, "--reserve", "0")
    told = hostprep("stage", source, *into, expect=5 if size == "64M" else 1)["error"]
    assert "was not made by hostprep" in told["message"]
    if size == "64M":
        assert told["message"].endswith("; nothing was changed.")
    else:
        assert told["code"] == "failed" and "nothing was changed" not in told["message"]
        assert f"The volume {volume} was mounted or changed before" in told["message"]


@pytest.mark.parametrize("size", ["64M", "128M"])
def test_a_volume_that_another_run_has_mounted_meanwhile_is_grown(
    size: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to be mounted by both, each with the inodes that its own data set takes."""
    volume, other = safe_dir / "volume", make_source(safe_dir / "other", directories=1, files=2)
    at = ("--at", volume, "--reserve", "0", "--to-tmpfs")

    def stage_other() -> None:
        assert run_hostprep("stage", other, *at, "64M").returncode == 0

    after(monkeypatch, "hostprep.staging.deciding.volume_space", stage_other)
    found = hostprep("stage", source, *at, size)
    assert found["volume"]["size_bytes"] == int(size[:-1]) << 20
    for each in (source, other):
        assert differences(each, volume / each.name, owners=True) == []


def test_a_volume_that_another_run_has_filled_meanwhile_is_refused(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, other = safe_dir / "volume", make_source(safe_dir / "other", directories=1, files=2)
    into = ("--at", volume, "--reserve", "0", "--to-tmpfs", "8M")
    for each in (source, other):
        (each / "large").write_bytes(os.urandom(6 << 20))

    def stage_other() -> None:
        assert run_hostprep("stage", other, *into).returncode == 0

    after(monkeypatch, "hostprep.staging.deciding.volume_space", stage_other)
    told = hostprep("stage", source, *into, expect=5)["error"]
    assert "the data set does not fit" in told["message"] and os.listdir(volume) == ["other"]


def test_a_volume_that_goes_meanwhile_is_not_mounted_again(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    into = ("--at", volume, "--reserve", "0", "--to-tmpfs", "64M")
    hostprep("stage", source, *into)
    (source / "new").write_bytes(b"new")

    def unmount() -> None:
        subprocess.run(["umount", "--lazy", volume], check=True)

    after(monkeypatch, "hostprep.staging.deciding.check_space", unmount)
    told = hostprep("stage", source, *into, expect=1)["error"]
    assert "changed while the volume was planned" in told["message"]
    assert os.listdir(volume) == []


def test_a_volume_that_another_run_has_grown_meanwhile_is_no_change_of_this_one(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    into = ("--at", volume, "--reserve", "0", "--to-tmpfs")
    before = hostprep("stage", source, *into, "64M")

    def grow() -> None:
        assert run_hostprep("mount", volume, "--size", "128M", "--reserve", "0").returncode == 0

    after(monkeypatch, "hostprep.staging.deciding.check_space", grow)
    found = hostprep("stage", source, *into, "128M")
    assert found["changed"] is False and found["digest"] == before["digest"]
    assert found["volume"]["size_bytes"] == 128 << 20
    assert hostprep("stage", source, *into, "256M")["changed"] is True


@pytest.mark.parametrize("what", ["fresh", "published", "resumed"])
def test_what_the_plan_rests_on_and_has_gone_with_its_volume_is_not_counted(
    what: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    into = ("--at", volume, "--reserve", "0", "--to-tmpfs", "64M")
    if what != "resumed":
        hostprep("stage", source, *into)
    else:
        (source / "vanishing").write_bytes(b"-")
        after(monkeypatch, "hostprep.staging.deciding.check_space", (source / "vanishing").unlink)
        hostprep("stage", source, *into, expect=1)
    if what != "fresh":
        (source / "new").write_bytes(b"new")

    def mount_anew() -> None:
        subprocess.run(["umount", "--lazy", volume], check=True)
        assert run_hostprep("mount", volume, "--size", "64M", "--reserve", "0").returncode == 0

    after(monkeypatch, "hostprep.staging.deciding.check_space", mount_anew)
    told = hostprep("stage", source, *into, expect=1)["error"]
    assert "is gone" in told["message"] and "again" in told["hint"]
    assert "data" not in os.listdir(volume)
    hostprep("stage", source, *into)
    assert differences(source, volume / "data", owners=True) == []


@pytest.mark.parametrize("step", ["copy_all", "publish"])
@pytest.mark.parametrize("known", [False, True])
def test_a_volume_that_is_unmounted_while_it_is_copied_to_is_told_of(
    known: bool, step: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    into = ("--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    if known:
        hostprep("stage", source, *into)
        (source / "new").write_bytes(b"new")
    if step == "publish":
        step = "publish_update" if known else "publish_new"

    def unmount() -> None:
        subprocess.run(["umount", "--lazy", volume], check=True)

    after(monkeypatch, f"hostprep.staging.stage.{step}", unmount)
    told = hostprep("stage", source, *into, expect=1)["error"]
    done = "nothing was published" if step == "copy_all" else "what was published is gone with it"
    assert f"mounted there; {done}. Its directory stays" in told["message"]
    assert told["code"] == "failed" and os.listdir(volume) == []
    assert hostprep("status")["datasets"][0]["state"] == "missing"
    if known:
        hostprep("stage", source, *into)
        assert differences(source, volume / "data", owners=True) == []
    hostprep("unstage", "data")
    assert hostprep("status")["datasets"] == []


@pytest.mark.parametrize("known", [False, True])
def test_what_somebody_removed_of_the_private_directory_is_not_called_staged(
    known: bool, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    into = ("--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    (source / "old").write_bytes(b"old")
    if known:
        hostprep("stage", source, *into)
    (source / "new").write_bytes(b"new")

    def tidy_up() -> None:  # as an `rm -r` does that a directory came back to
        private = volume / ".hostprep-data"
        for journal in private.glob("journal.*"):
            journal.unlink()
        (private / "tree/new").unlink()

    with monkeypatch.context() as patch:
        after(patch, "hostprep.staging.stage.copy_all", tidy_up)
        told = hostprep("stage", source, *into, expect=1)["error"]
    assert "is gone: it was there a moment ago; nothing was" in told["message"]
    assert (volume / "data").exists() is known and not (volume / "data/new").exists()
    assert hostprep("stage", source, *into)["verified"]
    assert differences(source, volume / "data", owners=True) == []
    assert hostprep("status")["datasets"][0]["state"] == "staged"


@pytest.mark.parametrize("part", ["class-1", "class-1/images", "class-1/images/003.bin", "empty"])
def test_what_somebody_removed_of_the_copies_alone_is_not_called_staged(
    part: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"
    into = ("--to-tmpfs", "64M", "--at", volume, "--reserve", "0")

    def remove() -> None:  # a directory that is made anew by then holds nothing
        subprocess.run(["rm", "-rf", volume / ".hostprep-data/tree" / part], check=True)

    with monkeypatch.context() as patch:
        after(patch, "hostprep.staging.stage.finish_directories", remove)
        told = hostprep("stage", source, *into, expect=1)["error"]
    assert "is gone: it was there a moment ago; nothing was" in told["message"]
    assert not (volume / "data").exists()
    with monkeypatch.context() as patch:
        after(patch, "hostprep.staging.stage.copy_all", remove)
        # The empty one is made only then.
        code = 0 if part == "empty" else 1
        hostprep("stage", source, *into, expect=code)
    assert hostprep("stage", source, *into)["verified"]
    assert differences(source, volume / "data", owners=True) == []


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("step", ["copy_all", "publish_new"])
def test_a_volume_that_is_covered_while_it_is_copied_to_is_told_of(
    step: str, above: bool, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "above/volume"
    into = ("--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    over = volume.parent if above else volume

    def cover() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "theirs", over], check=True)

    after(monkeypatch, f"hostprep.staging.stage.{step}", cover)
    told = hostprep("stage", source, *into, expect=1)["error"]
    done = "nothing was published" if step == "copy_all" else "what was published lies below that"
    assert f"theirs (tmpfs) is mounted on {over} by now and hides" in told["message"]
    assert done in told["message"] and f"umount {over}" in told["hint"]
    subprocess.run(["umount", over], check=True)
    assert (volume / "data").exists() is (step == "publish_new")
    again = hostprep("stage", source, *into)
    assert again["verified"] and differences(source, volume / "data", owners=True) == []


def test_a_volume_that_is_bound_on_itself_while_it_is_copied_to_is_the_same(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "volume"

    def bind() -> None:
        subprocess.run(["mount", "--bind", volume, volume], check=True)

    after(monkeypatch, "hostprep.staging.stage.copy_all", bind)
    assert hostprep("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0")["ok"]
    assert differences(source, volume / "data", owners=True) == []


@pytest.mark.parametrize("since", ["a reboot", "an unmounting"])
def test_a_volume_that_fstab_mounted_again_is_staged_into_by_its_owner(
    since: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user changes no record: it still tells of the mount before."""
    for name in ("fstab", "unit_dir", "run_dir"):
        monkeypatch.setenv(f"HOSTPREP_{name.upper()}", str(safe_dir / name))
    volume, identity = safe_dir / "volume", safe_dir / "boot-id"
    volumes = [{"path": volume, "size": "64M", "owner": "65534:65534"}]
    spec = write_spec(safe_dir / "hostprep.yml", volumes=volumes)
    apply(spec)
    write_spec(spec, volumes=volumes, datasets=[{"source": source, "volume": volume}])
    subprocess.run(["umount", volume], check=True)
    other = safe_dir / "other"  # takes the number that the kernel has free now
    other.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "other", other], check=True)
    subprocess.run(["mount", "--fstab", os.environ["HOSTPREP_FSTAB"], volume], check=True)
    (safe_dir / "state/datasets").mkdir()
    for name in ("run_dir", "state", "state/datasets"):
        os.chown(safe_dir / name, 65534, 65534)
    if since == "a reboot":
        identity.write_text(f"{uuid.uuid4()}\n")
        subprocess.run(["mount", "--bind", identity, BOOT_ID], check=True)
    try:
        done = hostprep("apply", spec, "--yes", *QUIET, prefix=NOBODY)
    finally:
        if since == "a reboot":
            subprocess.run(["umount", BOOT_ID], check=True)
    assert keys(done["done"]) == [("dataset", "data")]
    assert differences(source, volume / "data", owners=False) == []


@pytest.mark.parametrize("place", ["new", "class-1/new", "class-5", "link"])
def test_what_appears_right_before_an_update_is_published_is_not_replaced(
    place: str, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)
    theirs = target / "data" / place
    (source / "new").write_bytes(b"staged")
    (source / "class-1/new").symlink_to("images")
    shutil.rmtree(source / "class-5")  # a directory of which a file takes the place
    (source / "class-5").write_bytes(b"a file now")
    if place == "link":  # one that was staged, and that is to be replaced
        (source / "link").unlink()
        (source / "link").symlink_to("elsewhere")

    def appear() -> None:
        if place == "class-5":
            (theirs / "notes").write_bytes(b"somebody's")
        else:
            theirs.unlink(missing_ok=True)
            theirs.write_bytes(b"somebody's")

    after(monkeypatch, "hostprep.staging.stage.extend_manifest", appear)
    if place == "link":  # to bring back what was changed by hand is what an update is for
        hostprep("stage", source, "--to", target)
        assert differences(source, target / "data", owners=True) == []
        return
    told = hostprep("stage", source, "--to", target, expect=1)["error"]
    assert f"{place} appeared on the target while it was staged" in told["message"]
    stays = theirs / "notes" if place == "class-5" else theirs
    assert stays.read_bytes() == b"somebody's"
    assert hostprep("status")["datasets"][0]["state"] == "interrupted"
    stays.rename(target.parent / "kept")
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []
    assert os.listdir(target) == ["data"] and hostprep("unstage", "data")["left"] == []


@pytest.mark.parametrize("then", ["stage", "unstage"])
@pytest.mark.parametrize("step", [after_mkdir, before_info_is_written, before_the_tree])
def test_a_run_that_is_killed_while_it_makes_the_private_directory_is_known_of(
    step: Callable[[], None], then: str, source: Path, target: Path
) -> None:
    run_killed(step, "stage", source, "--to", target)
    assert os.listdir(target) == [".hostprep-data"]
    (status,) = hostprep("status")["datasets"]
    assert (status["name"], status["state"]) == ("data", "interrupted")
    assert "did not get to its end" in status["reason"]
    if then == "stage":
        hostprep("stage", source, "--to", target)
        assert differences(source, target / "data", owners=True) == []
        assert os.listdir(target) == ["data"]
    else:
        hostprep("unstage", "data")
        assert os.listdir(target) == [] and hostprep("status")["datasets"] == []


def test_a_volume_goes_with_a_run_that_was_killed_right_at_its_beginning(
    source: Path, safe_dir: Path
) -> None:
    volume = safe_dir / "volume"
    into = ("--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    run_killed(after_mkdir, "stage", source, *into)
    assert os.path.ismount(volume)
    assert hostprep("unstage", "data")["unmounted"] is True
    assert not volume.exists() and hostprep("status")["volumes"] == []


def test_what_cannot_begin_leaves_no_record(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hostprep.staging.target.private._forget_default_acl", full)
    told = hostprep("stage", source, "--to", target, expect=1)["error"]["message"]
    assert "No space left" in told and os.listdir(target) == []
    assert hostprep("status")["datasets"] == []


def test_what_cannot_begin_keeps_what_an_earlier_run_has_copied(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Refused("not this time")

    for step in ("stage.publish_new", "preparing.check_names"):
        with monkeypatch.context() as patch:
            patch.setattr(f"hostprep.staging.{step}", refuse)
            told = run_staging(source, target)
            assert "not this time" in told["error"]["message"]
    (known,) = hostprep("status")["datasets"]
    assert known["state"] == "interrupted"
    assert hostprep("stage", source, "--to", target)["resumed_files"] > 100
    assert differences(source, target / "data", owners=True) == []


def run_staging(source: Path, target: Path) -> dict[str, Any]:
    """Stage what is refused or fails."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(io.StringIO()):
        assert run(["stage", str(source), "--to", str(target), "--json"])
    found: dict[str, Any] = json.loads(stdout.getvalue())
    return found


def in_the_middle() -> None:
    """Die when some of the data set, which is hidden by then, is removed."""
    unlink = os.unlink

    def unlink_and_die(name: str, **more: Any) -> None:
        unlink(name, **more)
        if name == "007.bin":
            die()

    os.unlink = unlink_and_die


def when_it_is_gone() -> None:
    unstaging.remove_opened = die


@pytest.mark.parametrize("step", [in_the_middle, when_it_is_gone])
def test_what_takes_the_place_of_one_that_was_hidden_stays_and_the_rest_goes(
    step: Callable[[], None], source: Path, safe_dir: Path
) -> None:
    volume = safe_dir / "volume"
    hostprep("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    run_killed(step, "unstage", "data")
    assert os.listdir(volume) == [".hostprep-data"]
    theirs = volume / "data"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    before = snapshot(theirs)
    planned = hostprep("unstage", "data", "--dry-run")
    assert planned["in_its_place"] == str(theirs)
    assert "unmount" not in [change["action"] for change in planned["changes"]]
    told = run_hostprep("unstage", "data")
    assert told.returncode == 0
    assert f"left alone, not staged by hostprep: {theirs}" in told.stderr
    assert "still holds data" in told.stderr and os.listdir(volume) == ["data"]
    assert snapshot(theirs) == before
    assert hostprep("status")["datasets"] == []
    assert "was not staged by hostprep" in str(
        hostprep("stage", source, "--to", volume, expect=5)["error"]
    )


def test_what_takes_the_place_of_one_that_cannot_be_put_back_is_not_replaced(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody had one of its directories open and put a file there when it was hidden."""
    hostprep("stage", source, "--to", target)

    def meddle() -> None:
        (target / ".hostprep-data/removing/class-1/theirs").write_bytes(b"hours of work")
        (target / "data").mkdir()

    after(monkeypatch, "hostprep.staging.unstage.hide", meddle)
    told = hostprep("unstage", "data", expect=1)["error"]
    assert "could not be removed: File exists" in told["message"]
    refused = hostprep("unstage", "data", expect=5)["error"]
    assert ".hostprep-data/removing: class-1/theirs" in refused["message"]
    (target / "data").rmdir()
    assert hostprep("unstage", "data", expect=1)["left"] == ["class-1/theirs"]
    assert (target / "data/class-1/theirs").read_bytes() == b"hours of work"


def while_it_is_forgotten() -> None:
    """Die when one of the two files of a record is gone."""
    unlink = os.unlink

    def unlink_and_die(name: Any, *rest: Any, **more: Any) -> None:
        unlink(name, *rest, **more)
        if os.path.basename(name) in ("dataset.json", "manifest.jsonl"):
            die()

    os.unlink = unlink_and_die


@pytest.mark.parametrize("by", ["unstage", "prune"])
def test_a_run_that_is_killed_while_it_forgets_leaves_no_manifest_for_good(
    by: str, source: Path, target: Path, state: Path
) -> None:
    hostprep("stage", source, "--to", target)
    (target.parent / "none.yml").write_text("{}\n")
    words = {
        "unstage": ("unstage", "data"),
        "prune": ("apply", str(target.parent / "none.yml"), "--prune", "--yes"),
    }[by]
    run_killed(while_it_is_forgotten, *words)
    assert [each["name"] for each in hostprep("status")["datasets"]] == ["data"]
    assert run_hostprep(*words).returncode == 0
    assert os.listdir(state / "datasets") == []


def before_info_is_removed() -> None:
    unlink = os.unlink
    os.unlink = lambda name, *rest, **more: (
        die() if name == "info.json" else unlink(name, *rest, **more)
    )


def test_what_says_whose_the_private_directory_is_goes_last(source: Path, target: Path) -> None:
    run_killed(before_info_is_removed, "stage", source, "--to", target)
    assert sorted(os.listdir(target)) == [".hostprep-data", "data"]
    assert os.listdir(target / ".hostprep-data") == ["info.json"]
    assert hostprep("stage", source, "--to", target)["copied_files"] == 0
    assert os.listdir(target) == ["data"]
