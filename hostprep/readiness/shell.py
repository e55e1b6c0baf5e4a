"""Quoting for a shell, so that a remedy can be pasted whatever the names of paths are."""

from __future__ import annotations

import os
import shlex


def quote(word: str) -> str:
    """Return ``word`` as one bash word; unprintable characters become escapes in ``$'...'``."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}"
        for byte in os.fsencode(word)
    )
    return f"$'{escaped}'"
