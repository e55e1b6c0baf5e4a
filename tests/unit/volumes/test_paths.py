"""Rules for mount points, and what is seen on the way to one."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.volumes import paths
from hostprep.volumes.paths import (
    Folder,
    Place,
    PointKind,
    check_path,
    is_system_dir,
    look,
    make_dirs,
    place_refusal,
    remove_dirs,
    symlink_refusal,
)


@pytest.mark.parametrize("path", ["/mnt/a", "//mnt//a/", "/mnt/./a", "/mnt/a/."])
def test_a_path_is_put_into_its_shortest_form(path: str) -> None:
    assert check_path(path) == "/mnt/a"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "mnt/a",
        "-o",
        "/mnt/../etc",
        "/mnt/a\nb",
        "/mnt/a\tb",
        "/mnt/\x7f",
        "/mnt/a ",
        "/mnt/\u202eevil",
        "/mnt/\udcff",
        f"/mnt/{'n' * 256}",
        "/mnt" + f"/{'n' * 200}" * 21,
    ],
)
def test_unsafe_text_is_refused(path: str) -> None:
    with pytest.raises(Refused):
        check_path(path)


def test_the_longest_path_is_taken() -> None:
    longest = "/" + "/".join(["n" * 255] * 15) + "/" + "n" * 254
    assert len(longest) == 4095 and check_path(longest) == longest
    with pytest.raises(Refused, match="longer than the kernel takes"):
        check_path(f"{longest}n")


def test_the_longest_name_is_taken() -> None:
    assert check_path(f"/mnt/{'n' * 255}") == f"/mnt/{'n' * 255}"


@pytest.mark.parametrize(
    "path",
    ["/", "/usr", "/usr/share/x", "/etc/x", "/proc/1", "/dev/shm/x", "/tmp", "/home", "/mnt"],
)
def test_system_directories(path: str) -> None:
    assert is_system_dir(path)


@pytest.mark.parametrize(
    "path", ["/mnt/x", "/srv/data", "/var/lib/data", "/usr/local/data", "/etcx"]
)
def test_places_that_are_nobody_s(path: str) -> None:
    assert not is_system_dir(path)


def test_what_is_missing_is_listed_outermost_first(tmp_path: Path) -> None:
    place = look(f"{tmp_path}/a/b/c")
    assert place.kind is PointKind.MISSING
    assert place.missing == (f"{tmp_path}/a", f"{tmp_path}/a/b", f"{tmp_path}/a/b/c")
    assert place.parents[0].path == "/"
    assert place.parents[-1].path == str(tmp_path)


def test_a_symlink_anywhere_is_seen_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    place = look(f"{tmp_path}/link/inner")
    assert place.symlink == f"{tmp_path}/link"
    assert look(f"{tmp_path}/link").symlink == f"{tmp_path}/link"


def test_the_first_names_tell_that_it_is_not_empty(tmp_path: Path) -> None:
    assert look(str(tmp_path)).entries == ()
    for index in range(100):
        (tmp_path / f"f{index}").touch()
    place = look(str(tmp_path))
    assert place.kind is PointKind.DIRECTORY
    assert 1 < len(place.entries) < 10


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert look(f"{tmp_path}/file").kind is PointKind.OTHER
    assert look(f"{tmp_path}/file/below").kind is PointKind.OTHER


@pytest.mark.parametrize(
    ("folder", "who"),
    [
        (Folder("/mnt", 0, 0, 0o755), None),
        (Folder("/mnt", 0, 0, 0o775), None),  # root's own group
        (Folder("/mnt", 0, 0, 0o775, acl=True), "an ACL"),  # of which that is the mask
        (Folder("/mnt", 0, 0, 0o755, acl=True), None),
        (Folder("/mnt", 0, 50, 0o775), "gid 50"),
        (Folder("/mnt", 0, 0, 0o1777), "everybody"),  # a sticky bit keeps nobody from a new name
        (Folder("/mnt", 7, 0, 0o755), "uid 7"),
        (Folder("/mnt", 0, 0, 0o755, of_unknown=True), "does not know"),
    ],
)
def test_who_but_root_can_put_something_else_in_its_place(folder: Folder, who: str | None) -> None:
    found = folder.others_can_write
    assert found is None if who is None else found is not None and who in found


def test_directories_are_not_made_below_what_others_can_write(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)
    with pytest.raises(Refused, match="changed meanwhile"):
        make_dirs((f"{tmp_path}/a",))
    assert not (tmp_path / "a").exists()


def test_a_limit_on_the_way_is_not_taken_for_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch, pytest.raises(HostprepError) as caught:
        patch.setattr(os, "scandir", failing)
        look(str(tmp_path))
    assert caught.value.message == f"{tmp_path} cannot be looked at: Too many open files."
    opened = os.open
    monkeypatch.setattr(
        os, "open", lambda at, *how, **_: (opened if at == "/" else failing)(at, *how)
    )
    with pytest.raises(HostprepError, match="cannot be opened: Too many open files") as caught:
        make_dirs((f"{tmp_path}/a",))
    assert not isinstance(caught.value, Refused) and "ulimit -n" in str(caught.value.hint)


def test_directories_stay_where_it_cannot_be_told_who_uses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> NoReturn:
        raise HostprepError("/proc cannot be listed: Too many open files.")

    (tmp_path / "a").mkdir()
    monkeypatch.setattr(paths, "mounts_elsewhere", failing)
    with pytest.raises(HostprepError, match="stays on record: /proc cannot be listed"):
        remove_dirs((f"{tmp_path}/a",))
    assert (tmp_path / "a").is_dir()


def test_directories_are_removed_up_to_one_in_use(tmp_path: Path) -> None:
    inner = tmp_path / "a/b/c"
    inner.mkdir(parents=True)
    (tmp_path / "a/theirs").touch()
    paths = (f"{tmp_path}/a", f"{tmp_path}/a/b", f"{tmp_path}/a/b/c", f"{tmp_path}/a/b/c/gone")
    assert remove_dirs(paths) == (f"{tmp_path}/a/b/c", f"{tmp_path}/a/b")
    assert (tmp_path / "a/theirs").exists()


def test_what_cannot_be_made_is_refused_before_anything_is(tmp_path: Path) -> None:
    place = Place(PointKind.MISSING, (Folder("/", 0, 0, 0o755),), missing=("/nix/v",))
    assert place_refusal("/nix/v", place) is None
    refusal = place_refusal("/nix/v", replace(place, read_only=True))
    assert refusal is not None and "mounted read-only" in refusal.message


def test_whose_a_folder_is_may_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_unknown() -> bool:
        return look(str(tmp_path / "v")).parents[-1].of_unknown

    assert not of_unknown()
    monkeypatch.setattr("hostprep.volumes.paths.unknown_uid", lambda: 65534)
    assert not of_unknown()
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, -1)
        assert of_unknown()


def test_of_a_link_to_itself_nobody_is_told_to_name_where_it_leads(tmp_path: Path) -> None:
    link = tmp_path / "volume"
    link.symlink_to("volume")
    for path in (link, link / "below"):
        hint = symlink_refusal(str(path), str(link)).hint
        assert hint is not None and hint.startswith("it leads back to itself")
    link.unlink()
    link.symlink_to("/mnt/other")
    assert "it leads to /mnt/other" in (symlink_refusal(str(link), str(link)).hint or "")
