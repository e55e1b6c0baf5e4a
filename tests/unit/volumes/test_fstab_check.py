"""What findmnt and systemd are asked of an edited fstab, and what is made of their answers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.system.run import CommandFailed, Completed
from hostprep.system.systemd import GeneratedUnits
from hostprep.volumes import fstab_check
from hostprep.volumes.fstab_line import set_volume

PATH = "/mnt/hostprep-none"
DEAD = b"server:/export /share nfs defaults 0 0\n"
ERROR = f"{PATH}\n   [E] something is wrong with it\n"


def volume(size: str, before: bytes = DEAD) -> bytes:
    return set_volume(before, path=PATH, options=("nosuid", f"size={size}"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Have findmnt hang on files with the dead share, and find fault with our line in any other."""
    contents: list[bytes] = []

    def findmnt(args: list[Any], **_: Any) -> Completed:
        contents.append(Path(args[-1]).read_bytes())
        said = Completed(("findmnt",), 0, ERROR if b"size=bad" in contents[-1] else "", "")
        if DEAD in contents[-1]:
            raise CommandFailed(said, "took longer than 10 s")
        return said

    monkeypatch.setattr(fstab_check, "run", findmnt)
    monkeypatch.setattr(fstab_check, "fstab_generator", lambda: None)
    yield contents


def check(tmp_path: Path, old: bytes, new: bytes) -> None:
    old_path, new_path = tmp_path / "fstab", tmp_path / "fstab.new"
    old_path.write_bytes(old)
    new_path.write_bytes(new)
    fstab_check.check_new_fstab(old=old, old_path=old_path, new=new, new_path=new_path)


def test_beside_a_line_that_hangs_ours_are_judged_alone(tmp_path: Path, asked: list[bytes]) -> None:
    check(tmp_path, volume("1g"), volume("2g"))
    ours = [volume("1g", b""), volume("2g", b"")]
    assert asked == [volume("1g"), *ours], "the old file hangs, and then both without the share"
    with pytest.raises(Refused, match="something is wrong with it"):
        check(tmp_path, volume("1g"), volume("bad"))


def test_what_was_wrong_with_our_line_before_is_not_the_edits_fault(
    tmp_path: Path, asked: list[bytes]
) -> None:
    check(tmp_path, volume("bad"), volume("bad").replace(b"nosuid", b"nosuid,nodev"))
    assert len(asked) == 3


def test_a_line_that_only_moves_is_not_judged(tmp_path: Path, asked: list[bytes]) -> None:
    old = volume("bad", b"# a comment\n")
    check(tmp_path, old, b"# one more\n" + old)
    with pytest.raises(Refused, match="something is wrong with it"):
        check(tmp_path, b"", old)


def test_lines_of_others_are_not_judged(tmp_path: Path, asked: list[bytes]) -> None:
    theirs = volume("bad", b"").replace(b"X-hostprep.id", b"X-somebodys.id")
    check(tmp_path, b"", theirs)


