"""What a data set may be called: one rule for the spec, the command line and the target."""

from __future__ import annotations

import os

_LONGEST_NAME_BYTES = 200


def name_problem(written: str) -> str | None:
    """Say why a data set cannot be called so, None where it can.

    It becomes the name of a directory: one that is hidden, or that commands take for an option,
    would be none that an admin finds.
    """
    if not written or written in (".", ".."):
        return "is not a name"
    if "/" in written:
        return "holds a slash"
    if not written.isprintable():
        return "holds control characters or others that cannot be shown"
    if written[0] in "-.":
        return f"begins with {written[0]!r}"
    if len(os.fsencode(written)) > _LONGEST_NAME_BYTES:
        return f"is longer than {_LONGEST_NAME_BYTES} bytes"
    return None
