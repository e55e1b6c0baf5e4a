"""Packages: asked of the host's own database, installed by a package manager that may fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hostprep.converging.model import Kind
from hostprep.converging.packages import (
    PackageFacts,
    PackageTask,
    look_at_packages,
    plan_packages,
)
from hostprep.errors import HostprepError
from hostprep.staging.observer import Silent


def test_this_hosts_own_database_is_asked() -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("this host has no dpkg")
    # Every Debian has an awk, and no package of that name.
    facts = look_at_packages(("dpkg", "awk", "no-such-package-here"))
    assert facts == PackageFacts("apt-get", frozenset({"dpkg", "awk"}))


def test_what_an_installed_package_provides_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After `apt-get install awk` there is mawk, and no package awk: it would never converge."""
    listing = (
        "installed\tmawk\tawk\n"
        "installed\tpostfix\tdefault-mta (= 3.7), mail-transport-agent:any\n"
        "config-files\texim4\teditor\n"
        "installed\tlibc6\t\ninstalled\tlibc6\t\n"
    )
    for name, lines in (("dpkg-query", listing), ("apt-get", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    provided = ("mawk", "awk", "default-mta", "mail-transport-agent", "libc6")
    facts = look_at_packages((*provided, "exim4", "editor", "fio"))
    assert facts == PackageFacts("apt-get", frozenset(provided))


def test_what_is_missing_is_installed_and_the_rest_has_its_reason() -> None:
    there, missing = plan_packages(("fio", "jq"), PackageFacts("apt-get", frozenset({"fio"})))
    assert there.changes == () and there.unchanged[0].reason == "it is installed"
    (change,) = missing.changes
    assert (change.kind, change.subject) == (Kind.PACKAGE, "jq")
    assert missing.task == PackageTask("apt-get", "jq")


def test_without_a_package_manager_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = look_at_packages(("fio",))
    (plan,) = plan_packages(("fio",), facts)
    assert plan.refusal is not None and "neither apt-get nor dnf" in plan.refusal.message


@pytest.mark.parametrize("needs_update", [True, False])
def test_an_index_that_lacks_the_package_is_brought_up_to_date(
    needs_update: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log, index = tmp_path / "log", tmp_path / "index"
    fake = tmp_path / "apt-get"
    fake.write_text(
        "#!/bin/sh\n"
        f'echo "$* $DEBIAN_FRONTEND" >> {log}\n'
        f'case "$*" in *update) touch {index};; *) test -e {index};; esac\n'
    )
    fake.chmod(0o755)
    if not needs_update:
        index.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    PackageTask("apt-get", "jq").carry_out(Silent())
    calls = [line.split() for line in log.read_text().splitlines()]
    assert [call[-2] for call in calls] == (["jq", "update", "jq"] if needs_update else ["jq"])
    assert {call[-1] for call in calls} == {"noninteractive"}
    assert all("Dpkg::Options::=--force-confold" in call for call in calls)


@pytest.mark.parametrize(
    ("manager", "look"), [("dnf", "dnf info jq"), ("apt-get", "apt-cache policy jq")]
)
def test_a_package_that_nobody_has_fails_with_the_tools_words(
    manager: str, look: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / manager
    fake.write_text("#!/bin/sh\necho 'No match for argument' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(HostprepError, match="No match for argument") as caught:
        PackageTask(manager, "jq").carry_out(Silent())
    assert caught.value.hint is not None and caught.value.hint.startswith(f"`{look}` ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("fio-", "remove is disabled", id="a minus at the end: remove it"),
        pytest.param("fi.", "Unable to locate package fi.", id="a regular expression"),
    ],
)
def test_apt_get_itself_removes_nothing_and_takes_a_name_for_nothing_but_a_name(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = shutil.which("apt-get")
    if real is None or shutil.which("fio") is None:
        pytest.skip("this host has no apt-get, or no fio that could be removed")
    acting = tmp_path / "apt-get"
    acting.write_text(f'#!/bin/sh\ncase "$*" in *update) ;; *) exec {real} -s "$@";; esac\n')
    acting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(HostprepError, match=words):
        PackageTask("apt-get", name).carry_out(Silent())
