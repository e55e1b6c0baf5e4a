"""A volume's settings: size, inodes, huge pages and the mount options for them; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TypeVar

from hostprep.dataclass import dataclass
from hostprep.errors import NoRoom, Refused
from hostprep.units import KIB, PAGE_BYTES, format_bytes, format_count
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.model import (
    FLAGS,
    SOURCE,
    Huge,
    LiveVolume,
    Unchanged,
    VolumeRequest,
)
from hostprep.volumes.options import parse_options

Known = TypeVar("Known")

DEFAULT_MODE = 0o755
# Options that somebody else may have set, and that a remount without them would remove.
KEPT_AT_REMOUNT = frozenset({"ro", "noatime", "nodiratime", "relatime", "nosymfollow"})
# If nothing is known about the files: one inode per 16 KiB, as mke2fs(8) does, but never so few
# that a set of small files stops half-way, and no more than 4 GiB of memory for inodes alone.
_BYTES_PER_INODE = 16 * KIB
_LEAST_DEFAULT_INODES = 64 * 1024
_MOST_DEFAULT_INODES = 4 * 1024 * 1024
# Spare inodes beyond those of known files, so that some can be added without a remount.
_SPARE_INODES = 4096
# The RAM in /proc/meminfo differs slightly from boot to boot, and so does a percentage of it.
_SAME_SHARE = 0.01


def default_inodes(size_bytes: int) -> int:
    """Return how many inodes a volume of this size gets if nothing is known about its files."""
    return min(max(size_bytes // _BYTES_PER_INODE, _LEAST_DEFAULT_INODES), _MOST_DEFAULT_INODES)


def roomy_inodes(used: int, coming: int) -> int:
    """Return how many inodes a volume gets with so many in use and so many known to come."""
    return used + coming * 5 // 4 + _SPARE_INODES


def is_same_share(size_bytes: int, wanted_bytes: int) -> bool:
    """Whether a size is as good as the percentage of the RAM that was just calculated."""
    return abs(size_bytes - wanted_bytes) < wanted_bytes * _SAME_SHARE


def new_size(request: VolumeRequest, live: LiveVolume, unchanged: list[Unchanged]) -> int:
    """Return the size of a volume that is already mounted, in whole pages; note what stays.

    Raises ``Refused`` if less is asked for than it holds, or if it has no limit, because a remount
    cannot set one.
    """
    if not live.size_bytes:
        raise Refused(
            f"{live.path} has no size limit, as after `mount -o remount,size=0`, and the kernel"
            " does not set one at a remount; nothing was changed.",
            f"unstage what is in it (`hostprep status` shows what), `hostprep unmount"
            f" {shlex.quote(live.path)}`, and run the same command again",
        )
    size_bytes = whole_pages(request.size_bytes)
    if request.of_ram and is_same_share(live.size_bytes, size_bytes):
        has, asked = format_bytes(live.size_bytes), format_bytes(size_bytes)
        if has != asked:
            reason = f"it is {has}, within {_SAME_SHARE:.0%} of the {asked} that were asked for"
            unchanged.append(Unchanged(f"size of {live.path}", reason))
        return live.size_bytes
    if size_bytes >= live.size_bytes:
        return size_bytes
    if not request.allow_shrink:
        reason = f"it is {format_bytes(live.size_bytes)}, which is enough"
        unchanged.append(Unchanged(f"size of {live.path}", reason))
        return live.size_bytes
    if size_bytes < live.used_bytes:
        raise NoRoom(
            f"{live.path} holds {format_bytes(live.used_bytes)} ({live.used_bytes} bytes), so it"
            f" cannot shrink to {format_bytes(size_bytes)} ({size_bytes} bytes); nothing was"
            " changed.",
            "remove data from it first, for instance with `hostprep unstage`",
        )
    return size_bytes


def new_inodes(
    request: VolumeRequest,
    facts: VolumeFacts,
    live: LiveVolume,
    size_bytes: int,
    unchanged: list[Unchanged],
) -> int:
    """Return the inodes of a volume that is already mounted: never fewer than it has.

    If no number is asked for, also no fewer than hostprep set, so that a remount by hand with fewer
    is undone. Notes in ``unchanged`` if it has more than were asked for. Raises ``Refused`` if it
    has no limit, because a remount cannot set one.
    """
    if live.inodes is None:
        raise Refused(
            f"{live.path} has no inode limit, though hostprep mounted it with one, and the"
            " kernel does not set one at a remount; nothing was changed.",
            "unmount it and mount it again",
        )
    if request.inodes is not None and request.inodes < live.inodes:
        reason = (
            f"{format_count(live.inodes)} are allowed, more than the"
            f" {format_count(request.inodes)} that must fit at least; hostprep takes none away."
            " Unmount the volume and mount it again for fewer"
        )
        unchanged.append(Unchanged(f"inodes of {live.path}", reason))
    if request.inodes is not None:
        return max(live.inodes, request.inodes)
    recorded = facts.record.inodes if facts.record is not None else 0
    grown = default_inodes(size_bytes) if size_bytes > live.size_bytes else 0
    return max(live.inodes, recorded, grown)


def making_writable(path: str, options: Iterable[str]) -> str:
    """Return the command that makes a read-only volume writable and keeps its other ``options``.

    If only the path is given, mount(8) adds options from fstab, such as the size. With the source
    as well, it takes only those on the command line, so all that should stay must be there.
    """
    kept = [option for option in options if option in KEPT_AT_REMOUNT - {"ro"}]
    words = ",".join(dict.fromkeys(["remount", "rw", *FLAGS, *kept]))
    return f"mount -o {words} {SOURCE} {shlex.quote(path)}"


def read_only_warnings(live: LiveVolume, mode: int, owner: tuple[int, int]) -> tuple[str, ...]:
    """Return warnings if a mounted volume is read-only: somebody did that, and it stays.

    Raises ``Refused`` if its mode or owner is not the wanted one, because they cannot be changed.
    """
    if "ro" not in live.options:
        return ()
    writable = making_writable(live.path, live.options)
    if (mode, owner) != (live.mode, (live.uid, live.gid)):
        raise Refused(
            f"{live.path} is mounted read-only, so its mode and owner cannot change; nothing was"
            " changed.",
            f"{writable}, if it may be written to",
        )
    return (
        f"{live.path} is mounted read-only, and stays so: nothing can be staged into it, or removed"
        f" from it, before `{writable}`",
    )


@dataclass(frozen=True, slots=True)
class LineSettings:
    """What a line in fstab says about a volume's root folder and huge pages; None: nothing."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    huge: Huge | None = None


