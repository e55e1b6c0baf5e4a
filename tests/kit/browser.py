"""A headless Chromium, driven through the DevTools protocol over two pipes: no port, no driver."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_SECONDS = 60.0


def chromium() -> str:
    """Return the browser's path; skip the test with the reason where there is none.

    Ubuntu's package has a script of that name, which only says how to get the snap.
    """
    for name in _NAMES:
        path = shutil.which(name)
        if path and not subprocess.run([path, "--version"], capture_output=True).returncode:
            return path
    pytest.skip("no Chromium here: apt-get install chromium")


class Page:
    """A tab: everything that it logged, raised or asked the network for is kept in ``events``."""

    def __init__(self, write_fd: int, read_fd: int) -> None:
        self._write, self._read = write_fd, read_fd
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, url: str, *, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        """Show ``url`` in a window of this width, in the colours of day or night."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.named("Page.loadEventFired"):
            self._receive(deadline)

    def evaluate(self, expression: str) -> Any:
        """Return what the JavaScript expression gives in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """Save the whole page, below the window's edge too."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def named(self, method: str) -> list[dict[str, Any]]:
        """Return the events of this name since the page was opened."""
        return [event["params"] for event in self.events if event["method"] == method]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._read], [], [], left)[0], "no answer in time"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def browser() -> Iterator[Page]:
    """Run a browser of one's own, with an empty profile, for the length of the body."""
    path = chromium()
    to_browser, our_write = os.pipe()
    our_read, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = (
            "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
            f" --disable-background-networking --remote-debugging-pipe --user-data-dir={profile}"
        )
        process = subprocess.Popen(
            # The protocol's pipes must be 3 and 4, which only a shell can arrange simply.
            ["bash", "-c", f"exec {path} {flags} 3<&{to_browser} 4>&{from_browser}"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(our_write, our_read)
        finally:
            os.killpg(process.pid, 9)
            process.wait(30)
            os.close(our_write)
            os.close(our_read)
