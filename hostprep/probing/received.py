"""Whether a stored probe, or a file that the user names, can be used. Pure.

A damaged one must cost only its own figures, and not whatever reads it.
"""

from __future__ import annotations

from typing import Any

from hostprep.kinds import (
    all_of,
    is_amount,
    is_count,
    is_flag,
    is_text,
    or_none,
    where_there,
    with_fields,
)


def is_whole(document: Any) -> bool:
    """Return whether all that is read from stored probes is in ``document``, in the right types."""
    return _PROBE(document) and _OPTIONAL(document)


_LINK = with_fields(
    {
        "speed_gt_per_s": is_amount,
        "width": is_count,
        "max_speed_gt_per_s": or_none(is_amount),
        "max_width": or_none(is_count),
        "at": is_text,
        "degraded": is_flag,
        "bytes_per_s": is_amount,
    }
)
_PROBE = with_fields(
    {
        "path": is_text,
        "valid": is_flag,
        "invalid_reasons": all_of(with_fields({"code": is_text, "message": is_text})),
        "device": with_fields(
            {
                "class": is_text,
                "behaviour": is_text,
                "disks": all_of(is_text),
                "link": or_none(_LINK),
            }
        ),
        "mount": with_fields({"target": is_text}),
        "sequential": or_none(with_fields({"bytes_per_s": is_amount})),
        "random_4k": or_none(with_fields({"iops": is_amount})),
        "small_files": or_none(
            with_fields(
                {
                    "files_per_s": is_amount,
                    "bytes_per_s": is_amount,
                    "mean_bytes": is_amount,
                    "source": is_text,
                }
            )
        ),
        "dataset": with_fields(
            {"files": is_count, "complete": is_flag, "size_bytes": or_none(is_count)}
        ),
        "settings": with_fields({}),
    }
)
_OPTIONAL = where_there(
    {
        "id": is_text,
        "time": is_text,
        "epoch": or_none(
            with_fields(
                {
                    "files": is_count,
                    "size_bytes": is_count,
                    "cold_seconds": is_amount,
                    "next_low_seconds": or_none(is_amount),
                    "next_high_seconds": or_none(is_amount),
                    "staged_seconds": or_none(is_amount),
                }
            )
        ),
    }
)
