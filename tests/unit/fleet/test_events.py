"""Events become outcomes: what changed, what failed, who was never heard of again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hostprep.fleet.events import Event, Tally, parse_event


def event(kind: str, at: float = 0.0, **fields: Any) -> Event:
    found = parse_event(json.dumps({"event": kind, "time": at, **fields}))
    assert found is not None
    return found


def tally(*events: Event) -> Tally:
    taken = Tally()
    taken.take(event("play", name="Converge", hosts=["a", "b"]))
    for each in events:
        taken.take(each)
    return taken


def test_words_for_people_are_no_events() -> None:
    for line in ("", "PLAY RECAP", '{"task": "x"}', '{"event": "ok"}', "[1]", '"event"', "null"):
        assert parse_event(line) is None


def test_tasks_that_change_are_told_apart_from_those_that_do_not() -> None:
    a, b = tally(
        event("ok", host="a", task="Write the spec", changed=True, diff="-x\n+y\n"),
        event("ok", host="a", task="Look", changed=False),
        event("skipped", host="b", task="Write the spec", changed=True),
        event("stats", hosts=["a", "b"]),
    ).outcomes()
    assert (a.host, a.changed, a.changed_tasks, a.diffs) == (
        "a", True, ("Write the spec",), ("-x\n+y\n",)
    )  # fmt: skip
    assert (b.changed, b.failed, b.message) == (False, False, None)


def test_documents_come_with_the_time_that_their_task_took() -> None:
    document = {"schema": "hostprep.apply/1", "ok": True}
    a, b = tally(
        event("start", 10.0, host="a", task="Converge"),
        event("ok", 14.5, host="a", task="Converge", changed=True, document=document),
        event("start", 20.0, host="a", task="Look"),
        event("ok", 21.0, host="a", task="Look"),
        event("stats"),
    ).outcomes()
    assert a.documents == (document,)
    assert (a.started_at, a.ended_at) == (10.0, 14.5)
    assert (b.started_at, b.ended_at, b.documents) == (None, None, ())


def test_a_controller_without_ssh_is_told_what_to_install() -> None:
    said = "Task failed: Unable to execute ssh command line on a controller: [Errno 2] No such file"
    a, b = tally(
        event("failed", host="a", task="Look", message=f"{said} or directory: b'ssh'"),
        event("failed", host="b", task="Look", message=said.replace("No such", "Not our")),
        event("stats"),
    ).outcomes()
    assert a.message == (
        "ssh is not installed on this machine, and hosts are reached by it"
        " -> install it here: apt-get install openssh-client"
    )
    assert b.failed and str(b.message).startswith("Task failed")


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("/bin/sh: 1: sudo: not found", "sudo"),  # dash
        ("bash: line 1: sudo: command not found", "sudo"),
        ("sh: doas: not found", "doas"),  # BusyBox
    ],
)
def test_a_host_without_sudo_is_told_so_and_what_to_do(said: str, what: str) -> None:
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert (a.message or "").startswith(f"{what} is not installed there")
    assert "ansible_become_method" in (a.message or "")


@pytest.mark.parametrize(
    "said",
    [
        "Task failed: Missing sudo password",
        "Task failed: Timeout (12s) waiting for privilege escalation prompt:",  # su's
        "Task failed: Premature end of stream waiting for become success.\n"
        ">>> Standard Error\nsudo: a password is required",
    ],
)
def test_a_host_whose_sudo_wants_a_password_is_told_how_to_give_one(said: str) -> None:
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert (
        a.message == f"{said} -> name a file that holds the password: ANSIBLE_BECOME_PASSWORD_FILE"
    )


def test_a_login_that_works_is_not_called_out_of_reach_because_su_wants_a_password() -> None:
    said = "Task failed: Timeout (12s) waiting for privilege escalation prompt:"
    a, _ = tally(event("unreachable", host="a", task="L", message=said), event("stats")).outcomes()
    assert (a.failed, a.unreachable) == (True, False)
    assert (a.message or "").startswith(f"{said} -> name a file that holds the password: ")


def test_a_host_whose_sudo_was_given_another_password_is_told_where_it_may_stand() -> None:
    said = "Task failed: Incorrect sudo password"
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert a.message == (
        f"{said} -> correct it in the inventory (ansible_become_password) or, if it is not there,"
        " in the file that ANSIBLE_BECOME_PASSWORD_FILE names"
    )


def test_a_host_whose_sudo_does_not_know_who_logs_in_is_told_what_it_takes() -> None:
    said = "bob is not in the sudoers file."
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert a.message == (
        f"{said} -> let the user who logs in become root there, or log in as another one:"
        " ansible_user"
    )


def test_a_host_whose_sudo_wants_a_terminal_is_told_how_to_give_one() -> None:
    said = "sudo: sorry, you must have a tty to run sudo"
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert a.message == f"{said} -> give it one: ANSIBLE_PIPELINING=false"


def test_a_host_whose_disk_is_full_is_told_where_to_look() -> None:
    said = "failed to transfer file to /here /there:\ndd: error: No space left on device"
    told = f"{said} -> fix it, and run again"
    a, b = tally(
        event("failed", host="a", task="Unpack", message=said),
        event("failed", host="b", task="Converge", message=told),
        event("stats"),
    ).outcomes()
    assert a.message == (
        f"{said} -> make room on the host: `df -h` there shows which file system is full"
    )
    assert b.message == told


def test_what_hostprep_says_of_a_host_with_its_cure_is_given_no_other() -> None:
    """Root may not read a folder of a server's, and ssh says alike of whom it does not let in."""
    said = "dataset images: the system refused: Permission denied (train). -> dmesg may say more"
    a, _ = tally(event("failed", host="a", message=said), event("stats")).outcomes()
    assert a.message == said


