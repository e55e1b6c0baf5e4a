"""``hostprep``, and ``python -m hostprep``: an interruption counts from the first moment on.

Imports as little as can be, so that nearly all of the start lies where Ctrl-C is understood.
"""

from __future__ import annotations

import signal
from typing import NoReturn

from hostprep.system.interruption import INTERRUPTIONS, as_keyboard_interrupt


def main() -> NoReturn:
    """Run the command line; end with 130 also where that was interrupted before it was loaded."""
    try:
        with as_keyboard_interrupt():
            from hostprep.cli.main import main as command_line

            command_line()
    except KeyboardInterrupt:
        for number in INTERRUPTIONS:
            signal.signal(number, signal.SIG_IGN)  # or a second one would end this
        from hostprep.cli.main import interrupted

        interrupted()


if __name__ == "__main__":
    main()
