"""Why a host failed, from the words of Ansible, ssh, sudo and the host; and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNREACHABLE = "cannot be reached"
_NEEDS_WAY = (
    " -> see whether it is up, and what the inventory says of how it is reached (ansible_host,"
    " ansible_user); no ansible.cfg is read"
)
_LOST = "the connection to it was lost"
_NEEDS_AGAIN = (
    " -> it may still be at work on this; once it is up, the same command goes on from there"
)
# Ansible's message if this machine has no ssh, which reads as if the host were broken.
_WITHOUT_SSH = "Unable to execute ssh command line on a controller"
_NEEDS_SSH = (
    "ssh is not installed on this machine, and hosts are reached by it"
    " -> install it here: apt-get install openssh-client"
)

# About encrypted values, without a vault password and with a wrong one.
_VAULT_CURES = (
    (
        re.compile(r"no vault secrets found"),
        "name a file that holds the vault's password: ANSIBLE_VAULT_PASSWORD_FILE; no ansible.cfg"
        " is read",
    ),
    (
        re.compile(r"no vault secrets were found that could decrypt"),
        "the password is not the one in the file that ANSIBLE_VAULT_PASSWORD_FILE names",
    ),
)
_PROMPTING = "waiting for privilege escalation prompt"
# Messages of Ansible, the host's shell or sudo, and what to do; the first match counts.
_CURES = (
    # Ansible's messages about sudo, and about su, which waits for a password nobody will type. The
    # last is sudo's own, which Ansible passes on without ssh (ansible_connection=local).
    (
        re.compile(rf"Missing \w+ password|{_PROMPTING}|a password is required"),
        "name a file that holds the password: ANSIBLE_BECOME_PASSWORD_FILE",
    ),
    (
        re.compile(r"Incorrect \w+ password"),
        "correct it in the inventory (ansible_become_password) or, if it is not there, in the file"
        " that ANSIBLE_BECOME_PASSWORD_FILE names",
    ),
    (
        re.compile(r"is not in the sudoers file|is not allowed to (run sudo|execute)"),
        "let the user who logs in become root there, or log in as another one: ansible_user",
    ),
    # From ssh, which must not ask here.
    (
        # It may only warn of that (ANSIBLE_HOST_KEY_CHECKING), with whatever else is said later.
        re.compile(
            r"HOST IDENTIFICATION HAS CHANGED.*(Host key verification failed|Permission denied \()",
            re.DOTALL,
        ),
        "only if that host was installed anew, remove its old key as ssh says above and log in"
        " once by hand; if it was not, another machine may be answering in its place",
    ),
    (
        re.compile(r"Host key verification failed"),
        "ssh does not know the key of this host: log in once by hand, as the user who runs this,"
        " and see that the key is the host's own",
    ),
    (
        re.compile(r"Permission denied \([a-z][\w,-]*\)"),
        "see who logs in (ansible_user) and by what: ANSIBLE_PRIVATE_KEY_FILE names a key, of which"
        " ssh-agent has to know the passphrase if it has one, ANSIBLE_CONNECTION_PASSWORD_FILE a"
        " file that holds the password; no ansible.cfg is read",
    ),
    # At a user's login, and from sudo.
    (
        re.compile(r"password (has|is) expired"),
        "log in there by hand, and give the user a new one",
    ),
    # From Ansible, about a task that has an hour; the second form is from before ansible-core 2.19.
    (
        re.compile(r"Timed out after \d+ second\(s\)|in the expected time frame \(\d+\)"),
        "something hangs there, and what was begun may go on: log in by hand, and see what is in"
        " state D (ps -eo pid,stat,args)",
    ),
    # From sudo with requiretty; pipelining gives it no terminal.
    (re.compile(r"must have a tty to run"), "give it one: ANSIBLE_PIPELINING=false"),
    *_VAULT_CURES,
    # About a template in the inventory; the message does not say where it is. The second form is
    # from before ansible-core 2.19.
    (
        re.compile(r"^(Task failed|The task includes an option).*'\w+' is undefined", re.DOTALL),
        "a template of the inventory names it, and this host has no variable of that name: see what"
        " uses it there, and in which group it is set",
    ),
    (
        re.compile(r"Invalid become method specified"),
        "see ansible_become_method in the inventory: sudo and su are there, any other is in a"
        " collection of Ansible's, to be installed on this machine",
    ),
    # From a host without Python, or without the one that was named; the second form is from before
    # ansible-core 2.19.
    (
        re.compile(r"module interpreter '.*' was not found|need to set the interpreter"),
        "Ansible needs Python: install python3 on the host, or name the Python that it has:"
        " ansible_python_interpreter",
    ),
    (
        re.compile(r"requires a minimum of Python version"),
        "install a later Python on the host, and name it: ansible_python_interpreter",
    ),
)
# From the host's dd or Python: Ansible copies modules and files there before anything else.
_WITHOUT_ROOM = "No space left on device"
_NEEDS_ROOM = "make room on the host: `df -h` there shows which file system is full"
# From the host's shell, whichever that is.
_WITHOUT_SUDO = re.compile(r"\b(sudo|su|doas|pfexec): (?:command )?not found")
_NEEDS_SUDO = (
    "{0} is not installed there, and is needed to become root ->"
    " install it on the host, log in as root (ansible_user), or name what there is"
    " (ansible_become_method)"
)


def why_unreachable(words: str, task: str, *, reached: bool) -> str:
    """Return why a host cannot be reached; ``reached``: it had answered before this ``task``."""
    words = with_cure(words).rstrip(" :")  # from ssh, with nothing after the colon
    if reached:
        return f"{_LOST} in the step `{task}`: {words}{_NEEDS_AGAIN}"
    return f"{_UNREACHABLE}: {words}{'' if ' -> ' in words else _NEEDS_WAY}"


def why_failed(words: str) -> str:
    """Return why a task failed; hostprep's own words have their cure, and may quote anything."""
    return words if " -> " in words else with_cure(words)


def waits_for_password(words: str) -> bool:
    """Whether su waits for a password: ansible-core since 2.19 calls such a host unreachable."""
    return _PROMPTING in words


def vault_cure(words: str) -> str | None:
    """Return what to do if Ansible says that it cannot decrypt something, else None."""
    return _cure_in(_VAULT_CURES, words)


def with_cure(words: str) -> str:
    """Return Ansible's message, with the remedy if one is known."""
    if _WITHOUT_SSH in words and "No such file" in words:
        return _NEEDS_SSH
    if (cure := _cure_in(_CURES, words)) is not None:
        return f"{words} -> {cure}"
    if _WITHOUT_ROOM in words:
        return f"{words} -> {_NEEDS_ROOM}"
    if missing := _WITHOUT_SUDO.search(words):
        return _NEEDS_SUDO.format(missing[1])
    return words


def _cure_in(cures: Iterable[tuple[re.Pattern[str], str]], words: str) -> str | None:
    return next((cure for said, cure in cures if said.search(words)), None)
