"""From the measurements to what to set, and why; pure."""
