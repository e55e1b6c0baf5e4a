"""Completing what was copied, making it visible, and removing it one day."""
