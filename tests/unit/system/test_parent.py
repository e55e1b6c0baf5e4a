"""Processes that end with the one that started them, and not before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.kit.processes import alive, gone

_FORKING = """
import os, threading, time
from hostprep.system.parent import forks_die_with_us

forks_die_with_us()

def fork():
    reader, writer = os.pipe()
    if not os.fork():  # and by now it has said with whom it ends
        print(os.getpid(), flush=True)
        os.write(writer, b"1")
        time.sleep(300)
    os.read(reader, 1)

fork()
thread = threading.Thread(target=fork)
thread.start()
thread.join()
print("joined", flush=True)
time.sleep(300)
"""


def test_what_a_thread_forks_outlives_the_thread() -> None:
    """As a pool of workers does that a data set has started in a thread."""
    with subprocess.Popen([sys.executable, "-c", _FORKING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        by_main, by_thread = (int(process.stdout.readline()) for _ in range(2))
        try:
            assert process.stdout.readline() == b"joined\n"
            time.sleep(0.2)
            assert alive(by_thread) and alive(by_main)
        finally:
            process.kill()
            ended = gone(by_main)
            os.kill(by_thread, signal.SIGKILL)
        assert ended
