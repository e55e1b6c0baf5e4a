"""The target: still the place that was meant, and where copies grow in it until they are whole."""