def line_settings(facts: VolumeFacts) -> LineSettings:
    """Return what the volume's line in fstab says, as far as a kernel understands it."""
    entry = facts.fstab_entry
    if entry is None:
        return LineSettings()
    said, named = parse_options(entry.options), {each.partition("=")[0] for each in entry.options}
    uid, gid = facts.line_owner
    return LineSettings(
        # Without a mode it would be 1777 at the next boot, which no line of ours means.
        said.mode if "mode" in named and said.mode >= 0 else None,
        first_known(said.uid, otherwise=uid) if "uid" in named else None,
        first_known(said.gid, otherwise=gid) if "gid" in named else None,
        Huge(said.huge) if said.huge in {*Huge} else None,
    )


def kept_settings(request: VolumeRequest, facts: VolumeFacts) -> LineSettings:
    """Return the fstab line's settings that stay because the request does not set them."""
    return line_settings(facts) if request.keep_line else LineSettings()


def first_known(*values: Known | None, otherwise: Known) -> Known:
    """Return the first of ``values`` that is not None."""
    return next((value for value in values if value is not None), otherwise)


def mount_options(
    size_bytes: int,
    inodes: int,
    mode: int,
    owner: tuple[int, int],
    huge: Huge,
    noswap: bool,
    labels: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the mount options, sizes in bytes; ``labels`` are SELinux's."""
    return (
        *FLAGS,
        f"mode={mode:04o}",
        f"uid={owner[0]}",
        f"gid={owner[1]}",
        f"size={size_bytes}",
        f"nr_inodes={inodes}",
        *((f"huge={huge}",) if huge is not Huge.NEVER else ()),
        *(("noswap",) if noswap else ()),
        *labels,
    )


def boot_options(
    request: VolumeRequest, facts: VolumeFacts, size_bytes: int, inodes: int, noswap: bool
) -> tuple[str, ...]:
    """Return what the fstab line of a mounted volume should say."""
    live, line = facts.live, kept_settings(request, facts)
    assert live is not None
    return mount_options(
        size_bytes,
        inodes,
        first_known(request.mode, line.mode, otherwise=live.mode),
        (
            first_known(request.uid, line.uid, otherwise=live.uid),
            first_known(request.gid, line.gid, otherwise=live.gid),
        ),
        first_known(request.huge, line.huge, otherwise=live.huge),
        noswap,
        facts.labels,
    )


def huge_pages(request: VolumeRequest, facts: VolumeFacts) -> Huge:
    """Return the huge pages to mount with; ``Refused`` if the kernel does not support them."""
    if request.huge is None:
        kept = None if facts.support.huge is False else kept_settings(request, facts).huge
        default = Huge.WITHIN_SIZE if facts.support.huge else Huge.NEVER
        return first_known(kept, otherwise=default)
    if request.huge is not Huge.NEVER and facts.support.huge is False:
        raise Refused(
            f"this kernel does not take huge={request.huge} for a tmpfs; nothing was changed.",
            "leave --huge out",
            spec_hint="leave `huge` out",
        )
    return request.huge


def whole_pages(size_bytes: int) -> int:
    """Round up to whole pages, as the kernel does."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
