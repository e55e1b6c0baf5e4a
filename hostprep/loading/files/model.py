"""What is known of the files to load: what each stage takes, and what their storage gives."""

from __future__ import annotations

from hostprep.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Files that could only be read, although a training makes samples of them.

    ``what`` cannot be done here, ``why`` says what is missing, and ``cure`` is the command that
    installs it or measures everything.
    """

    what: str
    why: str
    cure: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of loading a file on one core: seconds and processor seconds a sample."""

    name: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class SideBySide:
    """What several ``readers`` at once got from the storage, and how many processors they used.

    ``files`` is how many were read, or tried.
    """

    readers: int
    files: int
    files_per_s: float
    cpus: float


@dataclass(frozen=True, slots=True)
class Stages:
    """What samples of the user's files took, stage by stage.

    ``stages`` are ``read_cold`` (after the file was evicted from the page cache), ``read_warm``,
    ``read_as_is`` (other files, cached or not), ``decode``, ``resize`` and ``collate``. ``storage``
    is what the kernel says the files lie on. ``problem`` names one of the ``unreadable`` files, and
    what is wrong with it. ``side_by_side`` is None if one reader is faster than the processors, or
    if too few files were left. ``relative_error`` is the standard error of what a sample takes in
    all, None if that is not known; ``others_cpus`` is what other programs used meanwhile.
    """

    kind: str
    decoder: str | None
    samples: int
    unreadable: int
    problem: str
    mean_file_bytes: int
    sample_bytes: int
    stages: tuple[Stage, ...]
    storage: str
    storage_reason: str
    side_by_side: SideBySide | None = None
    relative_error: float | None = None
    others_cpus: float = 0.0

    def stage(self, name: str) -> Stage:
        """Return the stage of that name."""
        return next(stage for stage in self.stages if stage.name == name)