def test_a_host_whose_python_is_too_old_for_ansible_is_told_what_to_do() -> None:
    said = "ansible-core requires a minimum of Python version 3.8. Current version: 3.7.3"
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert a.message == (
        f"{said} -> install a later Python on the host, and name it: ansible_python_interpreter"
    )


@pytest.mark.parametrize(
    "said",
    [
        "The module interpreter '/usr/bin/python3' was not found.\n/bin/sh: 1: not found",
        # And the ssh that has let somebody in, as where keys are not to be checked.
        "The module interpreter '/usr/bin/python3' was not found.\n@ WARNING: REMOTE HOST"
        " IDENTIFICATION HAS CHANGED! @\n/bin/sh: 1: not found",
        # ansible-core 2.15
        "The module failed to execute correctly, you probably need to set the interpreter.",
    ],
)
def test_a_host_without_python_is_told_what_to_do(said: str) -> None:
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert a.message == (
        f"{said} -> Ansible needs Python: install python3 on the host, or name the Python that it"
        " has: ansible_python_interpreter"
    )


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        (
            "Attempting to decrypt but no vault secrets found.",
            "name a file that holds the vault's password: ANSIBLE_VAULT_PASSWORD_FILE; no"
            " ansible.cfg is read",
        ),
        (
            "Decryption failed (no vault secrets were found that could decrypt).",
            "the password is not the one in the file that ANSIBLE_VAULT_PASSWORD_FILE names",
        ),
    ],
)
def test_a_host_whose_variables_are_encrypted_is_told_of_the_password(said: str, cure: str) -> None:
    told = f"{said} -> {cure}"
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert a.message == told
    a, _ = tally().outcomes(said)  # as of a file of variables that is encrypted as a whole
    assert a.message == f"the run ended before this host was done: {told}"


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("Task failed: 'big' is undefined", "a template of the inventory names it"),
        (
            "Task failed: Invalid become method specified, could not find matching plugin: 'doas'.",
            "see ansible_become_method in the inventory",
        ),
    ],
)
def test_a_host_that_the_inventory_says_too_little_of_is_told_where(said: str, cure: str) -> None:
    a, _ = tally(event("failed", host="a", task="Look", message=said), event("stats")).outcomes()
    assert (a.message or "").startswith(f"{said} -> {cure}")


