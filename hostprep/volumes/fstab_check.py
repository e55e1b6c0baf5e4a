"""Second opinions on a new fstab before it replaces the old one: from findmnt and systemd.

Only what the edit newly breaks counts: an fstab that others left in disorder can still be edited.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hostprep.errors import HostprepError, Refused, where_in
from hostprep.system.run import CommandFailed, Completed, run
from hostprep.system.state import state_dir
from hostprep.system.systemd import GeneratedUnits, fstab_generator, generate_mount_units
from hostprep.volumes.fstab import FstabEntry, entries
from hostprep.volumes.model import VOLUME_SOURCES

_SCRATCH_PREFIX = "fstab-check-"
# Both look at the targets of all lines, and hang at a share whose server is gone.
_PATIENCE_SECONDS = 10.0
_OBJECTED = (
    "`findmnt --verify` shows what is wrong in fstab; without --fstab, the volume works until the"
    " next boot"
)
_PROBLEM = re.compile(r"\s+\[E\] (.*)")
_PARSE_ERROR = re.compile(r"parse error at line (\d+)")


def check_new_fstab(*, old: bytes, old_path: Path | None, new: bytes, new_path: Path) -> None:
    """Refuse ``new`` if findmnt or systemd's generator finds fault with the edit.

    ``old_path`` is None if there was no file. The caller holds the lock on fstab. Raises
    ``HostprepError`` if the state directory has no room for what they write.
    """
    try:
        _check(old, old_path, new, new_path)
    except CommandFailed as error:
        error.message = f"the new fstab could not be checked, and stays as it was: {error.message}"
        raise
    except OSError as error:  # the caller would take it for an error of fstab
        raise HostprepError(
            f"the new fstab could not be checked: {error.strerror}{where_in(error)}; fstab is as"
            " it was.",
            "hostprep checks it in its state directory: fix that and run the same command again,"
            " or move it with HOSTPREP_STATE_DIR",
        ) from None


def _check(old: bytes, old_path: Path | None, new: bytes, new_path: Path) -> None:
    before, after = _own_entries(old), _own_entries(new)
    changed = {each.target for each in before ^ after}
    present = {each.target for each in after} & changed
    with _scratch() as scratch:
        try:
            _ask_both(old_path, new_path, scratch, changed, present)
        except CommandFailed:
            # Our own lines only: no other line differs, and one of them may hang for ever.
            own_old, own_new = scratch / "old.fstab", scratch / "new.fstab"
            own_old.write_bytes(_own_lines(old))
            own_new.write_bytes(_own_lines(new))
            _ask_both(own_old, own_new, scratch, changed, present)


def _ask_both(
    old_path: Path | None, new_path: Path, scratch: Path, changed: set[str], present: set[str]
) -> None:
    _ask_findmnt(old_path, new_path, scratch, changed)
    generator = fstab_generator()
    if generator is not None:
        _ask_systemd(generator, old_path, new_path, scratch, changed, present)


@contextmanager
def _scratch() -> Iterator[Path]:
    """Make a directory of our own in which the next run finds and removes a killed run's."""
    state_dir().mkdir(parents=True, exist_ok=True)
    for left in state_dir().glob(f"{_SCRATCH_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=state_dir()))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _own_lines(content: bytes) -> bytes:
    lines = content.split(b"\n")
    own = [each.line_number - 1 for each in entries(content) if each.owner_id is not None]
    return b"".join(lines[number] + b"\n" for number in own)


def _own_entries(content: bytes) -> set[FstabEntry]:
    """Return our entries, wherever they are; each whole, because all of it goes into the unit."""
    return {replace(each, line_number=0) for each in entries(content) if each.owner_id is not None}


def _ask_findmnt(old_path: Path | None, new_path: Path, scratch: Path, changed: set[str]) -> None:
    before = Counter[str]() if old_path is None else _findmnt_problems(old_path, scratch, changed)
    worse = _findmnt_problems(new_path, scratch, changed) - before
    if worse:
        raise Refused(
            f"findmnt --verify objects to the new fstab: {'; '.join(sorted(worse))}."
            " Nothing was changed.",
            _OBJECTED,
        )


def _findmnt_problems(path: Path, scratch: Path, targets: set[str]) -> Counter[str]:
    """Return the errors about ``targets``, and the lines that libmount cannot parse.

    findmnt prints each target, then its problems, indented. A target that does not exist yet is no
    problem: we make the directory before we call mount(8), and systemd makes it, too.
    """
    named: set[str] = set()
    while True:
        try:
            done = _verify(_without_lines(path, named, scratch) if named else path)
            break
        except CommandFailed as error:
            more = set(_PARSE_ERROR.findall(error.completed.stderr)) - named
            if error.completed.returncode != -signal.SIGSEGV or not more:
                raise
            # findmnt of util-linux 2.41 names a line that it cannot parse, and crashes.
            named |= more
    unparsed = [*named, *_PARSE_ERROR.findall(done.stderr)]
    problems = Counter("a line that it cannot parse" for _ in unparsed)
    target = ""
    for line in done.stdout.splitlines():
        if not line.startswith(" "):
            target = line
        elif target in targets and (match := _PROBLEM.match(line)):
            if match[1].startswith("unreachable") and not os.path.lexists(target):
                continue
            problems[f"{target}: {match[1]}"] += 1
    return problems


def _verify(path: Path) -> Completed:
    # This check is not sufficient: it does not object to size=banana.
    return run(
        ["findmnt", "--verify", "--tab-file", path],
        wanted_for="check fstab",
        package="util-linux",
        timeout_seconds=_PATIENCE_SECONDS,
        ok=range(256),
    )


def _without_lines(path: Path, numbers: set[str], scratch: Path) -> Path:
    lines = path.read_bytes().split(b"\n")
    kept = [b"" if str(number) in numbers else line for number, line in enumerate(lines, start=1)]
    copy = scratch / "parsed.fstab"
    copy.write_bytes(b"\n".join(kept))
    return copy


def _ask_systemd(
    generator: Path,
    old_path: Path | None,
    new_path: Path,
    scratch: Path,
    changed: set[str],
    present: set[str],
) -> None:
    old_file = Path(os.devnull) if old_path is None else old_path
    units = []
    for file in (old_file, new_path):
        into = Path(tempfile.mkdtemp(dir=scratch))
        units.append(generate_mount_units(generator, file, into, timeout_seconds=_PATIENCE_SECONDS))
        _check_room(units[-1].said, into)
    before, after = units
    objection = _objection(before, after, new_path, changed, present)
    if objection is not None:
        raise Refused(f"systemd's fstab generator {objection}. Nothing was changed.", _OBJECTED)


def _check_room(said: str, into: Path) -> None:
    """Raise ``OSError`` if the generator had no room, which is not a fault of the fstab."""
    for number in (errno.ENOSPC, errno.EDQUOT):
        if os.strerror(number) in said:
            raise OSError(number, os.strerror(number), str(into))


def _objection(
    before: GeneratedUnits,
    after: GeneratedUnits,
    new_path: Path,
    changed: set[str],
    present: set[str],
) -> str | None:
    if after.returncode != 0 and before.returncode == 0:
        return f"fails on the new fstab: {after.said}"
    if not any(f"SourcePath={new_path}" in text.splitlines() for _, text in after.units):
        return None  # it did not read our file (systemd before 246), or is told to ignore fstab
    if _others(before, changed) != _others(after, changed):
        return "would make something else of lines that are not hostprep's"
    ours = {_target(text): (name, text) for name, text in after.units}
    for target in sorted(present):
        if target not in ours:
            return f"makes no mount unit for {target}"
        name, text = ours[target]
        named = _setting(text, "What") in VOLUME_SOURCES
        if not named or _setting(text, "Type") != "tmpfs":
            return f"makes {name} mount something else than a tmpfs"
        if name in after.required or "local-fs.target" in (_setting(text, "Before") or ""):
            return f"makes the boot wait for {name}"
    return None


def _others(generated: GeneratedUnits, changed: set[str]) -> dict[str, str]:
    return {
        name: re.sub(r"(?m)^SourcePath=.*$", "", text)
        for name, text in generated.units
        if _target(text) not in changed
    }


def _target(text: str) -> str | None:
    """Return the target as written in fstab: through a symlink, Where= is different."""
    match = re.search(r"(?m)^# Canonicalized from (.*)$", text)
    return match[1].replace("%%", "%") if match else _setting(text, "Where")


def _setting(text: str, name: str) -> str | None:
    match = re.search(rf"(?m)^{name}=(.*)$", text)
    return match[1].replace("%%", "%") if match else None
