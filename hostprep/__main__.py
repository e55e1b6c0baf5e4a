"""``hostprep``, and ``python -m hostprep``, with Ctrl-C handled from the very start.

It imports as little as possible, so that nearly all of the start happens where Ctrl-C is handled.
"""

from __future__ import annotations

import os
import sys


def _shadowed(error: Exception) -> str | None:
    """Return the file from ``PYTHONPATH`` that kept this module from loading, if that is why.

    It imports nothing, because what it imports may be shadowed too. Once the command line is
    loaded, ``cli.main`` reports such modules, and more exactly.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = {os.path.abspath(folder) for folder in named if folder} - {home}
    files = [getattr(error, "filename", None), getattr(error, "path", None)]
    frame = error.__traceback__
    while frame is not None:
        files.append(frame.tb_frame.f_code.co_filename)
        frame = frame.tb_next
    modules = [sys.modules.get(name) for name in sorted(sys.stdlib_module_names)]
    files += [getattr(module, "__file__", None) for module in modules]
    theirs = tuple(f"{folder}{os.sep}" for folder in folders)
    return next((file for file in files if file and os.path.abspath(file).startswith(theirs)), None)


def _give_up(error: Exception) -> None:
    """Exit with a message if another module replaces one of Python's own; otherwise return."""
    if (file := _shadowed(error)) is not None and not os.environ.get("HOSTPREP_DEBUG"):
        sys.exit(
            f"hostprep: PYTHONPATH puts {file} in the place of a module that hostprep needs"
            f" ({type(error).__name__}: {error}).\n"
            "  -> run it without that variable: env -u PYTHONPATH hostprep ..."
        )


try:
    import signal
    from typing import NoReturn

    from hostprep.system.interruption import INTERRUPTIONS, as_keyboard_interrupt, is_interruption
except (KeyboardInterrupt, Exception) as error:
    # Python wraps exceptions that are raised while a class is being created.
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would end this process
        from hostprep.cli.main import interrupted

        interrupted()
    if isinstance(error, Exception):
        _give_up(error)
    raise


def main() -> NoReturn:
    """Run the command line; exit with 130 if it is interrupted, even before it is loaded."""
    try:
        with as_keyboard_interrupt():
            from hostprep.cli.main import main as command_line

            command_line()
    except (KeyboardInterrupt, Exception) as error:
        if isinstance(error, Exception) and not is_interruption(error):
            _give_up(error)
            raise
        for number in INTERRUPTIONS:
            signal.signal(number, signal.SIG_IGN)  # a second one would end this process
        from hostprep.cli.main import interrupted

        interrupted()


if __name__ == "__main__":
    main()
