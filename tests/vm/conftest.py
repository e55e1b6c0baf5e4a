"""Whole machines: `make test-vm`. Plain pytest does not come here, since boots take minutes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.needing import mark_folder, need_root, need_tools
from tests.kit.remote import make_key
from tests.vm.kit.image import Image, make_image, unavailable
from tests.vm.kit.machine import Machine, machine

_TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "debootstrap": "debootstrap",
    "mke2fs": "e2fsprogs",
    "ssh": "openssh-client",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder as needing root, and time."""
    mark_folder(__file__, items, pytest.mark.root, pytest.mark.timeout(1800))


@dataclass(frozen=True)
class _Bench:
    image: Image
    key: Path


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Bench]:
    """Make the image that all machines boot from, with this checkout in it."""
    need_root("to make the disk of its machines")
    need_tools(_TOOLS)
    if reason := unavailable():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("vm")
    key = make_key(folder)
    yield _Bench(make_image(folder, key.with_suffix(".pub").read_text()), key)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def vm(bench: _Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Give a machine of the module's own, off, bare as a Debian is but for hostprep."""
    folder = tmp_path_factory.mktemp("machine") / "vm"
    with machine(bench.image, bench.key, folder) as made:
        yield made
