"""A damaged recommendation is none: the checks that read it judge by their rules of thumb."""

from __future__ import annotations

from typing import Any

import pytest

from hostprep.readiness.checks._recommended import Recommended, recommended
from hostprep.readiness.context import Context
from hostprep.readiness.registry import all_checks, find
from hostprep.readiness.runner import run_check
from hostprep.system.last_results import keep_last

WHOLE: dict[str, Any] = {
    "num_workers": 8,
    "prefetch_factor": 2,
    "shm_bytes": 2**30,
    "evidence": {"host": {"ranks": 4}, "sample": {"tensors_per_batch": 3}},
}


def test_what_the_last_recommended_loader_takes() -> None:
    assert recommended(Context()) == Recommended(None, None, None, None, None)
    keep_last("recommend", WHOLE)
    assert recommended(Context()) == Recommended(8, 4, 2, 3, 2**30)


@pytest.mark.parametrize("odd", ["many", [8], {"a": 1}, 8.5, True, -1, 10**400, None])
def test_what_is_no_number_counts_as_not_kept(odd: Any) -> None:
    none = {"num_workers": odd, "prefetch_factor": odd, "shm_bytes": odd}
    deep = {"host": {"ranks": odd}, "sample": {"tensors_per_batch": odd}}
    for evidence in (odd, {"host": odd, "sample": odd}, deep):
        keep_last("recommend", {**none, "evidence": evidence})
        context = Context()
        assert recommended(context) == Recommended(None, None, None, None, None)
        for code in ("HP020", "HP022", "HP023"):
            for finding in run_check(find(all_checks(), code), context):
                assert finding.status != "UNKNOWN", finding
