"""Sized tmpfs volumes: facts in, a plan made by pure code, effects by one executor."""
