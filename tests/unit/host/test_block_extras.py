"""PCIe links, SMART and FIEMAP."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.host import fiemap
from hostprep.host.block_health import Health, parse_smartctl
from hostprep.host.block_link import nvme_link

HOSTS = Path(__file__).parents[2] / "fixtures/hosts"


def test_the_narrowest_link_is_found_and_the_drive_that_could_do_more() -> None:
    link = nvme_link("nvme0n1", HOSTS / "nvme-laptop")
    assert link is not None
    assert (link.speed_gt_per_s, link.width) == (8.0, 4)
    assert (link.at, link.max_speed_gt_per_s, link.degraded) == ("0000:03:00.0", 16.0, True)
    assert link.bytes_per_s == pytest.approx(3.938e9, rel=0.001)


def test_no_link_where_there_is_none() -> None:
    assert nvme_link("nvme0n1", HOSTS / "cloud-virtual-disk") is None
    assert nvme_link("sda", HOSTS / "sata-workstation") is None


def test_smart_of_an_nvme_drive() -> None:
    text = """{"smart_status": {"passed": true, "nvme": {"value": 0}},
      "nvme_smart_health_information_log": {"critical_warning": 0, "temperature": 41,
      "available_spare": 100, "available_spare_threshold": 10, "percentage_used": 7,
      "power_on_hours": 4321, "media_errors": 0}, "temperature": {"current": 41},
      "power_on_time": {"hours": 4321}}"""
    assert parse_smartctl(text) == Health(True, 7, 100, 0, 41, 4321)


def test_smart_of_a_sata_drive_counts_wear_down_from_100() -> None:
    text = """{"smart_status": {"passed": false}, "ata_smart_attributes": {"table": [
      {"id": 177, "name": "Wear_Leveling_Count", "value": 93, "raw": {"value": 120}},
      {"id": 197, "name": "Current_Pending_Sector", "value": 100, "raw": {"value": 8}}]}}"""
    assert parse_smartctl(text) == Health(False, 7, None, 8, None, None)


@pytest.mark.parametrize(
    "odd",
    ["null", "[]", "7.5", '"x"', "1e400", "-1", '{"value": -1}', '{"passed": 1, "hours": []}'],
)
def test_what_a_disk_reports_oddly_counts_as_not_said(odd: str) -> None:
    names = ("smart_status", "ata_smart_attributes", "temperature", "power_on_time")
    parts = ", ".join(f'"{name}": {odd}' for name in names)
    nvme = '"nvme_smart_health_information_log": {"available_spare": 90, "media_errors": %s}'
    assert parse_smartctl(f"{{{parts}, {nvme % odd}}}") == Health(None, None, 90, None, None, None)
    assert parse_smartctl(odd) is None
    for attribute in (odd, f'{{"id": {odd}}}', f'{{"id": 231, "value": {odd}, "raw": {odd}}}'):
        assert parse_smartctl(f'{{"ata_smart_attributes": {{"table": [{attribute}]}}}}') is None


@pytest.mark.parametrize("text", ["", "{}", "smartctl: no such device", "[1", "[" * 99_999])
def test_smart_that_says_nothing_is_unknown(text: str) -> None:
    assert parse_smartctl(text) is None


def test_fiemap_sees_data_holes_and_reserved_blocks(disk_folder: Path) -> None:
    with open(disk_folder / "file", "w+b", buffering=0) as file:
        file.write(os.urandom(65536))
        os.fsync(file.fileno())
        known = fiemap.extents(file.fileno())
        if known is None:
            pytest.skip("the file system of the temporary folder has no FIEMAP")
        assert sum(extent.length for extent in known) == 65536
        assert fiemap.first_physical(file.fileno()) == known[0].physical
        assert fiemap.written_bytes(file.fileno()) == 65536
        os.posix_fallocate(file.fileno(), 1 << 20, 1 << 20)
        os.ftruncate(file.fileno(), 4 << 20)
        assert fiemap.written_bytes(file.fileno()) == 65536
        assert any(extent.unwritten for extent in fiemap.extents(file.fileno()) or ())


def test_fiemap_of_memory_is_unknown() -> None:
    descriptor = os.memfd_create("hostprep-test")
    try:
        os.write(descriptor, b"x" * 4096)
        with pytest.raises(fiemap.Untold):
            fiemap.first_physical(descriptor)
        assert fiemap.extents(descriptor) is None
    finally:
        os.close(descriptor)


def test_an_empty_file_has_no_place(disk_folder: Path) -> None:
    with open(disk_folder / "empty", "w+b") as file:
        assert fiemap.first_physical(file.fileno()) is None
