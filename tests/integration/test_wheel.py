"""What a user gets from the wheel: every file, in an environment that never saw the checkout."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from hostprep.fleet.packing import pack_wheel
from tests.kit.stagecraft import REPOSITORY


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as a release would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--quiet", "--no-deps"]
    subprocess.run([*command, f"--wheel-dir={folder}", str(REPOSITORY)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a fresh environment and return its ``hostprep``.

    What it depends on is found where the tests found it, by a ``.pth`` file: those packages are not
    what is tested, and the checkout that the tests run from is not on that path.
    """
    home = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python3"
    command = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps"]
    subprocess.run([*command, "--quiet", "--quiet", wheel], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = home / "lib" / version / "site-packages"
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "hostprep"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(command: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(command, str(command), *words)


def python(command: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter that ``command`` was installed for."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [command.with_name("python3"), *words],
        capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip


def test_it_is_the_wheel_that_is_tested(installed: Path, empty: Path) -> None:
    code = "import hostprep; from hostprep.system.resources import data_path as data;"
    code += "print(hostprep.__file__, data('playbooks', 'site.yml'), data('templates'), sep='\\n')"
    found = python(installed, "-c", code).stdout.splitlines()
    home = installed.parent.parent.resolve()
    assert len(found) == 3
    assert all(Path(line).resolve().is_relative_to(home) for line in found)


def test_every_command_answers(installed: Path, empty: Path) -> None:
    assert call(installed, "--version").stdout.startswith("hostprep ")
    helped = call(installed, "provision", "--help")
    assert helped.returncode == 0
    assert "--inventory" in helped.stdout


def test_provision_runs_its_playbook_from_an_empty_folder(installed: Path, empty: Path) -> None:
    (empty / "hosts.yml").write_text(
        "all: {hosts: {down: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n"
    )
    (empty / "hostprep.yml").write_text("volumes: [{path: /mnt/a, size: 1G}]\n")
    done = call(installed, "provision", "-i", "hosts.yml", "--check")
    assert done.returncode == 1, done.stderr
    assert "down  nothing  unreachable  -" in done.stdout
    assert "1 of 1 hosts failed: down." in done.stderr
    assert sorted(os.listdir(empty)) == ["hostprep.yml", "hosts.yml"]


def test_what_travels_to_hosts_is_what_was_built(
    wheel: Path, installed: Path, tmp_path: Path
) -> None:
    file = tmp_path / "packed.whl"
    code = "import sys; from pathlib import Path; from hostprep.fleet.packing import pack_wheel;"
    code += "Path(sys.argv[1]).write_bytes(pack_wheel().content)"
    python(installed, "-c", code, str(file))
    with zipfile.ZipFile(wheel) as built, zipfile.ZipFile(file) as ours:
        assert sorted(ours.namelist()) == sorted(built.namelist())
        record = next(name for name in built.namelist() if name.endswith("/RECORD"))
        for name in set(built.namelist()) - {record}:
            assert built.read(name) == ours.read(name), name


def test_a_checkout_sends_the_files_that_its_wheel_would_have(wheel: Path) -> None:
    with (
        zipfile.ZipFile(wheel) as built,
        zipfile.ZipFile(io.BytesIO(pack_wheel().content)) as ours,
    ):
        assert sorted(ours.namelist()) == sorted(built.namelist())
