"""Sized tmpfs volumes: pure code turns facts into a plan, and one executor carries it out."""
