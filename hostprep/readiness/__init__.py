"""Is this host ready to feed its GPUs: checks, the report over them, and its formats."""
