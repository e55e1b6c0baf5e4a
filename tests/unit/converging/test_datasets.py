"""A spec's data sets against each other: no machine is touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.converging.datasets import DatasetLook, plan_datasets
from hostprep.spec.model import DatasetSpec
from hostprep.staging.model import StageRequest
from hostprep.units import GIB
from hostprep.volumes.model import RamBudget


def looked_at(name: str, to: str, target: str) -> DatasetLook:
    """Return a data set that is whole and fresh at ``target``, which symlinks make of ``to``."""
    return DatasetLook(DatasetSpec(name, f"/srv/{name}", to=to), target, reason="whole and fresh")


@pytest.mark.parametrize(
    ("second", "where"),
    [
        (looked_at("a", "/link", "/nvme/a"), "(/nvme/a) would lie there too"),
        (looked_at("b", "/link/a", "/nvme/a/b"), "(/nvme/a) would hold it, at /nvme/a"),
        (looked_at("nvme", "/link", "/nvme"), "(/nvme/a) would lie inside it, at /nvme/a"),
    ],
    ids=["same", "inside", "around"],
)
def test_symlinks_lead_no_two_into_one_place(second: DatasetLook, where: str) -> None:
    first, other = plan_datasets([looked_at("a", "/nvme", "/nvme/a"), second])
    assert first.refusal is None
    assert other.refusal is not None
    assert where in other.refusal.message
    assert other.refusal.message.startswith(f"{second.spec.target} is {second.target} without")


def test_data_sets_beside_each_other_are_apart() -> None:
    plans = plan_datasets([looked_at("a", "/nvme", "/nvme/a"), looked_at("ab", "/l", "/nvme/ab")])
    assert [plan.refusal for plan in plans] == [None, None]


def to_stage(name: str, to: str, device: int, needed_bytes: int, free_bytes: int) -> DatasetLook:
    """Return a data set that is to be staged to a file system with so much room."""
    return replace(
        looked_at(name, to, f"{to}/{name}"),
        request=StageRequest(f"/srv/{name}", name, to, None),
        needed_bytes=needed_bytes,
        device=device,
        free_bytes=free_bytes,
        action="stage it",
    )


def test_where_a_disk_is_full_what_the_spec_does_not_name_beside_it_is_named() -> None:
    looks = [to_stage(name, "/nvme", 1, 4 * GIB, 6 * GIB) for name in ("a", "b")]
    (_, refused) = plan_datasets(looks, ["/nvme/renamed", "/elsewhere/c"])
    assert refused.refusal is not None and refused.refusal.hint is not None
    assert refused.refusal.hint.startswith("first `hostprep unstage /nvme/renamed`, if nobody")
    assert "/elsewhere" not in refused.refusal.hint


def test_data_sets_on_one_file_system_share_its_room() -> None:
    def fits(free_bytes: int, *devices: int) -> list[bool]:
        looks = [
            to_stage(f"d{index}", f"/nvme{index}", device, 4 * GIB, free_bytes)
            for index, device in enumerate(devices)
        ]
        return [plan.refusal is None for plan in plan_datasets(looks)]

    assert fits(12 * GIB, 1, 1, 1) == [True, True, True]
    assert fits(12 * GIB - 1, 1, 1, 1) == [True, True, False]
    assert fits(4 * GIB, 1, 2, 1) == [True, True, False]
    assert fits(GIB, 1) == [True], "that it fits by itself is its own plan's to say"


def test_data_sets_in_memory_share_it_on_whichever_tmpfs_they_are() -> None:
    def seen(name: str, to: str, device: int) -> DatasetLook:
        budget = RamBudget(6 * GIB, 20 * GIB, 10 * GIB, "MemAvailable")
        return replace(to_stage(name, to, device, 6 * GIB, 64 * GIB), budget=budget)

    without_limit = [replace(seen(n, "/r", 1), free_bytes=None, budget=None) for n in "ab"]
    assert [plan.refusal for plan in plan_datasets(without_limit)] == [None, None]
    looks = [seen("a", "/dev/shm", 1), seen("b", "/run/x", 2)]
    assert [plan.refusal for plan in plan_datasets(looks[1:])] == [None]
    first, second = plan_datasets(looks)
    assert first.refusal is None and second.refusal is not None
    assert "b takes 6.00 GiB of the memory in /run/x" in second.refusal.message
    assert "2.00 GiB are missing" in second.refusal.message
    small = replace(looks[0], budget=RamBudget(4 * GIB, 20 * GIB, 10 * GIB, "MemAvailable"))
    three = [
        replace(small, spec=replace(small.spec, name=name), target=f"/dev/shm/{name}")
        for name in ("x", "y", "z")
    ]
    assert [plan.refusal is None for plan in plan_datasets(three)] == [True, True, False]
