"""Imported by the process that forks a loader's workers: all then end with the measuring one.

The workers hold the pipe by which that process would notice the end of its parent, so by itself it
never did.
"""

from __future__ import annotations

from hostprep.system.parent import die_with_parent, forks_die_with_us

die_with_parent()
forks_die_with_us()
