"""How the smoke test's process tells what it does and finds: lines of JSON behind a mark."""

from __future__ import annotations

import json
import sys
from typing import Any

MARK = "hostprep-verify:"


def tell(what: str, **fields: Any) -> None:
    """Write ``what`` with its fields to stdout, at once.

    On a line of its own, whatever a library has printed there and not ended.
    """
    sys.stdout.write(f"\n{MARK}{json.dumps({'what': what, **fields})}\n")
    sys.stdout.flush()
