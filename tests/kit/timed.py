"""Tests that hold a measured time against a known one."""

from __future__ import annotations

import pytest

# Another program on the machine, or another virtual machine beside it, may take a processor or the
# disk for some seconds, and no tolerance that still means something bears that. So such a test may
# be tried three times; each try is shown (R). What is wrong with hostprep is so three times.
measures_time = pytest.mark.flaky(reruns=2, reruns_delay=15)
