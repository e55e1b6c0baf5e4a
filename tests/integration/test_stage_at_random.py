"""Random trees, random changes on both sides, runs killed at random steps: always the same data.

The seeds are fixed, and small sets are copied by the command's own process: what fails here fails
again. Kills of the larger ones, whose workers go on by themselves, are in ``test_stage_kills``.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hostprep.cli.main import run
from tests.integration.test_stage_kills import end, private, start
from tests.kit.compare import differences
from tests.kit.stagecraft import flip_bit, hostprep, snapshot

pytestmark = pytest.mark.usefixtures("state")

_NAMES = (
    "a", "b", "c", "-rf", "new\nline", "\udcff\udcfe", "é", "e\u0301", "😀", "x" * 255, " ", "tree",
    ".hostprep-data", "removing", "journal.1", "info.json", "\x1b[31m", "%s",
)  # fmt: skip
_SIZES = (0, 0, 1, 511, 4095, 4096, 4097, 65_537, 262_143, 262_144, 262_145)
_MODES = (0o644, 0o444, 0o600, 0o755, 0o000, 0o4755, 0o2711)
_STEPS = frozenset(
    ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod",
     "os.chown", "os.utime", "os.truncate", "os.listdir", "os.scandir", "ctypes.dlsym")
)  # fmt: skip


class Tree:
    """A source and what happens to it: each change is one that a later run has to notice."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.root, self.dice = root, dice
        self._moment = 10**18
        root.mkdir()

    def change(self, times: int) -> None:
        """Do so many random things; what cannot be done is left."""
        make: tuple[Callable[[], object], ...] = (self.file, self.file, self.folder, self.symlink)
        alter = (self.link, self.join, self.part, self.remove, self.rewrite, self.describe)
        for _ in range(times):
            try:
                self.dice.choice((*make, *alter, self.rename, self.exchange, self.replace))()
            except (OSError, IndexError, ValueError):  # the place is taken; there are none of them
                continue
        if not os.listdir(self.root):  # which is refused
            self.file()

    def folders(self) -> list[Path]:
        return [self.root, *self._all(stat.S_ISDIR)]

    def files(self) -> list[Path]:
        return self._all(stat.S_ISREG)

    def _all(self, is_kind: Callable[[int], bool]) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if is_kind(path.lstat().st_mode))

    def anything(self) -> Path:
        return self.dice.choice([*self.folders()[1:], *self.files(), *self._all(stat.S_ISLNK)])

    def place(self) -> Path:
        shallow = [f for f in self.folders() if len(f.relative_to(self.root).parts) < 4]
        return self.dice.choice(shallow) / self.dice.choice(_NAMES)

    def date(self, path: Path) -> None:
        self._moment += self.dice.choice((1, 10**9, -(2 * 10**18) // 7))
        os.utime(path, ns=(self._moment, self._moment), follow_symlinks=False)

    def file(self, path: Path | None = None) -> None:
        path = path or self.place()
        with path.open("xb") as file:
            if self.dice.random() < 0.1:  # islands of data in a hole
                file.seek(self.dice.randrange(1 << 20))
                file.write(b"island")
                file.truncate(1 << 20)
            else:
                file.write(self.dice.randbytes(self.dice.choice(_SIZES)))
        path.chmod(self.dice.choice(_MODES))
        self.date(path)

    def folder(self) -> None:
        path = self.place()
        path.mkdir()
        path.chmod(self.dice.choice((0o755, 0o700, 0o555, 0o000)))

    def symlink(self) -> None:
        self.place().symlink_to(self.dice.choice(("a", "..", "/etc/passwd", "b/c", "\udcff")))

    def link(self) -> None:
        self.place().hardlink_to(self.dice.choice(self.files()))

    def join(self) -> None:
        one, other = self.dice.sample(self.files(), 2)
        other.unlink()
        other.hardlink_to(one)

    def part(self) -> None:
        """Give one of several hard links a file of its own: same content, same time."""
        file = self.dice.choice([file for file in self.files() if file.lstat().st_nlink > 1])
        subprocess.run(["cp", "-a", "--", file, self.root / "aside"], check=True)
        os.replace(self.root / "aside", file)

    def remove(self, path: Path | None = None) -> None:
        path = path or self.anything()
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def rewrite(self) -> None:
        file = self.dice.choice(self.files())
        file.write_bytes(self.dice.randbytes(self.dice.choice((file.stat().st_size, 7))))
        self.date(file)

    def describe(self) -> None:
        path = self.dice.choice([*self.files(), *self.folders()])
        os.chown(path, self.dice.choice((0, 7)), self.dice.choice((0, 8)))
        path.chmod(self.dice.choice(_MODES) if path != self.root else 0o755)
        self.date(path)

    def rename(self) -> None:
        old, new = self.anything(), self.place()
        if not os.path.lexists(new):
            old.rename(new)

    def exchange(self) -> None:
        one, other = self.dice.sample(self.files(), 2)
        one.rename(self.root / "aside")
        other.rename(one)
        (self.root / "aside").rename(other)

    def replace(self) -> None:
        """Let something of another kind take a place."""
        path = self.anything()
        was = path.lstat().st_mode
        self.remove(path)
        if stat.S_ISREG(was) or (stat.S_ISLNK(was) and self.dice.random() < 0.5):
            path.mkdir()
            self.file(path / "inside")
        elif stat.S_ISDIR(was) and self.dice.random() < 0.5:
            path.symlink_to("elsewhere")
        else:
            self.file(path)


def killed(out: Path, dice: random.Random, *words: str | Path) -> None:
    """Kill hostprep, or a worker of its, at a random one of its steps, if it takes so many."""
    left = int(2 ** dice.uniform(2, 9))

    def count(event: str, _: object) -> None:
        nonlocal left
        left -= event in _STEPS
        if event in _STEPS and not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def armed(line: list[str]) -> int:
        sys.addaudithook(count)  # of the forked process alone
        return run(line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.integration.test_stage_kills.run", armed)
        ended = end(start(out, *words), out)
    workers_own = ended.code == 1 and "a worker process was ended by SIGKILL" in ended.said
    assert ended.code in (0, -signal.SIGKILL) or workers_own, ended.said


def meddle(copy: Path, dice: random.Random) -> None:
    """Damage a copy as lstat does not see it, or remove one."""
    files = sorted(path for path in copy.rglob("*") if path.is_file() and not path.is_symlink())
    for file in dice.sample(files, min(2, len(files))):
        if dice.random() < 0.3:
            file.unlink()
        elif file.stat().st_size:
            mode = stat.S_IMODE(file.stat().st_mode)
            flip_bit(file, dice.randrange(file.stat().st_size))
            file.chmod(mode)  # writing takes setuid away


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_is_what_its_source_is(
    seed: int, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # as in large data sets: what stands as it was is passed by
        monkeypatch.setattr("hostprep.staging.plans.standing._LEAST_FILES", 0)
    dice, out, target = random.Random(seed), safe_dir / "said", safe_dir / "fast"
    tree, copy = Tree(safe_dir / "data", dice), target / "data"
    tree.change(dice.choice((5, 20, 40)))
    stage = ("stage", tree.root, "--to", target)
    for _ in range(3):
        for _ in range(dice.randrange(3)):
            killed(out, dice, *stage)
            tree.change(dice.randrange(6))
        before, verify = snapshot(tree.root), dice.choice(("readback", "inflight", "none"))
        words = (*stage, "--verify", verify)
        if copy.exists() and verify != "none" and dice.random() < 0.6:
            meddle(copy, dice)
            words = (*words, "--full-check")
        would = hostprep(*words, "--dry-run")
        found = hostprep(*words)
        assert differences(tree.root, copy, owners=True) == []
        assert (private(target), found["left"], found["skipped"]) == ([], [], [])
        if verify != "none" or found["copied_files"]:  # else all that is kept may be verified
            assert found["verified"] is (verify != "none")
        for field in ("files", "bytes"):
            assert found[field] == would[field]
        assert found["copied_files"] == would["copy_files"]
        again = hostprep(*words)
        assert again["changed"] is False
        assert (again["files"], again["digest"]) == (found["files"], found["digest"])
        (status,) = hostprep("status")["datasets"]
        assert (status["state"], status["freshness"]) == ("staged", "fresh")
        assert snapshot(tree.root) == before, "the source was touched"
        tree.change(dice.randrange(10))
    killed(out, dice, "unstage", copy)
    if hostprep("status")["datasets"]:
        hostprep("unstage", copy)
    assert os.listdir(target) == []
