"""What tests of single parts share: examples that hypothesis thinks of may take any time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long one takes says nothing of what is tested: another program may have had the processor.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
