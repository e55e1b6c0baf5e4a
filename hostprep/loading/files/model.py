"""What is known of the files to be loaded: what each stage takes, and what their storage gives."""

from __future__ import annotations

from hostprep.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Files that could only be read, though a training makes more of them.

    ``what`` cannot be done here, ``why`` says what is missing for it, and ``cure`` is the command
    that installs that or measures the whole.
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
    """What several ``readers`` at once got of the storage, and how many processors they used.

    ``files`` is how many were read, or tried.
    """

    readers: int
    files: int
    files_per_s: float
    cpus: float


@dataclass(frozen=True, slots=True)
class Stages:
    """What a sample of the user's files showed, stage by stage.

    ``stages`` are ``read_cold`` (after the file was taken out of the page cache), ``read_warm``,
    ``read_as_is`` (other files, however they were), ``decode``, ``resize`` and ``collate``.
    ``storage`` is the kernel's word on what the files lie on. ``problem`` names one of the
    ``unreadable`` files, and what is wrong with it. ``side_by_side`` is None where one
    reader is faster than the processors, and where too few files were left. ``relative_error`` is
    the standard error of what a sample takes in all, None where that is not known; ``others_cpus``
    is what other programs took meanwhile.
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
