"""Under low limits of a shell or a scheduler a run gets to its end with less, or does not begin."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.rigs import far
from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep, make_source, run_hostprep


def limited(limit: str) -> tuple[str, ...]:
    """Return the words that run a command under a limit of the shell's ``ulimit``."""
    return ("sh", "-c", f'ulimit {limit}; exec "$@"', "sh")


@pytest.fixture
def many(safe_dir: Path) -> Path:
    """Return a data set of many folders, and of folders deep in each other, with hard links."""
    root = make_source(safe_dir / "many", directories=100, files=3)
    deep = root / "deep"
    for depth in range(150):
        deep = deep / f"{depth}"
        deep.mkdir(parents=True)
        (deep / "file").write_text(f"{depth}")
    for number in range(20):
        (deep / f"linked-{number}").hardlink_to(root / f"class-{number}/images/000.bin")
    return root


# -- open files (ulimit -n)


@pytest.mark.parametrize(
    ("files", "options"),
    [
        (64, ()),
        (64, ("--readers", "32")),
        (64, ("--order", "physical")),
        (80, ("--readers", "32")),
        (128, ("--readers", "32")),
        (256, ("--order", "physical")),
    ],
)
def test_a_first_copy_and_an_update_need_few_descriptors(
    files: int, options: tuple[str, ...], many: Path, target: Path
) -> None:
    prefix = limited(f"-n {files}")
    words = ("stage", many, "--to", target)
    found = hostprep(*words, *options, prefix=prefix)
    assert found["published"] is True
    assert differences(many, target / "many", owners=True) == []

    shutil.rmtree(many / "deep/0/1/2/3")
    for number in range(40, 80):
        (many / f"class-{number}/images/002.bin").write_text("other")
        make_source(many / f"class-{number}/new", directories=1, files=2)
    found = hostprep(*words, *options, prefix=prefix)
    assert found["changed"] is True
    assert differences(many, target / "many", owners=True) == []
    assert hostprep(*words, "--full-check", prefix=prefix)["differing"] == []


def test_with_too_few_nothing_is_begun(source: Path, target: Path) -> None:
    done = run_hostprep("stage", source, "--to", target, prefix=limited("-n 40"))
    assert done.returncode == 5
    assert "no more than 40 open files" in done.stderr and "ulimit -n" in done.stderr
    assert not target.exists()


def test_a_soft_limit_alone_is_raised(many: Path, target: Path) -> None:
    hostprep("stage", many, "--to", target, prefix=limited("-Sn 40"))
    assert differences(many, target / "many", owners=True) == []


# -- address space (ulimit -v)


@pytest.mark.parametrize("kib", [100_000, 200_000, 500_000])
def test_many_readers_get_along_with_little_address_space(
    kib: int, source: Path, target: Path, safe_dir: Path
) -> None:
    """Each has a stack and a buffer of its own, and what is read back is mapped."""
    (source / "large").write_bytes(bytes(range(256)) * (70 << 12))
    # Asked for: on a busy machine several files may come no sooner than one by one.
    words = ("--to", target, "--readers", "64")
    # Far enough for many to wait at once, also where there is little processor time to ask in.
    seconds = 0.1 if kib >= 200_000 else 0.01
    with far.far_source(source, safe_dir, request_seconds=seconds) as rig:
        done = run_hostprep("stage", rig.mount, *words, prefix=limited(f"-v {kib}"))
        assert done.returncode == 0, done.stderr
        assert "64 at once" in done.stderr
        if kib >= 200_000:  # no fewer of them than there is room for
            assert rig.stats().most_at_once > 8
    assert differences(source, target / "mount", owners=True) == []


def test_without_any_left_the_run_says_so(source: Path, target: Path, safe_dir: Path) -> None:
    (source / "large").write_bytes(bytes(70 << 20))
    with far.far_source(source, safe_dir) as rig:
        for kib in range(36_000, 60_000, 4_000):
            done = run_hostprep("stage", rig.mount, "--to", target, prefix=limited(f"-v {kib}"))
            assert "Traceback" not in done.stderr
            assert done.returncode in (0, 1), done.stderr
            assert done.returncode == 0 or "memory" in done.stderr


# -- the size of a file (ulimit -f, in blocks of 512 or 1024 bytes)


def test_a_soft_limit_of_file_sizes_is_lifted(source: Path, target: Path) -> None:
    """Root has it from the user who ran sudo; records and journals grow past it too."""
    (source / "large").write_bytes(b"x" * 20_000)
    hostprep("stage", source, "--to", target, prefix=limited("-Sf 1"))
    assert differences(source, target / "data", owners=True) == []


def test_what_may_not_be_written_is_no_fault_of_the_target(source: Path, target: Path) -> None:
    (source / "large").write_bytes(b"x" * 3_000_000)
    unprivileged = ("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "--")
    prefix = (*unprivileged, *limited("-f 2000"))
    told = hostprep("stage", source, "--to", target, prefix=prefix, expect=1)
    (lost,) = (item for item in told["skipped"] if item["failed"])
    assert lost["path"] == "large"
    assert lost["reason"].startswith("no file may be written here (ulimit -f) that is larger than ")
    hint = "have that limit raised (of a service: LimitFSIZE=) and run the same command again"
    assert told["error"]["hint"].startswith(hint)
