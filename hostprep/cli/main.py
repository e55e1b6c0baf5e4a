"""The ``hostprep`` command: runs the Typer application and maps every end to its exit code."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import itertools
import os
import re
import signal
import sys
import threading
from typing import Any, NoReturn

from hostprep.cli.output import begin, emit_error, say, unwritten
from hostprep.errors import HostprepError, Interrupted, UsageError, failed_by_host
from hostprep.system.interruption import as_keyboard_interrupt, is_interruption
from hostprep.system.python import pip_line, taken_by_pythonpath

_COLLECT_AFTER = 50_000
# The modules of what pyproject.toml has as dependencies, and of what Typer needs to start; and the
# packages that have them.
_PACKAGES = {
    "typer": "typer",
    "click": "click",
    "shellingham": "shellingham",
    "annotated_doc": "annotated-doc",
    "typing_extensions": "typing-extensions",
    "rich": "rich",
    "psutil": "psutil",
    "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml",
    "pydantic": "pydantic",
    "xxhash": "xxhash",
    "jinja2": "jinja2",
}
# Of commands that many give a second argument, or a first one, as other tools have it.
_NO_ARGUMENT = {
    "stage": "where to stage to is an option: --to DIR, or --to-tmpfs SIZE",
    "recommend": "what to measure is an option: --dataset DIR, or --loader MODULE:NAME",
}
# What other tools call a dry run: Ansible, Puppet, apt, PowerShell, make and rsync.
_DRY_RUN = frozenset({"--check", "--noop", "--simulate", "--what-if", "-C", "-n"})
# What the parser calls the types of options.
_TYPES = re.compile(r"is not a valid (integer|int range|float range|float)\b")


def main() -> NoReturn:
    """Run the command line in ``sys.argv`` and exit with the code of section "Exit codes"."""
    _speak_utf8()
    _steady()
    # A start makes many objects and no garbage, and the collector would look at them all for it.
    gc.set_threshold(_COLLECT_AFTER)
    _end(run(sys.argv[1:]))


def interrupted() -> NoReturn:
    """Tell of an interruption that came before ``main`` understood it, and exit."""
    _steady()
    argv = sys.argv[1:]
    command = next((word for word in argv if not word.startswith("-")), "hostprep")
    _tell(argv, command, Interrupted("interrupted."))
    _end(Interrupted.exit_code)


def _end(code: int) -> NoReturn:
    if threading.active_count() == 1 and not atexit._ncallbacks():
        # Nothing waits for the end, and to take the interpreter apart takes 10 ms.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError):  # closed, or its reader has gone
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _speak_utf8() -> None:
    """Start over in Python's UTF-8 mode where the locale has another encoding.

    Names in records, specs and digests are text, and the same for every run: with another encoding
    a name would be other text, or could not be had at all.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return  # or Python does not listen to its variables (-E), and would not the next time
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, sys.orig_argv)


