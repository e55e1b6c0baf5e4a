"""Memory nodes: which of them this process may use, and what that leaves it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hostprep.host.lists import format_list, parse_list
from hostprep.host.memory import ram_for_percent, read_headroom, read_memory
from hostprep.host.nodes import read_node_limit
from hostprep.units import KIB

TWO_NODES = Path(__file__).parents[2] / "fixtures" / "hosts" / "two-nodes"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TWO_NODES, tmp_path / "host"))


def set_policy(host: Path, policy: str) -> None:
    maps = host / "proc/self/numa_maps"
    maps.write_text(maps.read_text().replace("bind:0", policy))


def set_cpuset(host: Path, nodes: str) -> None:
    status = host / "proc/self/status"
    status.write_text(status.read_text().replace("_allowed_list:\t0-1", f"_allowed_list:\t{nodes}"))


@pytest.mark.parametrize(
    ("policy", "cpuset", "nodes"),
    [
        ("bind:0", "0-1", "0"),
        ("bind=static:1", "0-1", "1"),
        ("bind:0-1", "0-1", None),
        ("default", "0-1", None),
        ("default", "1", "1"),
        ("default", "0-7", None),  # as many as could be, of which two exist
        ("prefer:1", "0-1", None),  # falls back on the other
        ("interleave:0-1", "0-1", None),
        ("bind=static|balancing:1", "0-1", "1"),
    ],
)
def test_the_nodes_that_a_process_is_held_to(
    policy: str, cpuset: str, nodes: str | None, host: Path
) -> None:
    set_policy(host, policy)
    set_cpuset(host, cpuset)
    limit = read_node_limit(host)
    assert (None if limit is None else limit.nodes) == nodes


def test_what_a_node_leaves_bounds_the_headroom(host: Path) -> None:
    limit, headroom, memory = read_node_limit(host), read_headroom(host), read_memory(host)
    assert limit is not None and limit.total_bytes == 2062672 * KIB
    assert 0.49 < limit.available_share < 0.53
    assert headroom.available_bytes == int(limit.available_share * memory.available_bytes)
    assert headroom.available_from == "memory node 0, to which this process is held"
    assert headroom.ram_bytes == limit.total_bytes
    assert headroom.machine is not None
    assert headroom.machine.available_bytes == memory.available_bytes
    set_policy(host, "default")
    assert read_headroom(host).available_from == "MemAvailable"
    assert ram_for_percent(host) == memory.total_bytes


def test_the_shares_of_all_nodes_are_the_whole(host: Path) -> None:
    shares = 0.0
    for nodes in ("0", "1"):
        (host / "proc/self/numa_maps").write_text(f"7f0000000000 bind:{nodes} stack anon=1\n")
        limit = read_node_limit(host)
        assert limit is not None
        shares += limit.available_share
    assert shares == pytest.approx(1.0)


def test_one_node_or_none_told_is_no_limit(host: Path) -> None:
    (host / "sys/devices/system/node/has_memory").write_text("0\n")
    assert read_node_limit(host) is None
    shutil.rmtree(host / "sys/devices/system/node")
    assert read_node_limit(host) is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("0", {0}), ("", set()), (None, set()), ("\n", set())],
)
def test_lists_of_the_kernel(text: str | None, numbers: set[int]) -> None:
    assert parse_list(text) == numbers
    assert format_list(numbers) == (text or "").strip()


@pytest.mark.parametrize("text", ["0-9007199254740992", "9" * 5000, "\N{SUPERSCRIPT TWO}", "3-x"])
def test_what_no_kernel_lists_is_no_list(text: str) -> None:
    assert parse_list(f"{text},1") == {1}
