"""HP060 where the kernel may not be asked for its clock, as below ProtectClock= or in a sandbox."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

# A filter by which adjtimex(2) and clock_adjtime(2) give EPERM; then the rest of the command line.
_FILTERED = """
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN, ALLOW, EPERM = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001
code = [(LOAD, 0, 0, 0), (EQUAL, 2, 0, 305), (EQUAL, 1, 0, 159), (RETURN, 0, 0, ALLOW)]
text = b"".join(struct.pack("HBBI", *line) for line in [*code, (RETURN, 0, 0, EPERM)])
class Program(ctypes.Structure):
    _fields_ = [("lines", ctypes.c_ushort), ("text", ctypes.c_char_p)]
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(5, text)), 0, 0):
    sys.exit(99)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_clock_that_may_not_be_asked_for_was_not_looked_at() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the numbers of the system calls are those of x86-64")
    check = [sys.executable, "-m", "hostprep", "check", "--only", "HP020,HP060", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", _FILTERED, *check], capture_output=True, text=True, check=False
    )
    if done.returncode == 99:
        pytest.skip("no system call can be filtered here")
    found = {each["code"]: each for each in json.loads(done.stdout)["checks"]}
    assert found["HP060"]["status"] == "SKIP", found
    assert "hostprep check --only HP060" in found["HP060"]["message"]
