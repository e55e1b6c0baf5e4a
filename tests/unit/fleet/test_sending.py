"""The spec on its way to the hosts: as written, and refused where it means nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostprep.errors import UsageError
from hostprep.fleet.sending import spec_for_hosts


def test_scalars_arrive_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "hostprep.yml"
    file.write_text(
        "volumes:\n  - {path: /mnt/a, size: 1G, mode: 0750, owner: 1000:50, swap: true}\n"
    )
    (volume,) = spec_for_hosts(file, named=True)["volumes"]
    assert volume == {
        "path": "/mnt/a", "size": "1G", "mode": "0750", "owner": "1000:50", "swap": True
    }  # fmt: skip


def test_an_empty_spec_is_one(tmp_path: Path) -> None:
    file = tmp_path / "hostprep.yml"
    file.write_text("# later\n")
    assert spec_for_hosts(file, named=True) == {}


def test_mistakes_are_found_before_any_host_is_reached(tmp_path: Path) -> None:
    file = tmp_path / "hostprep.yml"
    file.write_text("volumes:\n  - {path: /mnt/a, sise: 1G}\n")
    with pytest.raises(UsageError, match=r"hostprep\.yml:2.*sise"):
        spec_for_hosts(file, named=True)


def test_a_source_relative_to_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "hostprep.yml"
    file.write_text("datasets:\n  - {name: city, source: sets/city, to: /nvme}\n")
    with pytest.raises(UsageError, match="sets/city, relative to itself"):
        spec_for_hosts(file, named=True)


@pytest.mark.parametrize("text", ["", "# cut short\n", "volumes:\ndatasets:\n"])
def test_prune_is_refused_for_a_file_that_says_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "hostprep.yml"
    file.write_text(text)
    with pytest.raises(UsageError, match="is empty, and --prune would remove all"):
        spec_for_hosts(file, named=True, prune=True)
    file.write_text("packages: [fio]\ndatasets:\n")
    with pytest.raises(UsageError, match="nothing behind `datasets:`, and --prune would remove"):
        spec_for_hosts(file, named=True, prune=True)
    file.write_text("{}")
    assert spec_for_hosts(file, named=True, prune=True) == {}
