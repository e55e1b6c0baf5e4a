"""Starts the measuring child, follows it, gives it up if need be, and cleans up after it."""
