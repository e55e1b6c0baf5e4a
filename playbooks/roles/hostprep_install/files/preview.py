"""Make hostprep runnable without installing it: ``preview.py FOLDER COMMAND``.

Unpacks the wheels in FOLDER and writes FOLDER/hostprep, which plans for a hostprep that will be
called as COMMAND.
"""

import os
import platform
import shlex
import sys
import zipfile


def fits(wheel):
    """Return whether a wheel fits this machine and this Python, by its name."""
    *_, abi, system = wheel[: -len(".whl")].split("-")
    own = "cp{}{}".format(*sys.version_info)
    return abi in ("none", "abi3", own) and system.endswith(("any", "_" + platform.machine()))


folder, command = sys.argv[1:]
unpacked = os.path.join(folder, "unpacked")
for name in os.listdir(folder):
    if name.endswith(".whl") and fits(name):
        with zipfile.ZipFile(os.path.join(folder, name)) as wheel:
            wheel.extractall(unpacked)
environment = {
    "HOSTPREP_COMMAND": command,
    "PYTHONPATH": unpacked,
    "PYTHONDONTWRITEBYTECODE": "1",
}
words = [f"{name}={value}" for name, value in environment.items()]
words += [sys.executable, "-P", "-m", "hostprep"]
path = os.path.join(folder, "hostprep")
with open(path, "w") as script:
    script.write(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n')
os.chmod(path, 0o755)
