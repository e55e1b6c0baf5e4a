"""The ``hostprep`` command: runs the Typer application and maps every outcome to an exit code."""

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
# The modules that hostprep depends on (see pyproject.toml) or that Typer needs to start, and the
# packages that contain them.
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
# Commands that users of other tools often call with one positional argument too many.
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
    _end(_tell(argv, command, Interrupted("interrupted.")))


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
        return  # otherwise Python ignores its variables (-E), and would do so again
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, sys.orig_argv)


def _steady() -> None:
    """Repair what a careless parent process leaves: streams, an encoding, a umask, signals.

    A file that is opened while descriptor 0, 1 or 2 is free would become a standard stream. A
    closed stdout is replaced by one that cannot be written to: a result must not get lost
    unnoticed. Characters that the encoding lacks are written as escapes. Files that root makes are
    writable by nobody else, but readable by everybody, because users who wait for a data set have
    to read them; files that a user makes are not writable by everybody. If SIGCHLD is ignored, the
    kernel keeps no exit status, and every command would seem to have succeeded.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # This takes the lowest free number, which is `descriptor`.
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
        # The next run would refuse records that everybody can write to.
        os.umask(umask | 0o002)


@as_keyboard_interrupt()
def run(argv: list[str]) -> int:
    """Run one command line and return its exit code; print any error that it raises."""
    # A name for the error document, in case the run ends before the command line is parsed.
    command = next((word for word in argv if not word.startswith("-")), "hostprep")
    begin()
    try:
        # Imported here because it is most of the start: Ctrl-C meanwhile is handled below as well.
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
        return _tell(argv, command, error)
    except KeyboardInterrupt:
        return _tell(argv, command, Interrupted("interrupted."))
    except SystemExit as end:  # Typer raises it if the reader of its help has gone
        if isinstance(end.__context__, BrokenPipeError):
            return 0
        raise
    except Exception as error:
        if (code := _conclude(argv, command, error)) is None:
            raise
        return code


def _conclude(argv: list[str], command: str, error: Exception) -> int | None:
    """Report what is not an error of ours, and return the exit code; None if it is to be seen."""
    if lacking := _shadowed(error) or _lacking(error):  # the module may be Typer itself
        return _tell(argv, command, lacking)
    import typer

    if isinstance(error, typer.Exit):
        return error.exit_code
    if is_interruption(error) or isinstance(error, typer.Abort):
        return _tell(argv, command, Interrupted("interrupted."))
    if hasattr(error, "format_message") and hasattr(error, "ctx"):
        return _usage(argv, command, error)
    if os.environ.get("HOSTPREP_DEBUG"):
        return None
    unexpected = HostprepError(
        f"unexpected {type(error).__name__}: {error}",
        "this is a bug in hostprep; HOSTPREP_DEBUG=1 shows where",
    )
    return _tell(argv, command, unwritten() or _nowhere(error) or _refused(error) or unexpected)


def _shadowed(error: Exception) -> HostprepError | None:
    """Return an error if ``PYTHONPATH`` brings in another version of one of our dependencies.

    This happens on clusters whose environment modules set it for their own Python.
    """
    if not isinstance(error, AttributeError | ImportError | SyntaxError | TypeError):
        return None
    if isinstance(error, ModuleNotFoundError) and error.name in _PACKAGES:
        return None  # the module does not exist at all
    file = taken_by_pythonpath(error, _PACKAGES)
    if file is None:
        return None
    return HostprepError(
        f"PYTHONPATH puts {file} in the place of a module that hostprep was installed with"
        f" ({type(error).__name__}: {error}).",
        "run it without that variable: env -u PYTHONPATH hostprep ...",
    )


def _lacking(error: Exception) -> HostprepError | None:
    """Return an error if Python lacks a package that hostprep depends on.

    This happens if hostprep runs from a checkout in an environment made for something else.
    """
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in _PACKAGES:
        return None
    return HostprepError(
        f"this Python has no module {name}, which hostprep needs.",
        f"{pip_line(_PACKAGES[name])}, or hostprep in an environment of its own",
    )


def _nowhere(error: Exception) -> HostprepError | None:
    """Return an error if the current directory does not exist any more."""
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
    """Return an error if a system call failed and the code that made it did not handle that."""
    refused = failed_by_host(error)
    if refused is not None:
        refused.hint = f"{refused.hint}; HOSTPREP_DEBUG=1 shows where"
    return refused


def _tell(argv: list[str], command: str, error: HostprepError) -> int:
    """Print the error that ended the run, also in the format asked for; return its exit code."""
    # If the report was to go into a file, stdout gets no Nagios line.
    as_nagios = "nagios" in _given(argv, "--format") and {"-"}.issuperset(_given(argv, "--output"))
    emit_error(command, error, as_json=_wants_json(argv), as_nagios=as_nagios)
    return error.exit_code


def _wants_json(argv: list[str]) -> bool:
    # `--json=yes` is a mistake, but whoever wrote it expects a document.
    flag = any(word.partition("=")[0] == "--json" for word in argv)
    return flag or "json" in _given(argv, "--format")


def _given(argv: list[str], option: str) -> list[str]:
    """Return the values given to an option in a command line that may not be valid."""
    apart = [then for first, then in itertools.pairwise(argv) if first == option]
    return apart + [word.partition("=")[2] for word in argv if word.startswith(f"{option}=")]


def _usage(argv: list[str], command: str, error: Any) -> int:
    """Report a mistake that the command line parser found."""
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if option == "--force":
        # --forget is similar only in spelling: it keeps the copies that the user wants removed.
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
    # If an option lacks its value, the parser does not say which command it belongs to.
    path = context.command_path if context is not None else f"hostprep {command}"
    hint = f"see `{path.removesuffix(' hostprep')} --help`"
    if "unexpected extra argument" in message and command in _NO_ARGUMENT:
        hint = f"{_NO_ARGUMENT[command]}; {hint}"
    if option is not None and context is not None and context.parent is None and command in argv:
        hint = f"options of a command come after it: `hostprep {command} {option}`"
    if context is not None and message == context.get_help() and not _wants_json(argv):
        say(message)  # no command was named: print just the help
        return UsageError.exit_code
    return _tell(argv, command, UsageError(message, hint))
