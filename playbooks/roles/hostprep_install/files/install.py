"""Install a wheel into a virtual environment.

``install.py VENV WHEELS WHEEL BUILD wheelhouse|index install|predict``; predicting changes nothing.
``install.py VENV judge``: if VENV is not hostprep's, says so in a sentence and exits with status 5.

The stamp that names the build is removed first and written last, so that an interrupted run leaves
none. The marker is written before anything else and stays: only with it may the folder be cleared.
An environment that somebody else made gets a stamp, too, but never the marker.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys

MARKER = ".hostprep"
STAMP = re.compile(r"build-[0-9a-f]{16}")
REFUSED = 5
# A virtual environment with hostprep took 66, apart from the wheels that it is made from.
LITTLE_MIB = 100


def listing(home):
    try:
        return os.listdir(home)
    except FileNotFoundError:
        return []


def stamps(home):
    return [name for name in listing(home) if STAMP.fullmatch(name)]


def marked(home):
    """Return whether all in ``home`` is hostprep's."""
    return os.path.lexists(os.path.join(home, MARKER))


def ours(home):
    """Return whether hostprep may be installed in ``home``."""
    if os.path.lexists(home) and not os.path.isdir(home):
        return False
    signs = (os.path.join(home, "pyvenv.cfg"), os.path.join(home, "bin", "hostprep"))
    return not listing(home) or marked(home) or all(os.path.isfile(sign) for sign in signs)


def refuse(home, reason):
    print(
        f"{home} {reason}; nothing in it was changed. -> move it away, or give another folder:"
        " hostprep_install_dir"
    )
    sys.exit(REFUSED)


def judge(home):
    if not ours(home):
        refuse(home, "is there and is not a virtual environment of hostprep's")


def clear(home):
    """Remove all but the marker, without which a run after an interruption could not continue."""
    for entry in os.scandir(home):
        if entry.name == MARKER:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def hold(home):
    """Wait until no other run is at work in ``home``; return what keeps later ones waiting."""
    descriptor = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        pass  # the file system has no locks
    return descriptor


def runs(*command):
    null = subprocess.DEVNULL
    try:
        return subprocess.run(command, stdout=null, stderr=null).returncode == 0
    except OSError:
        return False


def runs_in(home):
    """Return whether some hostprep is installed in ``home`` and works."""
    return runs(os.path.join(home, "bin", "hostprep"), "--version")


def there_already(home, build):
    return stamps(home) == ["build-" + build] and runs_in(home)


def hung_up(*_):
    """The controller was interrupted: nobody is left to remove the folder of wheels.

    Only once, so that the clean-up is not interrupted in turn.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt


def room(home):
    """Return what to add to an error if there is so little room that it may be the reason."""
    try:
        found = os.statvfs(home)
    except OSError:
        return ""
    free = found.f_bavail * found.f_frsize >> 20
    return f"; {free} MiB are free there" if free < LITTLE_MIB else ""


def cure(source, error, little):
    """Return what to do if the installation failed."""
    if source == "index" and "install" in getattr(error, "cmd", ()) and not little:
        return (
            "have pip on the host reach an index that has what it names, or bring the wheels from"
            " the controller: hostprep_install_source: wheelhouse"
        )
    return "fix that on the host, or give another folder: hostprep_install_dir"


def install(home, wheels, wheel, build, source):
    judge(home)
    os.umask(0o022)
    os.makedirs(home, exist_ok=True)
    held = hold(home)
    if there_already(home, build):
        return  # another run has installed it while this one waited
    if not listing(home) or marked(home):
        with open(os.path.join(home, MARKER), "w") as marker:
            marker.write(
                "`hostprep provision` made this folder, and may delete all that is in it.\n"
            )
    # -P: the current directory is the home of the user who logged in, or wherever the controller
    # was started, and root must not run modules from there.
    pip = [os.path.join(home, "bin", "python3"), "-P", "-m", "pip"]
    pip += ["--disable-pip-version-check", "--no-color"]
    # There is no pip, or an older Python's; or an earlier run ended early, on a full disk for
    # instance, and left a pip that only seems to work. If hostprep runs, there is something to
    # lose: pip may have ended because it did not reach its index.
    anew = not runs(*pip, "--version") or (marked(home) and not runs_in(home))
    if anew and not marked(home):
        refuse(home, "has no pip that runs, and may hold more than hostprep")
    for name in stamps(home):
        os.unlink(os.path.join(home, name))
    if anew:
        clear(home)
        subprocess.run([sys.executable, "-P", "-m", "venv", home], check=True)
    where = ["--no-index", "--find-links", wheels] if source == "wheelhouse" else []
    wanted = os.path.join(wheels, wheel)
    subprocess.run([*pip, "install", "--quiet", *where, "--force-reinstall", wanted], check=True)
    subprocess.run([os.path.join(home, "bin", "hostprep"), "--version"], check=True)
    with open(os.path.join(home, "build-" + build), "w") as stamp:
        stamp.write(build + "\n")
    os.close(held)


home, *words = sys.argv[1:]
if words == ["judge"]:
    judge(home)
elif words[-1] == "install":
    # Files that pip leaves when it is stopped are removed with the wheels.
    os.environ["TMPDIR"] = words[0]
    signal.signal(signal.SIGHUP, hung_up)
    try:
        install(home, *words[:-1])
    except KeyboardInterrupt:
        shutil.rmtree(words[0], ignore_errors=True)
        sys.exit(f"hostprep was not installed in {home}: the controller hung up")
    except (OSError, subprocess.CalledProcessError) as error:
        # The failed program has printed its own message above; on a full disk it may be short.
        why, little = str(error).rstrip("."), room(home)
        todo = cure(words[-2], error, little)
        sys.exit(f"hostprep could not be installed in {home}: {why}{little} -> {todo}")
