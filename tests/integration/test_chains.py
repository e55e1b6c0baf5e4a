"""Data sets whose source is the copy of another one: staged after it, at each apply and boot."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostprep.converging.boot_record import load_boot_record
from hostprep.staging.record.records import load_record, save_record
from tests.kit.converging import apply, keys, plan, write_spec
from tests.kit.stagecraft import make_source, mount, run_hostprep, unmount

pytestmark = pytest.mark.usefixtures("state")


class Chain:
    """A source, its copy in memory, the copy's copy in memory, and a part of that on a disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = make_source(root / "data", directories=2, files=5)
        self.first, self.second = root / "a" / "one", root / "b" / "two"
        self.part = root / "disk" / "three"
        # In the order in which nothing could be staged.
        self.datasets: list[dict[str, Any]] = [
            {"name": "three", "source": self.second / "class-0", "to": root / "disk"},
            {"name": "two", "source": self.first, "volume": root / "b", "at_boot": True},
            {"name": "one", "source": self.source, "volume": root / "a", "at_boot": True},
        ]
        self.spec = self.write()

    def write(self) -> Path:
        volumes = [{"path": self.root / name, "size": "32M"} for name in ("a", "b")]
        return write_spec(self.root / "hostprep.yml", volumes=volumes, datasets=self.datasets)

    def reboot(self) -> None:
        for name in ("a", "b"):
            unmount(self.root / name)


@pytest.fixture
def chain(safe_dir: Path) -> Chain:
    return Chain(safe_dir)


