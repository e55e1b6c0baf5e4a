"""A spec's data sets against each other: no machine is touched."""

from __future__ import annotations

import pytest

from hostprep.converging.datasets import DatasetLook, plan_datasets
from hostprep.spec import DatasetSpec


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
