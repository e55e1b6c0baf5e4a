"""Imported by the process that forks a loader's workers: all end with the one that measures.

They hold the pipe by which that process is to see the end of who started it, so it never did.
"""

from __future__ import annotations

from hostprep.system.parent import die_with_parent, forks_die_with_us

die_with_parent()
forks_die_with_us()