def _steady() -> None:
    """Make up for what a careless parent process leaves: streams, an encoding, a umask, signals.

    A file that is opened while 0, 1 or 2 is free would become a standard stream. In place of a
    closed stdout is one that takes nothing: a result must not get lost unnoticed. What an encoding
    does not have is written as an escape. What root makes nobody else can write to and everybody
    can read, as those must who wait for a data set; what a user makes not everybody can write to.
    Where SIGCHLD is ignored the kernel keeps no exit status, and every command would seem to have
    succeeded.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # Takes the lowest number that is free: this one.
            os.open(os.devnull, os.O_RDONLY if descriptor == 1 else os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        sys.stdout = os.fdopen(1, "w", encoding=sys.stdout.encoding, closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    umask = os.umask(0o022)
    if os.geteuid() != 0:
        # Records that everybody can write to would be refused by the next run.
        os.umask(umask | 0o002)


@as_keyboard_interrupt()
def run(argv: list[str]) -> int:
    """Run one command line and return its exit code; what it raises is printed here."""
    # A word to name the document by, should the run end before the commands are known.
    command = next((word for word in argv if not word.startswith("-")), "hostprep")
    begin()
    try:
        # In here, for it is most of the start: Ctrl-C meanwhile is an interruption like any other.
        from hostprep.cli import completion
        from hostprep.cli.app import COMMANDS, app

        if completion.is_asked_for():
            completion.prepare()
        command = next((word for word in argv if word in COMMANDS), "hostprep")
        code = app(args=argv, prog_name="hostprep", standalone_mode=False)
        if code == Interrupted.exit_code:  # Typer has swallowed Ctrl-C and left only the status
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except HostprepError as error:
        _tell(argv, command, error)
        return error.exit_code
    except KeyboardInterrupt:
        _tell(argv, command, Interrupted("interrupted."))
        return Interrupted.exit_code
    except SystemExit as end:  # as Typer does where the reader of its help has gone
        if isinstance(end.__context__, BrokenPipeError):
            return 0
        raise
    except Exception as error:
        if lacking := _shadowed(error) or _lacking(error):  # it may be Typer itself
            _tell(argv, command, lacking)
            return lacking.exit_code
        import typer

        if isinstance(error, typer.Exit):
            return error.exit_code
        if is_interruption(error) or isinstance(error, typer.Abort):
            _tell(argv, command, Interrupted("interrupted."))
            return Interrupted.exit_code
        if hasattr(error, "format_message") and hasattr(error, "ctx"):
            return _usage(argv, command, error)
        if os.environ.get("HOSTPREP_DEBUG"):
            raise
        unexpected = (
            unwritten()
            or _nowhere(error)
            or _refused(error)
            or HostprepError(
                f"unexpected {type(error).__name__}: {error}",
                "this is a bug in hostprep; HOSTPREP_DEBUG=1 shows where",
            )
        )
        _tell(argv, command, unexpected)
        return unexpected.exit_code


def _shadowed(error: Exception) -> HostprepError | None:
    """Return what to say where ``PYTHONPATH`` leads to another of what hostprep is built upon.

    As on a cluster whose modules set it for a Python of their own.
    """
    if not isinstance(error, AttributeError | ImportError | SyntaxError | TypeError):
        return None
    if isinstance(error, ModuleNotFoundError) and error.name in _PACKAGES:
        return None  # it is nowhere at all
    file = taken_by_pythonpath(error, _PACKAGES)
    if file is None:
        return None
    return HostprepError(
        f"PYTHONPATH puts {file} in the place of a module that hostprep was installed with"
        f" ({type(error).__name__}: {error}).",
        "run it without that variable: env -u PYTHONPATH hostprep ...",
    )


def _lacking(error: Exception) -> HostprepError | None:
    """Return what to say where Python lacks a package that hostprep is declared to need.

    As where it runs from a checkout, in an environment that was made for something else.
    """
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in _PACKAGES:
        return None
    return HostprepError(
        f"this Python has no module {name}, which hostprep needs.",
        f"{pip_line(_PACKAGES[name])}, or hostprep in an environment of its own",
    )


def _nowhere(error: Exception) -> HostprepError | None:
    """Return what to say where the kernel names no current directory: it was removed."""
    if not isinstance(error, FileNotFoundError) or error.filename is not None:
        return None
    try:
        os.getcwd()
    except FileNotFoundError:
        return UsageError(
            "the current directory was removed, and with it what a relative path leads to.",
            "change into another (cd /), and run the same command again",
        )
    return None


def _refused(error: Exception) -> HostprepError | None:
    """Return what to say where the host failed a step, whose cause was not known there."""
    refused = failed_by_host(error)
    if refused is not None:
        refused.hint = f"{refused.hint}; HOSTPREP_DEBUG=1 shows where"
    return refused


def _tell(argv: list[str], command: str, error: HostprepError) -> None:
    """Print what ended the run, also in the form that was asked for: a reader waits for it."""
    # Into a file goes the report alone.
    as_nagios = "nagios" in _given(argv, "--format") and {"-"}.issuperset(_given(argv, "--output"))
    emit_error(command, error, as_json=_wants_json(argv), as_nagios=as_nagios)


def _wants_json(argv: list[str]) -> bool:
    # `--json=yes` is a mistake, but its author waits for a document.
    flag = any(word.partition("=")[0] == "--json" for word in argv)
    return flag or "json" in _given(argv, "--format")


def _given(argv: list[str], option: str) -> list[str]:
    """Return what follows an option, in a command line that may not be understood."""
    apart = [then for first, then in itertools.pairwise(argv) if first == option]
    return apart + [word.partition("=")[2] for word in argv if word.startswith(f"{option}=")]


def _usage(argv: list[str], command: str, error: Any) -> int:
    """Report a mistake that the command line parser found."""
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if option == "--force":
        # --forget is alike by its letters alone: it leaves what somebody wanted to be rid of.
        alike = error.possibilities or ()
        error.possibilities = [each for each in alike if each != "--forget"]
    if option in _DRY_RUN and hasattr(error, "possibilities"):
        taken = {name for each in context.command.params for name in each.opts} if context else ()
        if "--dry-run" in taken:
            alike = [each for each in error.possibilities or () if each != "--help"]
            if option == "-n" and "--name" in taken:
                alike.append("--name")
            error.possibilities = ["--dry-run", *alike]
    message = _TYPES.sub(
        lambda found: f"is not a {'whole ' if found[1].startswith('int') else ''}number",
        str(error.format_message()),
    )
    # Of an option without its value the parser does not say to which command it belongs.
    path = context.command_path if context is not None else f"hostprep {command}"
    hint = f"see `{path.removesuffix(' hostprep')} --help`"
    if "unexpected extra argument" in message and command in _NO_ARGUMENT:
        hint = f"{_NO_ARGUMENT[command]}; {hint}"
    if option is not None and context is not None and context.parent is None and command in argv:
        hint = f"options of a command come after it: `hostprep {command} {option}`"
    if context is not None and message == context.get_help() and not _wants_json(argv):
        say(message)  # no command was named: the help alone, which is no sentence
        return UsageError.exit_code
    _tell(argv, command, UsageError(message, hint))
    return UsageError.exit_code
