"""System packages: which are installed, and installing the others with the host's own tool."""

from __future__ import annotations

import shutil

from hostprep.converging.model import Change, Kind, ObjectPlan
from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.staging.observer import Observer
from hostprep.system.locks import lock
from hostprep.system.run import CommandFailed, run, run_undisturbed

# Never remove a package that conflicts with the new one. If no package has the name, apt-get would
# take it for a regular expression and install all matches. A configuration file that the admin has
# changed stays, because nobody is there to be asked.
_APT = (
    *("apt-get", "-q", "-y", "--no-remove"),
    *("-o", "DPkg::Lock::Timeout=300", "-o", "APT::Cmd::Pattern-Only=true"),
    *("-o", "Dpkg::Options::=--force-confold"),
)
_ASK_NOTHING = {"DEBIAN_FRONTEND": "noninteractive"}


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """The package manager here (``apt-get``, ``dnf``; None: neither), and what is installed."""

    manager: str | None
    installed: frozenset[str]


@dataclass(frozen=True, slots=True)
class PackageTask:
    """Installs one package."""

    manager: str
    name: str

    def carry_out(self, observer: Observer) -> None:
        """Install it, after updating the index if the package is not in it.

        A package manager that is killed in the middle leaves packages half-configured, so this
        waits for its end even if interrupted.
        """
        with lock("packages", purpose=f"install {self.name}", on_wait=observer.note):
            if self.manager == "dnf":
                self._run(observer, "dnf", "-q", "-y", "install", self.name)
                return
            try:
                self._run(observer, *_APT, "install", self.name)
            except CommandFailed:
                # A fresh machine has no index, and an old index names files that are gone.
                self._run(observer, *_APT, "update")
                self._run(observer, *_APT, "install", self.name)

    def _run(self, observer: Observer, *words: str) -> None:
        try:
            run_undisturbed(
                words,
                wanted_for=f"install {self.name}",
                env=_ASK_NOTHING,
                on_interrupt=lambda: observer.note(
                    f"interrupted, but {words[0]} must not be stopped half-way: waiting for its end"
                ),
            )
        except CommandFailed as error:
            look = "dnf info" if self.manager == "dnf" else "apt-cache policy"
            error.hint = (
                f"`{look} {self.name}` shows whether the package sources of this host have it"
                " by this name; fix what it reports, and run the same command again"
            )
            raise


def look_at_packages(names: tuple[str, ...]) -> PackageFacts:
    """Ask the host's package database for ``names``; changes nothing."""
    if not names:
        return PackageFacts(None, frozenset())
    if shutil.which("dpkg-query") and shutil.which("apt-get"):
        return PackageFacts("apt-get", frozenset(names) & _in_dpkg())
    if shutil.which("rpm") and shutil.which("dnf"):
        return PackageFacts("dnf", frozenset(filter(_in_rpm, names)))
    return PackageFacts(None, frozenset())


def plan_packages(names: tuple[str, ...], facts: PackageFacts) -> tuple[ObjectPlan, ...]:
    """Return the plan of each package. Pure."""
    return tuple(_plan_package(name, facts) for name in names)


def _plan_package(name: str, facts: PackageFacts) -> ObjectPlan:
    if facts.manager is None:
        refused = Refused(
            f"whether {name} is installed is not known: this host has neither apt-get nor dnf;"
            " nothing was changed.",
            "install it yourself, and take it out of `packages`",
        )
        return ObjectPlan.refused(Kind.PACKAGE, name, refused)
    if name in facts.installed:
        return ObjectPlan.kept(Kind.PACKAGE, name, "it is installed")
    change = Change(Kind.PACKAGE, name, f"install it with {facts.manager}", "it is not installed")
    task = PackageTask(facts.manager, name)
    return ObjectPlan(Kind.PACKAGE, name, changes=(change,), task=task)


def _in_dpkg() -> set[str]:
    """Return all that is installed or provided by that: apt-get accepts both names."""
    # Packages for several architectures have a line each; a removed one may keep a record.
    format_ = "${db:Status-Status}\t${Package}\t${Provides}\n"
    found = run(["dpkg-query", "-W", "-f", format_], wanted_for="see which packages are installed")
    names: set[str] = set()
    for line in found.stdout.splitlines():
        status, _, rest = line.partition("\t")
        package, _, provides = rest.partition("\t")
        if status == "installed":
            names.add(package)
            # mail-transport-agent, default-mta (= 1.0)
            names.update(
                each.split()[0].split(":")[0] for each in provides.split(",") if each.strip()
            )
    return names


def _in_rpm(name: str) -> bool:
    found = run(
        ["rpm", "-q", "--whatprovides", name],
        wanted_for="see which packages are installed",
        ok=range(256),
    )
    return found.returncode == 0
