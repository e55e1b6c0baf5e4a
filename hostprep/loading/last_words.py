"""What the user's code said when it failed: the exception in one line, and where it was raised."""

from __future__ import annotations

import itertools
import re
import sysconfig

_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + "/"
_NOT_THEIRS = ("/torch/", "/tensorflow/", "/nvidia/dali/", "/hostprep/", _STANDARD_LIBRARY)
# As `warnings` prints one: where, what, and below it the line of source.
_WARNING = re.compile(r"^\S.*:\d+: \w*Warning: .*\n(?:  \S.*\n?)?", re.M)


def essence(kind: str, text: str) -> str:
    """Return an exception in one line; if a worker passed one on, the worker's own."""
    lines = [line.strip() for line in own_words(text).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if first.endswith(":"):  # DALI quotes the pipeline below it, then says what is wrong
        last = max(number for number, line in enumerate(lines) if line.endswith(":"))
        first = " ".join([first, *lines[last + 1 : last + 2]])
    if not is_workers(text):
        first = f"{kind}: {first}" if first else kind
    return first[:300].rstrip(".")


def is_workers(text: str) -> bool:
    """Return whether an exception was raised in a worker, which passed it on as text."""
    return text.startswith("Caught ") and "\nOriginal Traceback" in text


def own_words(text: str) -> str:
    """Return what an exception says; a worker's comes with a traceback, after which it stands."""
    if not is_workers(text):
        return text
    lines = text.splitlines()
    last_frame = max((n for n, line in enumerate(lines) if line.startswith('  File "')), default=0)
    after = lines[last_frame + 1 :]
    # Below a frame are the indented lines of code that it quotes; nothing after them is indented.
    words = itertools.dropwhile(lambda line: line.startswith("  "), after)
    return "\n".join(words)


def where(trace: str) -> str | None:
    """Return the place in the user's code: the last frame outside the frameworks and hostprep."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    outside = [
        f"{path}:{line}"
        for path, line in frames
        if not any(part in path for part in _NOT_THEIRS) and not path.startswith("<")
    ]
    return f"see {outside[-1]}" if outside else None


def last_line(stderr: str) -> str:
    """Return the last line of stderr, "" if there is none; warnings are no reason to end."""
    lines = _WARNING.sub("", stderr).strip().splitlines()
    return lines[-1].strip()[-300:] if lines else ""