def names(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def datasets(document: dict[str, Any], section: str = "changes") -> list[str]:
    return [subject for kind, subject in keys(document[section]) if kind == "dataset"]


def test_each_is_staged_after_what_it_is_the_copy_of(chain: Chain) -> None:
    planned = plan(chain.spec)
    assert datasets(planned) == ["one", "two", "three"]
    two = next(each for each in planned["changes"] if each["subject"] == "two")
    assert two["action"].startswith(f"stage {chain.first} to {chain.second}: copy ")
    applied = apply(chain.spec)
    assert applied["done"] == applied["changes"] == planned["changes"]
    assert names(chain.first) == names(chain.second) == names(chain.source)
    assert names(chain.part) == names(chain.source / "class-0")
    assert plan(chain.spec)["changes"] == []


def chained_by_link(chain: Chain, leads_to: Path | str) -> Path:
    """Return the spec of a copy of what a link in another one's source leads to."""
    (chain.source / "part").symlink_to(leads_to)
    target = chain.root / "disk"
    chain.datasets = [
        {"name": "one", "source": chain.source, "to": target},
        {"name": "linked", "source": target / "one/part", "to": target},
    ]
    return write_spec(chain.root / "hostprep.yml", datasets=chain.datasets)


def test_a_link_in_the_source_leads_to_what_it_will_in_the_copy(chain: Chain) -> None:
    spec = chained_by_link(chain, "class-0")
    assert datasets(apply(spec), "done") == ["one", "linked"]
    assert names(chain.root / "disk/linked") == names(chain.source / "class-0")
    assert plan(spec)["changes"] == []


@pytest.mark.parametrize("inside", [True, False])
def test_an_absolute_link_there_leads_to_the_same_from_the_copy(chain: Chain, inside: bool) -> None:
    beside = make_source(chain.root / "beside", directories=1, files=5)
    meant = chain.source / "class-0" if inside else beside
    spec = chained_by_link(chain, meant)
    assert datasets(apply(spec), "done") == ["one", "linked"]
    assert names(chain.root / "disk/linked") == names(meant)
    assert plan(spec)["changes"] == []


def test_what_an_absolute_link_there_leads_to_is_looked_at_before_the_copy_is_back(
    chain: Chain,
) -> None:
    beside = make_source(chain.root / "beside", directories=1, files=5)
    (chain.source / "part").symlink_to(beside)
    chain.datasets = [
        {"name": "one", "source": chain.source, "volume": chain.root / "a"},
        {"name": "linked", "source": chain.first / "part", "to": chain.root / "disk"},
    ]
    spec = chain.write()
    apply(spec)
    unmount(chain.root / "a")
    assert datasets(plan(spec)) == ["one"]
    # Away, as its mount may be: the copy stays, and nothing fails for it.
    beside.rename(chain.root / "moved")
    beside.mkdir()
    assert datasets(apply(spec), "done") == ["one"]
    assert names(chain.root / "disk/linked") == names(chain.root / "moved")
    assert plan(spec)["changes"] == []


def test_what_goes_by_an_absolute_link_there_comes_back_at_boot_by_itself(
    chain: Chain, own_state: Path
) -> None:
    chained_by_link(chain, chain.source / "class-0")
    for each in chain.datasets:
        each["at_boot"] = True
    spec = write_spec(chain.root / "hostprep.yml", datasets=chain.datasets)
    assert datasets(apply(spec), "done") == ["one", "linked"]
    assert plan(spec)["changes"] == []
    record = load_boot_record("linked")
    assert record is not None and record.source == str(chain.source / "class-0")
    unit = (own_state / "units" / "hostprep-stage-linked.service").read_text()
    assert "hostprep-stage-one" not in unit


def test_a_service_is_as_it_must_be_while_the_links_to_its_source_are_away(chain: Chain) -> None:
    (chain.source / "part").symlink_to("class-0")
    chain.datasets = [
        {"name": "one", "source": chain.source, "volume": chain.root / "a", "at_boot": True},
        {"name": "linked", "source": chain.first / "part", "to": chain.root, "at_boot": True},
    ]
    spec = chain.write()
    apply(spec)
    unmount(chain.root / "a")
    planned = plan(spec)
    assert datasets(planned) == ["one", "linked"]
    assert "boot" not in {kind for kind, _ in keys(planned["changes"])}


@pytest.mark.parametrize("by_another", [False, True])
def test_a_copy_that_only_leads_to_a_source_is_not_pruned(chain: Chain, by_another: bool) -> None:
    chained_by_link(chain, chain.source / "class-0")
    feeder, linked = chain.datasets
    part = linked["source"]
    if by_another:
        linked["source"] = chain.root / "current"
        linked["source"].symlink_to(part)
    apply(write_spec(chain.root / "both.yml", datasets=[feeder, linked]))
    spec = write_spec(chain.root / "hostprep.yml", datasets=[linked])
    pruned = apply(spec, "--prune")
    assert pruned["changes"] == []
    kept = next(each["reason"] for each in pruned["unchanged"] if "one" in each["subject"])
    assert f"the spec stages from {part}, so it stays" in kept


def test_a_copy_of_the_original_is_told_of_before_one_is_put_between(chain: Chain) -> None:
    chain.datasets = [{"name": "two", "source": chain.source, "to": chain.root / "disk"}]
    apply(chain.write())
    chain.datasets[0]["source"] = chain.first
    chain.datasets.append({"name": "one", "source": chain.source, "volume": chain.root / "a"})
    (refusal,) = apply(chain.write(), expect=5)["refusals"]
    assert refusal["subject"] == "two"
    assert f"was staged from {chain.source}, not from {chain.first}" in refusal["message"]
    assert not chain.first.exists()


@pytest.mark.parametrize("inside", [True, False])
def test_a_link_out_of_the_source_is_refused_since_none_knows_what_is_beside_the_copy(
    chain: Chain, inside: bool
) -> None:
    beside = make_source(chain.root / "beside", directories=1, files=5)
    meant = chain.source / "class-0" if inside else beside
    # Also out of it, and in again by its name, which the copy does not have.
    spec = chained_by_link(chain, f"../{meant.relative_to(chain.root)}")
    planned = run_hostprep("plan", str(spec))
    assert planned.returncode == 5
    assert "a symlink leads out of it" in planned.stderr and str(meant) in planned.stderr


def test_a_users_link_there_is_judged_before_what_it_leads_to_is_read(chain: Chain) -> None:
    closed = make_source(chain.root / "closed", directories=1, files=5)
    closed.chmod(0o700)
    spec = chained_by_link(chain, closed)
    os.chown(chain.source / "part", 65534, -1, follow_symlinks=False)
    planned = run_hostprep("plan", str(spec))
    assert planned.returncode == 5
    assert "symlink of uid 65534, and leads to" in planned.stderr
    assert "linked: stage" not in planned.stdout


def test_all_of_it_comes_back_after_a_reboot(chain: Chain, own_state: Path) -> None:
    apply(chain.spec)
    record = load_boot_record("two")
    assert record is not None and record.source_mount == str(chain.root / "a")
    unit = (own_state / "units" / "hostprep-stage-two.service").read_text()
    for setting in ("Wants", "After"):
        assert f"\n{setting}=hostprep-stage-one.service\n" in unit
    first = (own_state / "units" / "hostprep-stage-one.service").read_text()
    assert "hostprep-stage-two" not in first
    chain.reboot()
    assert datasets(apply(chain.spec), "done") == ["one", "two", "three"]
    assert names(chain.second) == names(chain.source)
    chain.reboot()
    for name in ("a", "b"):
        mount("--fstab", own_state / "fstab", chain.root / name)
    early = run_hostprep("restage", "two")
    assert early.returncode == 5
    assert f"{chain.first} is in the copy of one, and is not there" in early.stderr
    assert "`systemctl restart hostprep-stage-one.service`" in early.stderr
    for name in ("one", "two"):
        assert run_hostprep("restage", name).returncode == 0
    assert plan(chain.spec)["changes"] == []


def test_what_changes_in_the_source_reaches_the_last_copy_in_one_run(chain: Chain) -> None:
    apply(chain.spec)
    (chain.source / "class-0" / "new").write_text("new")
    assert datasets(apply(chain.spec), "done") == ["one", "two", "three"]
    assert (chain.second / "class-0" / "new").exists() and (chain.part / "new").exists()
    unmount(chain.root / "a")  # the copy of the copy is still there
    assert datasets(apply(chain.spec), "done") == ["one", "two", "three"]
    assert apply(chain.spec)["changed"] is False


@pytest.mark.parametrize("phase", ["staged", "updating"])
def test_a_copy_that_is_not_whole_is_mended_once_its_source_is_there_again(
    phase: str, chain: Chain
) -> None:
    (chain.source / "class-0/file").write_bytes(bytes(1000))
    apply(chain.spec)
    record = load_record("three", str(chain.part))
    assert record is not None
    save_record(replace(record, phase=phase), durable=False)
    (chain.part / "file").unlink()
    chain.reboot()
    assert datasets(apply(chain.spec), "done") == ["one", "two", "three"]
    assert names(chain.part) == names(chain.source / "class-0")


def test_a_volume_must_hold_the_copy_of_what_is_yet_to_come(chain: Chain) -> None:
    (chain.source / "large").write_bytes(os.urandom(20 << 20))
    chain.write()
    text = chain.spec.read_text().replace("32M", "64M", 1).replace("32M", "8M")
    chain.spec.write_text(text)
    (refusal,) = plan(chain.spec, expect=5)["refusals"]
    assert refusal["subject"] == str(chain.root / "b") and "two will take" in refusal["message"]


def test_a_refusal_names_the_data_set_that_is_to_be_mended(chain: Chain) -> None:
    chain.source.rename(chain.root / "gone")
    refusals = apply(chain.spec, expect=5)["refusals"]
    refused = {each["subject"]: each for each in refusals if each["kind"] == "dataset"}
    assert f"the source {chain.source} does not exist" in refused["one"]["message"]
    assert "in the copy of one, which is refused" in refused["two"]["message"]
    assert refused["two"]["hint"] == "first solve the problem of one"
    assert "in the copy of two, which is refused" in refused["three"]["message"]
    (chain.root / "gone").rename(chain.source)
    chain.datasets[0]["source"] = chain.second / "none"
    (refusal,) = plan(chain.write(), expect=5)["refusals"]
    assert f"there is no directory {chain.source / 'none'}" in refusal["message"]
    chain.datasets = chain.datasets[1:]
    apply(chain.write())
    chain.datasets.insert(0, {"name": "three", "source": chain.second / "none", "to": chain.root})
    (refusal,) = plan(chain.write(), expect=5)["refusals"]
    assert "in the copy of two, which is whole and does not hold it" in refusal["message"]


def test_what_somebody_put_in_its_place_is_found_before_the_first_change(chain: Chain) -> None:
    chain.part.mkdir(parents=True)
    (chain.part / "mine").touch()
    (refusal,) = apply(chain.spec, expect=5)["refusals"]
    assert refusal["subject"] == "three" and "was not staged by hostprep" in refusal["message"]
    assert not (chain.root / "a").exists()


def test_where_the_first_fails_those_that_come_from_it_are_not_tried(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.datasets.append({"name": "apart", "source": chain.source, "to": chain.root / "disk"})
    blocked = chain.root / "a"
    tools = chain.root / "tools"
    tools.mkdir()
    fake = tools / "mount"
    fake.write_text(f'#!/bin/sh\ncase "$*" in *{blocked}) exit 32;; esac\nexec /bin/mount "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    applied = apply(chain.write(), expect=1)
    assert keys(applied["failed"]) == [("volume", str(blocked))]
    assert datasets(applied, "not_tried") == ["one", "two", "three"]
    reasons = [each["reason"] for each in applied["not_tried"] if each["subject"] == "two"]
    assert reasons[0] == "not tried, since dataset one could not be made as wanted"
    assert datasets(applied, "done") == ["apart"]