def test_systemd_is_asked_where_it_is(
    tmp_path: Path, asked: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(_: Path, file: Path, into: Path, **options: Any) -> GeneratedUnits:
        if not file.read_bytes():
            return GeneratedUnits(0, "", (), frozenset())
        text = f"SourcePath={file}\nWhere={PATH}\nWhat=/dev/sda\nType=ext4\n"
        return GeneratedUnits(0, "", (("mnt.mount", text),), frozenset())

    monkeypatch.setattr(fstab_check, "generate_mount_units", generate)
    check(tmp_path, b"", volume("1g", b""))
    monkeypatch.setattr(fstab_check, "fstab_generator", lambda: Path("/generator"))
    with pytest.raises(Refused, match=r"makes mnt\.mount mount something else than a tmpfs"):
        check(tmp_path, b"", volume("1g", b""))


def test_of_what_the_edit_leaves_alone_no_unit_is_asked(
    tmp_path: Path, asked: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "/mnt/hostprep-other"
    old = set_volume(b"", path=other, options=("size=1g",))

    def generate(_: Path, file: Path, into: Path, **options: Any) -> GeneratedUnits:
        text = f"SourcePath={file}\nWhere={PATH}\nWhat=tmpfs\nType=tmpfs\n"
        return GeneratedUnits(0, "", (("mnt.mount", text),), frozenset())

    monkeypatch.setattr(fstab_check, "generate_mount_units", generate)
    monkeypatch.setattr(fstab_check, "fstab_generator", lambda: Path("/generator"))
    check(tmp_path, old, volume("1g", old))
    with pytest.raises(Refused, match=f"makes no mount unit for {other}"):
        check(tmp_path, b"", old)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_generator_that_had_no_room_is_no_word_on_the_fstab(
    tmp_path: Path, asked: list[bytes], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def generate(_: Path, file: Path, into: Path, **options: Any) -> GeneratedUnits:
        failed = bool(file.read_bytes())
        said = f"Failed to create unit file '{into}/mnt.mount': {os.strerror(number)}"
        return GeneratedUnits(int(failed), said if failed else "", (), frozenset())

    monkeypatch.setattr(fstab_check, "generate_mount_units", generate)
    monkeypatch.setattr(fstab_check, "fstab_generator", lambda: Path("/generator"))
    with pytest.raises(HostprepError, match=f"could not be checked: {os.strerror(number)}"):
        check(tmp_path, b"", volume("1g", b""))


def test_what_a_killed_run_left_goes(tmp_path: Path, asked: list[bytes], own_state: Path) -> None:
    left = own_state / "state/fstab-check-left/generated"
    left.mkdir(parents=True)
    check(tmp_path, b"", volume("1g", b""))
    assert list((own_state / "state").iterdir()) == []


def unit(where: str = PATH, what: str = "tmpfs", kind: str = "tmpfs", more: str = "") -> str:
    return f"SourcePath={{file}}\nWhere={where}\nWhat={what}\nType={kind}\n{more}"


OURS = ("ours.mount", unit())
FINE = GeneratedUnits(0, "", (OURS,), frozenset())


@pytest.mark.parametrize(
    ("before", "after", "objection"),
    [
        (FINE, FINE, None),
        (FINE, replace(FINE, returncode=1, said="odd"), "fails on the new fstab: odd"),
        (replace(FINE, returncode=1), replace(FINE, returncode=1), None),
        (FINE, replace(FINE, units=(OURS, ("x.mount", unit("/x")))), "not hostprep's"),
        (replace(FINE, units=(OURS, ("x.mount", unit("/x")))), FINE, "not hostprep's"),
        (FINE, replace(FINE, units=(("ours.mount", unit(what="/dev/sda")),)), "something else"),
        (FINE, replace(FINE, units=(("ours.mount", unit(kind="ext4")),)), "something else"),
        (FINE, replace(FINE, units=(("ours.mount", f"Where={PATH}\nType=ext4"),)), None),
        (FINE, replace(FINE, required=frozenset({"ours.mount"})), "makes the boot wait for ours"),
        (
            FINE,
            replace(FINE, units=(("ours.mount", unit(more="Before=x local-fs.target\n")),)),
            "makes the boot wait for ours",
        ),
        (
            FINE,
            replace(FINE, units=(("o.mount", f"# Canonicalized from {PATH}\n{unit('/real')}"),)),
            None,
        ),
    ],
)
def test_what_systemd_makes_of_the_edit_is_judged(
    tmp_path: Path,
    asked: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    before: GeneratedUnits,
    after: GeneratedUnits,
    objection: str | None,
) -> None:
    """A generator that did not read the file, as before systemd 246, has nothing to say."""
    generated = iter([before, after])

    def generate(_: Path, file: Path, into: Path, **options: Any) -> GeneratedUnits:
        made = next(generated)
        return replace(
            made,
            units=tuple((name, text.replace("{file}", str(file))) for name, text in made.units),
        )

    monkeypatch.setattr(fstab_check, "generate_mount_units", generate)
    monkeypatch.setattr(fstab_check, "fstab_generator", lambda: Path("/generator"))
    refused: AbstractContextManager[Any]
    refused = nullcontext() if objection is None else pytest.raises(Refused, match=objection)
    with refused:
        check(tmp_path, volume("1g", b""), volume("2g", b""))


def test_lines_that_findmnt_dies_of_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of util-linux 2.41, which names them first."""

    def findmnt(args: list[Any], **_: Any) -> Completed:
        lines = Path(args[-1]).read_bytes().split(b"\n")
        if b"odd" not in lines:
            return Completed(("findmnt",), 0, "", "")
        said = f"findmnt: parse error at line {lines.index(b'odd') + 1} -- ignored"
        raise CommandFailed(Completed(("findmnt",), -11, "", said), "was ended by SIGSEGV")

    monkeypatch.setattr(fstab_check, "run", findmnt)
    monkeypatch.setattr(fstab_check, "fstab_generator", lambda: None)
    odd = b"# mine\nodd\nodd\n"
    check(tmp_path, odd, volume("1g", odd))
    with pytest.raises(Refused, match="a line that it cannot parse"):
        check(tmp_path, b"odd\n", volume("1g", odd))


def test_where_findmnt_is_killed_fstab_is_said_to_be_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> NoReturn:
        raise CommandFailed(Completed(("findmnt",), -9, "", ""), "was ended by SIGKILL")

    monkeypatch.setattr(fstab_check, "run", killed)
    new_path = tmp_path / "new"
    new_path.write_bytes(b"")
    with pytest.raises(CommandFailed) as caught:
        fstab_check.check_new_fstab(old=b"", old_path=None, new=b"", new_path=new_path)
    assert caught.value.message == (
        "the new fstab could not be checked, and stays as it was: `findmnt` was ended by SIGKILL:"
        " it said nothing"
    )


@pytest.mark.parametrize("there", [True, False])
def test_a_target_that_is_yet_to_be_made_is_no_mistake(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    if there:
        target.mkdir()
    said = f"{target}\n   [E] unreachable on boot required target: No such file or directory\n"
    monkeypatch.setattr(fstab_check, "run", lambda *_, **__: Completed(("findmnt",), 1, said, ""))
    monkeypatch.setattr(fstab_check, "fstab_generator", lambda: None)
    new = set_volume(b"", path=str(target), options=("size=1g",))
    new_path = tmp_path / "new"
    new_path.write_bytes(new)
    refused: AbstractContextManager[Any]
    refused = pytest.raises(Refused, match="unreachable") if there else nullcontext()
    with refused as caught:
        fstab_check.check_new_fstab(old=b"", old_path=None, new=new, new_path=new_path)
    assert not there or "`findmnt --verify` shows what is wrong" in caught.value.hint
