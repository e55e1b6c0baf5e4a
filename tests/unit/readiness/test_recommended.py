"""What checks take from a recommendation: of a damaged one nothing, and nothing that is no rate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from hostprep.readiness.checks import loader_rate
from hostprep.readiness.checks._recommended import Recommended, recommended
from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Status
from hostprep.readiness.registry import all_checks, find
from hostprep.readiness.runner import run_check
from hostprep.spec.model import DatasetSpec
from hostprep.system.last_results import keep_last
from tests.unit.loading.making import picture

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
            found = run_check(find(all_checks(), code), context)
            assert found and all(finding.status != "UNKNOWN" for finding in found), found


def measured(folder: Path) -> Finding:
    """Return what HP064 says of a data set that lies in ``folder``."""
    pytest.importorskip("torch")
    dataset = DatasetSpec(folder.name, str(folder), to=str(folder.parent))
    facts = loader_rate.Facts(folder.name, 1.0, loader_rate._measure(dataset, 1.0))
    (finding,) = loader_rate.judge(facts)
    return finding


def commands(finding: Finding) -> tuple[str, ...]:
    assert finding.remedy is not None
    return finding.remedy.commands


def test_images_that_were_only_read_have_no_rate_to_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        picture(number).save(tmp_path / f"{number}.jpg")
    monkeypatch.setattr(loader_rate, "_SECONDS", 5.0)
    for name in ("PIL", "cv2", "simplejpeg"):
        monkeypatch.setitem(sys.modules, name, None)
    found = measured(tmp_path)
    assert (found.status, found.measured) == (Status.UNKNOWN, None)
    assert "only reading was measured" in found.message
    assert "pip install numpy pillow" in commands(found)[0]
    assert recommended(Context()) == Recommended(None, None, None, None, None)


@pytest.mark.parametrize("name", ["a{}.tar", "a{}.jpg"])
def test_the_remedy_is_not_to_ask_again_what_only_the_own_loader_knows(
    name: str, tmp_path: Path
) -> None:
    for number in range(40):
        (tmp_path / name.format(number)).write_bytes(b"no image at all")
    found = measured(tmp_path)
    assert found.status is Status.UNKNOWN
    assert commands(found) == ("hostprep recommend --loader MODULE:NAME",)
    assert found.remedy is not None and "--loader" in (found.remedy.hint or "")
