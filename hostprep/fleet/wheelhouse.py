"""What a host needs to install hostprep without a package registry: all wheels in one archive."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import os
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, UsageError
from hostprep.fleet.packing import PackedWheel, pack_wheel
from hostprep.system.locks import lock
from hostprep.system.own_files import write_atomically
from hostprep.system.run import CommandFailed, run
from hostprep.system.state import state_dir

# A host describes itself: all parts have limits, or one host could fill the controller's memory.
_TARGET = re.compile(r"3\.(\d{1,3})-(\w{1,32})-glibc-2\.(\d{1,3})", re.ASCII)
_OLDEST_GLIBC = 17  # of manylinux2014; hardly any wheel supports older ones
_NEWEST_GLIBC = 99  # there are two a year; 2.42 is from 2025
_SHOWN = 60  # characters of a host's description
_DOWNLOAD_SECONDS = 900
_KEEP_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Target:
    """What decides which wheels fit a host: Python 3.MINOR, the machine, glibc 2.MINOR."""

    python_minor: int
    machine: str
    glibc_minor: int

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``3.11-x86_64-glibc-2.36``, as the role's survey prints it."""
        match = _TARGET.fullmatch(text)
        if match is None:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            raise UsageError(
                f"no wheels can be chosen for a host that is {shown!r}.",
                "a host needs CPython 3 on glibc; give it hostprep_install_source: index",
            )
        target = cls(int(match[1]), match[2], int(match[3]))
        if target.glibc_minor > _NEWEST_GLIBC:
            raise UsageError(
                f"no wheels can be chosen for a host with glibc 2.{target.glibc_minor}: there is"
                " no such glibc.",
                "see what `ldd --version` prints there, and which program prints it",
            )
        return target

    def __str__(self) -> str:
        return f"3.{self.python_minor}-{self.machine}-glibc-2.{self.glibc_minor}"

    def pip_options(self) -> list[str]:
        """Return the options with which pip selects wheels for that host instead of this one."""
        options = ["--only-binary=:all:", "--implementation=cp"]
        options.append(f"--python-version=3.{self.python_minor}")
        options += [f"--abi={abi}" for abi in (f"cp3{self.python_minor}", "abi3", "none")]
        newest_first = range(self.glibc_minor, _OLDEST_GLIBC - 1, -1)
        options += [f"--platform=manylinux_2_{minor}_{self.machine}" for minor in newest_first]
        return [*options, f"--platform=manylinux2014_{self.machine}"]


@dataclass(frozen=True, slots=True)
class Wheelhouse:
    """The name and build of hostprep's wheel, and the tar archive of it and its dependencies."""

    wheel: str
    build: str
    archive: Path


def make_wheelhouse(target: Target | None, given: Path | None = None) -> Wheelhouse:
    """Return the archive for a host; one that was made earlier is used again.

    With a ``target`` of None it contains only hostprep's wheel. ``given`` is a folder of wheels to
    use instead of downloading. Raises ``HostprepError`` if the download fails, ``UsageError`` if
    that folder lacks something that the host needs.
    """
    packed = pack_wheel()
    home = state_dir() / "fleet"
    home.mkdir(parents=True, exist_ok=True)
    with lock("wheelhouse", purpose="making a wheelhouse"):
        wheels: tuple[Path, ...] = ()
        key = "alone"
        if given is not None:
            wheels, key = _wheels_in(given), "given" if target is None else f"given-{target}"
        elif target is not None:
            folder = _downloaded(target, home / "wheels")
            wheels, key = _wheels_in(folder), folder.name
        archive = home / f"{key}.{_hash(packed.build, *map(_identity, wheels))}.tar"
        if archive.exists() and archive.stat().st_size:  # a power cut can leave an empty one
            os.utime(archive)
        else:
            if given is not None and target is not None:
                _see_that_all_are_in(given, target)
            write_atomically(archive, [_tar(packed, wheels)], durable=False)
        _forget_old(home.glob(f"{key}.*.tar"))
    return Wheelhouse(packed.name, packed.build, archive)


