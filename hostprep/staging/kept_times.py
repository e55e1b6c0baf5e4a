"""What happens to a file's time on a file system with coarser times or a smaller range."""

from __future__ import annotations

# The grain of times: NTFS and SMB 100 ns, UDF 1 us, exFAT 10 ms, ext3 and HFS+ 1 s, FAT 2 s. Then
# the first and last second of ext3 and XFS, of NFS 3 and Ceph, of FAT and exFAT; the last of ext4,
# and of XFS with bigtime.
_GRAINS_NS = (100, 1000, 10**7, 10**9, 2 * 10**9)
_FIRST_SECONDS = (-(2**31), 0)
_LAST_SECONDS = (2**31 - 1, 2**32 - 1, 4_354_819_199, 2**34 - 2**31 - 1, 2**64 // 10**9 - 2**31)
# FAT keeps local time, so its ends shift by the offset to UTC, in quarters of an hour.
_FAT_SECONDS = (315_532_800, 4_354_819_198)
_ZONE_SECONDS, _FARTHEST_ZONE_SECONDS = 15 * 60, 14 * 60 * 60


def is_kept_time(kept_ns: int, given_ns: int) -> bool:
    """Whether a file system may have turned the time ``given_ns`` into ``kept_ns``."""
    if kept_ns == given_ns:
        return True
    if any(kept_ns == given_ns // grain * grain for grain in _GRAINS_NS):
        return True
    before = given_ns < kept_ns
    seconds, rest = divmod(kept_ns, 10**9)
    away = abs(seconds - _FAT_SECONDS[not before])
    of_a_zone = away <= _FARTHEST_ZONE_SECONDS and away % _ZONE_SECONDS == 0
    return not rest and (of_a_zone or seconds in (_FIRST_SECONDS if before else _LAST_SECONDS))
