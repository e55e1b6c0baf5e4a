"""The target: whether it is still the intended place, and where copies grow until complete."""
