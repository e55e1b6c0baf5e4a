"""The role's script that has hostprep run on a host from its wheels, without installing it."""

from __future__ import annotations

import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hostprep.fleet.packing import pack_wheel
from tests.kit.stagecraft import REPOSITORY

SCRIPT = REPOSITORY / "playbooks" / "roles" / "hostprep_install" / "files" / "preview.py"
OWN = "cp{}{}".format(*sys.version_info)


def preview(folder: Path) -> None:
    subprocess.run([sys.executable, "-S", SCRIPT, folder, "/opt/host prep/bin/it"], check=True)


def test_what_is_unpacked_runs_and_knows_where_it_is_going_to_be(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    packed = pack_wheel()
    (folder / packed.name).write_bytes(packed.content)
    preview(folder)
    tell = "import os, hostprep; print(os.environ['HOSTPREP_COMMAND'], hostprep.__file__)"
    script = (folder / "hostprep").read_text()
    (folder / "hostprep").write_text(script.replace("-m hostprep", f'-c "{tell}"'))
    said = subprocess.run([folder / "hostprep"], capture_output=True, text=True, check=True).stdout
    assert said == f"/opt/host prep/bin/it {folder}/unpacked/hostprep/__init__.py\n"


@pytest.mark.parametrize(
    ("tags", "fits"),
    [
        ("py3-none-any", True),
        (f"{OWN}-{OWN}-manylinux_2_17_{platform.machine()}", True),
        (f"cp36-abi3-manylinux1_x.manylinux2014_{platform.machine()}", True),
        (f"cp39-cp39-manylinux_2_17_{platform.machine()}", False),
        (f"{OWN}-{OWN}-manylinux_2_17_sparc", False),
    ],
)
def test_wheels_for_other_hosts_are_left_packed(tmp_path: Path, tags: str, fits: bool) -> None:
    with zipfile.ZipFile(tmp_path / f"thing-1.0-{tags}.whl", "w") as wheel:
        wheel.writestr("thing.py", "")
    preview(tmp_path)
    assert (tmp_path / "unpacked" / "thing.py").exists() == fits