def test_a_failed_host_keeps_its_document_and_its_reason() -> None:
    document = {"schema": "hostprep.apply/1", "ok": False, "failed": []}
    a, b = tally(
        event("failed", host="a", task="Converge", changed=True, message="no", document=document),
        event("unreachable", host="b", task="Look", message="timed out"),
        event("stats"),
    ).outcomes()
    assert (a.failed, a.unreachable, a.message, a.documents) == (True, False, "no", (document,))
    assert (b.failed, b.unreachable) == (True, True)
    assert b.message == (
        "cannot be reached: timed out -> see whether it is up, and what the inventory says of how"
        " it is reached (ansible_host, ansible_user); no ansible.cfg is read"
    )


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("Host key verification failed.", "log in once by hand, as the user who runs this, and"),
        (
            "@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "only if that host was installed anew, remove its old key",
        ),
        (
            "@ REMOTE HOST IDENTIFICATION HAS CHANGED! @\na@b: Permission denied (publickey)",
            "only if that host was installed anew, remove its old key",
        ),
        ("a@b: Permission denied (publickey,password).", "ANSIBLE_PRIVATE_KEY_FILE names a key"),
        (
            "WARNING: Your password has expired.",
            "log in there by hand, and give the user a new one",
        ),
    ],
)
def test_whom_ssh_does_not_let_in_is_told_what_to_do_about_that(said: str, cure: str) -> None:
    a, _ = tally(event("unreachable", host="a", task="L", message=said), event("stats")).outcomes()
    told, arrow, hint = (a.message or "").partition(" -> ")
    assert (told, arrow) == (f"cannot be reached: {said}", " -> ")
    assert cure in hint and "whether it is up" not in hint


def test_a_host_that_is_lost_at_work_is_not_said_to_be_out_of_reach_from_the_first() -> None:
    a, b = tally(
        event("ok", host="a", task="Look", reached=True),
        event("ok", host="b", task="See that the inventory is right", reached=False),
        event("unreachable", host="a", task="Converge", message="closed by remote host:"),
        event("unreachable", host="b", task="Converge", message="closed by remote host"),
        event("stats"),
    ).outcomes()
    assert (a.unreachable, b.unreachable) == (True, True)
    assert a.message == (
        "the connection to it was lost in the step `Converge`: closed by remote host -> it may"
        " still be at work on this; once it is up, the same command goes on from there"
    )
    assert (b.message or "").startswith("cannot be reached: closed by remote host")


def test_the_first_failure_tells_why_and_what_failed_is_not_said_to_be_done() -> None:
    a, b = tally(
        event("failed", host="a", task="Install", changed=True, message="no space for the wheels"),
        event("failed", host="a", task="Remove the folder", message="no space for the module"),
        event("failed", host="b", task="Install", message="no"),
        event("unreachable", host="b", task="Remove the folder", message="timed out"),
        event("stats"),
    ).outcomes()
    assert (a.message, a.changed) == ("no space for the wheels", True)
    assert a.changed_tasks == ("Install (in part: it failed)",)
    assert (b.message, b.unreachable, b.changed) == ("no", False, False)


def test_a_run_without_an_end_has_failed_for_all() -> None:
    a, b = tally(event("failed", host="a", task="Look", message="no")).outcomes()
    assert (a.failed, a.message) == (True, "no")
    assert (b.failed, b.message) == (True, "the run ended before this host was done")
    a, b = tally(event("failed", host="a", task="Look", message="no")).outcomes("out of memory")
    assert a.message == "no"
    assert b.message == "the run ended before this host was done: out of memory"


def test_what_could_not_be_predicted_is_said() -> None:
    a, _ = tally(
        event("ok", host="a", task="Converge", changed=True, predicted=False, message="unknown"),
        event("stats"),
    ).outcomes()
    assert (a.predicted, a.message, a.failed) == (False, "unknown", False)
