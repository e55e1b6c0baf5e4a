"""Print what installing hostprep depends on, as JSON: ``survey.py VENV``.

Every run begins with this, so it also removes what interrupted runs have left.
"""

import importlib.util
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time

FOLDERS = ("/tmp", "/var/tmp")
# The names that Ansible gives to folders of wheels, and the age at which one must be an interrupted
# run's: the role removes its own, unless the controller was interrupted or lost the host.
LEFTOVER = re.compile(r"ansible\..+\.hostprep")
LEFTOVER_SECONDS = 24 * 3600


def installed(home):
    """Return the build and version that are installed in ``home`` and work, None for unknown."""
    stamps = [name for name in listing(home) if re.fullmatch("build-[0-9a-f]{16}", name)]
    command = [os.path.join(home, "bin", "hostprep"), "--version"]
    try:
        runs = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None, None
    if runs.returncode != 0:
        return None, None
    said = re.match(rb"hostprep (\d{1,9}(\.\d{1,9}){0,4})", runs.stdout)
    return (
        stamps[0][len("build-") :] if len(stamps) == 1 else None,
        said and said.group(1).decode(),
    )


def listing(home):
    try:
        return os.listdir(home)
    except OSError:
        return []


def temporary():
    """Return a folder for temporary files from which programs can be run."""
    for folder in FOLDERS:
        try:
            if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
                return folder
        except OSError:
            pass
    return os.path.expanduser("~")


def clear_leftovers():
    """Remove the folders of interrupted runs, wherever they are made."""
    for folder in (*FOLDERS, os.path.expanduser("~"), tempfile.gettempdir()):
        for name in filter(LEFTOVER.fullmatch, listing(folder)):
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
                old = time.time() - status.st_mtime > LEFTOVER_SECONDS
                if old and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                    shutil.rmtree(path)
            except OSError:
                pass  # another run has removed it; otherwise it does no harm


clear_leftovers()
version = "{}.{}".format(*sys.version_info)
fits = sys.version_info >= (3, 11)
build, release = installed(sys.argv[1])
answer = {
    "fits": fits,
    "venv": fits and importlib.util.find_spec("ensurepip") is not None,
    "build": build,
    "release": release,
    "temporary": temporary(),
    "target": "-".join((version, platform.machine(), *platform.libc_ver())),
}
print(json.dumps(answer))
