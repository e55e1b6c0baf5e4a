"""How the smoke test's process reports what it does and finds: lines of JSON after a mark."""

from __future__ import annotations

import json
import sys
from typing import Any

MARK = "hostprep-verify:"


def tell(what: str, **fields: Any) -> None:
    """Write ``what`` with its fields to stdout, at once.

    It starts on a new line, even if a library has printed an unfinished line there.
    """
    sys.stdout.write(f"\n{MARK}{json.dumps({'what': what, **fields})}\n")
    sys.stdout.flush()
