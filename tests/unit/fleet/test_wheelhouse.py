"""Which wheels fit a host, and what travels to it."""

from __future__ import annotations

import os
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from hostprep.errors import UsageError
from hostprep.fleet.packing import pack_wheel
from hostprep.fleet.wheelhouse import Target, make_wheelhouse


def test_a_target_is_read_and_written() -> None:
    target = Target.parse("3.11-x86_64-glibc-2.36")
    assert target == Target(11, "x86_64", 36)
    assert str(target) == "3.11-x86_64-glibc-2.36"


@pytest.mark.parametrize("text", ["", "3.11-x86_64--", "2.7-x86_64-glibc-2.36", "3.11 x86_64"])
def test_a_host_of_another_kind_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(UsageError) as found:
        Target.parse(text)
    assert "hostprep_install_source: index" in str(found.value.hint)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3.11-x86_64-glibc-2.100", "a host with glibc 2.100: there is no such glibc."),
        ("3.11-x86_64-glibc-2.999", "there is no such glibc."),
        ("3.11-x86_64-glibc-2.60000000", "a host that is '3.11-x86_64-glibc-2.60000000'."),
        ("3.1111-x86_64-glibc-2.36", "a host that is '3.1111-x86_64-glibc-2.36'."),
        (f"3.11-{'x' * 10**6}-glibc-2.36", f"a host that is '3.11-{'x' * 55}...'."),
    ],
)
def test_no_host_fills_the_controllers_memory_by_what_it_says_that_it_is(
    text: str, said: str
) -> None:
    with pytest.raises(UsageError) as found:
        Target.parse(text)
    assert str(found.value).endswith(said)
    assert len(Target.parse("3.999-x86_64-glibc-2.99").pip_options()) < 100


def test_pip_is_asked_for_the_hosts_own_tags_newest_first() -> None:
    options = Target(12, "aarch64", 19).pip_options()
    assert options[:3] == ["--only-binary=:all:", "--implementation=cp", "--python-version=3.12"]
    assert options[3:6] == ["--abi=cp312", "--abi=abi3", "--abi=none"]
    assert options[6:] == [
        "--platform=manylinux_2_19_aarch64",
        "--platform=manylinux_2_18_aarch64",
        "--platform=manylinux_2_17_aarch64",
        "--platform=manylinux2014_aarch64",
    ]


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as found:
        return found.getnames()


def test_wheels_that_were_given_travel_with_the_running_hostprep(tmp_path: Path) -> None:
    for name in ("rich-15-py3-none-any.whl", "hostprep-0.0.1-py3-none-any.whl", "notes.txt"):
        (tmp_path / name).write_bytes(name.encode())
    made = make_wheelhouse(None, tmp_path)
    assert names_in(made.archive) == [made.wheel, "rich-15-py3-none-any.whl"]
    with tarfile.open(made.archive) as archive:
        member = archive.extractfile(made.wheel)
        assert member is not None
        assert member.read() == pack_wheel().content


def test_a_folder_that_lacks_a_wheel_for_the_host_is_refused_before_it_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "the wheels"
    folder.mkdir()
    write_wheel(folder, "needs_it", requires="has_it>=2")
    write_wheel(folder, "has_it", version="1")
    monkeypatch.setattr("hostprep.fleet.wheelhouse._needed", lambda: ["needs_it"])
    target = Target(11, "x86_64", 36)
    for _ in "once", "again":
        with pytest.raises(UsageError, match=r"not have all wheels .*(?s:.*)has[_-]it>=2") as found:
            make_wheelhouse(target, folder)
        assert f"pip download --only-binary=:all: --dest='{folder}' " in str(found.value.hint)
    write_wheel(folder, "has_it", version="2")
    made = make_wheelhouse(target, folder)
    assert "has_it-2-py3-none-any.whl" in names_in(made.archive)