def _downloaded(target: Target, home: Path) -> Path:
    """Return the folder with the wheels for ``target``; download them if there is none yet."""
    needed = _needed()
    folder = home / f"{target}-{_hash(*needed)}"
    if folder.is_dir():
        wheels = tuple(folder.glob("*.whl"))
        if wheels and all(map(_is_whole, wheels)):
            return folder
        shutil.rmtree(folder)
    if importlib.util.find_spec("pip") is None:
        raise HostprepError(
            "pip is not in the environment of hostprep; it downloads what the hosts need.",
            "add pip to it, or give a folder of wheels: --wheelhouse DIR",
        )
    home.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".") as name:
        download = Path(name) / "wheels"
        try:
            _pip_download(target, download)
        except CommandFailed as error:
            raise HostprepError(
                f"the wheels for hosts with {target} could not be downloaded:"
                f" {error.completed.stderr.strip()[-1500:]}",
                "give a folder of wheels: --wheelhouse DIR; or let the hosts ask their own index:"
                " hostprep_install_source: index",
            ) from None
        os.replace(download, folder)
    return folder


def _is_whole(wheel: Path) -> bool:
    """Return whether all of a wheel can be unpacked: what pip downloads is not flushed to the disk.

    After a power cut, every later run would send the hosts what none of them can install.
    """
    try:
        with zipfile.ZipFile(wheel) as opened:
            return opened.testzip() is None
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error):
        return False


def _see_that_all_are_in(folder: Path, target: Target) -> None:
    """Raise ``UsageError`` where pip on the host would miss a wheel.

    There the message would say to fix the host, and check mode may advise to install the missing
    wheel into the system's Python.
    """
    if importlib.util.find_spec("pip") is None:
        return
    built = f"--platform=linux_{target.machine}"  # as `pip wheel` names what it has compiled
    options = ("--isolated", "--no-index", f"--find-links={folder}", built)
    with tempfile.TemporaryDirectory() as name:
        try:
            _pip_download(target, Path(name), *options)
        except CommandFailed as error:
            raise UsageError(
                f"{folder} does not have all wheels that hosts with {target} need:"
                f" {error.completed.stderr.strip()[-1500:]}",
                "add what is missing: pip download --only-binary=:all:"
                f" --dest={shlex.quote(str(folder))} --python-version=3.{target.python_minor}"
                f" --platform=manylinux2014_{target.machine} NAME",
            ) from None


def _pip_download(target: Target, to: Path, *options: str) -> None:
    run(
        [sys.executable, "-P", "-m", "pip", "download", "--quiet", f"--dest={to}", *options,
         *target.pip_options(), *_needed()],
        wanted_for="download what the hosts need",
        timeout_seconds=_DOWNLOAD_SECONDS,
    )  # fmt: skip


def _needed() -> list[str]:
    """Return what hostprep requires without its extras."""
    return [
        requirement
        for requirement in importlib.metadata.requires("hostprep") or ()
        if "extra ==" not in requirement
    ]


def _wheels_in(folder: Path) -> tuple[Path, ...]:
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise UsageError(f"{folder} holds no wheels.", "fill it with `pip download`")
    return tuple(path for path in wheels if not path.name.startswith("hostprep-"))


def _identity(wheel: Path) -> str:
    """Return the wheel's name and content: a folder may be refilled under the same names."""
    with wheel.open("rb") as file:
        return f"{wheel.name} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _forget_old(archives: Iterable[Path]) -> None:
    """Remove archives that have not been used lately; other runs may be sending newer ones."""
    for archive in archives:
        if time.time() - archive.stat().st_mtime > _KEEP_SECONDS:
            archive.unlink()


def _tar(packed: PackedWheel, wheels: tuple[Path, ...]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in [(packed.name, packed.content)] + [
            (path.name, path.read_bytes()) for path in wheels
        ]:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _hash(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
