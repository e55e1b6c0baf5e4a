"""Install a wheel into a virtual environment.

``install.py VENV WHEELS WHEEL BUILD wheelhouse|index install|predict``. The stamp that names the
build goes first and comes last, so that a run that was broken off leaves none.
"""

import os
import subprocess
import sys

home, wheels, wheel, build, source, action = sys.argv[1:]
if action == "predict":
    sys.exit()
os.umask(0o022)
os.makedirs(home, exist_ok=True)
for name in os.listdir(home):
    if name.startswith("build-"):
        os.unlink(os.path.join(home, name))
pip = [os.path.join(home, "bin", "python3"), "-m", "pip", "--disable-pip-version-check"]
try:
    subprocess.run([*pip, "--version"], check=True)
except (OSError, subprocess.CalledProcessError):  # none yet, or that of an older Python
    subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
where = ["--no-index", "--find-links", wheels] if source == "wheelhouse" else []
wanted = os.path.join(wheels, wheel)
subprocess.run([*pip, "install", "--quiet", *where, "--force-reinstall", wanted], check=True)
subprocess.run([os.path.join(home, "bin", "hostprep"), "--version"], check=True)
with open(os.path.join(home, "build-" + build), "w") as stamp:
    stamp.write(build + "\n")
