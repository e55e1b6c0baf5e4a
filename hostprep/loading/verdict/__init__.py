"""From what was measured to what to set, and why; pure."""