def test_what_was_compiled_for_a_host_is_no_missing_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `pip wheel`, where nobody offers one: pip on the host takes it as well."""
    write_wheel(tmp_path, "compiled", tag="cp311-cp311-linux_riscv64")
    monkeypatch.setattr("hostprep.fleet.wheelhouse._needed", lambda: ["compiled"])
    made = make_wheelhouse(Target(11, "riscv64", 36), tmp_path)
    assert "compiled-1-cp311-cp311-linux_riscv64.whl" in names_in(made.archive)


def write_wheel(
    folder: Path, name: str, *, version: str = "1", requires: str = "", tag: str = "py3-none-any"
) -> None:
    told = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
        for file, content in (
            ("METADATA", told + (f"Requires-Dist: {requires}\n" if requires else "")),
            ("WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"),
            ("RECORD", ""),
        ):
            wheel.writestr(f"{name}-{version}.dist-info/{file}", content)


def test_an_archive_is_made_once_and_another_when_its_wheels_change(tmp_path: Path) -> None:
    (tmp_path / "rich-15-py3-none-any.whl").write_bytes(b"old")
    first = make_wheelhouse(None, tmp_path)
    made = first.archive.stat().st_ino
    assert make_wheelhouse(None, tmp_path) == first
    assert first.archive.stat().st_ino == made
    (tmp_path / "xxhash-4-py3-none-any.whl").write_bytes(b"")
    second = make_wheelhouse(None, tmp_path)
    assert "xxhash-4-py3-none-any.whl" in names_in(second.archive)
    (tmp_path / "rich-15-py3-none-any.whl").write_bytes(b"new")
    with tarfile.open(make_wheelhouse(None, tmp_path).archive) as archive:
        member = archive.extractfile("rich-15-py3-none-any.whl")
        assert member is not None and member.read() == b"new"


def test_an_archive_that_a_power_cut_emptied_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "rich-15-py3-none-any.whl").write_bytes(b"1")
    made = make_wheelhouse(None, tmp_path)
    made.archive.write_bytes(b"")
    assert make_wheelhouse(None, tmp_path) == made
    assert "rich-15-py3-none-any.whl" in names_in(made.archive)


def test_downloaded_wheels_that_are_not_whole_are_downloaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Path] = []

    def download(_: Target, to: Path) -> None:
        asked.append(to)
        to.mkdir()
        with zipfile.ZipFile(to / "rich-15-py3-none-any.whl", "w") as wheel:
            wheel.writestr("rich/__init__.py", b"text " * 100)

    monkeypatch.setattr("hostprep.fleet.wheelhouse._pip_download", download)
    target = Target(11, "x86_64", 36)
    made = make_wheelhouse(target)
    assert make_wheelhouse(target) == made and len(asked) == 1
    (wheel,) = made.archive.parent.glob("wheels/*/*.whl")
    sound = wheel.read_bytes()
    for damaged in (b"", sound[:100], sound.replace(b"text", b"next", 1)):
        asked.clear()
        wheel.write_bytes(damaged)
        make_wheelhouse(target)
        assert len(asked) == 1 and b"text" in wheel.read_bytes()


def test_archives_that_another_run_may_be_sending_stay_for_a_day(tmp_path: Path) -> None:
    (tmp_path / "rich-15-py3-none-any.whl").write_bytes(b"1")
    old, used = make_wheelhouse(None, tmp_path), tmp_path / "rich-15-py3-none-any.whl"
    used.write_bytes(b"2")
    recent = make_wheelhouse(None, tmp_path)
    for made in (old, recent):
        os.utime(made.archive, (time.time() - 25 * 3600,) * 2)
    assert make_wheelhouse(None, tmp_path) == recent
    assert recent.archive.exists() and not old.archive.exists()
    used.write_bytes(b"3")
    make_wheelhouse(None, tmp_path)
    assert recent.archive.exists()


def test_alone_it_is_hostprep_without_what_it_needs() -> None:
    made = make_wheelhouse(None)
    assert names_in(made.archive) == [made.wheel]


def test_a_folder_without_wheels_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no wheels"):
        make_wheelhouse(None, tmp_path)
