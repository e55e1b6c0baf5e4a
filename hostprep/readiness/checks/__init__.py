"""The checks, one file each. To add a check, add its file and its fixtures; there is no list.

A check, for instance ``disk_space.py``, defines ``CHECK = Check(...)`` and three things for it:

* ``Facts``: a frozen dataclass of what there is to know, in plain numbers with units in the names.
* ``look(context) -> Facts`` reads them through the ``Context`` only, so that a captured host can
  answer: files by ``context.read("proc/...")``, ``context.root`` for readers that take a root, and
  the context's readers for everything else. Anything that may hang (another user's path, a mount, a
  command) goes through ``context.statvfs``, ``context.ask`` or ``context.command``, which have a
  time limit. If something should be readable but is not, raise ``CannotTell(sentence, what it would
  take)``: that is UNKNOWN, which holds jobs back. If this user, container or virtual machine cannot
  know it by design, that is a SKIP, whose message says that it was not looked at, and how to learn
  it.
* ``judge(facts)`` is pure and yields at least one ``Finding``, one for each subject. If this host
  has nothing to look at, it yields one SKIP that says so, never nothing and never PASS. WARN, FAIL
  and UNKNOWN have a ``Remedy``: commands to paste, in which paths go through
  ``readiness.shell.quote``, and a hint.

A finding's ``message`` is a whole sentence for the admin at 2 a.m.: what is the case, and what
follows. The ``threshold_from`` names a source that one can look up: the spec, a man page, a
vendor's figure. ``Measured.better`` says which direction is better if values can be compared across
time and hosts.

Codes: 001-009 volumes; 010-019 data sets and sources; 020-029 memory, shm, limits; 030-039 CPU;
040-049 disks and pressure; 050-059 GPU; 060-069 clock, torch, rates, measurements of --full.

Fixtures: ``tests/fixtures/readiness/HP041/<verdict>[-name]/`` for each verdict in ``verdicts``,
with captured files below ``root/``, ``given.yml`` (``spec``, and the answers of the context's other
readers) and ``expected.yml`` (the findings in their order: status, subject, and any other field).
``volume_mounted.py`` and ``shm_size.py`` are good models to copy.
"""
